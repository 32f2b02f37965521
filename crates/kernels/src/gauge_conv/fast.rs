//! The gauge convolution tile by tile: gather a tile into the cache, then multiply it.

use super::stacked::Stack;
use super::{Backward, Forward, GaugeConv, Weights};
use crate::aggregate::Direction;
use crate::complex::{Conjugate, complex_product};
use crate::narrow::{Left, Sizes, narrow_product};
use crate::parallel::{TILE, memory_length, reduction_block, spread, sum_partials, worker_count};
use crate::{Destination, GraphView, Host, HostScratch, Real};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Values that rows are aligned to: a cache line of f32, two of f64.
const CACHE_LINE: usize = 16;

/// Rounds up to whole cache lines.
fn lines(numbers: usize) -> usize {
    numbers.next_multiple_of(CACHE_LINE)
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Forward { op, graph, x, neighbour, self_term, bias, y } = pass;
    if y.is_empty() {
        return;
    }
    let stack = Stack::new(op, graph.columns(), Direction::Forward);
    let workers = worker_count(graph.vertex_count().div_ceil(TILE));
    let each = memory_length(workers, tile_memory(&stack, graph));
    let memory = scratch.narrow.take(lines(stack.weights) + workers * each);
    let (stacked, tiles) = memory.split_at_mut(lines(stack.weights));
    stack.fill(Weights { neighbour, self_term, bias }, stacked);
    let stacked = &*stacked;
    spread(tiles.chunks_exact_mut(each), y.chunks_mut(TILE * stack.result).enumerate(), |memory, (index, y)| {
        let first = index * TILE;
        let tile = pulp::Arch::new().dispatch(GatherTile {
            op,
            stack: &stack,
            graph,
            features: x,
            vertices: first..first + y.len() / stack.result,
            memory,
        });
        tile.multiply(stacked, y);
        for y in y.chunks_exact_mut(stack.result) {
            for (y, &bias) in y.iter_mut().zip(bias) {
                *y += bias;
            }
        }
    });
}

/// A tile, and the memory for gathering it.
fn tile_memory<T: Real>(stack: &Stack<'_>, graph: GraphView<'_, T>) -> usize {
    lines(TILE * stack.row + stack.gather.memory(graph)).max(CACHE_LINE)
}

/// The vertices of one tile and what is gathered for them.
struct GatherTile<'a, T> {
    op: &'a GaugeConv,
    stack: &'a Stack<'a>,
    graph: GraphView<'a, T>,
    features: &'a [T],
    vertices: Range<usize>,
    memory: &'a mut [T],
}

impl<'a, T: Real> WithSimd for GatherTile<'a, T> {
    type Output = Tile<'a, T>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Tile<'a, T> {
        let Self { op, stack, graph, .. } = self;
        let rows = self.vertices.len();
        let (tile, memory) = self.memory.split_at_mut(TILE * stack.row);
        let dimension = stack.gather.dimension();
        let features = self.features;
        let table = stack.gather.tabulate(graph, features, self.vertices.clone(), memory);
        for (p, out) in self.vertices.zip(tile.chunks_exact_mut(stack.row.max(1))) {
            table.vertex(simd, p, out);
            let scale = graph.self_scale(op.aggregation, p);
            for own in &stack.own {
                let from = &features[p * dimension + own.from..][..own.width];
                for (out, &feature) in out[own.to..][..own.width].iter_mut().zip(from) {
                    *out = scale * feature;
                }
            }
        }
        Tile { stack, rows, tile }
    }
}

/// A tile whose rows hold the terms of each order of the result.
#[derive(Clone, Copy)]
struct Tile<'a, T> {
    stack: &'a Stack<'a>,
    rows: usize,
    tile: &'a [T],
}

