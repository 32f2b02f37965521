//! The products tile by tile: `B` of a tile in the cache, then one pass over its edges.

use super::{Backward, Forward, Products};
use crate::aggregate::Direction;
use crate::complex::{Conjugate, complex_product, is_whole};
use crate::gauge_conv::{self, GaugeConv, Stack, Weights};
use crate::narrow::{Left, Sizes, narrow_product};
use crate::parallel::{self, memory_length, spread, worker_count};
use crate::{Aggregation, Destination, GraphView, Host, HostScratch, KernelError, Real};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Vertices of a tile: fewer than usual, because the rows of `B` are long.
const TILE: usize = parallel::TILE / 3;

/// The convolution whose terms are plain sums over neighbours.
pub(super) fn plain(op: &GaugeConv) -> GaugeConv {
    GaugeConv { aggregation: Aggregation::Sum, bias: false, ..op.clone() }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
    let Forward { op, graph, factors, x, weight, bias, y } = pass;
    let (graph, self_term) = (graph.with_factors(factors), &[][..]);
    gauge_conv::Forward::<Host<T>> { op, graph, x, neighbour: weight, self_term, bias, y }.compute(scratch)
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
    let Backward { op, graph, factors, x, weight, bias, dy, dx, dweight, dbias } = pass;
    let (graph, neighbour, dneighbour) = (graph.with_factors(factors), weight, dweight);
    let (self_term, dself_term) = (&[][..], &mut [][..]);
    let pass = gauge_conv::Backward::<Host<T>> {
        op,
        graph,
        x,
        neighbour,
        self_term,
        bias,
        dy,
        dx,
        dneighbour,
        dself_term,
        dbias,
    };
    pass.compute(scratch)
}

pub(super) fn products<T: Real>(pass: Products<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Products { op, graph, y, x, weight, products } = pass;
    let vertices = graph.vertex_count();
    let op = plain(op);
    let stack = Stack::new(&op, 0, Direction::Forward);
    let tiles = vertices.div_ceil(TILE);
    let workers = worker_count(tiles);
    let each = (TILE * stack.row + stack.gather.memory(graph)).max(1);
    let each = memory_length(workers, each);
    let memory = scratch.narrow.take(2 * stack.weights + workers * each);
    let (stacked, memory) = memory.split_at_mut(stack.weights);
    let (transposed, memory) = memory.split_at_mut(stack.weights);
    let nothing: &[T] = &[];
    stack.fill(Weights { neighbour: weight, self_term: nothing, bias: nothing }, stacked);
    for order in &stack.orders {
        for (term, row) in stacked[order.weights..][..order.terms * order.width].chunks_exact(order.width).enumerate() {
            for (column, &value) in row.iter().enumerate() {
                transposed[order.weights + column * order.terms + term] = value;
            }
        }
    }
    let transposed = &*transposed;
    let mut rest = products;
    let work = (0..tiles).map(|tile| {
        let range = tile * TILE..vertices.min((tile + 1) * TILE);
        let edges = graph.offsets()[range.end] - graph.offsets()[range.start];
        let part = rest.split_off_mut(..edges as usize);
        (range, part.unwrap_or_default())
    });
    spread(memory.chunks_exact_mut(each), work, |memory, (range, out)| {
        let (rows, memory) = memory.split_at_mut(TILE * stack.row);
        multiply(&stack, y, transposed, range.clone(), rows);
        pulp::Arch::new().dispatch(EdgeTile { stack: &stack, graph, x, range, rows, memory, out });
    });
}

/// `B` of some vertices, in the layout of the stack.
fn multiply<T: Real>(stack: &Stack<'_>, y: &[T], transposed: &[T], range: Range<usize>, rows: &mut [T]) {
    for order in &stack.orders {
        let left =
            Left { data: &y[range.start * stack.result + order.result..], row_stride: stack.result, column_stride: 1 };
        let sizes = Sizes { rows: range.len(), inner: order.width, columns: order.terms };
        let (result, right) = (&mut rows[order.start..], &transposed[order.weights..]);
        if order.pairs > 0 && is_whole::<T>(order.pairs) {
            let (channels, terms) = (order.width / 2, order.terms);
            complex_product(
                Destination::Set,
                Conjugate::Right,
                (result, stack.row, order.term_parts()),
                (left, order.value_parts()),
                (right, terms, [0, channels * terms]),
                Sizes { inner: channels, columns: order.pairs, ..sizes },
            );
            continue;
        }
        let (result, right) = ((result, stack.row), (right, order.terms));
        narrow_product(Destination::Set, result, left, right, sizes);
    }
}

struct EdgeTile<'a, T> {
    stack: &'a Stack<'a>,
    graph: GraphView<'a, T>,
    x: &'a [T],
    range: Range<usize>,
    rows: &'a [T],
    memory: &'a mut [T],
    out: &'a mut [T],
}

impl<T: Real> WithSimd for EdgeTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let table = self.stack.gather.tabulate(self.graph, self.x, self.range.clone(), self.memory);
        let mut out = self.out;
        for (place, p) in self.range.enumerate() {
            let edges = out.split_off_mut(..self.graph.row(p).len());
            let row = &self.rows[place * self.stack.row..][..self.stack.row];
            table.products(simd, p, row, edges.unwrap_or_default());
        }
    }
}
