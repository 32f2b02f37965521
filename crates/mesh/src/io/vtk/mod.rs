//! VTK files: XML (`.vtp`, `.vtu`) and legacy (`.vtk`).

mod arrays;
mod cells;
mod legacy;
mod write;
mod xml;

use glam::DVec3;

use super::error::FileProblem;
use super::format::{FileFormat, Format, Stores, Writer};
use super::xml::starts_with_tag;
use crate::AttributeValues;

pub(super) const FORMAT: Format = Format {
    has_signature: |file| legacy::has_magic(file.content) || starts_with_tag(file.content, b"<VTKFile"),
    writer: Some(Writer {
        format: FileFormat::VTP,
        stores: Stores { vertex_attributes: true, face_attributes: true, double_precision: true },
        encode: |file| Ok(Box::new(move |out| write::write(&file, out))),
    }),
    ..Format::new("VTK", &["vtp", "vtu", "vtk"], |file| match legacy::has_magic(file.content) {
        true => legacy::parse(file.content),
        false => xml::parse(file.content),
    })
};

impl FileFormat {
    /// VTK XML with polygonal data.
    pub const VTP: Self = Self::named("VTK XML (PolyData)");
    /// VTK XML with an unstructured grid.
    pub const VTU: Self = Self::named("VTK XML (UnstructuredGrid)");
    /// Legacy VTK as text.
    pub const VTK_ASCII: Self = Self::named("VTK legacy (ASCII)");
    /// Legacy VTK in binary.
    pub const VTK_BINARY: Self = Self::named("VTK legacy (binary)");
}

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
