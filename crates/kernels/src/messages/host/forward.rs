//! The forward pass: tiles of vertices in parallel, each by chunks of its edges.

use super::edges::{Activate, CHUNK, Chunk, Collect, Combine, Multiply, Project};
use super::folded::Folded;
use super::neighbours::Neighbours;
use super::{HostChain, Layer};
use crate::complex::{Conjugate, complex_product};
use crate::narrow::{Left, Sizes, narrow_product};
use crate::parallel::{TILE, memory_length, spread, worker_count};
use crate::simd::vectorised;
use crate::{Activation, Aggregation, Destination, GraphView, Real, Scratch};
use pulp::Arch;
use std::ops::Range;

/// Vertices of a tile of a forward pass: fewer than usual, because their sums take as much memory as their inputs.
const FORWARD_TILE: usize = TILE / 2;

/// The next `count` numbers.
pub(super) fn take<'a, T>(memory: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    memory.split_off_mut(..count).unwrap_or_default()
}

impl<T: Real> HostChain<'_, T> {
    /// Rows of `C` (with a bias) or of `D` for rows of features.
    pub(super) fn vertex_rows(&self, stacked: &[T], bias: Option<&[T]>, x: &[T], rows: &mut [T]) {
        // `C = (a + i b) conj(W)` for features `a + i b` and weights `W` of an order above 0, and `D` is the conjugate.
        let conjugate = match bias {
            Some(_) => Conjugate::Right,
            None => Conjugate::Left,
        };
        let (width, stride) = (self.first().row, self.first_row());
        let orders = self.orders.iter().map(|order| order.components);
        if orders.sum::<usize>() < self.harmonics[0] {
            rows.fill(T::zero());
        }
        for row in rows.chunks_exact_mut(stride) {
            if let Some(bias) = bias {
                row[..width].copy_from_slice(bias);
            }
        }
        for order in &self.orders {
            let [inner, columns] = order.size(width);
            let destination = match (order.harmonic, bias) {
                (0, Some(_)) => Destination::Add,
                _ => Destination::Set,
            };
            let left = Left { data: &x[order.start..], row_stride: self.dimension, column_stride: 1 };
            let sizes = Sizes { rows: rows.len() / stride, inner, columns };
            let result = &mut rows[order.harmonic * width..];
            let right = &stacked[order.stacked..];
            if order.is_complex::<T>(width) {
                let channels = order.channels;
                complex_product(
                    destination,
                    conjugate,
                    (result, stride, [0, width]),
                    (left, [0, channels]),
                    (right, columns, [0, channels * columns]),
                    Sizes { inner: channels, columns: width, ..sizes },
                );
                continue;
            }
            narrow_product(destination, (result, stride), left, (right, columns), sizes);
        }
    }

    /// Numbers of the harmonics of a chunk: of `theta` and of `g - theta`.
    pub(super) fn table_lengths(&self) -> [usize; 2] {
        let [first, last] = self.harmonics;
        [first.max(last) * CHUNK, first * CHUNK]
    }

    fn widest(&self) -> usize {
        self.layers.iter().map(|layer| layer.row).max().unwrap_or(0)
    }
}

/// Features, graph and weights of a pass.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a, 'm, T: Real> {
    pub chain: &'a HostChain<'a, T>,
    pub folded: &'a Folded<T>,
    pub graph: GraphView<'a, T>,
    pub x: &'a [T],
    pub neighbours: &'a Neighbours<'a, 'm, T>,
}

impl<T: Real> Pass<'_, '_, T> {
    pub(super) fn features(&self, vertices: &Range<usize>) -> &[T] {
        let width = self.chain.dimension;
        &self.x[vertices.start * width..vertices.end * width]
    }

    pub(super) fn own_rows(&self, vertices: &Range<usize>, rows: &mut [T]) {
        let (own, bias) = (&self.folded.ends[0], &self.folded.biases[0]);
        let x = self.features(vertices);
        self.chain.vertex_rows(own, Some(bias), x, rows);
    }

    /// The tables of a chunk.
    pub(super) fn harmonics(&self, chunk: &Chunk, theta: &mut [T], transport: &mut [T]) {
        let [first, last] = self.chain.harmonics;
        let edges = chunk.edges.len();
        let theta = &mut theta[..first.max(last) * edges];
        let transport = &mut transport[..first * edges];
        vectorised(
            #[inline(always)]
            || {
                chunk.harmonics(self.graph, |phases| phases.angle, theta);
                chunk.harmonics(self.graph, |phases| phases.transport, transport);
            },
        );
    }

