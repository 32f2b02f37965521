//! Wave kernel signatures.

use super::{Feature, FeatureError, Surface, need};
use crate::registry::settings;
use gemcnn_mesh::features::wave_kernel_signatures;
use gemcnn_nn::FeatureType;

settings! {
    /// Wave kernel signatures. They are invariant under isometries and scaling.
    WaveKernel = "wks" {
        /// Number of energies (default 16).
        energies: usize = 16,
        /// Number of eigenvectors (default 128).
        eigenvectors: usize = 128,
    }
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
