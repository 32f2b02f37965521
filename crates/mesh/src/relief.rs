//! Random relief of meshes: noise and smoothing, as scanners and reconstructions leave them.

use crate::random::Uniform;
use crate::triangulate::triangle_corners;
use crate::{Mesh, MeshError};
use glam::DVec3;
use rand::{Rng, RngExt};

/// The two steps of a round of smoothing (Taubin, 1995): the second one inflates what the first one shrinks.
const STEPS: [f64; 2] = [0.5, -0.53];
/// Averages over the neighbours that make correlated noise.
const AVERAGES: usize = 4;

/// Smoothing that preserves the volume approximately, then noise along the normals. Faces stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relief {
    rounds: usize,
    /// Root mean square of the noise, relative to the mean edge length.
    noise: f64,
    /// Share of the variance of the noise that is correlated over a few edges.
    correlated: f64,
    seed: u64,
}

impl Relief {
    /// A random relief; `None` if both amounts are 0. The noise has an amplitude (root mean square) from 0 to `roughen`
    /// mean edge lengths, and there are up to `smooth` rounds of smoothing.
    pub fn draw(roughen: f64, smooth: usize, random: &mut impl Rng) -> Option<Self> {
        if roughen <= 0.0 && smooth == 0 {
            return None;
        }
        let [noise, correlated, rounds]: [f64; 3] = std::array::from_fn(|_| random.random());
        let rounds = (rounds * (smooth as f64 + 1.0)) as usize;
        Some(Self { rounds: rounds.min(smooth), noise: roughen.max(0.0) * noise, correlated, seed: random.random() })
    }

    /// The mesh with this relief.
    ///
    /// # Errors
    /// Vertices that are not finite afterwards.
    pub fn apply(&self, mesh: &Mesh) -> Result<Mesh, MeshError> {
        let sides = Sides::new(mesh);
        let mut points = mesh.vertices().to_vec();
        for step in STEPS.into_iter().cycle().take(STEPS.len() * self.rounds) {
            let means = sides.means(&points);
            points.iter_mut().zip(means).for_each(|(point, mean)| *point += step * (mean - *point));
        }
        let mesh = Mesh::new(points, mesh.faces().clone())?;
        if self.noise == 0.0 {
            return Ok(mesh);
        }
        let mut uniform = Uniform::new(self.seed);
        let mut white = || -> Vec<f64> { mesh.vertices().iter().map(|_| uniform.signed()).collect() };
        let (own, mut common) = (white(), white());
        for _ in 0..AVERAGES {
            let means = sides.means(&common);
            common = common.iter().zip(means).map(|(value, mean)| 0.5 * (value + mean)).collect();
        }
        let scale = self.noise * sides.mean_length(mesh.vertices());
        let [own_scale, common_scale] =
            [(1.0 - self.correlated, &own), (self.correlated, &common)].map(|(share, noise)| {
                let square = noise.iter().map(|value| value * value).sum::<f64>() / noise.len().max(1) as f64;
                scale * (share / square.max(f64::MIN_POSITIVE)).sqrt()
            });
        let mut heights = own.iter().zip(&common).map(|(own, common)| own_scale * own + common_scale * common);
        let mut normals = normals(&mesh).into_iter();
        mesh.map_vertices(|point| point + heights.next().unwrap_or(0.0) * normals.next().unwrap_or(DVec3::ZERO))
    }
}

/// The sides of all faces, as pairs of vertices: inner edges occur twice.
struct Sides {
    ends: Vec<[u32; 2]>,
    /// Number of sides at each vertex.
    degrees: Vec<u32>,
}

impl Sides {
    fn new(mesh: &Mesh) -> Self {
        let mut ends = Vec::with_capacity(mesh.faces().corners().len());
        for face in mesh.faces().iter() {
            ends.extend((0..face.len()).map(|i| [face[i], face[(i + 1) % face.len()]]));
        }
        let mut degrees = vec![0; mesh.vertex_count()];
        ends.as_flattened().iter().for_each(|&v| degrees[v as usize] += 1);
        Self { ends, degrees }
    }

