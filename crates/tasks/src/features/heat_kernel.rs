//! Heat kernel signatures.

use super::{Feature, FeatureError, Surface, need};
use crate::registry::settings;
use gemcnn_mesh::features::heat_kernel_signatures;
use gemcnn_nn::FeatureType;

settings! {
    /// Heat kernel signatures at logarithmically spaced times. They are invariant under isometries and scaling.
    HeatKernel = "hks" {
        /// Number of times (default 16).
        times: usize = 16,
        /// Shortest and longest time, for unit area (default `[0.01, 1]`).
        range: [f64; 2] = [0.01, 1.0],
        /// Number of eigenvectors (default 128).
        eigenvectors: usize = 128,
    }
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
