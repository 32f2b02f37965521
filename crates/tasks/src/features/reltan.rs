//! Relative tangential features.

use super::{Feature, FeatureError, Surface};
use crate::Settings;
use gemcnn_mesh::features::{RelativeTangentialOptions, relative_tangential};
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Relative tangential features, `1x1` for each power. They are invariant under rigid motions and scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reltan {
    /// Relative power of each channel (default 0.5, 0.7).
    pub powers: Vec<f64>,
    /// Adds a scalar for the normal direction to each vector (default false).
    pub normal_part: bool,
}

impl Default for Reltan {
    fn default() -> Self {
        let RelativeTangentialOptions { powers, normal_part } = RelativeTangentialOptions::default();
        Self { powers, normal_part }
    }
}

impl Settings for Reltan {
    const KIND: &'static str = "reltan";
}

impl Feature for Reltan {
    fn kind(&self) -> FeatureType {
        let vectors = self.powers.len();
        let scalars = if self.normal_part { vectors } else { 0 };
        FeatureType::new(&[scalars, vectors])
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let options = RelativeTangentialOptions { powers: self.powers.clone(), normal_part: self.normal_part };
        Ok(relative_tangential(surface.mesh, surface.graph, &options)?.values)
    }
}
