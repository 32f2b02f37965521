//! Errors of matching.

use gemcnn_kernels::KernelError;
use gemcnn_mesh::remesh::RemeshError;
use gemcnn_mesh::surface::SurfaceError;
use gemcnn_mesh::{GeometryError, MeshError, RepairError};

/// Error of preparing or matching surfaces.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// Too few vertices for a spectrum.
    #[error(
        "the surface has {vertices} distinct vertices with faces; matching needs at least {least}; `gemcnn mesh connect` makes a surface of a point cloud"
    )]
    TooSmall {
        /// Number of distinct vertices that a face uses.
        vertices: usize,
        /// Least number.
        least: usize,
    },
    /// A large mesh that simplification leaves large.
    #[error(
        "the surface could only be simplified from {vertices} to {reached} vertices, because it has many pieces or \
         edges with more than two faces; remove small pieces or remesh it"
    )]
    NotSimplified {
        /// Number of vertices of the mesh.
        vertices: usize,
        /// Number of vertices of the simplified mesh.
        reached: usize,
    },
    /// Descriptors that are not a row of finite numbers for each vertex.
    #[error("{given} descriptor values for {vertices} vertices: {problem}")]
    Descriptors {
        /// Number of values.
        given: usize,
        /// Number of vertices of the surface that they describe.
        vertices: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// Two shapes whose descriptors have different widths, or none.
    #[error("the descriptors of the two shapes have {a} and {b} numbers in a row; use the same for both")]
    DescriptorWidths {
        /// Width of those of the first shape; 0 without descriptors.
        a: usize,
        /// Width of those of the second shape.
        b: usize,
    },
    /// The surface has no spectrum.
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    /// The surface has no frames.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The mesh cannot be cleaned.
    #[error(transparent)]
    Repair(#[from] RepairError),
    /// Coordinates that are not finite after scaling.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The mesh cannot be simplified.
    #[error(transparent)]
    Remesh(#[from] RemeshError),
    /// The network cannot describe the surface, or is not one for this.
    #[error("{0}")]
    Network(String),
    /// Sizes that the kernels refuse.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
