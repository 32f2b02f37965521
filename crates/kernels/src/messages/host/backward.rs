//! The backward pass: tasks of several tiles in parallel, for one range of the edges at a time.

use super::HostChain;
use super::edges::{Activate, CHUNK, Chunk, Collect, Combine, Multiply, ProjectBack};
use super::forward::{Pass, take};
use super::neighbours::Neighbours;
use crate::complex::{Conjugate, complex_product};
use crate::narrow::{Left, Sizes, narrow_product};
use crate::parallel::{Loop, TILE, memory_length, spread, sum_partials, worker_count};
use crate::simd::vectorised;
use crate::{Aggregation, Destination, GraphView, Real, Scratch};
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// Fewest edges of a piece of a backward pass, and most pieces.
const MIN_EDGES: usize = 1 << 14;
const MAX_PIECES: usize = 16;
/// Partial sums of the gradients of weights.
const PARTIAL_SUMS: usize = 16;

/// Gradients of weights: of the stacked ones of both ends, of those after the first layer, and of the biases.
struct Sums<'a, T> {
    ends: [&'a mut [T]; 2],
    next: Vec<&'a mut [T]>,
    biases: Vec<&'a mut [T]>,
}

impl<T: Real> HostChain<'_, T> {
    /// Gradients of rows of features from those of `C` (`end` 0) or `D` (1).
    fn vertex_rows_backward(&self, destination: Destination, end: usize, transposed: &[T], rows: &[T], dx: &mut [T]) {
        let (width, stride) = (self.first().row, self.first_row());
        for order in &self.orders {
            let [columns, inner] = order.size(width);
            let left = Left { data: &rows[order.harmonic * width..], row_stride: stride, column_stride: 1 };
            let sizes = Sizes { rows: dx.len() / self.dimension, inner, columns };
            let result = &mut dx[order.start..];
            let right = &transposed[order.stacked..];
            if order.is_complex::<T>(order.channels) {
                let parts = [0, order.channels];
                complex_product(
                    destination,
                    [Conjugate::Neither, Conjugate::Left][end],
                    (result, self.dimension, parts),
                    (left, [0, width]),
                    (right, columns, parts),
                    Sizes { inner: width, columns: order.channels, ..sizes },
                );
                continue;
            }
            let (result, right) = ((result, self.dimension), (right, columns));
            narrow_product(destination, result, left, right, sizes);
        }
    }

    /// Adds the gradients of stacked weights of one end.
    fn correlate(&self, end: usize, x: &[T], rows: &[T], sums: &mut [T]) {
        let (width, stride) = (self.first().row, self.first_row());
        for order in &self.orders {
            let [inputs, columns] = order.size(width);
            let left = Left { data: &x[order.start..], row_stride: 1, column_stride: self.dimension };
            let sizes = Sizes { rows: inputs, inner: rows.len() / stride, columns };
            let result = &mut sums[order.stacked..];
            let right = &rows[order.harmonic * width..];
            if order.is_complex::<T>(width) {
                let channels = order.channels;
                // In the columns of the cosines; those of the sines stay zero.
                complex_product(
                    Destination::Add,
                    [Conjugate::Right, Conjugate::Neither][end],
                    (result, columns, [0, channels * columns]),
                    (left, [0, channels]),
                    (right, stride, [0, width]),
                    Sizes { rows: channels, columns: width, ..sizes },
                );
                continue;
            }
            let (result, right) = ((result, columns), (right, stride));
            narrow_product(Destination::Add, result, left, right, sizes);
        }
    }

    fn sums_length(&self) -> usize {
        let next = self.layers.windows(2);
        let next = next.map(|layers| layers[0].row * layers[1].row);
        let biases = self.layers.iter().map(|layer| layer.row);
        2 * self.stacked() + next.sum::<usize>() + biases.sum::<usize>()
    }

    fn split_sums<'a>(&self, mut sums: &'a mut [T]) -> Sums<'a, T> {
        let sums = &mut sums;
        let ends = [0, 1].map(|_| take(sums, self.stacked()));
        let next = self.layers.windows(2);
        let next = next.map(|layers| take(sums, layers[0].row * layers[1].row));
        let next = next.collect();
        let biases = self.layers.iter().map(|layer| take(sums, layer.row));
        Sums { ends, next, biases: biases.collect() }
    }
}

