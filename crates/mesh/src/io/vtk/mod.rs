//! VTK files: XML (`.vtp`, `.vtu`) and legacy (`.vtk`).

mod arrays;
mod cells;
mod legacy;
mod write;
mod xml;

pub(super) use legacy::{has_magic, parse as parse_legacy};
pub(super) use write::write;
pub(super) use xml::{is_vtk, parse as parse_xml};

use glam::DVec3;

use super::error::FileProblem;
use super::fields::{Columns, Field};
use crate::AttributeValues;

/// Converts coordinates after each other to positions.
fn positions(values: &AttributeValues) -> Result<Vec<DVec3>, FileProblem> {
    if !values.len().is_multiple_of(3) {
        return Err(FileProblem::BadData { why: "the coordinates of the last point are incomplete" });
    }
    let mut positions = Vec::with_capacity(values.len() / 3);
    for at in (0..values.len()).step_by(3) {
        positions.push(DVec3::new(values.to_f64(at), values.to_f64(at + 1), values.to_f64(at + 2)));
    }
    Ok(positions)
}

/// Columns of fields with `rows` rows, each converted by `convert`, and a note for each that does
/// not fit.
fn columns(
    fields: Vec<Field>,
    rows: usize,
    notes: &mut Vec<String>,
    convert: impl Fn(AttributeValues) -> AttributeValues,
) -> Vec<crate::VertexAttribute> {
    let mut columns = Columns::default();
    let mut left_out = 0;
    for field in fields {
        left_out += u64::from(!columns.push(field, rows));
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} array(s) are skipped: they have too many components, or not one row for each element"
        ));
    }
    let mut columns = columns.into_vec();
    for column in &mut columns {
        let values = std::mem::replace(&mut column.values, AttributeValues::U8(Vec::new()));
        column.values = convert(values);
    }
    columns
}
