//! Wave kernel signatures.

use super::{Feature, FeatureError, Surface, need};
use crate::Settings;
use gemcnn_mesh::features::wave_kernel_signatures;
use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Wave kernel signatures. They are invariant under isometries and scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaveKernel {
    /// Number of energies (default 16).
    pub energies: usize,
    /// Number of eigenvectors (default 128).
    pub eigenvectors: usize,
}

impl Default for WaveKernel {
    fn default() -> Self {
        Self { energies: 16, eigenvectors: 128 }
    }
}

impl Settings for WaveKernel {
    const KIND: &'static str = "wks";
}

impl Feature for WaveKernel {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(self.energies)
    }

    fn eigenvectors(&self) -> [usize; 3] {
        [self.eigenvectors, 0, 0]
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let basis = need(surface, 0)?;
        Ok(wave_kernel_signatures(basis, self.energies))
    }
}
