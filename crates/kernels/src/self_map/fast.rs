//! The equivariant linear map as one narrow product for each order.
//!
//! The weights of an order are laid out as a full matrix first, inputs by outputs:
//! `[[a, -b], [b, a]]` for orders above 0, where whole vectors of channels are multiplied as
//! complex numbers. The gradient is collected for that full matrix and folded back onto `a` and
//! `b` at the end.

use super::{Backward, Forward, SelfMap};
use crate::complex::{Conjugate, complex_product, is_whole};
use crate::narrow::{Left, Sizes, narrow_product};
use crate::parallel::{TILE, reduction_block, spread, sum_partials, worker_count};
use crate::{Destination, FeatureType, Host, HostScratch, Real, irrep_dimension};

/// The weights between the channels of one order, and the ranges of these channels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub order: usize,
    pub in_channels: usize,
    pub out_channels: usize,
    pub in_start: usize,
    pub out_start: usize,
    /// Start of the weights of this order.
    pub weight: usize,
}

/// The blocks of the orders that both types have.
pub(crate) fn blocks(input: &FeatureType, output: &FeatureType) -> impl Iterator<Item = Block> + Clone {
    let mut weight = 0;
    let blocks: Vec<Block> = output
        .orders()
        .filter(|&(order, _)| input.multiplicity(order) > 0)
        .map(|(order, out_channels)| {
            let block = Block {
                order,
                in_channels: input.multiplicity(order),
                out_channels,
                in_start: input.range(order).start,
                out_start: output.range(order).start,
                weight,
            };
            weight += irrep_dimension(order) * block.in_channels * out_channels;
            block
        })
        .collect();
    blocks.into_iter()
}

/// The weight of an entry of the full matrix, and its sign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub weight: usize,
    pub negative: bool,
}

impl Block {
    /// Position of the weight `a` from channel `j` to channel `i`.
    pub fn a(&self, i: usize, j: usize) -> usize {
        self.weight + i * self.in_channels + j
    }

    /// Position of the weight `b` from channel `j` to channel `i`.
    pub fn b(&self, i: usize, j: usize) -> usize {
        self.a(i, j) + self.in_channels * self.out_channels
    }

    /// Length of this order in an input vector.
    pub fn in_width(&self) -> usize {
        irrep_dimension(self.order) * self.in_channels
    }

    /// Length of this order in an output vector.
    pub fn out_width(&self) -> usize {
        irrep_dimension(self.order) * self.out_channels
    }

    /// The weight from value `from` of the input of this order to value `to` of its output.
    pub fn part(&self, to: usize, from: usize) -> Part {
        let (out_component, i) = (to / self.out_channels, to % self.out_channels);
        let (in_component, j) = (from / self.in_channels, from % self.in_channels);
        let negative = out_component == 1 && in_component == 0;
        let weight = if out_component == in_component { self.a(i, j) } else { self.b(i, j) };
        Part { weight, negative }
    }

    /// Number of entries of the full matrix.
    fn full(&self) -> usize {
        self.in_width() * self.out_width()
    }
}

/// A weight, or its negative.
pub(crate) fn signed<T: Real>(value: T, part: Part) -> T {
    if part.negative { -value } else { value }
}

/// One product for each order: columns of `from` times the full matrix give columns of `to`.
#[derive(Debug, Clone, Copy)]
struct Strip {
    from: usize,
    from_width: usize,
    to: usize,
    to_width: usize,
    matrix: usize,
    /// True if the matrix is that of a complex number.
    is_complex: bool,
}

impl Strip {
    /// Offsets of both components in the columns that are read, and in those that are written.
    fn parts(&self) -> [[usize; 2]; 2] {
        [[0, self.from_width / 2], [0, self.to_width / 2]]
    }

    fn has_whole_vectors<T: Real>(&self) -> bool {
        self.is_complex && is_whole::<T>(self.to_width / 2)
    }
}

fn strips(blocks: &[Block], transposed: bool) -> Vec<Strip> {
    let mut matrix = 0;
    let strip = |block: &Block| {
        let (input, output) = ((block.in_start, block.in_width()), (block.out_start, block.out_width()));
        let (from, to) = if transposed { (output, input) } else { (input, output) };
        matrix += block.full();
        Strip {
            from: from.0,
            from_width: from.1,
            to: to.0,
            to_width: to.1,
            matrix: matrix - block.full(),
            is_complex: block.order > 0,
        }
    };
    blocks.iter().map(strip).collect()
}

