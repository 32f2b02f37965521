//! Positions against the centroid.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::features::centroid_features;
use gemcnn_nn::FeatureType;

settings! {
    /// Position against the centroid, `2x0 + 1x1`: the part along the normal and the distance as scalars, the
    /// tangential part as a vector. They are invariant under rigid motions and scaling.
    Position = "position" {}
}

impl Feature for Position {
    fn kind(&self) -> FeatureType {
        FeatureType::new(&[2, 1])
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        Ok(centroid_features(surface.mesh, surface.graph)?.values)
    }
}
