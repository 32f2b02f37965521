//! The dense half of the convolution, laid out so that each order of the result is one product.
//!
//! A row of a tile holds, for each order `m` of the result, the terms of that order:
//!
//! ```text
//! [ A[cos m] | A[sin m] | own features of order m ]      (A of all rings; order 0 has no sine)
//! ```
//!
//! and the weights are stacked to match, with `J` applied to the rows of `A[sin m]`. The forward pass
//! (features to output) and the transposed one (gradients to input) differ in the strides at which
//! the weights are read and in the sign of `b` of the self term.
//!
//! On a graph with coefficients of harmonics, all orders share the row
//!
//! ```text
//! [ A[0] | A[cos 1] | A[sin 1] | ... | own features ]
//! ```
//!
//! and the stacked weights of each order are zero where it has no part.

use super::{GaugeConv, Weights};
use crate::aggregate::{Direction, Gather, Row};
use crate::complex::{Parts, is_whole};
use crate::narrow::Sizes;
use crate::self_map::{self, blocks, signed};
use crate::{FeatureType, Real, irrep_dimension};

/// One order of the result.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub order: usize,
    /// Start of its terms in a row of the tile.
    pub start: usize,
    /// Number of terms: the rows of its stacked weights.
    pub terms: usize,
    /// Start of its values in a result vector.
    pub result: usize,
    /// Number of values: the columns of its stacked weights.
    pub width: usize,
    /// Start of its stacked weights.
    pub weights: usize,
    /// Terms of `A[cos m]`, and of `A[sin m]`, if the weights of this order act on both as a complex number; else 0.
    pub pairs: usize,
    /// The self term.
    own: Option<self_map::Block>,
}

impl Order {
    /// Offsets of the cosines and the sines in the terms of this order.
    pub fn term_parts(&self) -> Parts {
        [0, self.pairs]
    }

    /// Offsets of both components in its values.
    pub fn value_parts(&self) -> Parts {
        [0, self.width / 2]
    }

    /// Sizes of a complex product of the terms with the weights; `None` where plain products have more use for vectors.
    pub fn complex<T: Real>(&self, rows: usize) -> Option<Sizes> {
        let columns = self.width / 2;
        (self.pairs > 0 && is_whole::<T>(columns)).then_some(Sizes { rows, inner: self.pairs, columns })
    }
}

/// Terms of `a c z` and of `b c conj(z)`, complex numbers by parts, with `c = (C, S)`: `(component of the result, sine,
/// component of z, part of the weight, negative)`. The sign of terms with a sine is for `c_k` with positive `k`;
/// `c_(-k)` is the conjugate.
type ComplexTerm = (usize, bool, usize, usize, bool);
const LINEAR: [ComplexTerm; 8] = [
    (0, false, 0, 0, false),
    (0, true, 1, 0, true),
    (0, false, 1, 1, true),
    (0, true, 0, 1, true),
    (1, false, 1, 0, false),
    (1, true, 0, 0, false),
    (1, false, 0, 1, false),
    (1, true, 1, 1, true),
];
const ANTILINEAR: [ComplexTerm; 8] = [
    (0, false, 0, 0, false),
    (0, true, 1, 0, false),
    (0, false, 1, 1, false),
    (0, true, 0, 1, true),
    (1, false, 1, 0, true),
    (1, true, 0, 0, false),
    (1, false, 0, 1, false),
    (1, true, 1, 1, false),
];

/// Range of the features of the vertex itself in a row of the tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnFeatures {
    pub from: usize,
    pub to: usize,
    pub width: usize,
}

/// The layout of one direction.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    op: &'a GaugeConv,
    /// Coefficients of each edge of the graph.
    columns: usize,
    direction: Direction,
    pub gather: Gather,
    pub orders: Vec<Order>,
    pub own: Vec<OwnFeatures>,
    /// Length of a row of the tile.
    pub row: usize,
    /// Length of all stacked weights.
    pub weights: usize,
    /// Length of a result vector.
    pub result: usize,
}

