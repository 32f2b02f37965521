//! Features on the directed edges of a graph: gather, spread, reduce and softmax.
//!
//! Features of edges are rows in the order of the edges of the graph. The edge `p <- q` has two frames
//! ([`EdgeFrame`]): that of `p`, and its own, whose first axis points from `p` to `q`. With the rotation `R_pq`
//! from the chosen frame to the frame of `p` (`rho(theta_pq)` or the identity) and the degree `|N(p)|`,
//!
//! ```text
//! gather:   y_pq = R_pq^T rho(g_pq) x_q
//! spread:   y_pq = R_pq^T x_p
//! reduce:   y_p  = s_p sum_q w_pq R_pq v_pq            s_p = 1, 1/|N(p)| or 1/(|N(p)| + 1)
//! softmax:  y_pq = exp(x_pq) / sum_r exp(x_pr)
//! ```
//!
//! A dense map of the rows between [`gather`] and [`reduce`] in the frame of the edge is a gauge convolution.
//! The backward passes are gathers too: of `gather` over the reversed edges, of `spread` the plain `reduce`, and
//! of `reduce` a weighted `spread`. They need no atomics and add in one order.

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{Length, check_count, check_rows};
use crate::irrep::check_heads;
use crate::real::compiled;
use crate::{Aggregation, EdgePhases, FeatureType, GraphView, KernelError, Real};

const OPERATOR: &str = "edges";

/// The frame that the features of an edge `p <- q` are given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeFrame {
    /// The frame of `p`.
    Vertex,
    /// The frame of the edge: that of `p`, rotated by the neighbour angle `theta_pq`. Features in it do not
    /// depend on the gauge.
    Edge,
}

impl EdgeFrame {
    /// `(cos, sin)` of the rotation from the frame of `q` to this one.
    #[inline(always)]
    fn neighbour_rotation<T: Real>(self, phases: &EdgePhases<T>) -> [T; 2] {
        let ([ac, a_s], [tc, ts]) = (phases.angle, phases.transport);
        match self {
            Self::Vertex => [ac * tc - a_s * ts, a_s * tc + ac * ts],
            Self::Edge => [tc, ts],
        }
    }

    /// `(cos, sin)` of the rotation from this frame to the frame of `p`.
    #[inline(always)]
    fn vertex_rotation<T: Real>(self, phases: &EdgePhases<T>) -> [T; 2] {
        match self {
            Self::Vertex => [T::one(), T::zero()],
            Self::Edge => phases.angle,
        }
    }
}

/// Settings of [`reduce`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reduce {
    /// Type of the values and of the result.
    pub features: FeatureType,
    /// Frame that the values are given in.
    pub frame: EdgeFrame,
    /// Scale of the sum.
    pub aggregation: Aggregation,
    /// Number of heads, which divides every multiplicity. Heads split the channels of every order evenly, in
    /// order; each has its own weight at an edge.
    pub heads: usize,
}

impl Reduce {
    /// The plain sum over the edges of each vertex, without weights.
    pub fn sum(features: FeatureType, frame: EdgeFrame) -> Self {
        Self { features, frame, aggregation: Aggregation::Sum, heads: 1 }
    }
}

