//! Relative tangential features.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::features::{RelativeTangentialOptions, relative_tangential};
use gemcnn_nn::FeatureType;

settings! {
    /// Relative tangential features, `1x1` for each power. They are invariant under rigid motions and scaling.
    Reltan = "reltan" {
        /// Relative power of each channel (default 0.5, 0.7).
        powers: Vec<f64> = RelativeTangentialOptions::default().powers,
        /// Adds a scalar for the normal direction to each vector (default false).
        normal_part: bool = RelativeTangentialOptions::default().normal_part,
    }
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
