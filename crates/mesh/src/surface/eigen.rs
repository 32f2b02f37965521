//! Eigenpairs of connection Laplacians.
//!
//! In the variables `y = M^1/2 z` the problem `L z = lambda M z` is a standard Hermitian one. Every
//! connected component is solved on its own, so components of equal shape, whose eigenvalues
//! coincide, cost nothing extra. Small components are solved densely, others by shift-invert block
//! Lanczos iteration.

use super::error::parts;
use super::krylov::{POWER, largest_of_inverse};
use super::laplacian::ConnectionLaplacian;
use super::sparse::{Hermitian, Scalar};
use super::{SurfaceError, SurfaceLaplacian};
use crate::classes::{Classes, bucket};
use faer::{Mat, Side, c64};

/// Shift of the inverse: `L + SHIFT M` is factored.
const SHIFT: f64 = 10.0;
/// Components of at most this many nodes are solved densely.
const DENSE: usize = 256;

/// Eigenpairs of lowest eigenvalue of a connection Laplacian, `L phi = lambda M phi`.
#[derive(Debug, Clone, PartialEq)]
pub struct Eigenbasis {
    /// Order of the fields.
    pub order: usize,
    /// The `k` lowest eigenvalues, ascending and non-negative, of the mesh scaled to unit area.
    pub values: Vec<f64>,
    /// Eigenvectors, orthonormal with respect to the mass. Shape `[V, k]` for order 0 and
    /// `[V, 2, k]` for higher orders: per vertex the real parts, then the imaginary parts.
    pub vectors: Vec<f64>,
}

impl Eigenbasis {
    /// Number of eigenpairs.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if there are no eigenpairs.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Number of vertices; 0 without eigenpairs.
    pub fn vertex_count(&self) -> usize {
        self.vectors.len() / (self.len() * parts(self.order)).max(1)
    }

    /// The first eigenpairs.
    pub(super) fn first(&self, count: usize) -> Self {
        let rows = self.vectors.chunks_exact(self.len().max(1));
        Self {
            order: self.order,
            values: self.values.iter().take(count).copied().collect(),
            vectors: rows.flat_map(|row| row.iter().take(count)).copied().collect(),
        }
    }
}

impl ConnectionLaplacian<'_> {
    /// The eigenpairs with the `count` lowest eigenvalues. Returns fewer pairs if the mesh has
    /// fewer distinct vertices that a face uses.
    ///
    /// Relative residuals are at most 1e-8, and eigenvectors are orthonormal to
    /// rounding, also for equal eigenvalues. The result is deterministic; signs and phases are
    /// arbitrary.
    ///
    /// # Errors
    /// The Laplacian is not positive definite up to rounding, memory is exhausted, or the
    /// iteration does not converge.
    pub fn eigenbasis(&self, count: usize) -> Result<Eigenbasis, SurfaceError> {
        if self.order() == 0 { self.lowest::<f64>(count) } else { self.lowest::<c64>(count) }
    }

    fn lowest<T: Scalar>(&self, count: usize) -> Result<Eigenbasis, SurfaceError> {
        let laplacian = self.laplacian;
        let components = components(laplacian);
        let available: usize = components.iter().map(Vec::len).sum();
        let count = count.min(available);
        let mut place = vec![u32::MAX; laplacian.positions.len()];
        let mut bases: Vec<ComponentBasis> = Vec::with_capacity(components.len());
        for nodes in &components {
            // By Weyl's law the number of eigenvalues below a bound grows with the area.
            let area: f64 = nodes.iter().map(|&n| laplacian.node_mass()[n as usize]).sum();
            let share = if components.len() == 1 { count } else { (1.2 * area * count as f64) as usize + 4 };
            bases.push(self.component_basis::<T>(nodes, &mut place, share.min(count))?);
        }
        // A component may have more eigenvalues below the bound than its share.
        let bound = loop {
            let mut values: Vec<f64> = bases.iter().flat_map(|b| b.values.clone()).collect();
            values.sort_unstable_by(f64::total_cmp);
            let bound = values.get(count.wrapping_sub(1)).copied();
            let bound = bound.unwrap_or(f64::INFINITY);
            let mut is_complete = true;
            for (basis, nodes) in bases.iter_mut().zip(&components) {
                let found = basis.values.len();
                let last = basis.values.last().copied().unwrap_or(f64::NEG_INFINITY);
                if found < nodes.len().min(count) && last <= bound {
                    *basis = self.component_basis::<T>(nodes, &mut place, (2 * found).min(count))?;
                    is_complete = false;
                }
            }
            if is_complete {
                break bound;
            }
        };
        let mut chosen: Vec<(f64, usize, usize)> = Vec::new();
        for (component, basis) in bases.iter().enumerate() {
            let pairs = basis.values.iter().enumerate();
            chosen.extend(pairs.filter(|(_, value)| **value <= bound).map(|(pair, &value)| (value, component, pair)));
        }
        chosen.sort_by(|a, b| a.0.total_cmp(&b.0));
        chosen.truncate(count);
        let mut columns: Vec<Vec<(usize, usize)>> = vec![Vec::new(); bases.len()];
        for (target, &(_, component, pair)) in chosen.iter().enumerate() {
            columns[component].push((target, pair));
        }
        let mut by_node = vec![0.0; laplacian.positions.len() * T::PARTS * count];
        for ((basis, nodes), columns) in bases.iter().zip(&components).zip(&columns) {
            let found = basis.values.len();
            for (row, &node) in nodes.iter().enumerate() {
                for part in 0..T::PARTS {
                    let source = &basis.vectors[(row * T::PARTS + part) * found..][..found];
                    let at = (node as usize * T::PARTS + part) * count;
                    for &(target, pair) in columns {
                        by_node[at + target] = source[pair];
                    }
                }
            }
        }
        let inverse_root = |node: u32| laplacian.node_mass()[node as usize].sqrt().recip();
        Ok(Eigenbasis {
            order: self.order(),
            values: chosen.iter().map(|&(value, ..)| value.max(0.0)).collect(),
            vectors: self.spread(&by_node, count, inverse_root),
        })
    }

    /// The lowest eigenpairs of one component, in the variables `M^1/2 z`.
    fn component_basis<T: Scalar>(
        &self,
        nodes: &[u32],
        place: &mut [u32],
        count: usize,
    ) -> Result<ComponentBasis, SurfaceError> {
        for (at, &node) in (0u32..).zip(nodes) {
            place[node as usize] = at;
        }
        let matrix = self.scaled_matrix::<T>(nodes, place, 1.0, SHIFT);
        for &node in nodes {
            place[node as usize] = u32::MAX;
        }
        let count = count.min(nodes.len());
        if nodes.len() <= DENSE || 3 * count > nodes.len() {
            return dense(&matrix, count).ok_or(SurfaceError::NotConverged {
                order: self.order(),
                wanted: count,
                converged: 0,
            });
        }
        let order = self.elimination_order(nodes, &matrix.pairs);
        let factor = self.factor(&matrix, nodes, &order)?;
        let pairs = largest_of_inverse(&factor, nodes.len(), count);
        if pairs.converged < count {
            return Err(SurfaceError::NotConverged { order: self.order(), wanted: count, converged: pairs.converged });
        }
        // Back from the elimination order.
        let width = T::PARTS * count;
        let mut vectors = vec![0.0; nodes.len() * width];
        for (source, &row) in pairs.vectors.chunks_exact(width).zip(&order) {
            vectors[row as usize * width..][..width].copy_from_slice(source);
        }
        Ok(ComponentBasis {
            values: pairs.values.iter().map(|value| value.powf(-1.0 / POWER as f64) - SHIFT).collect(),
            vectors,
        })
    }
}

