//! Matrix features: second moments of the neighbourhood, decomposed into irreps.

use super::{FeatureField, check_graph};
use crate::{GaugeGraph, GeometryError, Mesh};
use rayon::prelude::*;

const CHANNELS: usize = 7;
/// Total dimension of the orders 0, 1 and 2.
const COMPONENTS: usize = 5;

/// Options of [`matrix_features`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixOptions {
    /// Measure edge vectors in units of the mean edge length of the graph (default true). The
    /// features are then invariant under scaling and of order one. The published implementation
    /// does not do this.
    pub unit_edges: bool,
    /// Count the vertex as its own neighbour, as the published implementation does on radius graphs
    /// (default false).
    pub count_self: bool,
}

impl Default for MatrixOptions {
    /// Edge vectors in units of the mean edge length; the vertex is not its own neighbour.
    fn default() -> Self {
        Self { unit_edges: true, count_self: false }
    }
}

/// Matrix features of the published implementation, of type `7x(0,1,2)`.
///
/// They are means over the neighbours `q` of `p` of three outer products, `d d^T`, `n_q n_q^T` and
/// `d n_q^T` with `d = q - p`, expressed in the frame of `p` and decomposed into irreps. In the
/// table, `M` is the mean of the product; the indices 0 and 1 are the tangent directions and 2 is
/// the normal direction:
///
/// | channel | product | order 0 | order 1 | order 2 |
/// | --- | --- | --- | --- | --- |
/// | 0 | `d d^T` | `(M00 + M11) / 2` | `(M20, M21)` | `((M01 + M10) / 2, (M11 - M00) / 2)` |
/// | 1 | `d d^T` | `M22` | | |
/// | 2 | `n n^T` | as channel 0 | as channel 0 | as channel 0 |
/// | 3 | `n n^T` | as channel 1 | | |
/// | 4 | `d n^T` | `(M10 - M01) / 2` | `(M20, M21)` | `((M01 + M10) / 2, (M11 - M00) / 2)` |
/// | 5 | `d n^T` | `(M00 + M11) / 2` | `(M02, M12)` | |
/// | 6 | `d n^T` | `M22` | | |
///
/// Empty entries are zero. All features of a vertex without neighbours are zero. The features are
/// invariant under rigid motion.
///
/// ```
/// use gemcnn_mesh::features::{MatrixOptions, matrix_features};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let field = matrix_features(&mesh, &graph, &MatrixOptions::default())?;
/// assert_eq!(field.kind, [(7, 0), (7, 1), (7, 2)]);
/// assert_eq!(field.values.len(), 35 * mesh.vertex_count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The graph has a different number of vertices than the mesh.
pub fn matrix_features(
    mesh: &Mesh,
    graph: &GaugeGraph,
    options: &MatrixOptions,
) -> Result<FeatureField, GeometryError> {
    check_graph(mesh, graph)?;
    let unit = if options.unit_edges { mean_radius(graph) } else { 1.0 };
    let mut values = vec![0.0; CHANNELS * COMPONENTS * mesh.vertex_count()];
    values
        .par_chunks_exact_mut(CHANNELS * COMPONENTS)
        .with_min_len(256)
        .enumerate()
        .for_each(|(p, row)| vertex_features(mesh, graph, p, unit, options.count_self, row));
    Ok(FeatureField { kind: vec![(CHANNELS, 0), (CHANNELS, 1), (CHANNELS, 2)], values })
}

/// Mean edge length of a graph; 1 if it is zero or undefined.
fn mean_radius(graph: &GaugeGraph) -> f64 {
    let count = graph.edge_count() as f64;
    let mean = graph.radius().iter().map(|radius| radius / count).sum();
    if mean > 0.0 { mean } else { 1.0 }
}

fn vertex_features(mesh: &Mesh, graph: &GaugeGraph, p: usize, unit: f64, count_self: bool, row: &mut [f64]) {
    let frame = &graph.frames()[p];
    let local = |vector| {
        let [x, y] = frame.coefficients(vector);
        [x, y, frame.normal.dot(vector)]
    };
    let mut edge_edge = Mean::default();
    let mut normal_normal = Mean::default();
    let mut edge_normal = Mean::default();
    let own = count_self.then_some(p as u32);
    let neighbours = graph.adjacency().neighbours_of(p).iter().copied();
    for q in neighbours.chain(own).map(|q| q as usize) {
        let edge = local((mesh.vertices()[q] - mesh.vertices()[p]) / unit);
        let normal = local(graph.frames()[q].normal);
        edge_edge.add(edge, edge);
        normal_normal.add(normal, normal);
        edge_normal.add(edge, normal);
    }
    let mut write = |channel: usize, components: &[f64]| {
        for (component, value) in components.iter().enumerate() {
            row[component * CHANNELS + channel] = *value;
        }
    };
    for (first, mean) in [(0, edge_edge), (2, normal_normal)] {
        let m = mean.matrix();
        let [x, y] = order_two(&m);
        write(first, &[half_trace(&m), m[2][0], m[2][1], x, y]);
        write(first + 1, &[m[2][2]]);
    }
    let m = edge_normal.matrix();
    let [x, y] = order_two(&m);
    write(4, &[0.5 * (m[1][0] - m[0][1]), m[2][0], m[2][1], x, y]);
    write(5, &[half_trace(&m), m[0][2], m[1][2]]);
    write(6, &[m[2][2]]);
}

type Matrix = [[f64; 3]; 3];

/// Half the trace of the tangent block.
fn half_trace(m: &Matrix) -> f64 {
    0.5 * (m[0][0] + m[1][1])
}

/// The symmetric traceless part of the tangent block, as a vector that transforms by `rho_2`.
fn order_two(m: &Matrix) -> [f64; 2] {
    [0.5 * (m[0][1] + m[1][0]), 0.5 * (m[1][1] - m[0][0])]
}

/// Mean of outer products.
#[derive(Default)]
struct Mean {
    sum: Matrix,
    count: f64,
}

impl Mean {
    fn add(&mut self, a: [f64; 3], b: [f64; 3]) {
        self.count += 1.0;
        for (row, a) in self.sum.iter_mut().zip(a) {
            for (entry, b) in row.iter_mut().zip(b) {
                *entry += a * b;
            }
        }
    }

    fn matrix(&self) -> Matrix {
        let count = self.count.max(1.0);
        self.sum.map(|row| row.map(|entry| entry / count))
    }
}