/// Checks rows of features at vertices and at edges.
fn check<S: Length>(
    features: &FeatureType,
    (vertices, edges): (usize, usize),
    (vertex_name, at_vertices): (&'static str, S),
    (edge_name, at_edges): (&'static str, S),
) -> Result<(), KernelError> {
    for (name, values, rows) in [(vertex_name, at_vertices, vertices), (edge_name, at_edges, edges)] {
        let expected = rows.saturating_mul(features.dimension());
        check_count(OPERATOR, name, values.length(), expected)?;
    }
    Ok(())
}

/// Features of the neighbour at every edge: `x` `[vertices, dimension]` to `y` `[edges, dimension]`.
pub fn gather<T: Real>(
    features: &FeatureType,
    frame: EdgeFrame,
    graph: GraphView<'_, T>,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check(features, graph.counts(), ("x", x), ("y", y))?;
    compiled!(fast::gather as fn(&FeatureType, EdgeFrame, GraphView<'_, T>, &[T], &mut [T]))(
        features, frame, graph, x, y,
    );
    Ok(())
}

/// Overwrites `dx` `[vertices, dimension]` with the gradient of [`gather`].
pub fn gather_backward<T: Real>(
    features: &FeatureType,
    frame: EdgeFrame,
    graph: GraphView<'_, T>,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check(features, graph.counts(), ("dx", &*dx), ("dy", dy))?;
    compiled!(fast::gather_backward as fn(&FeatureType, EdgeFrame, GraphView<'_, T>, &[T], &mut [T]))(
        features, frame, graph, dy, dx,
    );
    Ok(())
}

/// Features of the vertex itself at every edge of its row: `x` `[vertices, dimension]` to `y`
/// `[edges, dimension]`.
pub fn spread<T: Real>(
    features: &FeatureType,
    frame: EdgeFrame,
    graph: GraphView<'_, T>,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check(features, graph.counts(), ("x", x), ("y", y))?;
    let sum = Reduce::sum(features.clone(), frame);
    reduce_backward(&sum, graph, None, None, x, Some(y), None)
}

/// Overwrites `dx` `[vertices, dimension]` with the gradient of [`spread`].
pub fn spread_backward<T: Real>(
    features: &FeatureType,
    frame: EdgeFrame,
    graph: GraphView<'_, T>,
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check(features, graph.counts(), ("dx", &*dx), ("dy", dy))?;
    let sum = Reduce::sum(features.clone(), frame);
    reduce(&sum, graph, dy, None, dx)
}

impl Reduce {
    fn check<S: Length>(
        &self,
        counts: (usize, usize),
        values: (&'static str, S),
        weights: Option<S>,
        y: (&'static str, S),
    ) -> Result<(), KernelError> {
        check_heads(OPERATOR, &self.features, self.heads)?;
        check(&self.features, counts, y, values)?;
        let expected = counts.1.saturating_mul(self.heads);
        let found = weights.map_or(expected, S::length);
        check_count(OPERATOR, "weights", found, expected)
    }
}

/// Weighted sum over the edges of each vertex: `values` `[edges, dimension]` and `weights` `[edges, heads]`
/// (`None` for ones) to `y` `[vertices, dimension]`. A vertex without edges gets zeros.
pub fn reduce<T: Real>(
    op: &Reduce,
    graph: GraphView<'_, T>,
    values: &[T],
    weights: Option<&[T]>,
    y: &mut [T],
) -> Result<(), KernelError> {
    op.check(graph.counts(), ("values", values), weights, ("y", y))?;
    compiled!(fast::reduce as fn(&Reduce, GraphView<'_, T>, &[T], Option<&[T]>, &mut [T]))(
        op, graph, values, weights, y,
    );
    Ok(())
}

/// Overwrites the gradients of [`reduce`] that are wanted. `values` are needed for `dweights` alone.
#[allow(clippy::too_many_arguments)]
pub fn reduce_backward<T: Real>(
    op: &Reduce,
    graph: GraphView<'_, T>,
    values: Option<&[T]>,
    weights: Option<&[T]>,
    dy: &[T],
    dvalues: Option<&mut [T]>,
    dweights: Option<&mut [T]>,
) -> Result<(), KernelError> {
    if let Some(dvalues) = dvalues {
        op.check(graph.counts(), ("dvalues", &*dvalues), weights, ("dy", dy))?;
        compiled!(fast::spread as fn(&Reduce, GraphView<'_, T>, Option<&[T]>, &[T], &mut [T]))(
            op, graph, weights, dy, dvalues,
        );
    }
    if let Some(dweights) = dweights {
        let values = values.unwrap_or_default();
        op.check(graph.counts(), ("values", values), weights, ("dy", dy))?;
        check_rows(OPERATOR, "dweights", dweights, graph.edge_count(), op.heads)?;
        compiled!(fast::reduce_backward_weights as fn(&Reduce, GraphView<'_, T>, &[T], &[T], &mut [T]))(
            op, graph, values, dy, dweights,
        );
    }
    Ok(())
}

/// Softmax over the edges of each vertex, head by head: `x` and `y` are `[edges, heads]`.
///
/// A score of minus infinity masks its edge: the weight is 0. If all scores of a vertex are minus infinity, all
/// its weights are 0.
pub fn softmax<T: Real>(heads: usize, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_rows(OPERATOR, "x", x, graph.edge_count(), heads)?;
    check_rows(OPERATOR, "y", y, graph.edge_count(), heads)?;
    compiled!(fast::softmax as fn(usize, GraphView<'_, T>, &[T], &mut [T]))(heads, graph, x, y);
    Ok(())
}

/// Overwrites `dx` with the gradient of [`softmax`], from its output `y`.
pub fn softmax_backward<T: Real>(
    heads: usize,
    graph: GraphView<'_, T>,
    y: &[T],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    for (name, values) in [("y", y), ("dy", dy), ("dx", &*dx)] {
        check_rows(OPERATOR, name, values, graph.edge_count(), heads)?;
    }
    compiled!(fast::softmax_backward as fn(usize, GraphView<'_, T>, &[T], &[T], &mut [T]))(heads, graph, y, dy, dx);
    Ok(())
}
