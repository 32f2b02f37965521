//! Fields of vertices and faces: arrays of one or more components, which become columns, and
//! columns that become arrays again.

use std::collections::{HashMap, HashSet};

use crate::{AttributeValues, VertexAttribute};

const AXES: [&str; 3] = ["x", "y", "z"];
const COLOURS: [&str; 4] = ["red", "green", "blue", "alpha"];
const NORMALS: [&str; 3] = ["nx", "ny", "nz"];

/// An array with one row per vertex or face, as formats other than PLY have it.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    /// Number of values in a row.
    pub(super) components: usize,
    /// Rows after each other.
    pub(super) values: AttributeValues,
    /// Names of the components; may be empty.
    pub(super) component_names: Vec<String>,
}

impl Field {
    /// Number of rows; `None` if the last row is incomplete.
    pub(super) fn rows(&self) -> Option<usize> {
        let components = self.components.max(1);
        let whole = self.values.len().is_multiple_of(components);
        whole.then(|| self.values.len() / components)
    }
}

/// Columns with unique names, made from fields.
#[derive(Default)]
pub(super) struct Columns {
    /// Number that was last appended to each name to make it unique.
    names: HashMap<String, usize>,
    columns: Vec<VertexAttribute>,
}

impl Columns {
    /// Appends the components of a field with `rows` rows as columns. Returns false, and appends
    /// nothing, if the number of rows differs or the field is far wider than long.
    pub(super) fn push(&mut self, field: Field, rows: usize) -> bool {
        // Each column costs memory of its own, which a handful of values does not justify.
        const WIDEST: usize = 3;
        let components = field.components;
        if field.rows() != Some(rows) || (components > WIDEST && components > 2 * rows) {
            return false;
        }
        let names = column_names(&field);
        if let [name] = &names[..] {
            self.push_column(name, field.values);
            return true;
        }
        for (component, name) in names.iter().enumerate() {
            self.push_column(name, field.values.every(component, components));
        }
        true
    }

    /// Appends a column. Its name becomes a valid and unique PLY name.
    pub(super) fn push_column(&mut self, name: &str, values: AttributeValues) {
        let mut name: String =
            name.trim().chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
        if name.is_empty() {
            name = "field".to_owned();
        } else if name.starts_with('#') {
            name.insert(0, '_');
        }
        let is_taken =
            |names: &HashMap<String, usize>, name: &String| names.contains_key(name) || AXES.contains(&name.as_str());
        if is_taken(&self.names, &name) {
            let mut number = self.names.get(&name).copied().unwrap_or(1);
            let unique = loop {
                number += 1;
                let candidate = format!("{name}_{number}");
                if !is_taken(&self.names, &candidate) {
                    break candidate;
                }
            };
            self.names.insert(name, number);
            name = unique;
        }
        self.names.insert(name.clone(), 1);
        self.columns.push(VertexAttribute::new(name, values));
    }

    pub(super) fn into_vec(self) -> Vec<VertexAttribute> {
        self.columns
    }
}

/// Fields as columns of `rows` rows, and a note on those that do not fit.
pub(super) fn columns(fields: Vec<Field>, rows: usize, notes: &mut Vec<String>) -> Vec<VertexAttribute> {
    let mut columns = Columns::default();
    let left_out = fields.into_iter().map(|field| columns.push(field, rows)).filter(|&fits| !fits).count();
    if left_out > 0 {
        notes.push(format!(
            "{left_out} array(s) are skipped: they have too many components, or not one row for each element"
        ));
    }
    columns.into_vec()
}

/// Appends the columns of a further part of a mesh. Columns that are not in both are dropped;
/// returns true if there are any.
pub(super) fn join_columns(all: &mut Vec<VertexAttribute>, more: Vec<VertexAttribute>) -> bool {
    let before = (all.len(), more.len());
    let mut more: HashMap<String, AttributeValues> = more.into_iter().map(|c| (c.name, c.values)).collect();
    all.retain_mut(|column| {
        let values = more.remove(&column.name);
        values.is_some_and(|values| column.values.append(values))
    });
    all.len() < before.0.max(before.1)
}

/// Names of the columns of a field. Colours and normals get their conventional names, vectors the
/// suffixes `_x`, `_y` and `_z`, other fields numbers.
fn column_names(field: &Field) -> Vec<String> {
    let name = &field.name;
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let lower = name.to_ascii_lowercase();
    let is_colour = matches!(lower.as_str(), "rgb" | "rgba" | "color" | "colors" | "colour" | "colours" | "color_0");
    match field.components {
        1 => return vec![name.clone()],
        count @ (3 | 4) if is_colour && matches!(field.values, AttributeValues::U8(_)) => {
            return owned(&COLOURS[..count]);
        }
        3 if matches!(lower.as_str(), "normals" | "normal") => return owned(&NORMALS),
        _ => {}
    }
    let given = &field.component_names;
    if let [x, y, z] = &given[..]
        && field.components == 3
        && vector_name([x, y, z]).as_ref() == Some(name)
    {
        return given.clone();
    }
    (0..field.components)
        .map(|component| match (given.get(component), AXES.get(component)) {
            (Some(suffix), _) if given.len() == field.components && !suffix.is_empty() => {
                format!("{name}_{suffix}")
            }
            (_, Some(axis)) if field.components <= 3 => format!("{name}_{axis}"),
            _ => format!("{name}_{component}"),
        })
        .collect()
}

