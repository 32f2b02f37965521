//! Points inside the cells of the vertices of a mesh, and fields at these points.

use crate::Result;
use crate::error::check_size;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::diffusion::points::{DeviceCellPoint, DeviceCellPoints};
use gemcnn_kernels::{FeatureType, Real, compiled, irrep_dimension};
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
        compiled!(CellPoints::random_points as fn(&GaugeGraph, &mut dyn FnMut() -> f64) -> CellPoints<T>)(
            graph, uniform,
        )
    }

    fn random_points(graph: &GaugeGraph, uniform: &mut dyn FnMut() -> f64) -> Self {
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
                    false => Neighbour { vertex: p as u32, weight: T::of(weight), transport: T::zero() },
                }
            };
            // Uniform in the triangle, folded so that the largest weight belongs to the vertex.
            let (u, v) = if u + v > 1.0 { (1.0 - u, 1.0 - v) } else { (u, v) };
            let mut weights = [1.0 - u - v, u, v];
            let largest = (0..3).fold(0, |a, b| if weights[b] > weights[a] { b } else { a });
            weights.swap(0, largest);
            CellPoint {
                own: T::of(weights[0]),
                neighbours: [neighbour(first, weights[1]), neighbour(second, weights[2])],
            }
        };
        Self { points: (0..graph.vertex_count()).map(point).collect() }
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
    pub fn interpolate(&self, fields: &FeatureType, values: &[T]) -> Result<Vec<T>> {
        check_size("values of a field", self.len() * fields.dimension(), values.len())?;
        let mut result = Vec::with_capacity(values.len());
        self.append(fields, values, &mut result);
        Ok(result)
    }

    /// Appends the values of fields at the points to `result`. There is a row of `values` for each point.
    pub(crate) fn append(&self, fields: &FeatureType, values: &[T], result: &mut Vec<T>) {
        compiled!(CellPoints::append_rows as fn(&CellPoints<T>, &FeatureType, &[T], &mut Vec<T>))(
            self, fields, values, result,
        );
    }

    /// The points on a GPU.
    pub(crate) fn upload(&self, device: &CudaDevice) -> Result<DeviceCellPoints> {
        let single = |value: T| value.as_f64() as f32;
        let points = self.points.iter().map(|point| DeviceCellPoint {
            own: single(point.own),
            vertices: point.neighbours.map(|neighbour| neighbour.vertex),
            weights: point.neighbours.map(|neighbour| single(neighbour.weight)),
            transport: point.neighbours.map(|neighbour| single(neighbour.transport)),
        });
        Ok(DeviceCellPoints::new(device, &points.collect::<Vec<_>>())?)
    }

    fn append_rows(&self, fields: &FeatureType, values: &[T], result: &mut Vec<T>) {
        let width = fields.dimension();
        for (p, point) in self.points.iter().enumerate() {
            let row_of = |vertex: usize| &values[vertex * width..][..width];
            let [a, b] = point.neighbours;
            let rows = [row_of(p), row_of(a.vertex as usize), row_of(b.vertex as usize)];
            for (order, channels) in fields.orders() {
                let rows = rows.map(|row| &row[fields.range(order)]);
                match irrep_dimension(order) {
                    1 => scalars(point, rows, result),
                    _ => rotated(point, order, rows.map(|row| row.split_at(channels)), result),
                }
            }
        }
    }
}

/// Appends the means of scalars at the vertex and its two neighbours.
fn scalars<T: Real>(point: &CellPoint<T>, [x, a, b]: [&[T]; 3], result: &mut Vec<T>) {
    let weights = point.neighbours.map(|neighbour| neighbour.weight);
    let values = x.iter().zip(a.iter().zip(b));
    result.extend(values.map(|(&x, (&a, &b))| point.own * x + weights[0] * a + weights[1] * b));
}

/// Appends the means of values of an order above 0, real parts first.
fn rotated<T: Real>(point: &CellPoint<T>, order: usize, [x, a, b]: [(&[T], &[T]); 3], result: &mut Vec<T>) {
    let phases = point.neighbours.map(|neighbour| {
        let (sin, cos) = (T::of(order as f64) * neighbour.transport).sin_cos();
        (neighbour.weight * cos, neighbour.weight * sin)
    });
    let [(ca, sa), (cb, sb)] = phases;
    let rows = (a.0.iter().zip(a.1)).zip(b.0.iter().zip(b.1));
    let real = x.0.iter().zip(rows.clone());
    result.extend(real.map(|(&x, ((&ar, &ai), (&br, &bi)))| point.own * x + ca * ar - sa * ai + cb * br - sb * bi));
    let imaginary = x.1.iter().zip(rows);
    result
        .extend(imaginary.map(|(&x, ((&ar, &ai), (&br, &bi)))| point.own * x + sa * ar + ca * ai + sb * br + cb * bi));
}
