//! Input features of a mesh: numbers at every vertex for a network to start from, with their type.
//!
//! | feature | type | under rigid motion |
//! | --- | --- | --- |
//! | [`positions`] | 3x0 | changes |
//! | [`matrix_features`] | 7x(0,1,2) | stays |
//! | [`relative_tangential`] | 1x1 for each power | stays |
//! | [`shot::descriptors`] | 352x0 | stays, where the local reference frame is unambiguous |
//!
//! All obey the law of features under a change of frames: when frames turn by angles `a_p`, features
//! of order `m` become `rho_m(-a_p) f_p`.

mod field;
mod matrix;
mod positions;
mod relative_tangential;
pub mod shot;

pub use field::FeatureField;
pub use matrix::{MatrixOptions, matrix_features};
pub use positions::positions;
pub use relative_tangential::{RelativeTangentialOptions, relative_tangential};

use crate::geometry::check_length;
use crate::{GaugeGraph, GeometryError, Mesh};

/// Refuses a graph that has not the vertices of the mesh.
fn check_graph(mesh: &Mesh, graph: &GaugeGraph) -> Result<(), GeometryError> {
    check_length(
        "vertices of a graph",
        graph.vertex_count(),
        mesh.vertex_count(),
    )
}
