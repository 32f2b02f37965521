//! The same maps as gathers, rows in parallel.

use super::{Gather, GatherBackward, ReduceBackwardWeights, ReduceForward, Softmax, SoftmaxBackward, Spread};
use crate::parallel::{Loop, for_rows, piece_length};
use crate::rotated_sum::{Term, rotated_sum};
use crate::simd::vectorised;
use crate::{GraphView, Host, Real, irrep_dimension};
use rayon::prelude::*;
use std::iter::once;
use std::ops::Range;

/// Fewest vertices worth a task of their own.
const MIN_VERTICES: usize = 64;

fn back<T: Real>([c, s]: [T; 2]) -> [T; 2] {
    [c, -s]
}

/// The vertex `p` of the edge `p <- q`.
#[inline(always)]
fn centre<T: Real>(graph: GraphView<'_, T>, edge: usize) -> usize {
    graph.neighbours()[graph.reverse()[edge] as usize] as usize
}

/// The weights of an edge; none are ones.
#[inline(always)]
fn weights_of<T>(weights: Option<&[T]>, edge: usize, heads: usize) -> &[T] {
    weights.map_or(&[], |weights| &weights[edge * heads..][..heads])
}

pub(super) fn gather<T: Real>(Gather { features, frame, graph, x, y }: Gather<'_, Host<T>>) {
    rotated_sum(features, x, y, |edge| {
        let phase = frame.neighbour_rotation(&graph.phases()[edge]);
        once(Term::new(graph.neighbours()[edge] as usize, phase))
    });
}

pub(super) fn gather_backward<T: Real>(pass: GatherBackward<'_, Host<T>>) {
    let GatherBackward { features, frame, graph, dy, dx } = pass;
    rotated_sum(features, dy, dx, |vertex| {
        graph.row(vertex).map(|edge| {
            let outgoing = graph.reverse()[edge] as usize;
            let phase = frame.neighbour_rotation(&graph.phases()[outgoing]);
            Term::new(outgoing, back(phase))
        })
    });
}

pub(super) fn reduce<T: Real>(ReduceForward { op, graph, x, weights, y }: ReduceForward<'_, Host<T>>) {
    rotated_sum(&op.features, x, y, |vertex| {
        let row = graph.row(vertex);
        let scale = op.aggregation.scale(row.len());
        row.map(move |edge| Term {
            source: edge,
            phase: op.frame.vertex_rotation(&graph.phases()[edge]),
            scale,
            weights: weights_of(weights, edge, op.heads),
        })
    });
}

pub(super) fn spread<T: Real>(Spread { op, graph, weights, x, y }: Spread<'_, Host<T>>) {
    rotated_sum(&op.features, x, y, |edge| {
        let vertex = centre(graph, edge);
        once(Term {
            source: vertex,
            phase: back(op.frame.vertex_rotation(&graph.phases()[edge])),
            scale: op.aggregation.scale(graph.row(vertex).len()),
            weights: weights_of(weights, edge, op.heads),
        })
    });
}

/// `dw_pq = s_p <R_pq v_pq, dy_p>`, head by head.
pub(super) fn reduce_backward_weights<T: Real>(pass: ReduceBackwardWeights<'_, Host<T>>) {
    let ReduceBackwardWeights { op, graph, x, dy, dweights } = pass;
    let width = op.features.dimension();
    for_rows(
        dweights,
        op.heads,
        #[inline(always)]
        |edge, dweights| {
            let vertex = centre(graph, edge);
            let (v, dy) = (&x[edge * width..][..width], &dy[vertex * width..][..width]);
            let [cosine, sine] = op.frame.vertex_rotation(&graph.phases()[edge]);
            let (mut c, mut s) = (T::one(), T::zero());
            let mut start = 0;
            dweights.fill(T::zero());
            for (order, &channels) in op.features.multiplicities().iter().enumerate() {
                if order > 0 {
                    (c, s) = (c * cosine - s * sine, s * cosine + c * sine);
                }
                let run = channels / op.heads;
                for (head, dweight) in dweights.iter_mut().enumerate() {
                    let a = start + head * run..start + (head + 1) * run;
                    if order == 0 {
                        *dweight += dot(&v[a.clone()], &dy[a]);
                        continue;
                    }
                    let b = a.start + channels..a.end + channels;
                    let (va, vb) = (&v[a.clone()], &v[b.clone()]);
                    let (da, db) = (&dy[a], &dy[b]);
                    *dweight += c * (dot(va, da) + dot(vb, db)) + s * (dot(va, db) - dot(vb, da));
                }
                start += irrep_dimension(order) * channels;
            }
            let scale: T = op.aggregation.scale(graph.row(vertex).len());
            dweights.iter_mut().for_each(|dweight| *dweight *= scale);
        },
    );
}

