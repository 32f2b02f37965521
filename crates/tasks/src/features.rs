//! What a network sees of a mesh, and how it is scaled.

use crate::TaskError;
use gemcnn_mesh::{GaugeGraph, Mesh};
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Which input features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Positions: 3x0. They tell how a mesh lies in space.
    #[default]
    Xyz,
}

/// Input features and their settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureConfig {
    /// Which features.
    pub kind: FeatureKind,
}

impl FeatureConfig {
    /// Features of a kind with default settings.
    pub fn new(kind: FeatureKind) -> Self {
        Self { kind }
    }

    /// Type of the features of each vertex.
    pub fn kind(&self) -> FeatureType {
        match self.kind {
            FeatureKind::Xyz => FeatureType::scalars(3),
        }
    }

    /// Features of all vertices, row after row.
    ///
    /// # Errors
    /// A mesh that has no such features.
    pub fn compute(&self, mesh: &Mesh, _graph: &GaugeGraph) -> Result<Vec<f32>, TaskError> {
        match self.kind {
            FeatureKind::Xyz => Ok(mesh
                .vertices()
                .iter()
                .flat_map(|point| point.to_array().map(|value| value as f32))
                .collect()),
        }
    }
}
