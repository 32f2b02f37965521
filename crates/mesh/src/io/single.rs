//! Formats in single precision.

use super::FileFormat;
use super::error::FileProblem;
use crate::Mesh;

/// Checks that all coordinates are finite in single precision.
pub(super) fn check(mesh: &Mesh, format: FileFormat) -> Result<(), FileProblem> {
    for (vertex, position) in mesh.vertices().iter().enumerate() {
        for value in position.to_array() {
            if !(value as f32).is_finite() {
                return Err(FileProblem::CoordinateNotHeld { vertex, value, format });
            }
        }
    }
    Ok(())
}
