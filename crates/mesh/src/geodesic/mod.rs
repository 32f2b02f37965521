//! Geodesic distances: the heat method, then sweeps that make them exact on flat pieces.
//!
//! Heat that spreads from the source for a short time falls off away from it, so its gradient points
//! along geodesics, if not with the right length. Scaled to unit length and turned around it is the
//! gradient of the distance, which a Poisson equation gives back (Crane, Weischedel and Wardetzky,
//! *Geodesics in Heat*, 2013):
//!
//! ```text
//! (A + t L) u = delta_source,    X = -grad u / |grad u|,    L d = -div X,
//! ```
//!
//! with `L` the cotangent Laplacian (positive), `A` the areas of the vertices and `t` the square of the
//! mean edge length. Both matrices are factored once; a source then costs two substitutions.
//!
//! The result is some percent too short, more near the source. It does know in which order the front
//! reaches the vertices, and in that order each takes its distance anew from its triangles, laid out in
//! the plane with a point source behind them (the update of Novotni and Klein, *Computing Geodesic
//! Distances on Triangular Meshes*, 2002, without its queue), until nothing changes.

mod cholesky;
mod metric;
mod ordering;
mod unfolding;

use crate::Mesh;
use crate::classes::{Classes, bucket};
use crate::geometry::of_moderate_size;
use cholesky::{Cholesky, LowerRows};
use glam::DVec2;
use metric::{Triangle, intrinsic_triangles};
pub(crate) use metric::{heron_area, mean_side, mollification, side_lengths};
pub(crate) use ordering::dissection_order;
use unfolding::Fans;

/// Heat falls off as `exp(-distance / sqrt(t))`; beyond this exponent it would leave the numbers.
const LARGEST_DECAY: f64 = 600.0;

/// Why there are no geodesic distances.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeodesicError {
    /// All sides of all faces have length zero.
    #[error("all corners of the {faces} faces lie on one point: there is no surface to measure on")]
    NoExtent {
        /// How many faces there are.
        faces: usize,
    },
    /// The equations broke down in rounding.
    #[error(
        "the equations lose all precision at vertex {vertex}: the triangles around it are too thin or too different in size; repair or remesh"
    )]
    IllConditioned {
        /// The vertex.
        vertex: usize,
    },
    /// No room for the factors.
    #[error(
        "the factors of the equations need {bytes} bytes of memory, which are not to be had: use a coarser mesh"
    )]
    OutOfMemory {
        /// How many bytes they need.
        bytes: usize,
    },
    /// A source that is no vertex.
    #[error("the source {vertex} is not one of the {vertices} vertices (they count from 0)")]
    NoSuchVertex {
        /// The source that was given.
        vertex: usize,
        /// How many vertices there are.
        vertices: usize,
    },
}

/// Geodesic distances on one mesh, from any number of sources.
///
/// Works on open, non-manifold and non-orientable meshes of any polygons, and with thin or flat
/// triangles, whose sides are lengthened by a hundred-thousandth of the mean edge where needed. It can be
/// shared by threads, each asking for its own source.
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
    /// Place of each vertex in the order of elimination, in which everything else is numbered.
    place: Vec<u32>,
    triangles: Vec<Triangle>,
    fans: Fans,
    /// Component of each vertex: the first of its vertices, where the Poisson equation is held at zero.
    component: Vec<u32>,
    heat: Cholesky,
    poisson: Cholesky,
    /// The distances were computed on a mesh scaled by this.
    scale: f64,
}

