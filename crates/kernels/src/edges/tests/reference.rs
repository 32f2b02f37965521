//! The same maps edge by edge, as their formulas say it; adjoints are scattered.

use crate::aggregate::reference::{reversed, rotated};
use crate::edges::{EdgeFrame, Reduce};
use crate::irrep::Grouping;
use crate::irrep::reference::scalars;
use crate::{FeatureType, GraphView, Real};

/// Calls `work(p, q, edge)` for every edge `p <- q`.
fn for_edges<T: Real>(graph: GraphView<'_, T>, mut work: impl FnMut(usize, usize, usize)) {
    for p in 0..graph.vertex_count() {
        for edge in graph.row(p) {
            work(p, graph.neighbours()[edge] as usize, edge);
        }
    }
}

fn row<T: Real>(features: &FeatureType, values: &[T], index: usize) -> Vec<T> {
    let width = features.dimension();
    values[index * width..(index + 1) * width].to_vec()
}

fn add<T: Real>(to: &mut [T], index: usize, row: &[T]) {
    for (at, &value) in row.iter().enumerate() {
        to[index * row.len() + at] += value;
    }
}

/// The same as [`Gather`](crate::edges::Gather).
pub fn gather<T: Real>(features: &FeatureType, frame: EdgeFrame, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    y.fill(T::zero());
    for_edges(graph, |_, q, edge| {
        let phase = frame.neighbour_rotation(&graph.phases()[edge]);
        add(y, edge, &rotated(features, phase, &row(features, x, q)));
    });
}

/// The same as [`GatherBackward`](crate::edges::GatherBackward).
pub fn gather_backward<T: Real>(
    features: &FeatureType,
    frame: EdgeFrame,
    graph: GraphView<'_, T>,
    dy: &[T],
    dx: &mut [T],
) {
    dx.fill(T::zero());
    for_edges(graph, |_, q, edge| {
        let phase = reversed(frame.neighbour_rotation(&graph.phases()[edge]));
        add(dx, q, &rotated(features, phase, &row(features, dy, edge)));
    });
}

/// The same as [`Spread`](crate::edges::Spread) of a plain sum.
pub fn spread<T: Real>(features: &FeatureType, frame: EdgeFrame, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    y.fill(T::zero());
    for_edges(graph, |p, _, edge| {
        let phase = reversed(frame.vertex_rotation(&graph.phases()[edge]));
        add(y, edge, &rotated(features, phase, &row(features, x, p)));
    });
}

/// The same as [`ReduceForward`](crate::edges::ReduceForward).
pub fn reduce<T: Real>(op: &Reduce, graph: GraphView<'_, T>, values: &[T], weights: Option<&[T]>, y: &mut [T]) {
    y.fill(T::zero());
    let heads = scalars(&op.features, Grouping::Heads(op.heads));
    for_edges(graph, |p, _, edge| {
        let phase = op.frame.vertex_rotation(&graph.phases()[edge]);
        let mut message = rotated(&op.features, phase, &row(&op.features, values, edge));
        for (value, head) in message.iter_mut().zip(&heads) {
            let weight = weights.map_or(T::one(), |weights| weights[edge * op.heads + head]);
            *value *= weight * op.aggregation.scale(graph.row(p).len());
        }
        add(y, p, &message);
    });
}

/// Both gradients of [`ReduceForward`](crate::edges::ReduceForward).
#[allow(clippy::too_many_arguments)]
pub fn reduce_backward<T: Real>(
    op: &Reduce,
    graph: GraphView<'_, T>,
    values: &[T],
    weights: Option<&[T]>,
    dy: &[T],
    dvalues: &mut [T],
    dweights: &mut [T],
) {
    dvalues.fill(T::zero());
    dweights.fill(T::zero());
    let heads = scalars(&op.features, Grouping::Heads(op.heads));
    for_edges(graph, |p, _, edge| {
        let phase = reversed(op.frame.vertex_rotation(&graph.phases()[edge]));
        let mut message = rotated(&op.features, phase, &row(&op.features, dy, p));
        let value = row(&op.features, values, edge);
        for (at, &head) in heads.iter().enumerate() {
            message[at] *= op.aggregation.scale(graph.row(p).len());
            dweights[edge * op.heads + head] += message[at] * value[at];
            message[at] *= weights.map_or(T::one(), |weights| weights[edge * op.heads + head]);
        }
        add(dvalues, edge, &message);
    });
}

/// The same as [`Softmax`](crate::edges::Softmax), for finite scores.
pub fn softmax<T: Real>(heads: usize, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    for_edges(graph, |p, _, edge| {
        for head in 0..heads {
            let at = edge * heads + head;
            let term = |other: usize| (x[other * heads + head] - x[at]).as_f64().exp();
            y[at] = T::of(1.0 / graph.row(p).map(term).sum::<f64>());
        }
    });
}

/// The same as [`SoftmaxBackward`](crate::edges::SoftmaxBackward).
pub fn softmax_backward<T: Real>(heads: usize, graph: GraphView<'_, T>, y: &[T], dy: &[T], dx: &mut [T]) {
    for_edges(graph, |p, _, edge| {
        for head in 0..heads {
            let at = edge * heads + head;
            let term = |other: usize| y[other * heads + head] * dy[other * heads + head];
            dx[at] = y[at] * (dy[at] - graph.row(p).map(term).sum());
        }
    });
}