impl<T: Real> Tile<'_, T> {
    /// `result = tile x stacked weights`, order by order.
    fn multiply(self, stacked: &[T], result: &mut [T]) {
        for order in &self.stack.orders {
            let left = |first: usize| Left {
                data: &self.tile[order.start + first..],
                row_stride: self.stack.row,
                column_stride: 1,
            };
            let result = &mut result[order.result..];
            let (mut first, mut destination) = (0, Destination::Set);
            if let Some(sizes) = order.complex::<T>(self.rows) {
                let (parts, stacked) = (order.value_parts(), &stacked[order.weights..]);
                complex_product(
                    destination,
                    Conjugate::Neither,
                    (result, self.stack.result, parts),
                    (left(0), order.term_parts()),
                    (stacked, order.width, parts),
                    sizes,
                );
                (first, destination) = (2 * order.pairs, Destination::Add);
            }
            if first == 0 || first < order.terms {
                let sizes = Sizes { rows: self.rows, inner: order.terms - first, columns: order.width };
                let right = &stacked[order.weights + first * order.width..];
                let (result, right) = ((result, self.stack.result), (right, order.width));
                narrow_product(destination, result, left(first), right, sizes);
            }
        }
    }

    /// `sums (+)= tile^T x features`, order by order, in the layout of the stacked weights.
    fn correlate(self, features: &[T], destination: Destination, sums: &mut [T]) {
        for order in &self.stack.orders {
            let left = |first: usize| Left {
                data: &self.tile[order.start + first..],
                row_stride: 1,
                column_stride: self.stack.row,
            };
            let sums = &mut sums[order.weights..][..order.terms * order.width];
            let features = &features[order.result..];
            let mut first = 0;
            if let Some(Sizes { inner, columns, .. }) = order.complex::<T>(0) {
                let sizes = Sizes { rows: inner, inner: self.rows, columns };
                let parts = order.value_parts();
                complex_product(
                    destination,
                    Conjugate::Left,
                    (sums, order.width, parts),
                    (left(0), order.term_parts()),
                    (features, self.stack.result, parts),
                    sizes,
                );
                first = 2 * order.pairs;
                // The gradients of both parts of the weights are in the rows of the cosines.
                sums[order.pairs * order.width..first * order.width].fill(T::zero());
            }
            if first == 0 || first < order.terms {
                let sizes = Sizes { rows: order.terms - first, inner: self.rows, columns: order.width };
                let result = (&mut sums[first * order.width..], order.width);
                let right = (features, self.stack.result);
                narrow_product(destination, result, left(first), right, sizes);
            }
        }
    }
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias } = pass;
    let mut gradients = Weights { neighbour: dneighbour, self_term: dself_term, bias: dbias };
    let vertices = graph.vertex_count();
    let stack = Stack::new(op, graph.columns(), Direction::Backward);
    let each_sum = lines(stack.weights + gradients.bias.len());
    let part_rows = reduction_block(vertices);
    let parts = vertices.div_ceil(part_rows);
    let workers = worker_count(parts);
    let each_tile = memory_length(workers, tile_memory(&stack, graph));
    let memory = scratch.narrow.take(lines(stack.weights) + workers * each_tile + parts * each_sum);
    let (stacked, memory) = memory.split_at_mut(lines(stack.weights));
    let (tiles, sums) = memory.split_at_mut(workers * each_tile);
    if dx.is_some() {
        stack.fill(Weights { neighbour, self_term, bias }, stacked);
    }
    let stacked = &*stacked;
    let mut dx_parts = dx.map(|dx| dx.chunks_mut((part_rows * stack.result).max(1)));
    let mut sum_parts = sums.chunks_exact_mut(each_sum.max(1));
    let work = (0..parts).map(|part| Part {
        first: part * part_rows,
        end: vertices.min((part + 1) * part_rows),
        dx: dx_parts.as_mut().and_then(Iterator::next),
        sums: sum_parts.next().unwrap_or_default(),
    });
    spread(tiles.chunks_exact_mut(each_tile), work, |memory, part| {
        let (sums, bias_sums) = part.sums.split_at_mut(stack.weights);
        let mut dx = part.dx;
        for first in (part.first..part.end).step_by(TILE) {
            let vertices = first..part.end.min(first + TILE);
            let tile =
                pulp::Arch::new().dispatch(GatherTile { op, stack: &stack, graph, features: dy, vertices, memory });
            if let Some(dx) = &mut dx {
                tile.multiply(stacked, &mut dx[(first - part.first) * stack.result..]);
            }
            let destination = if first == part.first { Destination::Set } else { Destination::Add };
            tile.correlate(&x[first * stack.result..], destination, sums);
        }
        let outputs = op.output.dimension();
        bias_sums.fill(T::zero());
        for dy in dy[part.first * outputs..part.end * outputs].chunks_exact(outputs.max(1)) {
            for (sum, &dy) in bias_sums.iter_mut().zip(dy) {
                *sum += dy;
            }
        }
    });
    let total = sum_partials(sums, each_sum);
    if !total.is_empty() {
        let (stacked, bias) = total.split_at(stack.weights);
        stack.fold(stacked, &mut gradients);
        for (gradient, &sum) in gradients.bias.iter_mut().zip(bias) {
            *gradient += sum;
        }
    }
}

/// The vertices of one partial sum.
struct Part<'a, T> {
    first: usize,
    end: usize,
    dx: Option<&'a mut [T]>,
    sums: &'a mut [T],
}
