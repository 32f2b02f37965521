//! Laplacians of scalars and of fields of higher order.

use super::SurfaceError;
use super::error::{check_field, parts};
use super::ordering::dissection_order;
use super::sparse::{Cholesky, Hermitian, Scalar};
use super::triangulation::{Nodes, Welded, delaunay_weights};
use crate::geometry::{check_length, of_moderate_size};
use crate::{DVec3, Frame, Mesh};

/// Mass of a node without area and of a vertex that no triangle reaches, as a fraction of the mean mass.
const UNUSED_MASS: f64 = 1e-8;

/// Cotangent Laplacian and lumped mass of a mesh, scaled to unit area.
///
/// The weights are those of the intrinsic Delaunay triangulation of the tufted cover, so they are non-negative on every
/// mesh: open, non-manifold, non-orientable, with polygons, thin or duplicate faces. Vertices at equal positions form
/// one node. The Laplacian is `(L f)_i = sum_j w_ij (f_i - f_j)`; with the masses `M`, `M^-1 L` approximates the
/// positive Laplace-Beltrami operator. A vertex that no triangle reaches belongs to the nearest node and has a tiny
/// mass, so its values do not influence others.
///
/// ```
/// use gemcnn_mesh::{shapes, surface::SurfaceLaplacian};
/// let laplacian = SurfaceLaplacian::new(&shapes::icosphere(3)?)?;
/// assert!((laplacian.mass().iter().sum::<f64>() - 1.0).abs() < 1e-12);
/// assert!(laplacian.weights().iter().all(|&weight| weight >= 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SurfaceLaplacian {
    nodes: Nodes,
    /// Positions of the nodes in units of the square root of the area.
    pub(crate) positions: Vec<DVec3>,
    /// Triangles of the mesh over nodes.
    pub(crate) triangles: Vec<[u32; 3]>,
    node_edges: Vec<[u32; 2]>,
    edges: Vec<[u32; 2]>,
    weights: Vec<f64>,
    node_mass: Vec<f64>,
    mass: Vec<f64>,
    scale: f64,
}

impl SurfaceLaplacian {
    /// Computes the Laplacian of a mesh.
    ///
    /// # Errors
    /// No face has three distinct positions.
    pub fn new(mesh: &Mesh) -> Result<Self, SurfaceError> {
        if let Some((moderate, scale)) = of_moderate_size(mesh) {
            let mut laplacian = Self::new(&moderate)?;
            laplacian.scale = (laplacian.scale * scale).clamp(f64::MIN_POSITIVE, f64::MAX);
            return Ok(laplacian);
        }
        let welded = Welded::new(mesh);
        let found = delaunay_weights(mesh, &welded)?;
        let Welded { nodes, triangles } = welded;
        let unused = UNUSED_MASS / nodes.count.len() as f64;
        // The tiny masses are part of the total of 1.
        let without_area = found.mass.iter().filter(|&&mass| mass == 0.0).count();
        let apart = nodes.is_apart.iter().filter(|&&is_apart| is_apart).count();
        let unused_total = (without_area + apart) as f64 * unused;
        let mass_scale = (1.0 - unused_total) / found.area;
        let node_mass: Vec<f64> =
            found.mass.iter().map(|&mass| if mass > 0.0 { mass * mass_scale } else { unused }).collect();
        let mass = nodes
            .of_vertex
            .iter()
            .zip(&nodes.is_apart)
            .map(|(&node, is_apart)| match is_apart {
                true => unused,
                false => node_mass[node as usize] / f64::from(nodes.count[node as usize]),
            })
            .collect();
        let scale = found.area.sqrt().recip();
        let positions = nodes.representative.iter().map(|&vertex| mesh.vertices()[vertex as usize] * scale).collect();
        let mut edges_and_weights: Vec<([u32; 2], [u32; 2], f64)> = found
            .edges
            .iter()
            .zip(&found.weights)
            .map(|(&nodes_of, &weight)| {
                let [a, b] = nodes_of.map(|node| nodes.representative[node as usize]);
                ([a.min(b), a.max(b)], nodes_of, weight)
            })
            .collect();
        edges_and_weights.sort_unstable_by_key(|&(edge, ..)| edge);
        Ok(Self {
            positions,
            triangles,
            node_edges: edges_and_weights.iter().map(|e| e.1).collect(),
            edges: edges_and_weights.iter().map(|e| e.0).collect(),
            weights: edges_and_weights.iter().map(|e| e.2).collect(),
            node_mass,
            mass,
            scale,
            nodes,
        })
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.mass.len()
    }