impl GeodesicSolver {
    /// Prepares a mesh: factors the equations.
    ///
    /// # Errors
    /// Faces without any extent, triangles too bad to compute with, or no memory for the factors.
    pub fn new(mesh: &Mesh) -> Result<Self, GeodesicError> {
        if let Some((moderate, scale)) = of_moderate_size(mesh) {
            let mut solver = Self::new(&moderate)?;
            solver.scale = scale;
            return Ok(solver);
        }
        let (mut triangles, mean_side) = intrinsic_triangles(mesh)?;
        let count = mesh.vertex_count();
        let edges = distinct_edges(&triangles);
        let order = dissection_order(mesh.vertices(), &edges);
        let mut place = vec![0; count];
        for (new, &old) in order.iter().enumerate() {
            place[old as usize] = new as u32;
        }
        for triangle in &mut triangles {
            triangle.corners = triangle.corners.map(|corner| place[corner as usize]);
        }
        let edges = distinct_edges(&triangles);
        let component = components(count, &edges);
        let step = time_step(mesh, &order, &edges, mean_side);
        let laplacian = laplacian(count, &triangles, &edges);
        let mut poisson = laplacian.clone();
        poisson.hold(|vertex| component[vertex] as usize == vertex);
        let mut heat = laplacian;
        heat.scale(step);
        add_areas(&mut heat, &triangles);
        let (heat, poisson) = rayon::join(|| Cholesky::new(&heat), || Cholesky::new(&poisson));
        let name = |error: cholesky::Failure| match error {
            cholesky::Failure::OutOfMemory { bytes } => GeodesicError::OutOfMemory { bytes },
            cholesky::Failure::Pivot { row } => GeodesicError::IllConditioned {
                vertex: order[row] as usize,
            },
        };
        Ok(Self {
            fans: Fans::new(count, &triangles),
            triangles,
            component,
            heat: heat.map_err(name)?,
            poisson: poisson.map_err(name)?,
            place,
            scale: 1.0,
        })
    }

    /// Distances of all vertices from one; infinite on other components.
    ///
    /// # Errors
    /// A source that is not a vertex.
    pub fn distances_from(&self, vertex: usize) -> Result<Vec<f64>, GeodesicError> {
        let Some(&source) = self.place.get(vertex) else {
            return Err(GeodesicError::NoSuchVertex {
                vertex,
                vertices: self.place.len(),
            });
        };
        let estimates = self.heat_distances(source as usize);
        let own = self.component[source as usize];
        let vertices = 0..self.place.len() as u32;
        let mut order: Vec<u32> = vertices
            .filter(|&vertex| self.component[vertex as usize] == own && vertex != source)
            .collect();
        order.sort_unstable_by(|&a, &b| {
            let [of_a, of_b] = [a, b].map(|vertex| estimates[vertex as usize]);
            of_a.total_cmp(&of_b).then(a.cmp(&b))
        });
        order.insert(0, source);
        let distances = self.fans.distances(&order);
        let unscaled = |&place: &u32| match distances[place as usize] {
            f64::INFINITY => f64::INFINITY,
            distance => (distance / self.scale).min(f64::MAX),
        };
        Ok(self.place.iter().map(unscaled).collect())
    }

    /// The distances of the heat method from a vertex, up to a constant; numbered by place.
    fn heat_distances(&self, source: usize) -> Vec<f64> {
        let mut heat = vec![0.0; self.place.len()];
        heat[source] = 1.0;
        self.heat.solve(&mut heat);
        let mut distances = self.divergence_of_directions(&heat);
        distances[self.component[source] as usize] = 0.0;
        self.poisson.solve(&mut distances);
        distances
    }

    /// `-div X`, integrated about each vertex, with `X` the unit vectors against the gradient of heat.
    fn divergence_of_directions(&self, heat: &[f64]) -> Vec<f64> {
        let mut divergence = vec![0.0; heat.len()];
        for triangle in &self.triangles {
            let corners = triangle.corners.map(|corner| corner as usize);
            let values = corners.map(|corner| heat[corner]);
            // Far from the source heat is tiny: brought to order one before it is squared.
            let largest = values
                .iter()
                .fold(0.0, |max: f64, value| max.max(value.abs()));
            if largest == 0.0 {
                continue;
            }
            let terms = values.iter().zip(triangle.gradients);
            let gradient: DVec2 = terms.map(|(value, along)| value / largest * along).sum();
            let direction = -gradient.normalize_or_zero();
            for (corner, along) in corners.into_iter().zip(triangle.gradients) {
                divergence[corner] += along.dot(direction);
            }
        }
        divergence
    }
}

