//! The curvature tensor.

use super::{Feature, FeatureError, Surface, need};
use crate::registry::is_default;
use crate::registry::settings;
use gemcnn_mesh::features::Curvature as Tensor;
use gemcnn_nn::FeatureType;

settings! {
    /// Mean curvature as scalars and the traceless part of the curvature tensor as order 2, each smoothed by diffusion
    /// at several times. They are invariant under rigid motions and scaling.
    Curvature = "curvature" {
        /// Times of the smoothing, for unit area (default `[0.001, 0.01]`).
        times: Vec<f64> = vec![1e-3, 1e-2],
        /// Number of eigenvectors of orders 0 and 2 (default `[128, 64]`).
        eigenvectors: [usize; 2] = [128, 64],
        /// Divides each channel by its median length on the mesh, so that smooth and rough meshes have values of the same
        /// size (default false).
        #[serde(skip_serializing_if = "is_default")]
        normalise: bool = false,
    }
}

impl Feature for Curvature {
    fn kind(&self) -> FeatureType {
        FeatureType::new(&[self.times.len(), 0, self.times.len()])
    }

    fn eigenvectors(&self) -> [usize; 3] {
        [self.eigenvectors[0], 0, self.eigenvectors[1]]
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let operators = surface.operators.ok_or("there are no operators of the surface")?;
        let jets = operators.jets.as_ref().ok_or("there are no jets of the surface")?;
        let tensor = Tensor::new(surface.mesh, surface.graph, jets)?;
        let (scalars, second) = (need(surface, 0)?, need(surface, 2)?);
        let field = tensor.smoothed(&operators.mass, scalars, second, &self.times)?;
        Ok(if self.normalise { field.normalised(&operators.mass)?.values } else { field.values })
    }
}