    /// Edges of the Laplacian: distinct pairs of representative vertices, lower first, sorted.
    /// They need not be edges of the mesh.
    pub fn edges(&self) -> &[[u32; 2]] {
        &self.edges
    }

    /// Weight `w_ij >= 0` of every edge. Weights do not depend on the scale of the mesh.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Mass of every vertex. Masses are positive and sum to 1. Coincident vertices share the mass
    /// of their node equally. That of a vertex which no triangle reaches is tiny.
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// Factor that scales the mesh to unit area.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Vertex that represents the node of every vertex. Only coincident vertices, and those that no triangle reaches,
    /// are represented by another vertex.
    pub fn representatives(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        let nodes = &self.nodes;
        nodes.of_vertex.iter().map(|&node| nodes.representative[node as usize])
    }

    /// True for vertices that no triangle reaches: they belong to a node at another position.
    pub(crate) fn is_apart(&self) -> &[bool] {
        &self.nodes.is_apart
    }

    /// Connection Laplacian of fields of the given order in the given frames:
    /// `L_ij = -w_ij exp(i m g_ij)` and `L_ii = sum_j w_ij`. It is Hermitian and positive
    /// semi-definite. Order 0 is the Laplacian of scalars.
    ///
    /// # Errors
    /// `frames` is not one frame per vertex.
    pub fn connection(&self, order: usize, frames: &[Frame]) -> Result<ConnectionLaplacian<'_>, SurfaceError> {
        check_length("frames", frames.len(), self.vertex_count())?;
        if order == 0 {
            return Ok(self.scalar());
        }
        let phases = self.node_edges.iter().map(|&[i, j]| {
            let vector = self.positions[j as usize] - self.positions[i as usize];
            let [to, from] = [i, j].map(|n| &frames[self.representative(n) as usize]);
            power(to.transport_from(from, vector), order)
        });
        Ok(ConnectionLaplacian { laplacian: self, order, phases: phases.collect(), copies: self.copies(order, frames) })
    }

    /// The Laplacian of scalars.
    pub(super) fn scalar(&self) -> ConnectionLaplacian<'_> {
        ConnectionLaplacian { laplacian: self, order: 0, phases: Vec::new(), copies: Vec::new() }
    }

    /// Transport `exp(i m g)` from the representative of every vertex to the vertex.
    pub(super) fn copies(&self, order: usize, frames: &[Frame]) -> Vec<[f64; 2]> {
        let copy = |(frame, representative): (&Frame, u32)| {
            let source = &frames[representative as usize];
            if std::ptr::eq(frame, source) {
                [1.0, 0.0]
            } else {
                power(frame.transport_from(source, DVec3::ZERO), order)
            }
        };
        frames.iter().zip(self.representatives()).map(copy).collect()
    }

    /// Node of every vertex.
    pub(crate) fn node_of_vertex(&self) -> &[u32] {
        &self.nodes.of_vertex
    }

    pub(crate) fn representative(&self, node: u32) -> u32 {
        self.nodes.representative[node as usize]
    }

    /// Squared norms of the columns of a field of rows of `columns` numbers, by mass.
    pub(super) fn squared_norms(&self, field: &[f64], columns: usize) -> Vec<f64> {
        let mut norms = vec![0.0; columns];
        let width = (field.len() / self.mass.len().max(1)).max(1);
        for (values, mass) in field.chunks_exact(width).zip(&self.mass) {
            for row in values.chunks_exact(columns) {
                norms.iter_mut().zip(row).for_each(|(norm, value)| *norm += mass * value * value);
            }
        }
        norms
    }

    pub(super) fn node_mass(&self) -> &[f64] {
        &self.node_mass
    }

    /// Edges over nodes, in the order of [`edges`](Self::edges).
    pub(crate) fn node_edges(&self) -> &[[u32; 2]] {
        &self.node_edges
    }
}