/// The full matrices, `[from, to]`.
pub(crate) fn fill_matrices<T: Real>(blocks: &[Block], transposed: bool, weight: &[T], full: &mut [T]) {
    let mut full = full.iter_mut();
    for block in blocks {
        let (from, to) =
            if transposed { (block.out_width(), block.in_width()) } else { (block.in_width(), block.out_width()) };
        for row in 0..from {
            for (column, entry) in (0..to).zip(&mut full) {
                let part = if transposed { block.part(row, column) } else { block.part(column, row) };
                *entry = signed(weight[part.weight], part);
            }
        }
    }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Forward { op, rows: vertices, x, weight, bias, y } = pass;
    if y.is_empty() {
        return;
    }
    let memory = scratch.narrow.take(Matrices::<T>::length(op));
    let matrices = Matrices::new(op, weight, memory);
    let (from, to) = (op.input.dimension(), op.output.dimension());
    spread(
        std::iter::repeat_n((), worker_count(vertices.div_ceil(TILE))),
        y.chunks_mut(TILE * to).enumerate(),
        |(), (tile, y)| {
            let rows = y.len() / to;
            let x = &x[tile * TILE * from..][..rows * from];
            matrices.multiply(Destination::Set, x, y);
            add_bias(y, to, bias);
        },
    );
}

/// Adds a bias to the first numbers of every row.
pub(crate) fn add_bias<T: Real>(y: &mut [T], width: usize, bias: &[T]) {
    for row in y.chunks_exact_mut(width) {
        for (y, &bias) in row.iter_mut().zip(bias) {
            *y += bias;
        }
    }
}

/// The full matrices of a map.
pub(crate) struct Matrices<'a, T> {
    strips: Vec<Strip>,
    full: &'a [T],
    from: usize,
    to: usize,
    /// True if some orders of the output have no input.
    has_gaps: bool,
}

impl<'a, T: Real> Matrices<'a, T> {
    /// Memory that the matrices take.
    pub fn length(op: &SelfMap) -> usize {
        blocks(&op.input, &op.output).map(|block| block.full()).sum()
    }

    /// Lays the weights out in memory.
    pub fn new(op: &SelfMap, weight: &[T], memory: &'a mut [T]) -> Self {
        let blocks: Vec<Block> = blocks(&op.input, &op.output).collect();
        fill_matrices(&blocks, false, weight, memory);
        let complete = blocks.iter().map(|b| (b.order, b.out_channels));
        Self {
            strips: strips(&blocks, false),
            full: memory,
            from: op.input.dimension(),
            to: op.output.dimension(),
            has_gaps: !op.output.orders().eq(complete),
        }
    }

    /// Rows of `y` from those of `x`, without bias.
    pub fn multiply(&self, destination: Destination, x: &[T], y: &mut [T]) {
        if self.has_gaps && destination == Destination::Set {
            y.fill(T::zero());
        }
        multiply(Products {
            destination,
            strips: &self.strips,
            transposed: false,
            full: self.full,
            x,
            from: self.from,
            y,
            to: self.to,
        });
    }
}

/// `y = x times the full matrices` for the rows of one tile.
struct Products<'a, T> {
    destination: Destination,
    strips: &'a [Strip],
    /// True if the matrices are transposed.
    transposed: bool,
    full: &'a [T],
    x: &'a [T],
    from: usize,
    y: &'a mut [T],
    to: usize,
}