/// The sides of the triangles, each once, lower vertex first, sorted.
fn distinct_edges(triangles: &[Triangle]) -> Vec<[u32; 2]> {
    let sides = triangles.iter().flat_map(|triangle| {
        let [a, b, c] = triangle.corners;
        [[a, b], [b, c], [c, a]].map(|[a, b]| [a.min(b), a.max(b)])
    });
    let mut edges: Vec<[u32; 2]> = sides.collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// For each vertex the first vertex of its connected component.
fn components(count: usize, edges: &[[u32; 2]]) -> Vec<u32> {
    let mut classes = Classes::new(count);
    for &[a, b] in edges {
        classes.join(a, b);
    }
    (0..count as u32)
        .map(|vertex| classes.find(vertex))
        .collect()
}

/// The time that heat spreads: the square of the mean edge length, and longer on meshes so many edges
/// across that nothing would arrive at the far end.
fn time_step(mesh: &Mesh, order: &[u32], edges: &[[u32; 2]], mean_side: f64) -> f64 {
    let both_ways = edges.iter().flat_map(|&[a, b]| [(a, b), (b, a)]);
    let (offsets, neighbours) = bucket(order.len(), both_ways);
    let position = |vertex: u32| mesh.vertices()[order[vertex as usize] as usize];
    let mut reach = vec![f64::NAN; order.len()];
    let mut queue = std::collections::VecDeque::new();
    let mut farthest: f64 = 0.0;
    for first in 0..order.len() {
        if !reach[first].is_nan() {
            continue;
        }
        reach[first] = 0.0;
        queue.push_back(first as u32);
        while let Some(vertex) = queue.pop_front() {
            let (at, length) = (vertex as usize, reach[vertex as usize]);
            farthest = farthest.max(length);
            for &next in &neighbours[offsets[at] as usize..offsets[at + 1] as usize] {
                if reach[next as usize].is_nan() {
                    reach[next as usize] = length + position(vertex).distance(position(next));
                    queue.push_back(next);
                }
            }
        }
    }
    // Any two vertices are joined through the first one of their component.
    let across = 2.0 * farthest;
    mean_side.max(across / LARGEST_DECAY).powi(2)
}

/// The cotangent Laplacian, positive semidefinite: `sum over triangles of area grad_i . grad_j`.
fn laplacian(count: usize, triangles: &[Triangle], edges: &[[u32; 2]]) -> LowerRows {
    let mut rows = LowerRows::new(count, edges);
    for triangle in triangles {
        for i in 0..3 {
            for j in 0..=i {
                let product = triangle.gradients[i].dot(triangle.gradients[j]) / triangle.area;
                rows.add(triangle.corners[i], triangle.corners[j], product);
            }
        }
    }
    rows
}

/// Adds to the diagonal the areas of the vertices, a third of each of their triangles. A vertex of no
/// triangle has area 1: any would do.
fn add_areas(matrix: &mut LowerRows, triangles: &[Triangle]) {
    for triangle in triangles {
        for corner in triangle.corners {
            matrix.add(corner, corner, triangle.area / 3.0);
        }
    }
    matrix.fill_empty_diagonal(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{self, Cells};

    #[test]
    fn heat_alone_is_right_to_a_few_percent_on_spheres_and_open_sheets() {
        let sphere = shapes::icosphere(4).unwrap();
        let sheet = shapes::grid(40, 40, Cells::Quads).unwrap();
        let angle = |a: glam::DVec3, b: glam::DVec3| a.angle_between(b);
        let straight = |a: glam::DVec3, b: glam::DVec3| a.distance(b);
        type Exact<'a> = &'a dyn Fn(glam::DVec3, glam::DVec3) -> f64;
        let cases: [(&Mesh, usize, Exact); 3] = [
            (&sphere, 17, &angle),
            (&sheet, 0, &straight),
            (&sheet, 820, &straight),
        ];
        for (mesh, source, exact) in cases {
            let solver = GeodesicSolver::new(mesh).unwrap();
            let heat = solver.heat_distances(solver.place[source] as usize);
            let from = mesh.vertices()[source];
            let mut error = 0.0;
            for (vertex, &position) in mesh.vertices().iter().enumerate() {
                let place = |vertex: usize| solver.place[vertex] as usize;
                let distance = heat[place(vertex)] - heat[place(source)];
                if vertex != source {
                    error += (distance / exact(from, position) - 1.0).abs();
                }
            }
            let mean = error / (mesh.vertex_count() - 1) as f64;
            assert!(mean < 0.03, "mean relative error {mean}");
        }
    }

    #[test]
    fn factors_stay_sparse() {
        for mesh in [
            shapes::icosphere(5).unwrap(),
            shapes::torus(130, 53, 1.0, 0.4, Cells::Triangles).unwrap(),
        ] {
            let solver = GeodesicSolver::new(&mesh).unwrap();
            let per_vertex = solver.heat.entries() / mesh.vertex_count();
            assert!(per_vertex < 60, "{per_vertex} entries for each vertex");
        }
    }
}