    /// The mean over the neighbours of each vertex; its own value at a vertex without neighbours.
    fn means<T>(&self, values: &[T]) -> Vec<T>
    where
        T: Copy + Default + std::ops::AddAssign + std::ops::Div<f64, Output = T>,
    {
        let mut sums = vec![T::default(); values.len()];
        for &[a, b] in &self.ends {
            sums[a as usize] += values[b as usize];
            sums[b as usize] += values[a as usize];
        }
        let means = sums.iter().zip(values).zip(&self.degrees);
        means.map(|((&sum, &own), &degree)| if degree == 0 { own } else { sum / f64::from(degree) }).collect()
    }

    fn mean_length(&self, points: &[DVec3]) -> f64 {
        let lengths = self.ends.iter().map(|&[a, b]| points[a as usize].distance(points[b as usize]));
        lengths.sum::<f64>() / self.ends.len().max(1) as f64
    }
}

/// Unit normals weighted by area; zero where there is none.
fn normals(mesh: &Mesh) -> Vec<DVec3> {
    let mut normals = vec![DVec3::ZERO; mesh.vertex_count()];
    for triangle in triangle_corners(mesh) {
        let [a, b, c] = triangle.map(|v| mesh.vertices()[v as usize]);
        triangle.iter().for_each(|&v| normals[v as usize] += (b - a).cross(c - a));
    }
    normals.into_iter().map(DVec3::normalize_or_zero).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MeshReport, shapes};
    use rand::SeedableRng;

    fn relief(rounds: usize, noise: f64, correlated: f64) -> Relief {
        Relief { rounds, noise, correlated, seed: 5 }
    }

    #[test]
    fn noise_is_as_high_as_asked_and_correlated_noise_is_smoother() {
        let sphere = shapes::icosphere(4).unwrap();
        let edge = MeshReport::new(&sphere).mean_edge_length;
        let mut steps = Vec::new();
        for correlated in [0.0, 1.0] {
            let rough = relief(0, 0.2, correlated).apply(&sphere).unwrap();
            let heights: Vec<f64> = rough.vertices().iter().map(|v| (v.length() - 1.0) / edge).collect();
            let square = heights.iter().map(|h| h * h).sum::<f64>() / heights.len() as f64;
            assert!((square.sqrt() - 0.2).abs() < 0.01, "{}", square.sqrt());
            let differences =
                Sides::new(&sphere).ends.into_iter().map(|[a, b]| heights[a as usize] - heights[b as usize]);
            steps.push(differences.map(|d| d * d).sum::<f64>());
        }
        assert!(steps[1] < 0.4 * steps[0], "{steps:?}");
    }

    #[test]
    fn smoothing_removes_noise_and_keeps_the_volume() {
        let sphere = shapes::icosphere(4).unwrap();
        let rough = relief(0, 0.3, 0.0).apply(&sphere).unwrap();
        let smooth = relief(20, 0.0, 0.0).apply(&rough).unwrap();
        let spread = |mesh: &Mesh| {
            let lengths: Vec<f64> = mesh.vertices().iter().map(|v| v.length()).collect();
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            (mean, (lengths.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / lengths.len() as f64).sqrt())
        };
        assert!(spread(&smooth).1 < 0.4 * spread(&rough).1);
        assert!((spread(&smooth).0 - 1.0).abs() < 0.02, "{}", spread(&smooth).0);
        assert_eq!(smooth.faces(), sphere.faces());
    }

    #[test]
    fn amounts_are_drawn_up_to_the_largest() {
        let mut random = rand_chacha::ChaCha8Rng::from_seed([1; 32]);
        assert_eq!(Relief::draw(0.0, 0, &mut random), None);
        let drawn: Vec<Relief> = (0..300).filter_map(|_| Relief::draw(0.5, 3, &mut random)).collect();
        let most = drawn.iter().map(|relief| relief.noise).fold(0.0, f64::max);
        assert!(most > 0.45 && most <= 0.5);
        assert!((0..=3).all(|rounds| drawn.iter().any(|relief| relief.rounds == rounds)));
        assert!(drawn.iter().all(|relief| relief.rounds <= 3));
    }
}
