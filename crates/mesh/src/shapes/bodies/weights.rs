//! Skinning weights: how much each bone moves each vertex, from heat diffusion on the skin.
//!
//! Every vertex is coupled to its nearest bone and exchanges heat with its neighbours on the
//! surface. In equilibrium, the temperatures `w` of one bone satisfy
//!
//! ```text
//! (L + M H) w = M H p
//! ```
//!
//! where `p` is one where the bone is nearest and zero elsewhere, `L` is the Laplacian of the
//! surface, `M` the area around a vertex and `1 / sqrt(H)` the smoothing distance at a joint, a
//! multiple of the half thickness of the limb. Weights are between zero and one and sum to one. An
//! arm next to the hip has no influence on it, because the distance along the skin is large.

use glam::DVec3;
use rayon::prelude::*;

use super::skeleton::{ANATOMY, BONE_COUNT};
use super::surface::Skin;
use crate::{Adjacency, Mesh};

/// Smoothing distance at a joint, relative to the half thickness of the limb.
const SMOOTHING: f64 = 1.25;
/// Smaller weights are dropped; together they move no vertex by a visible distance.
const NEGLIGIBLE: f64 = 1e-5;
/// The solver stops when the residual has decreased by this factor, or after a maximum number of
/// steps.
const PRECISION: f64 = 1e-8;
const MAX_STEPS: usize = 2000;

/// Weights of the bones that move each vertex, largest first.
#[derive(Debug, Clone)]
pub(super) struct SkinWeights {
    /// Start of each vertex in `entries`, followed by the length of `entries`.
    offsets: Vec<u32>,
    entries: Vec<(u8, f64)>,
}

impl SkinWeights {
    /// Computes the weights of all vertices of the body at rest.
    pub(super) fn new(mesh: &Mesh, adjacency: &Adjacency, skin: &Skin) -> Self {
        let nearest: Vec<usize> = mesh.vertices().par_iter().map(|&p| skin.nearest_bone(p)).collect();
        // M H, in units of the Laplacian weight 1 / sqrt(3) of an edge between equilateral
        // triangles.
        let hold: Vec<f64> = vertex_areas(mesh)
            .iter()
            .zip(&nearest)
            .map(|(area, &bone)| {
                let reach = SMOOTHING * ANATOMY.bones[bone].radius;
                area * 3.0_f64.sqrt() / (reach * reach)
            })
            .collect();
        let by_bone: Vec<Vec<f64>> = (0..BONE_COUNT)
            .into_par_iter()
            .map(|bone| equilibrium(adjacency, &hold, |vertex| nearest[vertex] == bone))
            .collect();

        let mut offsets = vec![0];
        let mut entries = Vec::with_capacity(4 * mesh.vertex_count());
        for vertex in 0..mesh.vertex_count() {
            let start = entries.len();
            let shares = by_bone.iter().map(|weights| weights[vertex]);
            entries.extend((0u8..).zip(shares).filter(|&(_, weight)| weight > NEGLIGIBLE));
            let own = &mut entries[start..];
            own.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let total: f64 = own.iter().map(|(_, weight)| weight).sum();
            own.iter_mut().for_each(|(_, weight)| *weight /= total);
            offsets.push(entries.len() as u32);
        }
        Self { offsets, entries }
    }

    /// Bones that move a vertex and their weights, largest first.
    pub(super) fn of(&self, vertex: usize) -> &[(u8, f64)] {
        &self.entries[self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize]
    }
}

/// A third of the area of the triangles around each vertex.
fn vertex_areas(mesh: &Mesh) -> Vec<f64> {
    let mut areas = vec![0.0; mesh.vertex_count()];
    for corners in mesh.faces().iter() {
        let at = |i: usize| mesh.vertices()[corners[i] as usize];
        let area = 0.5 * DVec3::cross(at(1) - at(0), at(2) - at(0)).length();
        for &vertex in corners {
            areas[vertex as usize] += area / 3.0;
        }
    }
    areas
}

/// Solves the equilibrium of one bone by conjugate gradients with a diagonal preconditioner.
fn equilibrium(adjacency: &Adjacency, hold: &[f64], is_held: impl Fn(usize) -> bool) -> Vec<f64> {
    let count = hold.len();
    let diagonal = |v: usize| adjacency.row(v).len() as f64 + hold[v];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut solution: Vec<f64> = (0..count).map(|v| f64::from(u8::from(is_held(v)))).collect();
    // With the initial guess p, the residual M H p - (L + M H) p is - L p.
    let mut residual: Vec<f64> = (0..count)
        .map(|v| {
            let neighbours = adjacency.neighbours_of(v).iter();
            neighbours.map(|&n| solution[n as usize] - solution[v]).sum()
        })
        .collect();
    let mut scaled: Vec<f64> = (0..count).map(|v| residual[v] / diagonal(v)).collect();
    let mut direction = scaled.clone();
    let mut energy = dot(&residual, &scaled);
    let goal = energy * PRECISION * PRECISION;
    let mut image = vec![0.0; count];
    for _ in 0..MAX_STEPS {
        if energy <= goal {
            break;
        }
        for v in 0..count {
            let neighbours = adjacency.neighbours_of(v).iter();
            image[v] = diagonal(v) * direction[v] - neighbours.map(|&n| direction[n as usize]).sum::<f64>();
        }
        let step = energy / dot(&direction, &image);
        for v in 0..count {
            solution[v] += step * direction[v];
            residual[v] -= step * image[v];
            scaled[v] = residual[v] / diagonal(v);
        }
        let last = std::mem::replace(&mut energy, dot(&residual, &scaled));
        for v in 0..count {
            direction[v] = scaled[v] + energy / last * direction[v];
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::icosphere;

    #[test]
    fn heats_of_bones_are_a_partition_of_unity() {
        let mesh = icosphere(3).unwrap();
        let adjacency = Adjacency::one_ring(&mesh).unwrap();
        let hold: Vec<f64> = vertex_areas(&mesh).iter().map(|area| 30.0 * area).collect();
        let upper = |vertex: usize| mesh.vertices()[vertex].z > 0.2;
        let above = equilibrium(&adjacency, &hold, upper);
        let below = equilibrium(&adjacency, &hold, |vertex| !upper(vertex));
        for v in 0..mesh.vertex_count() {
            assert!((above[v] + below[v] - 1.0).abs() < 1e-6);
            assert!((-1e-6..=1.0 + 1e-6).contains(&above[v]));
            // Check the equation row by row.
            let flow: f64 = adjacency.neighbours_of(v).iter().map(|&n| above[v] - above[n as usize]).sum();
            let held = hold[v] * (above[v] - f64::from(u8::from(upper(v))));
            assert!((flow + held).abs() < 1e-6);
        }
        // The weights are smooth across the border: no edge has a jump.
        let steepest = (0..mesh.vertex_count())
            .flat_map(|v| adjacency.neighbours_of(v).iter().map(move |&n| (v, n as usize)))
            .map(|(a, b)| (above[a] - above[b]).abs())
            .fold(0.0, f64::max);
        assert!(steepest < 0.45, "{steepest}");
    }
}
