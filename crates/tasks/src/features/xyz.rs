//! Positions.

use super::{Feature, FeatureError, Surface};
use crate::Settings;
use gemcnn_mesh::features::positions;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Positions in space, `3x0`. They change when a mesh is moved, rotated or scaled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xyz {}

impl Settings for Xyz {
    const KIND: &'static str = "xyz";
}

impl Feature for Xyz {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(3)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        Ok(positions(surface.mesh).values)
    }
}
