//! Random smooth deformations of meshes.

use crate::{Mesh, MeshError};
use glam::{DMat3, DQuat, DVec3};
use rand::{Rng, RngExt};
use std::f64::consts::TAU;

/// Number of waves of a bending.
const WAVES: usize = 6;

/// A uniformly distributed rotation (Shoemake).
pub fn uniform_rotation(random: &mut impl Rng) -> DQuat {
    let [u, v, w]: [f64; 3] = std::array::from_fn(|_| random.random());
    let (a, b) = ((1.0 - u).sqrt(), u.sqrt());
    let ((sv, cv), (sw, cw)) = ((TAU * v).sin_cos(), (TAU * w).sin_cos());
    DQuat::from_xyzw(a * sv, a * cv, b * sw, b * cw).normalize()
}

/// A smooth map of space: scaling along three random perpendicular axes, then a sum of long waves.
#[derive(Debug, Clone, PartialEq)]
pub struct Deformation {
    stretch: DMat3,
    /// Wave vector (for unit size of the mesh), phase and displacement of each wave.
    waves: Vec<(DVec3, f64, DVec3)>,
}

impl Deformation {
    /// A random deformation; `None` if both amounts are 0. Lengths along the axes change by a factor between `1 -
    /// stretch` and `1 + stretch`, and points move by about `bend` times the size of the mesh.
    pub fn draw(stretch: f64, bend: f64, random: &mut impl Rng) -> Option<Self> {
        if stretch <= 0.0 && bend <= 0.0 {
            return None;
        }
        let mut signed = || 2.0 * random.random::<f64>() - 1.0;
        let scales = DVec3::new(signed(), signed(), signed());
        let mut waves = Vec::new();
        for _ in 0..WAVES {
            // Wavelengths of at least one and a half times the size of the mesh.
            let wave = DVec3::new(signed(), signed(), signed()) * (TAU / 1.5);
            let shift = DVec3::new(signed(), signed(), signed());
            let share = bend * (3.0 / WAVES as f64).sqrt();
            waves.push((wave, TAU * signed(), share * shift));
        }
        let axes = DMat3::from_quat(uniform_rotation(random));
        let scales = DMat3::from_diagonal(DVec3::ONE + stretch * scales);
        Some(Self { stretch: axes * scales * axes.transpose(), waves: if bend > 0.0 { waves } else { Vec::new() } })
    }

    /// The deformed mesh. The size of a mesh is the root mean squared distance of its vertices from their mean.
    ///
    /// # Errors
    /// Vertices that are not finite afterwards.
    pub fn apply(&self, mesh: &Mesh) -> Result<Mesh, MeshError> {
        let points = mesh.vertices();
        let count = points.len().max(1) as f64;
        let centre = points.iter().sum::<DVec3>() / count;
        let spread: f64 = points.iter().map(|p| p.distance_squared(centre)).sum();
        let size = (spread / count).sqrt().max(f64::MIN_POSITIVE);
        mesh.map_vertices(|point| {
            let point = (point - centre) / size;
            let waves = self.waves.iter();
            let shift: DVec3 = waves.map(|(wave, phase, shift)| (wave.dot(point) + phase).sin() * *shift).sum();
            centre + size * (self.stretch * point + shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn deformations_are_as_large_as_their_amounts() {
        let mesh = shapes::icosphere(3).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(Deformation::draw(0.0, 0.0, &mut random), None);
        for (stretch, bend) in [(0.2, 0.0), (0.0, 0.1), (0.1, 0.05)] {
            let mut largest: f64 = 0.0;
            for _ in 0..50 {
                let drawn = Deformation::draw(stretch, bend, &mut random).unwrap();
                let moved = drawn.apply(&mesh).unwrap();
                let pairs = mesh.vertices().iter().zip(moved.vertices());
                let distances = pairs.map(|(a, b)| a.distance(*b));
                largest = distances.fold(largest, f64::max);
            }
            let amount: f64 = stretch + bend;
            assert!(largest > 0.5 * amount && largest < 5.0 * amount, "{largest}");
        }
    }

    #[test]
    fn a_stretch_is_symmetric_and_within_its_bounds() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..100 {
            let drawn = Deformation::draw(0.3, 0.0, &mut random).unwrap();
            let direction = uniform_rotation(&mut random) * DVec3::X;
            let length = direction.dot(drawn.stretch * direction);
            assert!((0.7 - 1e-12..=1.3 + 1e-12).contains(&length), "{length}");
            assert!((drawn.stretch - drawn.stretch.transpose()).abs_diff_eq(DMat3::ZERO, 1e-12));
        }
    }
}
