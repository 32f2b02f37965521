//! Generated meshes: closed shapes with consistent outward orientation, human-like bodies, and the
//! pixel grids of the embedded-digits experiment (flat, isometrically bent, or rough).
//!
//! ```
//! use gemcnn_mesh::shapes::{self, Axis, Cells, Profile};
//! let sphere = shapes::icosphere(3)?;
//! assert_eq!(sphere.vertex_count(), 642);
//! let arch = shapes::bent_grid(28, 28, Cells::Quads, Axis::Columns, &Profile::Cylinder { turn: 3.0 })?;
//! assert_eq!(arch.vertex_count(), 28 * 28);
//! # Ok::<(), shapes::ShapeError>(())
//! ```

mod bend;
mod bodies;
mod capsule;
mod grid;
mod platonic;
mod rough;
mod torus;

pub use bend::{Axis, Harmonic, HeadingFunction, Profile, bent_grid};
pub use bodies::{BodyFamily, BodyOptions, BodyPart};
pub use capsule::capsule;
pub use grid::grid;
pub use platonic::{icosahedron, icosphere};
pub use rough::{Roughness, rough_grid};
pub use torus::torus;

use glam::DVec3;

use crate::{Faces, MeshError};

/// Error of the functions that generate shapes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// A parameter is out of range.
    #[error("{parameter} is {value}, but must be {allowed}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The given value.
        value: String,
        /// Description of the allowed values.
        allowed: &'static str,
    },
    /// The mesh would have more vertices or corners than 32-bit indices can address.
    #[error(
        "the shape would have {count} {what}, more than 32-bit indices can address (under {}): use a coarser shape",
        u32::MAX
    )]
    TooLarge {
        /// Kind of item: vertices or face corners.
        what: &'static str,
        /// Number of items, or `u128::MAX` on overflow.
        count: u128,
    },
    /// The mesh does not fit in memory.
    #[error("the shape needs {bytes} bytes of memory, which are not available: use a coarser shape")]
    OutOfMemory {
        /// Required memory in bytes.
        bytes: usize,
    },
    /// Two adjacent strips of a bent grid would coincide.
    #[error(
        "the profile changes direction by pi at line {line} of the grid, which folds the sheet flat onto itself: use a smoother profile or more lines"
    )]
    FoldedBack {
        /// The grid line of the fold, counted along the profile from 0.
        line: usize,
    },
    /// The parameters give invalid coordinates.
    #[error("the parameters do not give a valid mesh: {0}")]
    Mesh(#[from] MeshError),
}

/// Faces of the regular patches of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cells {
    /// One quadrilateral face per cell.
    Quads,
    /// Two triangles per cell, all cut along the same diagonal.
    Triangles,
}

impl Cells {
    /// Total number of corners of the faces of one cell.
    fn corners(self) -> u128 {
        match self {
            Self::Quads => 4,
            Self::Triangles => 6,
        }
    }

    /// Appends the cell with the given corners, counterclockwise. Triangles are cut from the first
    /// corner to the third.
    fn push(self, faces: &mut Faces, [a, b, c, d]: [u32; 4]) {
        match self {
            Self::Quads => faces.push(&[a, b, c, d]),
            Self::Triangles => {
                faces.push(&[a, b, c]);
                faces.push(&[a, c, d]);
            }
        }
    }
}

/// Returns an error unless the parameter is `allowed`.
fn require(
    condition: bool,
    parameter: &'static str,
    value: impl ToString,
    allowed: &'static str,
) -> Result<(), ShapeError> {
    if condition {
        return Ok(());
    }
    Err(ShapeError::Parameter { parameter, value: value.to_string(), allowed })
}

/// Returns an error if 32-bit indices cannot address a mesh or if it does not fit in memory. Call
/// this before allocating anything of that size.
fn require_size(vertices: u128, corners: u128) -> Result<(), ShapeError> {
    for (what, count) in [("vertices", vertices), ("face corners", corners)] {
        if count >= u128::from(u32::MAX) {
            return Err(ShapeError::TooLarge { what, count });
        }
    }
    let bytes = vertices as usize * size_of::<DVec3>() + corners as usize * size_of::<[u32; 2]>();
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| ShapeError::OutOfMemory { bytes })
}

/// Product of counts, saturating at `u128::MAX`.
fn product(factors: &[usize]) -> u128 {
    factors.iter().fold(1, |all: u128, &factor| all.saturating_mul(factor as u128))
}
