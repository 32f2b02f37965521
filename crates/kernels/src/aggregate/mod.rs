//! Gauge aggregation, the sparse part of a gauge convolution, and its adjoint.
//!
//! The features of every neighbour `q` of `p` are transported to `p`, rotated into the frame of the edge, and
//! summed once for each harmonic of the neighbour angle and each radial ring:
//!
//! ```text
//! A_p[r, k] = s_p sum_q phi_r(r_pq) t_k(theta_pq) rho(g_pq - theta_pq) f_q
//! t = (1, cos theta, sin theta, ..., cos M theta, sin M theta)
//! ```
//!
//! `s_p` is 1, `1/|N(p)|` or `1/(|N(p)|+1)` ([`Aggregation`]), or the factor of each edge of a graph that has them
//! ([`GraphSlices::coefficients`](crate::GraphSlices::coefficients)). The result of a vertex without neighbours is
//! zero. Nothing is saved; powers of the phases come from the angle-addition recurrence. The adjoint
//! gathers over the reversed edges, so it needs no atomics and always adds in the same order.
//!
//! Shapes: `f` is `[V, D]`, `A` is `[V, rings, 2M+1, D]`.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

pub(crate) use fast::{Direction, Gather, Row, higher_harmonics};

use crate::arguments::{Graph, arguments};
use crate::{FeatureType, GraphView, KernelError, Real};

const OPERATOR: &str = "aggregate";

/// How the terms of a neighbourhood are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Aggregation {
    /// The sum.
    #[default]
    Sum,
    /// The mean over the neighbours.
    Mean,
    /// The mean over the neighbours and the vertex itself.
    MeanWithSelf,
}

impl Aggregation {
    /// Factor of the sum over the neighbours of a vertex of this degree.
    pub fn scale<T: Real>(self, degree: usize) -> T {
        match self {
            Self::Sum => T::one(),
            Self::Mean => T::one() / T::of(degree.max(1) as f64),
            Self::MeanWithSelf => T::one() / T::of((degree + 1) as f64),
        }
    }

    /// Factor of the self term of a vertex of this degree.
    pub fn self_scale<T: Real>(self, degree: usize) -> T {
        match self {
            Self::Sum | Self::Mean => T::one(),
            Self::MeanWithSelf => self.scale(degree),
        }
    }
}

impl<T: Real> GraphView<'_, T> {
    /// Factor of an edge of the row of `vertex`.
    #[inline(always)]
    pub(crate) fn factor(&self, aggregation: Aggregation, vertex: usize, edge: usize) -> T {
        match (self.columns(), self.coefficients()) {
            (0, _) => aggregation.scale(self.row(vertex).len()),
            (1, factors) => factors[edge],
            _ => T::one(),
        }
    }

    /// Factor of the self term of a vertex.
    #[inline(always)]
    pub(crate) fn self_scale(&self, aggregation: Aggregation, vertex: usize) -> T {
        match self.columns() {
            0 => aggregation.self_scale(self.row(vertex).len()),
            _ => T::one(),
        }
    }
}

/// Radial profile: linear hat functions on `rings` nodes, equally spaced on `[0, max_radius]`. The last one
/// is constant beyond `max_radius`. A single ring is the constant 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Radial {
    pub rings: usize,
    pub max_radius: f64,
}

impl Radial {
    pub fn check(self, operator: &'static str) -> Result<(), KernelError> {
        let problem = if self.rings == 0 {
            "there must be at least one ring".into()
        } else if self.rings > 1 && !(self.max_radius > 0.0 && self.max_radius.is_finite()) {
            format!("the largest radius of {} rings must be finite and above 0, not {}", self.rings, self.max_radius)
        } else {
            return Ok(());
        };
        Err(KernelError::Setting { operator, problem })
    }

    /// Weight of a ring at a radius.
    #[inline(always)]
    pub fn weight<T: Real>(self, ring: usize, radius: T) -> T {
        if self.rings == 1 {
            return T::one();
        }
        let last = T::of((self.rings - 1) as f64);
        let place = (radius / T::of(self.max_radius)).min(T::one()) * last;
        (T::one() - (place - T::of(ring as f64)).abs()).max(T::zero())
    }
}

/// Settings of a gauge aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Type of the features that are summed.
    pub input: FeatureType,
    /// Highest harmonic `M` of the neighbour angle.
    pub highest_order: usize,
    /// Number of radial rings.
    pub rings: usize,
    /// Radius of the last ring; unused with one ring.
    pub max_radius: f64,
    /// Scale of the sum.
    pub aggregation: Aggregation,
}

impl Aggregate {
    /// Length of a row of the result: `rings * (2M+1) * D`.
    pub fn dimension(&self) -> usize {
        self.rings * self.harmonics() * self.input.dimension()
    }

    fn harmonics(&self) -> usize {
        2 * self.highest_order + 1
    }

    fn radial(&self) -> Radial {
        Radial { rings: self.rings, max_radius: self.max_radius }
    }

    /// Checks vertices and coefficients of a graph, and lengths. Refuses graphs whose harmonics are replaced, which
    /// only convolutions read.
    fn check(&self, columns: usize) -> Result<(), KernelError> {
        self.radial().check(OPERATOR)?;
        if columns > 1 {
            let problem = format!("the graph has {columns} coefficients of each edge instead of angles");
            return Err(KernelError::Setting { operator: OPERATOR, problem });
        }
        Ok(())
    }
}

arguments! {
    /// Overwrites `a` with the aggregation of `x`.
    Forward = forward(OPERATOR, scratch) {
        op: &'a Aggregate;
        graph: Graph,
        x: read[graph.vertex_count(), op.input.dimension()],
        a: write[graph.vertex_count(), op.dimension()];
        op.check(graph.columns())?;
    }

    /// Overwrites `dx` with the adjoint of the aggregation of `da`.
    Backward = backward(OPERATOR, scratch) {
        op: &'a Aggregate;
        graph: Graph,
        da: read[graph.vertex_count(), op.dimension()],
        dx: write[graph.vertex_count(), op.input.dimension()];
        op.check(graph.columns())?;
    }
}
