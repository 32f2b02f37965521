//! Generated meshes: closed shapes with consistent outward orientation, human-like bodies, and the
//! pixel grids of the embedded-digits experiment: flat, bent isometrically, or rough.
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
mod random;
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

/// Why a shape cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// A parameter is outside of what the shape allows.
    #[error("{parameter} is {value}, but must be {allowed}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The value it was given.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// The mesh would have more vertices or corners than 32-bit indices can address.
    #[error(
        "the shape would have {count} {what}, more than 32-bit indices can address (under {}): ask for a coarser one",
        u32::MAX
    )]
    TooLarge {
        /// What there would be too many of.
        what: &'static str,
        /// How many there would be (the largest `u128` if more than that).
        count: u128,
    },
    /// There is no room in memory for the mesh.
    #[error(
        "the shape needs {bytes} bytes of memory, which are not to be had: ask for a coarser one"
    )]
    OutOfMemory {
        /// How many bytes it needs.
        bytes: usize,
    },
    /// Two neighbouring strips of a bent grid would lie on each other.
    #[error(
        "the profile turns by half a circle at line {line} of the grid, which folds the sheet flat onto itself: use a gentler profile or more lines"
    )]
    FoldedBack {
        /// The grid line of the fold, counted along the profile from 0.
        line: usize,
    },
    /// The parameters give coordinates that no mesh can have.
    #[error("the parameters do not give a mesh: {0}")]
    Mesh(#[from] MeshError),
}

/// What the regular patches of a shape are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cells {
    /// One four-sided face for each cell.
    Quads,
    /// Two triangles for each cell, all cut along the same diagonal.
    Triangles,
}

impl Cells {
    /// Corners of the faces of one cell, all together.
    fn corners(self) -> u128 {
        match self {
            Self::Quads => 4,
            Self::Triangles => 6,
        }
    }

    /// Appends the cell with these corners, counterclockwise; triangles are cut from the first
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

/// Refuses a parameter that is not `allowed`.
fn require(
    condition: bool,
    parameter: &'static str,
    value: impl ToString,
    allowed: &'static str,
) -> Result<(), ShapeError> {
    if condition {
        return Ok(());
    }
    Err(ShapeError::Parameter {
        parameter,
        value: value.to_string(),
        allowed,
    })
}

/// Refuses a mesh that 32-bit indices cannot address, or that finds no room in memory, before
/// anything of its size is made.
fn require_size(vertices: u128, corners: u128) -> Result<(), ShapeError> {
    for (what, count) in [("vertices", vertices), ("face corners", corners)] {
        if count >= u128::from(u32::MAX) {
            return Err(ShapeError::TooLarge { what, count });
        }
    }
    let bytes = vertices as usize * size_of::<DVec3>() + corners as usize * size_of::<[u32; 2]>();
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| ShapeError::OutOfMemory { bytes })
}

/// Product of counts, which stays at the largest number instead of overflowing.
fn product(factors: &[usize]) -> u128 {
    factors
        .iter()
        .fold(1, |all: u128, &factor| all.saturating_mul(factor as u128))
}
