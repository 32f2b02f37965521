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

use crate::error::check_count;
use crate::incidence::IncidenceArrays;
use crate::real::compiled;
use crate::view::resolve_fields;
use crate::{FeatureType, KernelError, Real, Scratch, irrep_dimension};

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

resolve_fields!(Masses { vertex, node, stiffness });

/// The sparse maps of a batch.
struct HeatMaps<'a, I> {
    /// Weights and transport of the edges of the Laplacian, between the vertices that represent nodes; symmetric.
    coupling: &'a I,
    /// One entry for each vertex: its node, and the transport from there.
    copies: &'a I,
}

/// What a buffer holds.
#[derive(Debug, Clone, Copy)]
enum Length {
    Features,
    Saved,
    Mix,
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

    /// Checks times and lengths; the sizes of the maps are `(rows, columns)`.
    fn check(
        &self,
        sizes: [(usize, usize); 2],
        masses: Masses<usize>,
        lengths: &[(&'static str, usize, Length)],
    ) -> Result<(), KernelError> {
        if let Some(time) = self.times.iter().find(|t| !(t.is_finite() && **t > 0.0)) {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("the time {time} must be positive and finite"),
            });
        }
        let vertices = masses.vertex;
        let count = |name, found, expected| check_count(OPERATOR, name, found, expected);
        for (rows, columns) in sizes {
            count("rows of a sparse map", rows, vertices)?;
            count("columns of a sparse map", columns, vertices)?;
        }
        count("masses of nodes", masses.node, vertices)?;
        count("stiffness", masses.stiffness, vertices)?;
        let numbers = vertices * self.features.dimension();
        for &(name, found, length) in lengths {
            let expected = match length {
                Length::Features => numbers,
                Length::Saved => self.times.len() * numbers,
                Length::Mix => self.times.len() * self.irreps(),
            };
            count(name, found, expected)?;
        }
        Ok(())
    }
}

impl<T: Real> HeatMaps<'_, IncidenceArrays<T>> {
    fn sizes(&self) -> [(usize, usize); 2] {
        [self.coupling, self.copies].map(|map| (map.row_count(), map.column_count()))
    }
}

impl<T> Masses<&[T]> {
    fn lengths(&self) -> Masses<usize> {
        Masses { vertex: self.vertex.len(), node: self.node.len(), stiffness: self.stiffness.len() }
    }
}

/// Diffuses `x`, and saves the results of all times. `coupling` holds the weights and the transport of the edges of the
/// Laplacian, between the vertices that represent nodes; it is symmetric. `copies` has one entry for each vertex:
/// its node, and the transport from there.
#[allow(clippy::too_many_arguments)]
pub fn forward<T: Real>(
    op: &Implicit,
    coupling: &IncidenceArrays<T>,
    copies: &IncidenceArrays<T>,
    masses: Masses<&[T]>,
    mix: &[T],
    x: &[T],
    y: &mut [T],
    saved: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    let maps = HeatMaps { coupling, copies };
    let lengths = [
        ("mix", mix.len(), Length::Mix),
        ("x", x.len(), Length::Features),
        ("y", y.len(), Length::Features),
        ("saved", saved.len(), Length::Saved),
    ];
    op.check(maps.sizes(), masses.lengths(), &lengths)?;
    compiled!(
        fast::forward
            as fn(
                &Implicit,
                HeatMaps<'_, IncidenceArrays<T>>,
                Masses<&[T]>,
                &[T],
                &[T],
                &mut [T],
                &mut [T],
                &mut Scratch<T>,
            ) -> Result<(), KernelError>
    )(op, maps, masses, mix, x, y, saved, scratch)
}

/// Overwrites `dx`, if it is wanted, and adds to the gradient of `mix`.
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &Implicit,
    coupling: &IncidenceArrays<T>,
    copies: &IncidenceArrays<T>,
    masses: Masses<&[T]>,
    mix: &[T],
    saved: &[T],
    dy: &[T],
    dx: Option<&mut [T]>,
    dmix: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    let maps = HeatMaps { coupling, copies };
    let lengths = [
        ("mix", mix.len(), Length::Mix),
        ("saved", saved.len(), Length::Saved),
        ("dy", dy.len(), Length::Features),
        ("dx", dx.as_ref().map_or(dy.len(), |dx| dx.len()), Length::Features),
        ("dmix", dmix.len(), Length::Mix),
    ];
    op.check(maps.sizes(), masses.lengths(), &lengths)?;
    compiled!(
        fast::backward
            as fn(
                &Implicit,
                HeatMaps<'_, IncidenceArrays<T>>,
                Masses<&[T]>,
                &[T],
                &[T],
                &[T],
                Option<&mut [T]>,
                &mut [T],
                &mut Scratch<T>,
            ) -> Result<(), KernelError>
    )(op, maps, masses, mix, saved, dy, dx, dmix, scratch)
}
