//! Implicit diffusion for fixed times.

use super::error::check_field;
use super::laplacian::ConnectionLaplacian;
use super::sparse::{Cholesky, Scalar};
use super::{SurfaceError, SurfaceLaplacian};
use crate::Frame;
use faer::c64;

/// Diffusion of fields by one implicit step: `(M + t L) x = M u` for given times `t`.
///
/// The matrices are factored once. An implicit step attenuates an eigenvector by
/// `1 / (1 + t lambda)`, which agrees with `exp(-t lambda)` for `t lambda << 1`. It needs no
/// eigenvectors, so it scales to large meshes. Vertices that no triangle reaches get the values of the
/// nearest node.
#[derive(Debug)]
pub struct HeatSolver<'a> {
    connection: ConnectionLaplacian<'a>,
    /// Nodes in the order of elimination.
    order: Vec<u32>,
    factors: Factors,
}

#[derive(Debug)]
enum Factors {
    Real(Vec<Cholesky<f64>>),
    Complex(Vec<Cholesky<c64>>),
}

impl<'a> HeatSolver<'a> {
    /// Factors `M + t L` for every time, in units of the area of the mesh.
    ///
    /// # Errors
    /// A time is not positive, `frames` is not one frame per vertex, a matrix is not positive
    /// definite up to rounding, or memory is exhausted.
    pub fn new(
        laplacian: &'a SurfaceLaplacian,
        order: usize,
        frames: &[Frame],
        times: &[f64],
    ) -> Result<Self, SurfaceError> {
        if let Some(&time) = times.iter().find(|t| !(t.is_finite() && **t > 0.0)) {
            return Err(SurfaceError::BadTime { time });
        }
        let connection = laplacian.connection(order, frames)?;
        let nodes: Vec<u32> = (0..laplacian.positions.len() as u32).collect();
        let elimination = connection.elimination_order(&nodes, laplacian.node_edges());
        let factors = if order == 0 {
            Factors::Real(factor_all(&connection, &nodes, &elimination, times)?)
        } else {
            Factors::Complex(factor_all(&connection, &nodes, &elimination, times)?)
        };
        Ok(Self { connection, order: elimination, factors })
    }

    /// Diffuses fields of shape `[V, b]` (order 0) or `[V, 2, b]` for the time with index `time`.
    ///
    /// # Panics
    /// If there is no such time.
    pub fn solve(&self, time: usize, field: &[f64], columns: usize) -> Result<Vec<f64>, SurfaceError> {
        let laplacian = self.connection.laplacian;
        check_field(self.connection.order(), laplacian.vertex_count(), field, columns)?;
        let by_node = self.connection.gather(field, columns);
        let width = columns * if self.connection.order() == 0 { 1 } else { 2 };
        let inverse_root = |node: u32| laplacian.node_mass()[node as usize].sqrt().recip();
        let mut ordered = Vec::with_capacity(by_node.len());
        for &node in &self.order {
            let scale = inverse_root(node);
            let row = &by_node[node as usize * width..][..width];
            ordered.extend(row.iter().map(|x| scale * x));
        }
        match &self.factors {
            Factors::Real(factors) => factors[time].solve(&mut ordered, columns),
            Factors::Complex(factors) => factors[time].solve(&mut ordered, columns),
        }
        let mut by_node = by_node;
        for (row, &node) in ordered.chunks_exact(width.max(1)).zip(&self.order) {
            by_node[node as usize * width..][..width].copy_from_slice(row);
        }
        Ok(self.connection.spread(&by_node, columns, inverse_root))
    }
}

fn factor_all<T: Scalar>(
    connection: &ConnectionLaplacian<'_>,
    nodes: &[u32],
    order: &[u32],
    times: &[f64],
) -> Result<Vec<Cholesky<T>>, SurfaceError> {
    let factor = |&time: &f64| {
        let matrix = connection.scaled_matrix::<T>(nodes, nodes, time, 1.0);
        connection.factor(&matrix, nodes, order)
    };
    times.iter().map(factor).collect()
}

/// Heat of single nodes after one implicit step, up to a factor.
///
/// The off-diagonal entries of `M + t L` and of its factor are not positive, so the solution adds
/// non-negative numbers only: heat is accurate in relative terms however far from its source.
#[derive(Debug, Clone)]
pub(crate) struct PointHeat {
    /// Place of every node in the order of elimination.
    place: Vec<u32>,
    inverse_root_mass: Vec<f64>,
    factor: Cholesky<f64>,
}

impl PointHeat {
    /// Factors `M + t L` for a positive time.
    pub(crate) fn new(laplacian: &SurfaceLaplacian, time: f64) -> Result<Self, SurfaceError> {
        let connection = laplacian.scalar();
        let nodes: Vec<u32> = (0..laplacian.positions.len() as u32).collect();
        let order = connection.elimination_order(&nodes, laplacian.node_edges());
        let matrix = connection.scaled_matrix(&nodes, &nodes, time, 1.0);
        let mut place = vec![0; nodes.len()];
        for (at, &node) in (0u32..).zip(&order) {
            place[node as usize] = at;
        }
        let mass = laplacian.node_mass().iter();
        Ok(Self {
            place,
            inverse_root_mass: mass.map(|mass| mass.sqrt().recip()).collect(),
            factor: connection.factor(&matrix, &nodes, &order)?,
        })
    }

    /// Heat at all nodes for each of the source nodes. Zero on other components.
    pub(crate) fn spread(&self, sources: &[u32]) -> Vec<Vec<f64>> {
        let columns = sources.len();
        let mut heat = vec![0.0; self.place.len() * columns];
        for (column, &source) in sources.iter().enumerate() {
            heat[self.place[source as usize] as usize * columns + column] = 1.0;
        }
        self.factor.solve(&mut heat, columns);
        let of_column = |column: usize| {
            let nodes = self.place.iter().zip(&self.inverse_root_mass);
            nodes.map(|(&place, scale)| scale * heat[place as usize * columns + column]).collect()
        };
        (0..columns).map(of_column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{self, Cells};

    #[test]
    fn factors_stay_sparse() {
        for mesh in [shapes::icosphere(5).unwrap(), shapes::torus(130, 53, 1.0, 0.4, Cells::Triangles).unwrap()] {
            let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
            let heat = PointHeat::new(&laplacian, 1e-3).unwrap();
            let per_vertex = heat.factor.entries() / mesh.vertex_count();
            assert!(per_vertex < 70, "{per_vertex} entries for each vertex");
        }
    }
}