/// Eigenpairs of one component: ascending values, vectors of shape `[nodes, PARTS, values.len()]`.
struct ComponentBasis {
    values: Vec<f64>,
    vectors: Vec<f64>,
}

fn dense<T: Scalar>(matrix: &Hermitian<T>, count: usize) -> Option<ComponentBasis> {
    let size = matrix.diagonal.len();
    let mut full = Mat::<T>::zeros(size, size);
    for (at, &value) in matrix.diagonal.iter().enumerate() {
        full[(at, at)] = T::new(value, 0.0);
    }
    for (&[row, column], &value) in matrix.pairs.iter().zip(&matrix.values) {
        full[(column as usize, row as usize)] = value.conjugate();
    }
    let pairs = full.self_adjoint_eigen(Side::Lower).ok()?;
    let values = pairs.S().column_vector();
    let mut vectors = Vec::with_capacity(size * T::PARTS * count);
    for row in 0..size {
        vectors.extend((0..count).map(|pair| pairs.U()[(row, pair)].real_part()));
        if T::PARTS == 2 {
            vectors.extend((0..count).map(|pair| pairs.U()[(row, pair)].imaginary_part()));
        }
    }
    let values = (0..count).map(|pair| values[pair].real_part() - SHIFT).collect();
    Some(ComponentBasis { values, vectors })
}

/// Nodes of every connected component of the Laplacian, without nodes that no face uses.
fn components(laplacian: &SurfaceLaplacian) -> Vec<Vec<u32>> {
    let nodes = laplacian.positions.len();
    let mut classes = Classes::new(nodes);
    let mut is_used = vec![false; nodes];
    for &[a, b] in laplacian.node_edges() {
        classes.join(a, b);
        is_used[a as usize] = true;
        is_used[b as usize] = true;
    }
    let used: Vec<u32> = (0..nodes as u32).filter(|&n| is_used[n as usize]).collect();
    let (offsets, grouped) = {
        let names: Vec<(u32, u32)> = used.iter().map(|&n| (classes.find(n), n)).collect();
        bucket(nodes, names.iter().copied())
    };
    offsets
        .windows(2)
        .filter(|range| range[0] < range[1])
        .map(|range| grouped[range[0] as usize..range[1] as usize].to_vec())
        .collect()
}