/// Connection Laplacian of fields of one order; see [`SurfaceLaplacian::connection`].
#[derive(Debug, Clone)]
pub struct ConnectionLaplacian<'a> {
    pub(super) laplacian: &'a SurfaceLaplacian,
    order: usize,
    /// `exp(i m g_ij)` of every edge `i, j` over nodes; empty for order 0.
    phases: Vec<[f64; 2]>,
    /// Transport from representatives to vertices; empty for order 0.
    copies: Vec<[f64; 2]>,
}

impl ConnectionLaplacian<'_> {
    /// Order of the fields.
    pub fn order(&self) -> usize {
        self.order
    }

    /// `L z` for fields of shape `[V, b]` (order 0) or `[V, 2, b]`. Only representative vertices
    /// are read; rows of coincident vertices are copied.
    pub fn apply(&self, field: &[f64], columns: usize) -> Result<Vec<f64>, SurfaceError> {
        check_field(self.order, self.laplacian.vertex_count(), field, columns)?;
        let width = columns * parts(self.order);
        let nodes = self.laplacian.positions.len();
        let mut result = vec![0.0; nodes * width];
        let row = |node: u32| {
            let vertex = self.laplacian.representative(node) as usize;
            &field[vertex * width..(vertex + 1) * width]
        };
        let edges = self.laplacian.node_edges.iter();
        for (edge, (&[i, j], &weight)) in edges.zip(&self.laplacian.weights).enumerate() {
            let [cosine, sine] = self.phases.get(edge).copied().unwrap_or([1.0, 0.0]);
            for (to, from, sine) in [(i, j, sine), (j, i, -sine)] {
                let (own, other) = (row(to), row(from));
                let target = &mut result[to as usize * width..][..width];
                for at in 0..columns {
                    if self.order == 0 {
                        target[at] += weight * (own[at] - other[at]);
                    } else {
                        let (re, im) = (other[at], other[columns + at]);
                        target[at] += weight * (own[at] - (cosine * re - sine * im));
                        target[columns + at] += weight * (own[columns + at] - (cosine * im + sine * re));
                    }
                }
            }
        }
        Ok(self.spread(&result, columns, |_| 1.0))
    }

    /// The matrix `a D L D + b I` over the listed nodes, with `D = M^-1/2`: the connection
    /// Laplacian in the variables `M^1/2 z`. `place` maps a node to its position in the list, or
    /// to `u32::MAX`.
    pub(super) fn scaled_matrix<T: Scalar>(&self, nodes: &[u32], place: &[u32], a: f64, b: f64) -> Hermitian<T> {
        let mass = &self.laplacian.node_mass;
        let mut matrix = Hermitian { diagonal: vec![0.0; nodes.len()], pairs: Vec::new(), values: Vec::new() };
        let edges = self.laplacian.node_edges.iter();
        for (edge, (&[i, j], &weight)) in edges.zip(&self.laplacian.weights).enumerate() {
            let [row, column] = [i, j].map(|node| place[node as usize]);
            if row == u32::MAX || column == u32::MAX {
                continue;
            }
            matrix.diagonal[row as usize] += a * weight / mass[i as usize];
            matrix.diagonal[column as usize] += a * weight / mass[j as usize];
            let [cosine, sine] = self.phases.get(edge).copied().unwrap_or([1.0, 0.0]);
            let size = -a * weight / (mass[i as usize] * mass[j as usize]).sqrt();
            let value = T::new(size * cosine, size * sine);
            if row < column {
                matrix.pairs.push([row, column]);
                matrix.values.push(value);
            } else {
                matrix.pairs.push([column, row]);
                matrix.values.push(value.conjugate());
            }
        }
        for entry in &mut matrix.diagonal {
            *entry += b;
        }
        matrix
    }

    /// Elimination order of the listed nodes, by their positions in the list.
    pub(super) fn elimination_order(&self, nodes: &[u32], pairs: &[[u32; 2]]) -> Vec<u32> {
        let at = |&node: &u32| self.laplacian.positions[node as usize];
        let points: Vec<DVec3> = nodes.iter().map(at).collect();
        dissection_order(&points, pairs)
    }

    /// Cholesky factor of a matrix over the listed nodes, in an elimination order of the list.
    pub(super) fn factor<T: Scalar>(
        &self,
        matrix: &Hermitian<T>,
        nodes: &[u32],
        order: &[u32],
    ) -> Result<Cholesky<T>, SurfaceError> {
        Cholesky::new(matrix, order).map_err(|error| match error {
            SurfaceError::IllConditioned { vertex } => {
                SurfaceError::IllConditioned { vertex: self.laplacian.representative(nodes[vertex]) as usize }
            }
            other => other,
        })
    }

    /// Values at the vertices from values at the nodes, each multiplied by `factor` of its node.
    pub(super) fn spread(&self, nodes: &[f64], columns: usize, factor: impl Fn(u32) -> f64) -> Vec<f64> {
        let width = columns * parts(self.order);
        let vertices = self.laplacian.node_of_vertex();
        let mut field = Vec::with_capacity(vertices.len() * width);
        for (vertex, &node) in vertices.iter().enumerate() {
            let row = &nodes[node as usize * width..][..width];
            let factor = factor(node);
            match self.copies.get(vertex).map(|copy| copy.map(|x| factor * x)) {
                None => field.extend(row.iter().map(|x| factor * x)),
                Some([cosine, sine]) => {
                    let (re, im) = row.split_at(columns);
                    field.extend(re.iter().zip(im).map(|(re, im)| cosine * re - sine * im));
                    field.extend(re.iter().zip(im).map(|(re, im)| cosine * im + sine * re));
                }
            }
        }
        field
    }

    /// Sums over the vertices of each node of `mass * value`, transported to the representative.
    pub(super) fn gather(&self, field: &[f64], columns: usize) -> Vec<f64> {
        let width = columns * parts(self.order);
        let mut nodes = vec![0.0; self.laplacian.positions.len() * width];
        let vertices = self.laplacian.node_of_vertex();
        for (vertex, &node) in vertices.iter().enumerate() {
            let row = &field[vertex * width..(vertex + 1) * width];
            let sum = &mut nodes[node as usize * width..][..width];
            let mass = self.laplacian.mass[vertex];
            match self.copies.get(vertex).map(|copy| copy.map(|x| mass * x)) {
                None => {
                    for (sum, value) in sum.iter_mut().zip(row) {
                        *sum += mass * value;
                    }
                }
                Some([cosine, sine]) => {
                    for at in 0..columns {
                        let (re, im) = (row[at], row[columns + at]);
                        sum[at] += cosine * re + sine * im;
                        sum[columns + at] += cosine * im - sine * re;
                    }
                }
            }
        }
        nodes
    }
}

/// The power `z^order` of a complex number.
pub(super) fn power(z: [f64; 2], order: usize) -> [f64; 2] {
    (0..order).fold([1.0, 0.0], |[re, im], _| [re * z[0] - im * z[1], re * z[1] + im * z[0]])
}
