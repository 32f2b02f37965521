//! Data of nodes and elements.

use super::input::Input;
use crate::AttributeValues;
use crate::io::error::Parsed;
use crate::io::fields::Field;

/// Values by the tags of nodes or elements.
pub(super) struct Table {
    name: String,
    components: usize,
    tags: Vec<u64>,
    values: Vec<f64>,
}

impl Table {
    /// Reads a section: text tags, of which the first is a name, numbers, and integers, of which the
    /// second is the number of components and the third that of rows. Returns `None` for a section
    /// without rows or components.
    pub(super) fn read(input: &mut Input) -> Parsed<Option<Self>> {
        let mut name = String::new();
        let texts: u64 = input.bytes.number("a number of texts")?;
        input.bytes.end_line();
        for place in 0..texts {
            if input.bytes.len() == 0 {
                break;
            }
            let line = input.bytes.end_line();
            if place == 0 {
                let line = line.trim_ascii();
                let line = line.strip_prefix(b"\"").unwrap_or(line);
                let line = line.strip_suffix(b"\"").unwrap_or(line);
                name = String::from_utf8_lossy(line).into_owned();
            }
        }
        let numbers: u64 = input.bytes.number("a number of numbers")?;
        for _ in 0..numbers {
            input.bytes.word("a number")?;
        }
        let integers: u64 = input.bytes.number("a number of integers")?;
        let mut shape = [0_u64; 3];
        for place in 0..integers {
            let value = input.bytes.number("an integer")?;
            if let Some(slot) = usize::try_from(place).ok().and_then(|place| shape.get_mut(place)) {
                *slot = value;
            }
        }
        let [_, components, rows] = shape;
        if components == 0 || components > 9 || rows == 0 {
            return Ok(None);
        }
        input.start();
        let mut table = Self { name, components: components as usize, tags: Vec::new(), values: Vec::new() };
        for _ in 0..rows {
            table.tags.push(input.tag()?);
            for _ in 0..components {
                table.values.push(input.double()?);
            }
        }
        Ok(Some(table))
    }

    /// The values in the order of `rows` elements; `None` if one has none.
    pub(super) fn into_field(self, rows: usize, place: impl Fn(u64) -> Option<usize>) -> Option<Field> {
        // Also a limit on memory: a short table is no reason for a long column.
        if self.tags.len() < rows {
            return None;
        }
        let mut values = vec![0.0; rows.checked_mul(self.components)?];
        let mut has_value = vec![false; rows];
        for (row, &tag) in self.tags.iter().enumerate() {
            if let Some(at) = place(tag).filter(|&at| at < rows) {
                has_value[at] = true;
                let from = row * self.components..(row + 1) * self.components;
                let to = at * self.components..(at + 1) * self.components;
                values[to].copy_from_slice(self.values.get(from)?);
            }
        }
        has_value.iter().all(|&has| has).then_some(Field {
            name: self.name,
            components: self.components,
            values: AttributeValues::F64(values),
            component_names: Vec::new(),
        })
    }
}
