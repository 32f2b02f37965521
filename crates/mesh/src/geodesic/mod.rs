//! Geodesic distances: heat gives the order in which a front reaches the vertices, sweeps in this
//! order give the distances.
//!
//! Heat that spreads from a source for a short time `t` falls off as `exp(-d / sqrt(t))` with the
//! distance `d` (Varadhan, 1967; Crane, Weischedel and Wardetzky, *Geodesics in Heat*, 2013). One
//! implicit step,
//!
//! ```text
//! (M + t L) u = delta_source,
//! ```
//!
//! with the Laplacian of [`surface`](crate::surface) and `t` the square of the mean side, is too
//! coarse for the distances themselves. But its order is that of the distances up to a few percent. In that
//! order each vertex takes its distance from its triangles, laid out in the plane with a point
//! source behind them (the update of Novotni and Klein, *Computing Geodesic Distances on
//! Triangular Meshes*, 2002, without its queue), until nothing changes. The result is exact on flat
//! pieces.

mod unfolding;

use crate::Mesh;
use crate::classes::bucket;
use crate::surface::metric::{mean_side, side_lengths};
use crate::surface::{PointHeat, SurfaceError, SurfaceLaplacian};
use rayon::prelude::*;
use std::collections::VecDeque;
use unfolding::Fans;

/// Largest exponent of the decay of heat, so that it stays in the range of numbers.
const LARGEST_DECAY: f64 = 600.0;
/// Number of sources that are solved together.
const BLOCK: usize = 8;

/// Error of computing geodesic distances.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GeodesicError {
    /// The mesh has no surface, or its Laplacian cannot be factored.
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    /// The source is not a vertex.
    #[error("the source {vertex} is not one of the {vertices} vertices (they count from 0)")]
    NoSuchVertex {
        /// The given source.
        vertex: usize,
        /// Number of vertices.
        vertices: usize,
    },
}

/// Geodesic distances on one mesh, from any number of sources.
///
/// Works on open, non-manifold and non-orientable meshes of any polygons, and with thin or flat
/// triangles. Vertices at equal positions are one point of the surface. Threads can share a solver.
///
/// ```
/// use gemcnn_mesh::{GeodesicSolver, shapes};
/// let sphere = shapes::icosphere(3)?;
/// let solver = GeodesicSolver::new(&sphere)?;
/// let distances = solver.distances_from(0)?;
/// for (vertex, distance) in sphere.vertices().iter().zip(&distances) {
///     let exact = vertex.angle_between(sphere.vertices()[0]);
///     assert!((distance - exact).abs() < 0.1); // less than an edge, even at the antipode
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct GeodesicSolver {
    /// Node of every vertex: its distinct position, unless the vertex is apart.
    node: Vec<u32>,
    /// True for vertices that no triangle reaches, nor one at the same position.
    is_apart: Vec<bool>,
    heat: PointHeat,
    fans: Fans,
    /// Factor from lengths of the mesh to lengths at unit area.
    scale: f64,
}

impl GeodesicSolver {
    /// Prepares a mesh: factors the heat equation.
    ///
    /// # Errors
    /// No face has three distinct positions, triangles are too thin or too different in size for
    /// the factor, or memory is exhausted.
    pub fn new(mesh: &Mesh) -> Result<Self, GeodesicError> {
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let sides = side_lengths(&laplacian.positions, &laplacian.triangles);
        let step = mean_side(&sides).max(longest_path(&laplacian) / LARGEST_DECAY);
        Ok(Self {
            is_apart: laplacian.is_apart().to_vec(),
            heat: PointHeat::new(&laplacian, step * step)?,
            fans: Fans::new(laplacian.positions.len(), &laplacian.triangles, &sides),
            node: laplacian.node_of_vertex().to_vec(),
            scale: laplacian.scale(),
        })
    }

    /// Distances of all vertices from one; infinite on other components.
    ///
    /// # Errors
    /// The source is not a vertex.
    pub fn distances_from(&self, vertex: usize) -> Result<Vec<f64>, GeodesicError> {
        Ok(self.distances_from_each(&[vertex])?.remove(0))
    }