impl<'a> Stack<'a> {
    pub fn new(op: &'a GaugeConv, columns: usize, direction: Direction) -> Self {
        let (source, target) = types(op, direction);
        if columns > 1 {
            return Self::shared(op, columns, direction);
        }
        let (mut rows, mut orders, mut own_features) = (Vec::new(), Vec::new(), Vec::new());
        let (mut start, mut weights) = (0, 0);
        for (order, channels) in target.orders() {
            let mut end = start;
            for component in 0..irrep_dimension(order) {
                for ring in 0..op.rings {
                    rows.push(Row { harmonic: (2 * order + component).saturating_sub(1), ring, destination: end });
                    end += source.dimension();
                }
            }
            let pairs = if order > 0 { (end - start) / 2 } else { 0 };
            let own =
                if op.self_term { blocks(&op.input, &op.output).find(|block| block.order == order) } else { None };
            if own.is_some() {
                let from = source.range(order);
                own_features.push(OwnFeatures { from: from.start, to: end, width: from.len() });
                end += from.len();
            }
            let width = irrep_dimension(order) * channels;
            orders.push(Order {
                order,
                start,
                terms: end - start,
                result: target.range(order).start,
                width,
                weights,
                pairs,
                own,
            });
            weights += (end - start) * width;
            start = end;
        }
        let (radial, aggregation) = (op.radial(), op.aggregation);
        Self {
            op,
            columns,
            direction,
            gather: Gather::new(direction, source, rows, radial, aggregation, columns),
            orders,
            own: own_features,
            row: start,
            weights,
            result: target.dimension(),
        }
    }

    /// The layout with one row for all orders.
    fn shared(op: &'a GaugeConv, columns: usize, direction: Direction) -> Self {
        let (source, target) = types(op, direction);
        let dimension = source.dimension();
        let sums = op.rings * columns;
        let rows = (0..sums).map(|place| Row {
            harmonic: place % columns,
            ring: place / columns,
            destination: place * dimension,
        });
        let own = OwnFeatures { from: 0, to: sums * dimension, width: dimension };
        let row = (sums + usize::from(op.self_term)) * dimension;
        let mut weights = 0;
        let orders = target.orders().map(|(order, channels)| {
            let width = irrep_dimension(order) * channels;
            weights += row * width;
            Order {
                order,
                start: 0,
                terms: row,
                result: target.range(order).start,
                width,
                weights: weights - row * width,
                pairs: 0,
                own: (blocks(&op.input, &op.output)).find(|block| op.self_term && block.order == order),
            }
        });
        let (orders, rows) = (orders.collect(), rows.collect());
        let (radial, aggregation) = (op.radial(), op.aggregation);
        Self {
            op,
            columns,
            direction,
            gather: Gather::new(direction, source, rows, radial, aggregation, columns),
            orders,
            own: op.self_term.then_some(own).into_iter().collect(),
            row,
            weights,
            result: target.dimension(),
        }
    }

    /// As [`visit`](Self::visit), for the layout with one row.
    fn visit_shared(
        &self,
        mut visit: impl FnMut(usize, usize, bool),
        mut visit_own: impl FnMut(usize, self_map::Part),
    ) {
        let op = self.op;
        let (source, _) = types(op, self.direction);
        let (dimension, ring_size) = (source.dimension(), op.input.dimension() * op.output.dimension());
        for to in &self.orders {
            let (m, to_channels) = (to.order, to.width / irrep_dimension(to.order));
            for (n, from_channels) in source.orders() {
                let first = source.range(n).start;
                // Index of the component `i` of the output and `j` of the input of a pair of channels in the weights.
                let weight = |i: usize, j: usize, o: usize, c: usize| {
                    let ((out, out_channels, o), (into, in_channels, c)) = match self.direction {
                        Direction::Forward => ((to.result, to_channels, o), (first, from_channels, c)),
                        Direction::Backward => ((first, from_channels, c), (to.result, to_channels, o)),
                    };
                    (out + i * out_channels + o) * op.input.dimension() + into + j * in_channels + c
                };
                let out_order = if self.direction == Direction::Forward { m } else { n };
                // The second part of `a`; scalars to scalars have none.
                let second = if out_order > 0 { (1, 0) } else { (0, 1) };
                let linear = (m.abs_diff(n), LINEAR, [(0, 0), second], m < n);
                let antilinear = (m + n, ANTILINEAR, [(0, 1), (1, 1)], false);
                let both = [Some(linear), (m > 0 && n > 0).then_some(antilinear)];
                for (kind, (k, terms, parts, conjugate)) in both.into_iter().flatten().enumerate() {
                    if 2 * k >= self.columns {
                        continue;
                    }
                    for (i, sine, j, part, mut negative) in terms {
                        if i >= irrep_dimension(m)
                            || j >= irrep_dimension(n)
                            || (sine && k == 0)
                            || (part > 0 && m + n == 0)
                        {
                            continue;
                        }
                        negative ^= sine && conjugate;
                        // The transposed operator has the conjugate of `a`.
                        negative ^= kind == 0 && part == 1 && self.direction == Direction::Backward;
                        let column = (2 * k + usize::from(sine)).saturating_sub(1);
                        let (out_part, in_part) = parts[part];
                        for ring in 0..op.rings {
                            let row = (ring * self.columns + column) * dimension + first + j * from_channels;
                            for c in 0..from_channels {
                                for o in 0..to_channels {
                                    let place = to.weights + (row + c) * to.width + i * to_channels + o;
                                    let from = ring * ring_size + weight(out_part, in_part, o, c);
                                    visit(place, from, negative);
                                }
                            }
                        }
                    }
                }
            }
            if let Some(own) = to.own {
                let features = source.range(m);
                let start = op.rings * self.columns * dimension + features.start;
                for row in 0..features.len() {
                    for column in 0..to.width {
                        let part = match self.direction {
                            Direction::Forward => own.part(column, row),
                            Direction::Backward => own.part(row, column),
                        };
                        visit_own(to.weights + (start + row) * to.width + column, part);
                    }
                }
            }
        }
    }