/// Adds every row of `rows` to `sums`.
fn add_rows<T: Real>(rows: &[T], stride: usize, sums: &mut [T]) {
    vectorised(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(stride) {
                sums.iter_mut().zip(row).for_each(|(sum, &d)| *sum += d);
            }
        },
    );
}

impl<T: Real> Pass<'_, '_, T> {
    /// The backward pass of the edges of some vertices: gradients of the first sums of their edges, of features through
    /// their own ends, and of weights.
    fn send_back(
        &self,
        (memory, chunk): (&mut [T], &mut Chunk),
        vertices: Range<usize>,
        dy: &[T],
        dfirst: &mut [T],
        mut dx: Option<&mut [T]>,
        sums: &mut Sums<'_, T>,
    ) {
        let offsets = self.graph.offsets();
        let mut rest = dfirst;
        let mut first = vertices.start;
        while first < vertices.end {
            let tile = first..vertices.end.min(first + TILE);
            let edges = offsets[tile.end] as usize - offsets[tile.start] as usize;
            let part = take(&mut rest, edges * self.chain.first().row);
            let width = self.chain.dimension;
            let dx = dx.as_mut().map(|dx| take(dx, tile.len() * width));
            self.tile_back((&mut *memory, chunk), tile.clone(), dy, part, dx, sums);
            first = tile.end;
        }
    }

    fn tile_back(
        &self,
        (mut memory, chunk): (&mut [T], &mut Chunk),
        vertices: Range<usize>,
        dy: &[T],
        dfirst: &mut [T],
        dx: Option<&mut [T]>,
        gradients: &mut Sums<'_, T>,
    ) {
        let (chain, graph, layers) = (self.chain, self.graph, &self.chain.layers);
        let (first_row, last_row) = (chain.first_row(), chain.last_row());
        let own = take(&mut memory, vertices.len() * first_row);
        let down = take(&mut memory, vertices.len() * first_row);
        let dsums = take(&mut memory, vertices.len() * last_row);
        let [theta, transport] = chain.table_lengths().map(|length| take(&mut memory, length));
        let mut of_layers = || -> Vec<&mut [T]> {
            let rows = layers.iter().map(|layer| take(&mut memory, CHUNK * layer.row));
            rows.collect()
        };
        let (mut sums, mut values, mut steps) = (of_layers(), of_layers(), of_layers());
        self.own_rows(&vertices, own);
        down.fill(T::zero());
        let first_edge = graph.row(vertices.start).start;
        for (vertex, dsums) in vertices.clone().zip(dsums.chunks_exact_mut(last_row)) {
            Arch::new().dispatch(ProjectBack {
                layer: chain.last(),
                scale: Aggregation::Mean.scale(graph.row(vertex).len()),
                dy: &dy[vertex * chain.output()..][..chain.output()],
                dsums,
            });
        }
        chunk.for_each(graph, vertices.clone(), Some, |chunk| {
            self.harmonics(chunk, theta, transport);
            let edges = chunk.edges.len();
            self.first_sums(chunk, own, [theta, transport], (sums[0], false));
            for (index, layer) in layers.iter().enumerate() {
                if index > 0 {
                    let before = &values[index - 1][..edges * layers[index - 1].row];
                    self.next_sums(index, before, (sums[index], false));
                }
                if index + 1 < layers.len() {
                    let sums = &sums[index][..edges * layer.row];
                    let values = &mut *values[index];
                    layer.activate(Activate::Values { sums, values });
                }
            }
            let row = chain.first().row;
            let start = (chunk.edges[0] as usize - first_edge) * row;
            let dfirst = &mut dfirst[start..][..edges * row];
            for index in (0..layers.len()).rev() {
                let layer = &layers[index];
                let (to, after) = match index {
                    0 => (&mut *dfirst, steps.get(1)),
                    _ => {
                        let (before, after) = steps.split_at_mut(index + 1);
                        (&mut *before[index], after.first())
                    }
                };
                let to = &mut to[..edges * layer.row];
                if index + 1 == layers.len() {
                    Arch::new().dispatch(Combine {
                        chunk,
                        graph,
                        rows: dsums,
                        table: theta,
                        harmonics: chain.harmonics[1],
                        neighbours: None,
                        width: layer.row,
                        relu: false,
                        out: to,
                    });
                } else if let Some(after) = after {
                    let next = layers[index + 1].row;
                    let after = &after[..edges * next];
                    let left = Left { data: values[index], row_stride: 1, column_stride: layer.row };
                    let sizes = Sizes { rows: layer.row, inner: edges, columns: next };
                    let result = (&mut *gradients.next[index], next);
                    narrow_product(Destination::Add, result, left, (after, next), sizes);
                    add_rows(after, next, gradients.biases[index + 1]);
                    Arch::new().dispatch(Multiply {
                        rows: after,
                        weights: &self.folded.next_transposed[index],
                        bias: None,
                        sizes: [next, layer.row],
                        relu: false,
                        out: to,
                    });
                }
                layer.activate(Activate::Slopes { sums: sums[index], gradients: to });
            }
            Arch::new().dispatch(Collect {
                chunk,
                rows: dfirst,
                first: chunk.edges[0] as usize,
                width: row,
                table: theta,
                harmonics: chain.harmonics[0],
                destination: Destination::Add,
                sums: down,
            });
        });
        add_rows(down, first_row, gradients.biases[0]);
        let x = self.features(&vertices);
        chain.correlate(0, x, down, gradients.ends[0]);
        if let Some(dx) = dx {
            let transposed = &self.folded.transposed[0];
            chain.vertex_rows_backward(Destination::Set, 0, transposed, down, dx);
        }
    }

