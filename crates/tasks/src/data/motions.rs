//! Random rotations and reflections of meshes.

use gemcnn_mesh::{DVec3, uniform_rotation};
use glam::{DMat3, DQuat};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Axes of random rotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotations {
    /// No rotations.
    #[default]
    None,
    /// About the x axis.
    X,
    /// About the y axis.
    Y,
    /// About the z axis.
    Z,
    /// All rotations, uniformly distributed.
    All,
}

impl Rotations {
    /// A random rotation; `None` without rotations.
    pub fn draw(self, random: &mut impl Rng) -> Option<DQuat> {
        let mut about = |axis: DVec3| DQuat::from_axis_angle(axis, TAU * random.random::<f64>());
        Some(match self {
            Self::None => return None,
            Self::X => about(DVec3::X),
            Self::Y => about(DVec3::Y),
            Self::Z => about(DVec3::Z),
            Self::All => uniform_rotation(random),
        })
    }
}

/// Random reflections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mirrors {
    /// No reflections.
    #[default]
    None,
    /// `x` to `-x`.
    X,
    /// `y` to `-y`.
    Y,
    /// `z` to `-z`.
    Z,
}

impl Mirrors {
    /// The reflection, or none, each with probability one half.
    pub(super) fn draw(self, random: &mut impl Rng) -> Option<DMat3> {
        let axis = match self {
            Self::None => return None,
            Self::X => DVec3::X,
            Self::Y => DVec3::Y,
            Self::Z => DVec3::Z,
        };
        let reflection = DMat3::from_diagonal(DVec3::ONE - 2.0 * axis);
        random.random::<bool>().then_some(reflection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn rotations_about_an_axis_keep_it() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        assert_eq!(Rotations::None.draw(&mut random), None);
        let turn = Rotations::Y.draw(&mut random).unwrap();
        assert!((turn * DVec3::Y - DVec3::Y).length() < 1e-12);
        let turns = (0..4000).filter_map(|_| Rotations::All.draw(&mut random));
        let sum: DVec3 = turns.map(|turn| turn * DVec3::X).sum();
        assert!(sum.length() / 4000.0 < 0.05, "{sum}");
    }
}
