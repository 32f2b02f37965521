//! Anisotropic heat kernels along principal directions of curvature.

use super::{Discs, Envelope, PatchRow};
use crate::features::Curvature;
use crate::surface::{Jets, SurfaceError, SurfaceLaplacian};
use crate::{GaugeGraph, Mesh};
use rayon::prelude::*;
use std::f64::consts::PI;

/// Weights below this fraction of the largest of a kernel are left out.
const MIN_WEIGHT: f64 = 1e-2;
/// Diffusion time of a step, as a fraction of the squared radius: four steps spread to half the radius.
const STEP: f64 = 1.0 / 32.0;

/// Heat kernels of anisotropic diffusion around each vertex.
///
/// Diffusion has the conductivity 1 along the direction at an angle to the principal direction of largest curvature,
/// and `1 / anisotropy` across it. A kernel is `k` implicit steps of time `radius^2 / 32` from the vertex,
///
/// ```text
/// h_k = (M (M + t L)^-1)^k e_vertex,
/// ```
///
/// with finite elements, on the disc of the radius, held at 0 outside. Where it is negative, because the triangles are
/// too coarse for the anisotropy, it is set to 0. The weights of a kernel sum to 1. Kernels have a direction but no
/// sense, so they are those of any frame. On umbilical vertices the direction is arbitrary.
#[derive(Debug, Clone, PartialEq)]
pub struct AnisotropicHeat {
    /// Radius of the discs, in square roots of the area of the mesh.
    pub radius: f64,
    /// Number of directions, evenly spaced over half a turn.
    pub angles: usize,
    /// Ratio of the conductivities along and across the direction.
    pub anisotropy: f64,
    /// Numbers of steps, ascending.
    pub steps: Vec<usize>,
    /// Largest number of vertices of a disc.
    pub limit: usize,
}

impl AnisotropicHeat {
    /// The kernels of every vertex: for each angle and each number of steps a row of vertices and weights.
    ///
    /// # Errors
    /// No face has three distinct positions, or `graph` is that of another mesh.
    pub fn rows(&self, mesh: &Mesh, graph: &GaugeGraph) -> Result<Vec<PatchRow>, SurfaceError> {
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let jets = Jets::new(&laplacian, graph.frames())?;
        let curvature = Curvature::new(mesh, graph, &jets)?;
        let stiffness = self.stiffness(&laplacian, graph, &curvature.traceless);
        let nodes = laplacian.node_of_vertex();
        let mut mass = vec![0.0; laplacian.positions.len()];
        for (&node, own) in nodes.iter().zip(laplacian.mass()) {
            mass[node as usize] += own;
        }
        let discs = Discs::new(graph, self.radius / laplacian.scale(), self.limit);
        let step = STEP * self.radius * self.radius;
        let rows = (0..mesh.vertex_count()).into_par_iter().map_init(
            || vec![u32::MAX; mass.len()],
            |place, centre| {
                let disc = Disc::new(&discs, centre, nodes, place);
                let kernels = (0..self.angles).flat_map(|angle| {
                    let mut matrix = Envelope::new(disc.members.len());
                    for (row, &(_, node)) in disc.members.iter().enumerate() {
                        for &(other, ref values) in &stiffness[node] {
                            let column = place[other as usize] as usize;
                            matrix.add(row, column, step * values[angle]);
                        }
                        matrix.add(row, row, mass[node]);
                    }
                    matrix.factor();
                    self.spread(&disc, &mass, &matrix)
                });
                let kernels: Vec<PatchRow> = kernels.collect();
                let nodes = disc.members.iter().map(|&(_, node)| node);
                nodes.for_each(|node| place[node] = u32::MAX);
                kernels
            },
        );
        Ok(rows.flatten_iter().collect())
    }

    /// The kernels of one direction on a disc.
    fn spread(&self, disc: &Disc, mass: &[f64], factor: &Envelope) -> Vec<PatchRow> {
        let members = &disc.members;
        let mut heat = vec![0.0; members.len()];
        heat[disc.centre] = 1.0;
        let mut done = 0;
        let mut kernels = Vec::with_capacity(self.steps.len());
        for &steps in &self.steps {
            for _ in done..steps {
                factor.solve(&mut heat);
                let each = heat.iter_mut().zip(members);
                each.for_each(|(heat, &(_, node))| *heat *= mass[node]);
            }
            done = steps;
            let least = MIN_WEIGHT * heat.iter().fold(0.0, |most: f64, &h| most.max(h));
            let kept = || (members.iter().zip(&heat)).filter(|&(_, &h)| h > 0.0 && h >= least);
            let total: f64 = kept().map(|(_, h)| h).sum();
            kernels.push(kept().map(|(&(v, _), h)| (v, h / total)).collect());
        }
        kernels
    }