    /// Adds the gradients of `D` of a tile that come from the edges of a piece.
    fn gather_back(
        &self,
        (table, chunk): (&mut [T], &mut Chunk),
        vertices: Range<usize>,
        (edges, dfirst): (&Range<usize>, &[T]),
        sums: &mut [T],
    ) {
        let (graph, chain) = (self.graph, self.chain);
        let reversed = |edge: usize| {
            let edge = graph.reverse()[edge] as usize;
            edges.contains(&edge).then_some(edge)
        };
        let harmonics = chain.harmonics[0];
        chunk.for_each(graph, vertices, reversed, |chunk| {
            let table = &mut table[..harmonics * chunk.edges.len()];
            vectorised(
                #[inline(always)]
                || chunk.harmonics(graph, |phases| phases.transport, table),
            );
            Arch::new().dispatch(Collect {
                chunk,
                rows: dfirst,
                first: edges.start,
                width: chain.first().row,
                table,
                harmonics,
                destination: Destination::Add,
                sums,
            });
        });
    }
}

/// Ranges of vertices whose edges are computed together: whole tiles with about a sixteenth of the edges.
fn pieces<T: Real>(graph: GraphView<'_, T>) -> Vec<Range<usize>> {
    let (vertices, offsets) = (graph.vertex_count(), graph.offsets());
    let most = graph.edge_count().div_ceil(MAX_PIECES).max(MIN_EDGES) as u32;
    let (mut pieces, mut first) = (Vec::new(), 0);
    for tile in (0..vertices).step_by(TILE) {
        let end = vertices.min(tile + TILE);
        if tile > first && offsets[end] - offsets[first] > most {
            pieces.push(first..tile);
            first = tile;
        }
    }
    pieces.push(first..vertices);
    pieces
}

/// Consecutive ranges of whole tiles, at most [`PARTIAL_SUMS`].
fn tasks(vertices: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let length = vertices.len().div_ceil(PARTIAL_SUMS).next_multiple_of(TILE);
    let end = vertices.end;
    vertices.step_by(length.max(1)).map(move |first| first..end.min(first + length))
}

