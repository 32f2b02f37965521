//! Input features of a mesh: values at every vertex for the first layer of a network, with their
//! type.
//!
//! | feature | type | under rigid motion |
//! | --- | --- | --- |
//! | [`positions`] | 3x0 | not invariant |
//! | [`matrix_features`] | 7x(0,1,2) | invariant |
//! | [`relative_tangential`] | 1x1 for each power | invariant |
//! | [`heat_kernel_signatures`], [`wave_kernel_signatures`] | 1x0 for each time or energy | invariant |
//! | [`Curvature`] | 1x(0,2) for each time | invariant |
//! | [`centroid_features`] | 2x0 + 1x1 | invariant |
//! | [`shot::descriptors`] | 352x0 | invariant where the local reference frame is unambiguous |
//!
//! All features transform according to their type: if frames rotate by angles `a_p`, features of
//! order `m` become `rho_m(-a_p) f_p`.

mod curvature;
mod field;
mod matrix;
mod positions;
mod relative_tangential;
pub mod shot;
mod spectral;

pub use curvature::Curvature;
pub use field::FeatureField;
pub use matrix::{MatrixOptions, matrix_features};
pub use positions::{centred, centroid_features, positions};
pub use relative_tangential::{RelativeTangentialOptions, relative_tangential};
pub use spectral::{heat_kernel_signatures, signature_times, wave_kernel_signatures};

use crate::geometry::check_length;
use crate::{GaugeGraph, GeometryError, Mesh};

/// Returns an error unless the graph has as many vertices as the mesh.
fn check_graph(mesh: &Mesh, graph: &GaugeGraph) -> Result<(), GeometryError> {
    check_length("vertices of a graph", graph.vertex_count(), mesh.vertex_count())
}
