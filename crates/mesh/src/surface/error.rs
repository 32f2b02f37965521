//! Errors of surface operators.

use crate::GeometryError;

/// Error of building or applying surface operators.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SurfaceError {
    /// The mesh has no face with distinct corners.
    #[error("none of the {faces} faces has three distinct positions: there is no surface")]
    NoExtent {
        /// Number of faces.
        faces: usize,
    },
    /// A matrix is not positive definite up to rounding.
    #[error(
        "the Laplacian loses all precision at vertex {vertex}: the triangles around it are too thin or differ too much in size; repair or remesh"
    )]
    IllConditioned {
        /// The vertex.
        vertex: usize,
    },
    /// Memory for the factors is exhausted.
    #[error(
        "the factors of the Laplacian need at least {bytes} bytes of memory, which are not available; use a coarser mesh"
    )]
    OutOfMemory {
        /// Estimated number of bytes.
        bytes: usize,
    },
    /// The eigensolver did not converge.
    #[error("only {converged} of {wanted} eigenpairs of order {order} converged; request fewer or repair the mesh")]
    NotConverged {
        /// Order of the fields.
        order: usize,
        /// Number of requested pairs.
        wanted: usize,
        /// Number of converged pairs.
        converged: usize,
    },
    /// A diffusion time is not a positive number.
    #[error("the diffusion time {time} is not a positive number")]
    BadTime {
        /// The time.
        time: f64,
    },
    /// A field has the wrong number of values.
    #[error(
        "a field of order {order} with {columns} columns on {vertices} vertices has {given} values; expected {expected}"
    )]
    FieldLength {
        /// Order of the field.
        order: usize,
        /// Number of columns.
        columns: usize,
        /// Number of vertices.
        vertices: usize,
        /// Number of given values.
        given: usize,
        /// Number of expected values.
        expected: usize,
    },
    /// Arguments do not fit the mesh.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Returns an error unless a field has `[vertices, parts, columns]` values, where `parts` is 1 for
/// order 0 and 2 otherwise.
pub(super) fn check_field<T>(order: usize, vertices: usize, field: &[T], columns: usize) -> Result<(), SurfaceError> {
    let expected = vertices * columns * parts(order);
    if field.len() == expected {
        Ok(())
    } else {
        Err(SurfaceError::FieldLength { order, columns, vertices, given: field.len(), expected })
    }
}

/// Number of real parts of a coefficient.
pub(super) fn parts(order: usize) -> usize {
    if order == 0 { 1 } else { 2 }
}
