//! Sizes of remeshed surfaces.

use serde::{Deserialize, Serialize};

use super::{RemeshError, require};
use crate::mesh::Mesh;

/// Size of a remeshed surface.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshSize {
    /// Edge length relative to the mean edge length of the original mesh.
    EdgeLength(f64),
    /// Number of vertices.
    Vertices(usize),
    /// Number of vertices relative to that of the original mesh.
    Ratio(f64),
}

impl MeshSize {
    /// Checks the range of the value.
    pub(super) fn check(self) -> Result<(), RemeshError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        match self {
            Self::EdgeLength(length) => require(positive(length), "edge_length", length, "positive and finite"),
            Self::Ratio(ratio) => require(positive(ratio), "ratio", ratio, "positive and finite"),
            Self::Vertices(vertices) => require(vertices >= 4, "vertices", vertices, "at least 4"),
        }
    }

    /// The number of vertices for a mesh. Edges of length `l` need `1 / l^2` times the vertices.
    pub(super) fn vertices(self, mesh: &Mesh) -> usize {
        let scaled = |ratio: f64| (ratio * mesh.vertex_count() as f64).round().max(4.0) as usize;
        match self {
            Self::EdgeLength(length) => scaled(1.0 / (length * length)),
            Self::Vertices(vertices) => vertices,
            Self::Ratio(ratio) => scaled(ratio),
        }
    }
}
