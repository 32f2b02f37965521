//! Positions against the centroid.

use super::{Feature, FeatureError, Surface};
use crate::Settings;
use gemcnn_mesh::features::centroid_features;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Position against the centroid, `2x0 + 1x1`: the part along the normal and the distance as scalars, the tangential
/// part as a vector. They are invariant under rigid motions and scaling.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Position {}

impl Settings for Position {
    const KIND: &'static str = "position";
}

impl Feature for Position {
    fn kind(&self) -> FeatureType {
        FeatureType::new(&[2, 1])
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        Ok(centroid_features(surface.mesh, surface.graph)?.values)
    }
}
