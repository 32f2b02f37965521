//! Heat kernel signatures.

use super::{Feature, FeatureError, Surface, need};
use crate::Settings;
use gemcnn_mesh::features::heat_kernel_signatures;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Heat kernel signatures at logarithmically spaced times. They are invariant under isometries and scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeatKernel {
    /// Number of times (default 16).
    pub times: usize,
    /// Shortest and longest time, for unit area (default `[0.01, 1]`).
    pub range: [f64; 2],
    /// Number of eigenvectors (default 128).
    pub eigenvectors: usize,
}

impl Default for HeatKernel {
    fn default() -> Self {
        Self { times: 16, range: [0.01, 1.0], eigenvectors: 128 }
    }
}

impl Settings for HeatKernel {
    const KIND: &'static str = "hks";
}

impl HeatKernel {
    fn times(&self) -> Vec<f64> {
        let [low, high] = self.range.map(f64::ln);
        let steps = self.times.saturating_sub(1).max(1) as f64;
        let time = |step: usize| (low + (high - low) * step as f64 / steps).exp();
        (0..self.times).map(time).collect()
    }
}

impl Feature for HeatKernel {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(self.times)
    }

    fn eigenvectors(&self) -> [usize; 3] {
        [self.eigenvectors, 0, 0]
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let [low, high] = self.range;
        if !(low > 0.0 && high >= low && high.is_finite()) {
            return Err("`range` must be two positive times, the shorter one first".into());
        }
        let basis = need(surface, 0)?;
        Ok(heat_kernel_signatures(basis, &self.times()))
    }
}
