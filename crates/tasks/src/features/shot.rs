//! SHOT descriptors.

use super::{Feature, FeatureError, Surface};
use crate::registry::settings;
use gemcnn_mesh::features::shot::{DESCRIPTOR_LENGTH, ShotOptions, descriptors};
use gemcnn_nn::FeatureType;

settings! {
    /// SHOT descriptors, `352x0`. They are invariant under rigid motions.
    Shot = "shot" {
        /// Radius of the support in units of the mesh (default: a tenth of the square root of its area).
        #[serde(skip_serializing_if = "Option::is_none")]
        radius: Option<f64> = None,
    }
}

impl Feature for Shot {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(DESCRIPTOR_LENGTH)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let options = ShotOptions { radius: self.radius, normals: surface.normals };
        Ok(descriptors(surface.mesh, &options)?.values)
    }

    fn support_radius(&self) -> Option<f64> {
        self.radius
    }
}
