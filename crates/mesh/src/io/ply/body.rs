//! Values after the header, in text or binary.

use super::header::{Element, Kind};
use crate::AttributeValues;
use crate::attribute::with_values;
use crate::io::error::{Fault, FileProblem, Location, Parsed, quote};
use crate::io::scalar::{Scalar, Value};
use crate::io::text::{Lines, Words, number};

/// Position of the element being read.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) element: &'a Element<'a>,
    pub(super) index: u64,
}

/// Sequential access to the values after the header.
pub(super) trait Body {
    /// Starts an element: all values until [`end`](Self::end) belong to it.
    fn begin(&mut self, row: Row) -> Parsed<()>;
    /// Ends an element. Returns the first word after its last value, if there is one.
    fn end(&mut self) -> Option<String>;
    /// The next value, of this type.
    fn value<T: Value>(&mut self, row: Row) -> Parsed<T>;
    /// The next value, of a scalar type, as f64.
    fn float(&mut self, row: Row, scalar: Scalar) -> Parsed<f64>;
    /// The next value, of an integer type.
    fn integer(&mut self, row: Row, scalar: Scalar) -> Parsed<i64>;
    /// Skips values of one type.
    fn skip(&mut self, row: Row, scalar: Scalar, values: u64) -> Parsed<()>;
    /// Skips all elements of one name.
    fn skip_element(&mut self, element: &Element) -> Parsed<()>;
    /// Location of an element.
    fn location(&self, row: Row) -> Location;

    /// Appends the next value to a column of its type.
    fn append(&mut self, row: Row, column: &mut AttributeValues) -> Parsed<()> {
        with_values!(column, values => values.push(self.value(row)?));
        Ok(())
    }

    /// Reads the length of a list.
    fn length(&mut self, row: Row, scalar: Scalar) -> Parsed<u64> {
        let length = self.integer(row, scalar)?;
        u64::try_from(length).map_err(|_| FileProblem::NegativeLength { length }.at(self.location(row)))
    }

    /// Skips a property.
    fn skip_property(&mut self, row: Row, kind: Kind) -> Parsed<()> {
        match kind {
            Kind::Scalar(scalar) => self.skip(row, scalar, 1),
            Kind::List { length, item } => {
                let length = self.length(row, length)?;
                self.skip(row, item, length)
            }
        }
    }
}

/// Elements in text, one per line.
pub(super) struct Ascii<'a> {
    pub(super) lines: Lines<'a>,
    pub(super) words: Words<'a>,
}

impl Ascii<'_> {
    fn word(&mut self, row: Row) -> Parsed<&[u8]> {
        self.words.next().ok_or_else(|| {
            let element = quote(row.element.name);
            FileProblem::TooFewValues { element }.at_line(self.lines.number())
        })
    }
}

impl Body for Ascii<'_> {
    fn begin(&mut self, row: Row) -> Parsed<()> {
        self.words =
            self.lines.next_words().ok_or_else(|| row.element.truncated(row.index).at_line(self.lines.number()))?;
        Ok(())
    }

    fn end(&mut self) -> Option<String> {
        self.words.next().map(quote)
    }

    fn value<T: Value>(&mut self, row: Row) -> Parsed<T> {
        let line = self.lines.number();
        number(self.word(row)?, T::EXPECTED).map_err(|problem| problem.at_line(line))
    }

    /// All digits are kept, even if the header declares `float`.
    fn float(&mut self, row: Row, _: Scalar) -> Parsed<f64> {
        self.value(row)
    }

    fn integer(&mut self, row: Row, _: Scalar) -> Parsed<i64> {
        let line = self.lines.number();
        number(self.word(row)?, "an integer").map_err(|problem| problem.at_line(line))
    }

    fn skip(&mut self, row: Row, _: Scalar, values: u64) -> Parsed<()> {
        for _ in 0..values {
            self.word(row)?;
        }
        Ok(())
    }

    fn skip_element(&mut self, element: &Element) -> Parsed<()> {
        if element.properties.is_empty() {
            return Ok(());
        }
        (0..element.count).try_for_each(|index| self.begin(Row { element, index }))
    }

    fn location(&self, _: Row) -> Location {
        Location::Line(self.lines.number())
    }
}

/// Elements in binary.
pub(super) struct Binary<'a, const LITTLE_ENDIAN: bool> {
    pub(super) rest: &'a [u8],
    pub(super) file_size: usize,
}

impl<'a, const LITTLE_ENDIAN: bool> Binary<'a, LITTLE_ENDIAN> {
    fn truncated(&self, row: Row) -> Box<Fault> {
        row.element.truncated(row.index).at(self.location(row))
    }
}

impl<const LITTLE_ENDIAN: bool> Body for Binary<'_, LITTLE_ENDIAN> {
    fn begin(&mut self, _: Row) -> Parsed<()> {
        Ok(())
    }

    fn end(&mut self) -> Option<String> {
        None
    }

    fn value<T: Value>(&mut self, row: Row) -> Parsed<T> {
        let Some((value, rest)) = T::split_from(self.rest, LITTLE_ENDIAN) else { return Err(self.truncated(row)) };
        self.rest = rest;
        Ok(value)
    }

    fn float(&mut self, row: Row, scalar: Scalar) -> Parsed<f64> {
        Ok(match scalar {
            Scalar::F32 => self.value::<f32>(row)?.into(),
            Scalar::F64 => self.value(row)?,
            _ => self.integer(row, scalar)? as f64,
        })
    }

    fn integer(&mut self, row: Row, scalar: Scalar) -> Parsed<i64> {
        Ok(match scalar {
            Scalar::I8 => self.value::<i8>(row)?.into(),
            Scalar::U8 => self.value::<u8>(row)?.into(),
            Scalar::I16 => self.value::<i16>(row)?.into(),
            Scalar::U16 => self.value::<u16>(row)?.into(),
            Scalar::I32 => self.value::<i32>(row)?.into(),
            Scalar::U32 => self.value::<u32>(row)?.into(),
            Scalar::I64 => self.value(row)?,
            // No count or index of a file is near 2^63.
            Scalar::U64 => self.value::<u64>(row)?.try_into().unwrap_or(i64::MAX),
            Scalar::F32 | Scalar::F64 => self.float(row, scalar)? as i64,
        })
    }

    fn skip(&mut self, row: Row, scalar: Scalar, values: u64) -> Parsed<()> {
        let bytes = values.saturating_mul(scalar.bytes() as u64);
        self.rest =
            usize::try_from(bytes).ok().and_then(|bytes| self.rest.get(bytes..)).ok_or_else(|| self.truncated(row))?;
        Ok(())
    }

    fn skip_element(&mut self, element: &Element) -> Parsed<()> {
        if element.properties.is_empty() {
            return Ok(());
        }
        for index in 0..element.count {
            for property in &element.properties {
                self.skip_property(Row { element, index }, property.kind)?;
            }
        }
        Ok(())
    }

    fn location(&self, row: Row) -> Location {
        Location::Element { kind: quote(row.element.name), index: row.index, byte: self.file_size - self.rest.len() }
    }
}
