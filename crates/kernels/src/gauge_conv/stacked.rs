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

use super::{GaugeConv, Weights};
use crate::aggregate::{Direction, Gather, Row};
use crate::self_map::{self, blocks, signed};
use crate::{Real, irrep_dimension};

/// One order of the result.
#[derive(Debug, Clone)]
pub(super) struct Order {
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
    /// The self term.
    own: Option<self_map::Block>,
}

/// Range of the features of the vertex itself in a row of the tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnFeatures {
    pub from: usize,
    pub to: usize,
    pub width: usize,
}

/// The layout of one direction.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    op: &'a GaugeConv,
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
    pub fn new(op: &'a GaugeConv, direction: Direction) -> Self {
        let (source, target) = match direction {
            Direction::Forward => (&op.input, &op.output),
            Direction::Backward => (&op.output, &op.input),
        };
        let (mut rows, mut orders, mut own_features) = (Vec::new(), Vec::new(), Vec::new());
        let (mut start, mut weights) = (0, 0);
        for (order, channels) in target.orders() {
            let mut end = start;
            for component in 0..irrep_dimension(order) {
                for ring in 0..op.rings {
                    rows.push(Row {
                        harmonic: (2 * order + component).saturating_sub(1),
                        ring,
                        destination: end,
                    });
                    end += source.dimension();
                }
            }
            let own = if op.self_term {
                blocks(&op.input, &op.output).find(|block| block.order == order)
            } else {
                None
            };
            if own.is_some() {
                let from = source.range(order);
                own_features.push(OwnFeatures {
                    from: from.start,
                    to: end,
                    width: from.len(),
                });
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
                own,
            });
            weights += (end - start) * width;
            start = end;
        }
        Self {
            op,
            direction,
            gather: Gather::new(direction, source, rows, op.radial(), op.aggregation),
            orders,
            own: own_features,
            row: start,
            weights,
            result: target.dimension(),
        }
    }

    /// Calls `visit(index in the stacked weights, index in the neighbour weights, negative)` for every
    /// stacked neighbour weight, and likewise `visit_own` for every stacked self weight.
    pub fn visit(
        &self,
        mut visit: impl FnMut(usize, usize, bool),
        mut visit_own: impl FnMut(usize, self_map::Part),
    ) {
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