    /// Distances of all vertices from each of several, one row for each. Faster than
    /// [`distances_from`](Self::distances_from) for each of them: heat is solved for eight sources at a time.
    ///
    /// # Errors
    /// A source is not a vertex.
    pub fn distances_from_each(&self, vertices: &[usize]) -> Result<Vec<Vec<f64>>, GeodesicError> {
        let node_of = |&vertex: &usize| match self.node.get(vertex) {
            Some(&node) => Ok(node),
            None => Err(GeodesicError::NoSuchVertex { vertex, vertices: self.node.len() }),
        };
        let sources: Vec<u32> = vertices.iter().map(node_of).collect::<Result<_, _>>()?;
        let blocks = sources.par_chunks(BLOCK).flat_map_iter(|sources| {
            let heats = self.heat.spread(sources);
            let sources = sources.iter().zip(heats);
            sources.map(|(&source, heat)| self.sweep(source, &heat))
        });
        let mut rows: Vec<Vec<f64>> = blocks.collect();
        for (row, &source) in rows.iter_mut().zip(vertices) {
            for (vertex, distance) in row.iter_mut().enumerate() {
                if self.is_apart[vertex] || self.is_apart[source] {
                    *distance = if vertex == source { 0.0 } else { f64::INFINITY };
                }
            }
        }
        Ok(rows)
    }

    /// Distances of the vertices in the order in which the heat of the source falls off.
    fn sweep(&self, source: u32, heat: &[f64]) -> Vec<f64> {
        let others = (0..heat.len() as u32).filter(|&node| node != source);
        let mut order: Vec<u32> = others.collect();
        order.sort_unstable_by(|&a, &b| {
            let [of_a, of_b] = [a, b].map(|node| heat[node as usize]);
            of_b.total_cmp(&of_a).then(a.cmp(&b))
        });
        let distances = self.fans.distances(source, &order);
        let unscaled = |&node: &u32| match distances[node as usize] {
            f64::INFINITY => f64::INFINITY,
            distance => (distance / self.scale).min(f64::MAX),
        };
        self.node.iter().map(unscaled).collect()
    }
}

/// Upper bound of the length of the shortest path along edges between any two connected nodes.
fn longest_path(laplacian: &SurfaceLaplacian) -> f64 {
    let positions = &laplacian.positions;
    let edges = laplacian.node_edges().iter();
    let both_ways = edges.flat_map(|&[a, b]| [(a, b), (b, a)]);
    let (offsets, neighbours) = bucket(positions.len(), both_ways);
    let mut reach = vec![f64::NAN; positions.len()];
    let mut queue = VecDeque::new();
    let mut farthest: f64 = 0.0;
    for first in 0..positions.len() {
        if !reach[first].is_nan() {
            continue;
        }
        reach[first] = 0.0;
        queue.push_back(first);
        while let Some(node) = queue.pop_front() {
            farthest = farthest.max(reach[node]);
            for &next in &neighbours[offsets[node] as usize..offsets[node + 1] as usize] {
                let next = next as usize;
                if reach[next].is_nan() {
                    reach[next] = reach[node] + positions[node].distance(positions[next]);
                    queue.push_back(next);
                }
            }
        }
    }
    // Through the first node of the component.
    2.0 * farthest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{self, Cells};

    /// Share of the pairs of nodes with clearly different distances that heat puts in the wrong order.
    #[test]
    fn heat_falls_off_in_the_order_of_distance() {
        for mesh in [
            shapes::icosphere(4).unwrap(),
            shapes::grid(40, 40, Cells::Triangles).unwrap(),
            shapes::torus(60, 24, 1.0, 0.4, Cells::Triangles).unwrap(),
        ] {
            let solver = GeodesicSolver::new(&mesh).unwrap();
            let distances = solver.distances_from(17).unwrap();
            let heat = &solver.heat.spread(&[17])[0];
            let (mut wrong, mut pairs) = (0, 0);
            for a in (0..heat.len()).step_by(7) {
                for b in (0..heat.len()).step_by(11) {
                    if distances[a] < 0.9 * distances[b] {
                        pairs += 1;
                        wrong += usize::from(heat[a] <= heat[b]);
                    }
                }
            }
            assert!(wrong * 1000 < pairs, "{wrong} of {pairs}");
        }
    }
}
