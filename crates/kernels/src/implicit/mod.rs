//! Implicit diffusion on surfaces for a few fixed times, without eigenvectors.
//!
//! A field of any order diffuses for the time `t` by one implicit step of its connection Laplacian `L`. The results for
//! all times are added with a factor `a` for each time and channel:
//!
//! ```text
//! u_t = S K_t^-1 S^H M x,     K_t = N + t L,     y = sum_t a_t u_t
//! (L z)_p = stiffness_p z_p - sum_q w_pq rho(g_pq) z_q
//! ```
//!
//! `M` holds the masses of vertices. Vertices at the same place are one node: `S` copies the values of a node to its
//! vertices by transport, and `N` holds the masses of nodes. All orders are solved together by conjugate gradients with
//! the diagonal as preconditioner: the matrix is a sparse map with transport ([`incidence`](crate::incidence)),
//! Hermitian and positive definite. Steps and norms are those of the whole batch, so the solution commutes with
//! rotations of the frames after any number of iterations. They end at a relative residual of 1e-6 in f32 and 1e-14 in
//! f64, or after [`MAX_ITERATIONS`]. The backward pass is the same solve:
//!
//! ```text
//! dx = sum_t M S K_t^-1 S^H (a_t dy),     da_t = <u_t, dy> for each channel
//! ```
//!
//! Shapes: `x` and `y` are `[vertices, features]`, `mix` is `[times, irreps]`. Saved: `u_t`, `[times, vertices,
//! features]`.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;

use crate::arguments::{arguments, kinds};
use crate::cuda::DeviceSlice;
use crate::error::check_count;
use crate::incidence::IncidenceArrays;
use crate::incidence::cuda::DeviceIncidence;
use crate::{FeatureType, KernelError, irrep_dimension};

const OPERATOR: &str = "implicit diffusion";

/// Largest number of iterations of a solve.
pub const MAX_ITERATIONS: usize = 4000;

/// Settings of an implicit diffusion.
#[derive(Debug, Clone, PartialEq)]
pub struct Implicit {
    /// Type of the features.
    pub features: FeatureType,
    /// The times, for surfaces of unit area; ascending times converge fastest.
    pub times: Vec<f64>,
}

/// Masses of a batch of meshes, one number for each vertex: slices on the host or on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Masses<S> {
    /// Mass of the vertex.
    pub vertex: S,
    /// Mass of its node, if the vertex represents it; any positive number otherwise.
    pub node: S,
    /// Sum of the weights of its edges in the Laplacian.
    pub stiffness: S,
}

/// The operators of a batch, on the host or on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat<I, S> {
    /// Weights and transport of the edges of the Laplacian, between the vertices that represent nodes; symmetric.
    pub coupling: I,
    /// One entry for each vertex: its node, and the transport from there.
    pub copies: I,
    /// Masses of the vertices.
    pub masses: Masses<S>,
}

kinds! {
    /// The operators of a batch.
    HeatOperators =
        Heat<&'a IncidenceArrays<T>, &'a [T]>, Heat<&'a DeviceIncidence, DeviceSlice<'a, f32>>;
}

impl Implicit {
    /// Number of irreps: factors of each time.
    pub fn irreps(&self) -> usize {
        self.features.multiplicities().iter().sum()
    }

    /// Irrep of each component of a row.
    fn irrep_of(&self) -> Vec<u32> {
        let (mut irreps, mut first) = (Vec::new(), 0);
        for (order, channels) in self.features.orders() {
            for _ in 0..irrep_dimension(order) {
                irreps.extend((first..first + channels).map(|irrep| irrep as u32));
            }
            first += channels;
        }
        irreps
    }

    /// Checks times, the sizes `(rows, columns)` of both maps, and the masses of nodes and stiffness.
    fn check(&self, vertices: usize, maps: [(usize, usize); 2], masses: [usize; 2]) -> Result<(), KernelError> {
        if let Some(time) = self.times.iter().find(|t| !(t.is_finite() && **t > 0.0)) {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("the time {time} must be positive and finite"),
            });
        }
        let count = |name, found| check_count(OPERATOR, name, found, vertices);
        for (rows, columns) in maps {
            count("rows of a sparse map", rows)?;
            count("columns of a sparse map", columns)?;
        }
        count("masses of nodes", masses[0])?;
        count("stiffness", masses[1])
    }
}

arguments! {
    /// Diffuses `x`, and saves the results of all times.
    Forward = forward(OPERATOR, scratch) {
        op: &'a Implicit;
        heat: HeatOperators,
        mix: read[op.times.len(), op.irreps()],
        x: read[heat.masses.vertex.len(), op.features.dimension()],
        y: write[heat.masses.vertex.len(), op.features.dimension()],
        saved: write[op.times.len(), heat.masses.vertex.len(), op.features.dimension()];
        let Heat { coupling, copies, masses } = heat;
        let maps = [coupling, copies].map(|map| (map.row_count(), map.column_count()));
        op.check(masses.vertex.len(), maps, [masses.node.len(), masses.stiffness.len()])?;
    }

    /// Overwrites `dx`, if it is wanted, and adds to the gradient of `mix`.
    Backward = backward(OPERATOR, scratch) {
        op: &'a Implicit;
        heat: HeatOperators,
        mix: read[op.times.len(), op.irreps()],
        saved: read[op.times.len(), heat.masses.vertex.len(), op.features.dimension()],
        dy: read[heat.masses.vertex.len(), op.features.dimension()],
        dx: write_if[heat.masses.vertex.len(), op.features.dimension()],
        dmix: add[op.times.len(), op.irreps()];
        let Heat { coupling, copies, masses } = heat;
        let maps = [coupling, copies].map(|map| (map.row_count(), map.column_count()));
        op.check(masses.vertex.len(), maps, [masses.node.len(), masses.stiffness.len()])?;
    }
}
