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
//! A dense map of the rows between [`Gather`] and [`ReduceForward`] in the frame of the edge is a gauge convolution.
//! The backward passes are gathers too: of `gather` over the reversed edges, of `spread` the plain `reduce`, and
//! of `reduce` a weighted `spread`. They need no atomics and add in one order.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{Graph, arguments};
use crate::irrep::check_heads;
use crate::{Aggregation, EdgePhases, FeatureType, Real};

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

/// Settings of [`ReduceForward`] and its gradients.
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

arguments! {
    /// Features of the neighbour at every edge.
    Gather = gather(OPERATOR) {
        features: &'a FeatureType, frame: EdgeFrame;
        graph: Graph,
        x: read[graph.vertex_count(), features.dimension()],
        y: write[graph.edge_count(), features.dimension()]
    }

    /// The gradient of [`Gather`].
    GatherBackward = gather_backward(OPERATOR) {
        features: &'a FeatureType, frame: EdgeFrame;
        graph: Graph,
        dy: read[graph.edge_count(), features.dimension()],
        dx: write[graph.vertex_count(), features.dimension()]
    }

    /// `y_pq = s_p w_pq R_pq^T x_p`, without weights `w_pq = 1`: the adjoint of [`ReduceForward`], hence its gradient by the
    /// values. With [`Reduce::sum`] the features of the vertex itself at every edge of its row.
    Spread = spread(OPERATOR) {
        op: &'a Reduce;
        graph: Graph,
        weights: read_if[graph.edge_count(), op.heads],
        x: read[graph.vertex_count(), op.features.dimension()],
        y: write[graph.edge_count(), op.features.dimension()];
        check_heads(OPERATOR, &op.features, op.heads)?;
    }

    /// Weighted sum `y` over the edges of each vertex; without weights `w_pq = 1`. A vertex without edges gets zeros.
    ReduceForward = reduce(OPERATOR) {
        op: &'a Reduce;
        graph: Graph,
        x: read[graph.edge_count(), op.features.dimension()],
        weights: read_if[graph.edge_count(), op.heads],
        y: write[graph.vertex_count(), op.features.dimension()];
        check_heads(OPERATOR, &op.features, op.heads)?;
    }

    /// The gradient of [`ReduceForward`] by the weights.
    ReduceBackwardWeights = reduce_backward_weights(OPERATOR) {
        op: &'a Reduce;
        graph: Graph,
        x: read[graph.edge_count(), op.features.dimension()],
        dy: read[graph.vertex_count(), op.features.dimension()],
        dweights: write[graph.edge_count(), op.heads];
        check_heads(OPERATOR, &op.features, op.heads)?;
    }

    /// Softmax over the edges of each vertex, head by head.
    ///
    /// A score of minus infinity masks its edge: the weight is 0. If all scores of a vertex are minus infinity, all its
    /// weights are 0.
    Softmax = softmax(OPERATOR) {
        heads: usize;
        graph: Graph,
        x: read[graph.edge_count(), heads],
        y: write[graph.edge_count(), heads]
    }

    /// The gradient of [`Softmax`], from its output `y`.
    SoftmaxBackward = softmax_backward(OPERATOR) {
        heads: usize;
        graph: Graph,
        y: read[graph.edge_count(), heads],
        dy: read[graph.edge_count(), heads],
        dx: write[graph.edge_count(), heads]
    }
}