fn multiply<T: Real>(products: Products<'_, T>) {
    let rows = products.y.len() / products.to;
    for strip in products.strips {
        let left = Left { data: &products.x[strip.from..], row_stride: products.from, column_stride: 1 };
        let sizes = Sizes { rows, inner: strip.from_width, columns: strip.to_width };
        let (result, right) = (&mut products.y[strip.to..], &products.full[strip.matrix..]);
        if strip.has_whole_vectors::<T>() {
            let [from_parts, to_parts] = strip.parts();
            // `b` is in the first column of the matrix, and of the transposed one in the first row.
            let (conjugate, b) = match products.transposed {
                false => (Conjugate::Right, from_parts[1] * strip.to_width),
                true => (Conjugate::Neither, to_parts[1]),
            };
            complex_product(
                products.destination,
                conjugate,
                (result, products.to, to_parts),
                (left, from_parts),
                (right, strip.to_width, [0, b]),
                Sizes { rows, inner: from_parts[1], columns: to_parts[1] },
            );
            continue;
        }
        let (result, right) = ((result, products.to), (right, strip.to_width));
        narrow_product(products.destination, result, left, right, sizes);
    }
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { op, rows: vertices, x, weight, dy, dx, dweight, dbias } = pass;
    let blocks: Vec<Block> = blocks(&op.input, &op.output).collect();
    let complete = op.input.orders().eq(blocks.iter().map(|b| (b.order, b.in_channels)));
    let (from, to) = (op.input.dimension(), op.output.dimension());
    let size: usize = blocks.iter().map(Block::full).sum();
    let each = size + dbias.len();
    let rows = reduction_block(vertices);
    let count = vertices.div_ceil(rows);
    let (full, partials) = scratch.narrow.take(size + count * each).split_at_mut(size);
    fill_matrices(&blocks, true, weight, full);
    let full = &*full;
    let strips = strips(&blocks, true);
    let mut dx_rows = dx.map(|dx| dx.chunks_mut((rows * from).max(1)));
    let work = (0..count).map(|part| {
        let dx = dx_rows.as_mut().and_then(Iterator::next);
        (part * rows..vertices.min((part + 1) * rows), dx)
    });
    let mut sums = partials.chunks_exact_mut(each.max(1));
    spread(
        std::iter::repeat_n((), worker_count(count)),
        work.map(|(range, dx)| (range, dx, sums.next().unwrap_or_default())),
        |(), (range, dx, sums)| {
            let (sums, bias_sums) = sums.split_at_mut(size);
            let x = &x[range.start * from..range.end * from];
            let dy = &dy[range.start * to..range.end * to];
            if let Some(dx) = dx {
                if !complete {
                    dx.fill(T::zero());
                }
                multiply(Products {
                    destination: Destination::Set,
                    strips: &strips,
                    transposed: true,
                    full,
                    x: dy,
                    from: to,
                    y: dx,
                    to: from,
                });
            }
            correlate(WeightSums {
                strips: &strips,
                rows: range.len(),
                x,
                in_dimension: from,
                dy,
                out_dimension: to,
                sums,
            });
            bias_sums.fill(T::zero());
            for row in dy.chunks_exact(to.max(1)) {
                for (sum, &dy) in bias_sums.iter_mut().zip(row) {
                    *sum += dy;
                }
            }
        },
    );
    let total = sum_partials(partials, each);
    if total.is_empty() {
        return;
    }
    let mut sums = total.iter();
    for block in &blocks {
        for row in 0..block.out_width() {
            for (column, &sum) in (0..block.in_width()).zip(&mut sums) {
                let part = block.part(row, column);
                dweight[part.weight] += signed(sum, part);
            }
        }
    }
    for (dbias, &sum) in dbias.iter_mut().zip(sums) {
        *dbias += sum;
    }
}

/// `sums = dy^T x` for each order.
struct WeightSums<'a, T> {
    strips: &'a [Strip],
    rows: usize,
    x: &'a [T],
    in_dimension: usize,
    dy: &'a [T],
    out_dimension: usize,
    sums: &'a mut [T],
}

fn correlate<T: Real>(products: WeightSums<'_, T>) {
    for strip in products.strips {
        let left = Left { data: &products.dy[strip.from..], row_stride: 1, column_stride: products.out_dimension };
        let sizes = Sizes { rows: strip.from_width, inner: products.rows, columns: strip.to_width };
        let size = strip.from_width * strip.to_width;
        let sums = &mut products.sums[strip.matrix..][..size];
        let right = &products.x[strip.to..];
        if strip.has_whole_vectors::<T>() {
            let [from_parts, to_parts] = strip.parts();
            complex_product(
                Destination::Set,
                Conjugate::Left,
                (sums, strip.to_width, to_parts),
                (left, from_parts),
                (right, products.in_dimension, to_parts),
                Sizes { rows: from_parts[1], inner: products.rows, columns: to_parts[1] },
            );
            // The gradients of `a` and `b` are in the first rows.
            sums[size / 2..].fill(T::zero());
            continue;
        }
        let (result, right) = ((sums, strip.to_width), (right, products.in_dimension));
        narrow_product(Destination::Set, result, left, right, sizes);
    }
}