#[allow(clippy::too_many_arguments)]
pub(super) fn send_backward<T: Real>(
    chain: &HostChain<'_, T>,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    dy: &[T],
    mut dx: Option<&mut [T]>,
    gradients: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let folded = chain.fold(weights);
    let (vertices, offsets) = (graph.vertex_count(), graph.offsets());
    let (width, first_row) = (chain.dimension, chain.first_row());
    let pieces = pieces(graph);
    let edges_of = |piece: &Range<usize>| offsets[piece.start] as usize..offsets[piece.end] as usize;
    let most_edges = pieces.iter().map(|piece| edges_of(piece).len()).max();
    let workers = worker_count(vertices.div_ceil(TILE));
    let [theta, transport] = chain.table_lengths();
    let rows: usize = chain.layers.iter().map(|layer| 3 * CHUNK * layer.row).sum();
    let each = TILE * (2 * first_row + chain.last_row()) + theta + transport + rows;
    let each = memory_length(workers, each);
    let each_sums = chain.sums_length();
    let piece_length = most_edges.unwrap_or(0) * chain.first().row;
    let mut memory = scratch.take(2 * vertices * first_row + piece_length + PARTIAL_SUMS * each_sums + workers * each);
    let neighbours = take(&mut memory, vertices * first_row);
    let dneighbours = take(&mut memory, vertices * first_row);
    let dfirst = take(&mut memory, piece_length);
    let partials = take(&mut memory, PARTIAL_SUMS * each_sums);
    let neighbours = Neighbours::new(chain, &folded.ends[1], x, neighbours);
    dneighbours.par_chunks_mut(TILE * first_row).run(|rows| rows.fill(T::zero()));
    partials.fill(T::zero());
    let pass = Pass { chain, folded: &folded, graph, x, neighbours: &neighbours };
    let mut memories: Vec<(&mut [T], Chunk)> =
        memory.chunks_exact_mut(each).map(|memory| (memory, Chunk::default())).collect();
    for piece in pieces {
        let edges = edges_of(&piece);
        {
            let mut dx = dx.as_deref_mut().map(|dx| &mut dx[piece.start * width..]);
            let mut rest = &mut dfirst[..edges.len() * chain.first().row];
            let work = tasks(piece.clone()).zip(partials.chunks_exact_mut(each_sums));
            let work = work.map(|(vertices, sums)| {
                let part = take(&mut rest, edges_of(&vertices).len() * chain.first().row);
                let dx = dx.as_mut().map(|dx| take(dx, vertices.len() * width));
                (vertices, part, dx, chain.split_sums(sums))
            });
            spread(memories.iter_mut(), work, |(memory, chunk), (vertices, part, dx, mut sums)| {
                pass.send_back((&mut **memory, chunk), vertices, dy, part, dx, &mut sums);
            });
        }
        let dfirst = &*dfirst;
        spread(
            memories.iter_mut(),
            dneighbours.chunks_mut(TILE * first_row).enumerate(),
            |(memory, chunk), (tile, sums)| {
                let first = tile * TILE;
                let vertices = first..first + sums.len() / first_row;
                pass.gather_back((&mut **memory, chunk), vertices, (&edges, dfirst), sums);
            },
        );
    }
    {
        let mut rest = &*dneighbours;
        let work = tasks(0..vertices).zip(partials.chunks_exact_mut(each_sums));
        let work = work.map(|(vertices, sums)| {
            let rows = rest.split_off(..vertices.len() * first_row).unwrap_or_default();
            let dx = dx.as_mut().map(|dx| take(dx, vertices.len() * width));
            (vertices, rows, dx, chain.split_sums(sums))
        });
        spread(memories.iter_mut(), work, |_, (vertices, rows, mut dx, sums)| {
            let tiles = rows.chunks(TILE * first_row);
            for (rows, x) in tiles.zip(pass.features(&vertices).chunks(TILE * width)) {
                chain.correlate(1, x, rows, sums.ends[1]);
                if let Some(dx) = &mut dx {
                    let dx = take(dx, x.len());
                    let transposed = &folded.transposed[1];
                    chain.vertex_rows_backward(Destination::Add, 1, transposed, rows, dx);
                }
            }
        });
    }
    sum_partials(partials, each_sums);
    let total = chain.split_sums(&mut partials[..each_sums]);
    let [own, neighbour] = total.ends;
    let next: Vec<&[T]> = total.next.iter().map(|sums| &**sums).collect();
    let biases: Vec<&[T]> = total.biases.iter().map(|sums| &**sums).collect();
    chain.unfold([own, neighbour], &next, &biases, gradients);
}
