//! Positions.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::features::positions;
use gemcnn_nn::FeatureType;

settings! {
    /// Positions in space, `3x0`. They change when a mesh is moved, rotated or scaled.
    Xyz = "xyz" {}
}

impl Feature for Xyz {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(3)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        Ok(positions(surface.mesh).values)
    }
}