/// Name of the vector whose components have these names: they differ only in one letter, which is
/// x, y and z. `flow_x`, `flow_y`, `flow_z` give `flow`; `vx0`, `vy0`, `vz0` give `v0`.
pub fn vector_name(names: [&str; 3]) -> Option<String> {
    let [x, y, _] = names;
    let at = x.bytes().zip(y.bytes()).position(|(a, b)| a != b)?;
    let (before, after) = (x.get(..at)?, x.get(at + 1..)?);
    let fits =
        |(name, axis): (&str, &str)| name.strip_prefix(before).and_then(|rest| rest.strip_prefix(axis)) == Some(after);
    let stem = match after {
        "" => before.trim_end_matches('_'),
        _ => before,
    };
    let all = names.into_iter().zip(AXES).all(fits);
    (all && !(stem.is_empty() && after.is_empty())).then(|| format!("{stem}{after}"))
}

/// Consecutive columns that belong together in formats with vectors: a colour, a normal, a vector,
/// or a single column.
pub(super) struct Group<'a> {
    pub(super) name: String,
    pub(super) columns: &'a [VertexAttribute],
}

/// Groups columns for writing. [`Columns::push`] restores the same columns from each group.
pub(super) fn groups(attributes: &[VertexAttribute]) -> Vec<Group<'_>> {
    let mut names: HashSet<String> = attributes.iter().map(|a| a.name.clone()).collect();
    let mut groups = Vec::with_capacity(attributes.len());
    let mut rest = attributes;
    while let [first, ..] = rest {
        let (length, name) =
            group_at(rest).filter(|(_, name)| names.insert(name.clone())).unwrap_or_else(|| (1, first.name.clone()));
        let (columns, after) = rest.split_at(length);
        groups.push(Group { name, columns });
        rest = after;
    }
    groups
}

fn group_at(rest: &[VertexAttribute]) -> Option<(usize, String)> {
    let named = |names: &[&str]| rest.len() >= names.len() && rest.iter().zip(names).all(|(a, &name)| a.name == name);
    let of_one_type = |count: usize| {
        rest[1..count].iter().all(|a| std::mem::discriminant(&a.values) == std::mem::discriminant(&rest[0].values))
    };
    for (count, name) in [(4, "RGBA"), (3, "RGB")] {
        let bytes = matches!(rest[0].values, AttributeValues::U8(_));
        if named(&COLOURS[..count]) && bytes && of_one_type(count) {
            return Some((count, name.to_owned()));
        }
    }
    let [x, y, z, ..] = rest else { return None };
    if !of_one_type(3) {
        return None;
    }
    if named(&NORMALS) {
        return Some((3, "Normals".to_owned()));
    }
    vector_name([&x.name, &y.name, &z.name]).map(|name| (3, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str) -> VertexAttribute {
        VertexAttribute::new(name, AttributeValues::F32(vec![1.0, 2.0]))
    }

    #[test]
    fn vectors_are_recognised_by_their_axis_letter() {
        assert_eq!(vector_name(["vx0", "vy0", "vz0"]).as_deref(), Some("v0"));
        assert_eq!(vector_name(["flow_x", "flow_y", "flow_z"]).as_deref(), Some("flow"));
        assert_eq!(vector_name(["x", "y", "z"]), None);
        assert_eq!(vector_name(["ax", "ay", "bz"]), None);
        assert_eq!(vector_name(["ax", "ay", "az2"]), None);
        assert_eq!(vector_name(["a\u{e9}x", "a\u{e9}y", "a\u{e9}z"]).as_deref(), Some("a\u{e9}"));
    }

    #[test]
    fn groups_and_columns_are_inverse() {
        let names = ["label", "vx0", "vy0", "vz0", "nx", "ny", "nz", "v0x", "w_x", "w_y", "w_z"];
        let mut attributes: Vec<VertexAttribute> = names.map(column).to_vec();
        for name in COLOURS {
            attributes.push(VertexAttribute::new(name, AttributeValues::U8(vec![1, 2])));
        }
        let grouped = groups(&attributes);
        let found: Vec<_> = grouped.iter().map(|g| (&g.name[..], g.columns.len())).collect();
        assert_eq!(found, [("label", 1), ("v0", 3), ("Normals", 3), ("v0x", 1), ("w", 3), ("RGBA", 4)]);
        let mut columns = Columns::default();
        for group in &grouped {
            let mut rows = Vec::new();
            for vertex in 0..2 {
                rows.extend(group.columns.iter().map(|c| c.values.to_f64(vertex)));
            }
            let values = match group.name.as_str() {
                "RGBA" => AttributeValues::U8(rows.iter().map(|&v| v as u8).collect()),
                _ => AttributeValues::F32(rows.iter().map(|&v| v as f32).collect()),
            };
            let field = Field {
                name: group.name.clone(),
                components: group.columns.len(),
                values,
                component_names: group.columns.iter().map(|c| c.name.clone()).collect(),
            };
            assert!(columns.push(field, 2));
        }
        assert_eq!(columns.into_vec(), attributes);
    }

    #[test]
    fn names_become_unique_and_valid() {
        let mut columns = Columns::default();
        for name in ["a b", "a_b", "a_b", "x", "", "#1", "a_b_2"] {
            columns.push_column(name, AttributeValues::U8(Vec::new()));
        }
        let names: Vec<String> = columns.into_vec().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["a_b", "a_b_2", "a_b_3", "x_2", "field", "_#1", "a_b_2_2"]);
    }
}
