//! Points inside the cells of the vertices of a mesh, and fields at these points.

use crate::NnError;
use crate::error::check_size;
use gemcnn_kernels::{FeatureType, Real, irrep_dimension};
use gemcnn_mesh::GaugeGraph;

/// A point for each vertex of a mesh, inside the cell of the vertex. The value of a field at a point is the weighted
/// mean of its values at the vertex and at two neighbours, transported to the vertex. The frame of a point is that of
/// its vertex.
///
/// The points are a sample of the surface that does not lie in the vertices: a network that is trained on many such
/// samples cannot learn the meshing.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{CellPoints, FeatureType};
/// let graph = GaugeGraph::new(&shapes::icosphere(2)?, &GeometryOptions::default())?;
/// let mut draws = [0.3, 0.8, 0.1, 0.6].into_iter().cycle();
/// let points = CellPoints::<f32>::random(&graph, &mut || draws.next().unwrap_or(0.0));
/// let constant = points.interpolate(&FeatureType::scalars(1), &[2.0; 162])?;
/// assert!(constant.iter().all(|value| (value - 2.0).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CellPoints<T> {
    points: Vec<CellPoint<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct CellPoint<T> {
    /// Weight of the vertex itself.
    own: T,
    neighbours: [Neighbour<T>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Neighbour<T> {
    vertex: u32,
    weight: T,
    /// Transport angle to the vertex of the point.
    transport: T,
}

impl<T: Real> CellPoints<T> {
    /// A random point in each cell. `uniform` returns random numbers in `[0, 1)`. The weight of a vertex is never
    /// smaller than those of its neighbours. A vertex without neighbours is its own point.
    pub fn random(graph: &GaugeGraph, uniform: &mut dyn FnMut() -> f64) -> Self {
        let point = |p: usize| {
            let row = graph.offsets()[p] as usize..graph.offsets()[p + 1] as usize;
            // Draws are the same for all vertices, so that the points of one do not depend on the degree of others.
            let [first, second, u, v] = [uniform(), uniform(), uniform(), uniform()];
            let neighbour = |draw: f64, weight: f64| {
                let edge = row.start + (draw * row.len() as f64) as usize;
                match row.contains(&edge) {
                    true => Neighbour {
                        vertex: graph.neighbours()[edge],
                        weight: T::of(weight),
                        transport: T::of(graph.transport()[edge]),
                    },
                    false => Neighbour {
                        vertex: p as u32,
                        weight: T::of(weight),
                        transport: T::zero(),
                    },
                }
            };
            // Uniform in the triangle, folded so that the largest weight belongs to the vertex.
            let (u, v) = if u + v > 1.0 {
                (1.0 - u, 1.0 - v)
            } else {
                (u, v)
            };
            let mut weights = [1.0 - u - v, u, v];
            let largest = (0..3).fold(0, |a, b| if weights[b] > weights[a] { b } else { a });
            weights.swap(0, largest);
            CellPoint {
                own: T::of(weights[0]),
                neighbours: [neighbour(first, weights[1]), neighbour(second, weights[2])],
            }
        };
        Self {
            points: (0..graph.vertex_count()).map(point).collect(),
        }
    }

    /// Number of points: that of the vertices.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// True if there are no points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The values of fields at the points, from those at the vertices.
    ///
    /// # Errors
    /// Another number of values than the vertices need.
    pub fn interpolate(&self, fields: &FeatureType, values: &[T]) -> Result<Vec<T>, NnError> {
        let width = fields.dimension();
        check_size("values of a field", self.len() * width, values.len())?;
        let mut result = vec![T::zero(); values.len()];
        if width == 0 {
            return Ok(result);
        }
        let row_of = |vertex: u32| &values[vertex as usize * width..][..width];
        for (p, (point, y)) in self
            .points
            .iter()
            .zip(result.chunks_exact_mut(width))
            .enumerate()
        {
            for (y, &x) in y.iter_mut().zip(row_of(p as u32)) {
                *y = point.own * x;
            }
            for neighbour in point.neighbours {
                add_transported(fields, neighbour, row_of(neighbour.vertex), y);
            }
        }
        Ok(result)
    }
}

/// Adds the weighted and transported row of a neighbour to `y`.
fn add_transported<T: Real>(fields: &FeatureType, from: Neighbour<T>, x: &[T], y: &mut [T]) {
    for (order, channels) in fields.orders() {
        let range = fields.range(order);
        let (x, y) = (&x[range.clone()], &mut y[range]);
        if irrep_dimension(order) == 1 {
            for (y, &x) in y.iter_mut().zip(x) {
                *y += from.weight * x;
            }
            continue;
        }
        let (sin, cos) = (T::of(order as f64) * from.transport).sin_cos();
        let (cos, sin) = (from.weight * cos, from.weight * sin);
        let (x_re, x_im) = x.split_at(channels);
        let (y_re, y_im) = y.split_at_mut(channels);
        let pairs = x_re.iter().zip(x_im).zip(y_re.iter_mut().zip(y_im));
        for ((&a, &b), (re, im)) in pairs {
            *re += cos * a - sin * b;
            *im += sin * a + cos * b;
        }
    }
}