    /// Calls `visit(index in the stacked weights, index in the neighbour weights, negative)` for every
    /// stacked neighbour weight, and likewise `visit_own` for every stacked self weight.
    pub fn visit(&self, mut visit: impl FnMut(usize, usize, bool), mut visit_own: impl FnMut(usize, self_map::Part)) {
        if self.columns > 1 {
            return self.visit_shared(visit, visit_own);
        }
        let gathered = self.gather.dimension();
        let inputs = self.op.input.dimension();
        let ring_size = inputs * self.op.output.dimension();
        for order in &self.orders {
            let components = irrep_dimension(order.order);
            let channels = order.width / components;
            let mut place = order.weights;
            for harmonic in 0..components {
                for ring in 0..self.op.rings {
                    for source in 0..gathered {
                        for column in 0..order.width {
                            // On the sine rows, J: component 0 is minus component 1 of the
                            // product with the weights, component 1 is its component 0.
                            let (number, negative) = match (harmonic, column < channels) {
                                (0, _) => (column, false),
                                (_, true) => (column + channels, true),
                                (_, false) => (column - channels, false),
                            };
                            let target = order.result + number;
                            let (i, j) = match self.direction {
                                Direction::Forward => (target, source),
                                Direction::Backward => (source, target),
                            };
                            visit(place, ring * ring_size + i * inputs + j, negative);
                            place += 1;
                        }
                    }
                }
            }
            if let Some(own) = order.own {
                let rows = order.terms - components * self.op.rings * gathered;
                for row in 0..rows {
                    for column in 0..order.width {
                        let part = match self.direction {
                            Direction::Forward => own.part(column, row),
                            Direction::Backward => own.part(row, column),
                        };
                        visit_own(place, part);
                        place += 1;
                    }
                }
            }
        }
    }

    /// Stacks the weights.
    pub fn fill<T: Real>(&self, weights: Weights<&[T]>, stacked: &mut [T]) {
        if self.columns > 1 {
            stacked.fill(T::zero());
        }
        let stacked = std::cell::Cell::from_mut(stacked).as_slice_of_cells();
        self.visit(
            |place, from, negative| {
                let weight = weights.neighbour[from];
                stacked[place].set(if negative { -weight } else { weight });
            },
            |place, part| stacked[place].set(signed(weights.self_term[part.weight], part)),
        );
    }

    /// Adds the gradient of the stacked weights to those of the weights.
    pub fn fold<T: Real>(&self, stacked: &[T], gradients: &mut Weights<&mut [T]>) {
        let (neighbour, own) = (&mut *gradients.neighbour, &mut *gradients.self_term);
        self.visit(
            |place, to, negative| {
                let gradient = stacked[place];
                neighbour[to] += if negative { -gradient } else { gradient };
            },
            |place, part| own[part.weight] += signed(stacked[place], part),
        );
    }
}

/// Types of the features that are gathered and of the result.
pub(super) fn types(op: &GaugeConv, direction: Direction) -> (&FeatureType, &FeatureType) {
    match direction {
        Direction::Forward => (&op.input, &op.output),
        Direction::Backward => (&op.output, &op.input),
    }
}