    /// Rows of the stiffness matrices over nodes, with the entries of all angles together.
    fn stiffness(
        &self,
        laplacian: &SurfaceLaplacian,
        graph: &GaugeGraph,
        traceless: &[f64],
    ) -> Vec<Vec<(u32, Vec<f64>)>> {
        let mut rows: Vec<Vec<(u32, Vec<f64>)>> = vec![Vec::new(); laplacian.positions.len()];
        for triangle in &laplacian.triangles {
            let corners = triangle.map(|node| laplacian.positions[node as usize]);
            let side = corners[1] - corners[0];
            let normal = side.cross(corners[2] - corners[0]);
            let twice_area = normal.length();
            let axis = side.normalize_or_zero();
            let across = normal.normalize_or_zero().cross(axis);
            if across.length_squared() < 0.5 {
                continue;
            }
            // The principal direction of the triangle: a mean of directions without sense, by their strength.
            let mut mean = [0.0; 2];
            for &node in triangle {
                let vertex = laplacian.representative(node) as usize;
                let [a, b] = [traceless[2 * vertex], traceless[2 * vertex + 1]];
                let (sine, cosine) = (0.5 * b.atan2(a)).sin_cos();
                let direction = graph.frames()[vertex].vector([cosine, sine]);
                let doubled: f64 = 2.0 * direction.dot(across).atan2(direction.dot(axis));
                let strength = a.hypot(b);
                mean = [mean[0] + strength * doubled.cos(), mean[1] + strength * doubled.sin()];
            }
            let principal = 0.5 * mean[1].atan2(mean[0]);
            // Gradients of the hat functions in the plane of the triangle.
            let gradients: [[f64; 2]; 3] = std::array::from_fn(|i| {
                let edge = corners[(i + 2) % 3] - corners[(i + 1) % 3];
                let [x, y] = [edge.dot(axis), edge.dot(across)];
                [-y / twice_area, x / twice_area]
            });
            for (i, j) in (0..9).map(|at| (at / 3, at % 3)) {
                let values = (0..self.angles).map(|angle| {
                    let (sine, cosine) = (principal + PI * angle as f64 / self.angles as f64).sin_cos();
                    let along = |g: [f64; 2]| g[0] * cosine + g[1] * sine;
                    let off = |g: [f64; 2]| g[1] * cosine - g[0] * sine;
                    let [g, h] = [gradients[i], gradients[j]];
                    0.5 * twice_area * (along(g) * along(h) + off(g) * off(h) / self.anisotropy)
                });
                let row = &mut rows[triangle[i] as usize];
                match row.iter_mut().find(|(node, _)| *node == triangle[j]) {
                    Some((_, sums)) => sums.iter_mut().zip(values).for_each(|(s, v)| *s += v),
                    None => row.push((triangle[j], values.collect())),
                }
            }
        }
        rows
    }
}

/// The distinct nodes of a disc.
struct Disc {
    /// A vertex and its node, along the first axis of the disc, so that the entries of matrices lie near the diagonal.
    members: Vec<(u32, usize)>,
    /// The member in the centre.
    centre: usize,
}

impl Disc {
    /// Writes the places of the members to `place`, which holds `u32::MAX` for all nodes.
    fn new(discs: &Discs, centre: usize, nodes: &[u32], place: &mut [u32]) -> Self {
        let entries = discs.row(centre);
        let mut found: Vec<(f64, u32, usize)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let vertex = discs.vertices[entry];
            let node = nodes[vertex as usize] as usize;
            if place[node] == u32::MAX {
                place[node] = 0;
                found.push((discs.coordinates[entry][0], vertex, node));
            }
        }
        // The centre is the first entry, so its node is met first.
        let centre = found.first().map(|first| first.2);
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (at, &(_, _, node)) in found.iter().enumerate() {
            place[node] = at as u32;
        }
        Self {
            centre: centre.map_or(0, |node| place[node] as usize),
            members: found.into_iter().map(|(_, v, node)| (v, node)).collect(),
        }
    }
}
