//! Seeded random numbers.

use gemcnn_mesh::DVec3;
use glam::DQuat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// A random number generator with a seed and a stream.
pub(super) struct Draws(ChaCha8Rng);

impl Draws {
    /// Seeds the generator. Different streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Self(random)
    }

    /// A uniform number in [low, high).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    /// A uniform angle in [0, 2 pi).
    pub fn angle(&mut self) -> f64 {
        self.uniform(0.0, TAU)
    }

    /// A standard normal number, by the Box-Muller method.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.random::<f64>()).ln()).sqrt();
        radius * self.angle().cos()
    }

    /// A uniformly distributed rotation.
    pub fn rotation(&mut self) -> DQuat {
        let [x, y, z, w] = std::array::from_fn(|_| self.normal());
        let quaternion = DQuat::from_xyzw(x, y, z, w);
        if quaternion.length() > 0.0 { quaternion.normalize() } else { DQuat::IDENTITY }
    }

    /// A translation with standard normal coordinates.
    pub fn shift(&mut self) -> DVec3 {
        DVec3::new(self.normal(), self.normal(), self.normal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_draws_have_mean_zero_and_variance_one() {
        let mut draws = Draws::new(1, 0);
        let values: Vec<f64> = (0..20_000).map(|_| draws.normal()).collect();
        let mean = values.iter().sum::<f64>() / 2e4;
        let square = values.iter().map(|v| v * v).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.04, "{mean} {square}");
    }
}
