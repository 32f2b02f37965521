//! The curvature tensor.

use super::{Feature, FeatureError, Surface, need};
use crate::Settings;
use gemcnn_mesh::features::Curvature as Tensor;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Mean curvature as scalars and the traceless part of the curvature tensor as order 2, each smoothed by diffusion at
/// several times. They are invariant under rigid motions and scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Curvature {
    /// Times of the smoothing, for unit area (default `[0.001, 0.01]`).
    pub times: Vec<f64>,
    /// Number of eigenvectors of orders 0 and 2 (default `[128, 64]`).
    pub eigenvectors: [usize; 2],
}

impl Default for Curvature {
    fn default() -> Self {
        Self { times: vec![1e-3, 1e-2], eigenvectors: [128, 64] }
    }
}

impl Settings for Curvature {
    const KIND: &'static str = "curvature";
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
        Ok(tensor.smoothed(&operators.mass, scalars, second, &self.times)?.values)
    }
}