#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// Calls `work` with pieces of the vertices, and the part of `y`, `[edges, width]`, that belongs to their edges.
fn for_pieces<T: Real>(
    graph: GraphView<'_, T>,
    width: usize,
    y: &mut [T],
    work: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let vertices = graph.vertex_count();
    let piece = piece_length(vertices, MIN_VERTICES);
    let mut rest = y;
    let pieces: Vec<_> = (0..vertices)
        .step_by(piece)
        .map(|first| {
            let range = first..vertices.min(first + piece);
            let edges = graph.offsets()[range.end] - graph.offsets()[range.start];
            let part = rest.split_off_mut(..edges as usize * width);
            (range, part.unwrap_or_default())
        })
        .collect();
    pieces.into_par_iter().run(|(range, part)| work(range, part));
}

/// The edges of each of some vertices, counted from the first edge of the first vertex.
fn rows_of<T: Real>(graph: GraphView<'_, T>, vertices: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let first = graph.offsets()[vertices.start] as usize;
    vertices.map(move |vertex| {
        let row = graph.row(vertex);
        row.start - first..row.end - first
    })
}

pub(super) fn softmax<T: Real>(Softmax { heads, graph, x, y }: Softmax<'_, Host<T>>) {
    for_pieces(graph, heads, y, |vertices, y| {
        let x = &x[graph.offsets()[vertices.start] as usize * heads..][..y.len()];
        for row in rows_of(graph, vertices.clone()) {
            let row = row.start * heads..row.end * heads;
            let (x, y) = (&x[row.clone()], &mut y[row]);
            for head in 0..heads {
                let scores = x.iter().skip(head).step_by(heads);
                let largest = scores.clone().fold(T::neg_infinity(), |a, &b| a.max(b));
                // All scores are minus infinity: exponentials and weights are 0.
                let shift = if largest == T::neg_infinity() { T::zero() } else { largest };
                for (y, &x) in y.iter_mut().skip(head).step_by(heads).zip(scores) {
                    *y = x - shift;
                }
            }
        }
        vectorised(
            #[inline(always)]
            || y.iter_mut().for_each(|y| *y = y.exp_of_negative()),
        );
        for row in rows_of(graph, vertices) {
            let y = &mut y[row.start * heads..row.end * heads];
            for head in 0..heads {
                let sum: T = y.iter().skip(head).step_by(heads).copied().sum();
                if sum != T::zero() {
                    let scale = T::one() / sum;
                    let weights = y.iter_mut().skip(head).step_by(heads);
                    weights.for_each(|y| *y *= scale);
                }
            }
        }
    });
}

pub(super) fn softmax_backward<T: Real>(SoftmaxBackward { heads, graph, y, dy, dx }: SoftmaxBackward<'_, Host<T>>) {
    for_pieces(graph, heads, dx, |vertices, dx| {
        let first = graph.offsets()[vertices.start] as usize * heads;
        let (y, dy) = (&y[first..][..dx.len()], &dy[first..][..dx.len()]);
        for row in rows_of(graph, vertices) {
            let row = row.start * heads..row.end * heads;
            let (y, dy, dx) = (&y[row.clone()], &dy[row.clone()], &mut dx[row]);
            for head in 0..heads {
                let pairs = y.iter().zip(dy).skip(head).step_by(heads);
                let mean: T = pairs.clone().map(|(&y, &dy)| y * dy).sum();
                for (dx, (&y, &dy)) in dx.iter_mut().skip(head).step_by(heads).zip(pairs) {
                    *dx = y * (dy - mean);
                }
            }
        }
    });
}