    /// The sums of the first layer, with zeros in place of negative numbers if `relu`.
    pub(super) fn first_sums(
        &self,
        chunk: &Chunk,
        own: &[T],
        [theta, transport]: [&[T]; 2],
        (out, relu): (&mut [T], bool),
    ) {
        let harmonics = self.chain.harmonics[0];
        Arch::new().dispatch(Combine {
            chunk,
            graph: self.graph,
            rows: own,
            table: theta,
            harmonics,
            neighbours: Some((self.neighbours, transport)),
            width: self.chain.first().row,
            relu,
            out,
        });
    }

    /// The sums of a layer after the first.
    pub(super) fn next_sums(&self, layer: usize, values: &[T], (out, relu): (&mut [T], bool)) {
        Arch::new().dispatch(Multiply {
            rows: values,
            weights: &self.folded.next[layer - 1],
            bias: Some(&self.folded.biases[layer]),
            sizes: [layer - 1, layer].map(|layer| self.chain.layers[layer].row),
            relu,
            out,
        });
    }

    /// The mean of the messages to the vertices of a tile.
    fn send(&self, (mut memory, chunk): (&mut [T], &mut Chunk), vertices: Range<usize>, y: &mut [T]) {
        let (chain, graph) = (self.chain, self.graph);
        let (first_row, last_row) = (chain.first_row(), chain.last_row());
        let own = take(&mut memory, vertices.len() * first_row);
        let sums = take(&mut memory, vertices.len() * last_row);
        let [theta, transport] = chain.table_lengths().map(|length| take(&mut memory, length));
        let (mut rows, mut next) = memory.split_at_mut(CHUNK * chain.widest());
        self.own_rows(&vertices, own);
        for (vertex, sums) in vertices.clone().zip(sums.chunks_exact_mut(last_row)) {
            if graph.row(vertex).is_empty() {
                sums.fill(T::zero());
            }
        }
        chunk.for_each(graph, vertices.clone(), Some, |chunk| {
            self.harmonics(chunk, theta, transport);
            let edges = chunk.edges.len();
            let is_relu = |layer: &Layer<'_, T>| matches!(layer.activation, Activation::Relu);
            let relu = is_relu(chain.first());
            self.first_sums(chunk, own, [theta, transport], (rows, relu));
            for (index, layer) in chain.layers.iter().enumerate() {
                if index > 0 {
                    let before = edges * chain.layers[index - 1].row;
                    self.next_sums(index, &rows[..before], (next, is_relu(layer)));
                    std::mem::swap(&mut rows, &mut next);
                }
                if !is_relu(layer) {
                    let values = &mut rows[..edges * layer.row];
                    layer.activate(Activate::InPlace { values });
                }
            }
            Arch::new().dispatch(Collect {
                chunk,
                rows,
                first: chunk.edges[0] as usize,
                width: chain.last().row,
                table: theta,
                harmonics: chain.harmonics[1],
                destination: Destination::Set,
                sums,
            });
        });
        let rows = sums.chunks_exact(last_row).zip(y.chunks_exact_mut(chain.output()));
        for (vertex, (sums, y)) in vertices.zip(rows) {
            Arch::new().dispatch(Project {
                layer: chain.last(),
                scale: Aggregation::Mean.scale(graph.row(vertex).len()),
                sums,
                y,
            });
        }
    }
}

pub(super) fn send<T: Real>(
    chain: &HostChain<'_, T>,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    y: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let folded = chain.fold(weights);
    let vertices = graph.vertex_count();
    let workers = worker_count(vertices.div_ceil(FORWARD_TILE));
    let [theta, transport] = chain.table_lengths();
    let each = FORWARD_TILE * (chain.first_row() + chain.last_row()) + theta + transport + 2 * CHUNK * chain.widest();
    let each = memory_length(workers, each);
    let memory = scratch.take(vertices * chain.first_row() + workers * each);
    let (neighbours, memory) = memory.split_at_mut(vertices * chain.first_row());
    let neighbours = Neighbours::new(chain, &folded.ends[1], x, neighbours);
    let pass = Pass { chain, folded: &folded, graph, x, neighbours: &neighbours };
    let memories = memory.chunks_exact_mut(each);
    spread(
        memories.map(|memory| (memory, Chunk::default())),
        y.chunks_mut(FORWARD_TILE * chain.output()).enumerate(),
        |(memory, chunk), (tile, y)| {
            let first = tile * FORWARD_TILE;
            let vertices = first..first + y.len() / chain.output();
            pass.send((memory, chunk), vertices, y);
        },
    );
}
