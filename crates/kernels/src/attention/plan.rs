//! The layout of attention on a GPU: weights, products and rows in shared memory.

use super::Attention;
use super::warps::Warps;
use crate::aggregate::Direction;
use crate::aggregate::cuda::{GatherPlan, MAX_SHARED_BYTES};
use crate::cuda::reduce::SignedTable;
use crate::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, Result, key};
use crate::gauge_conv::cuda::MAX_FUSED_WEIGHTS;
use crate::gauge_conv::{Fragments, Stack, row_stride};
use crate::self_map::blocks;
use std::sync::Arc;

/// Irreps that the lanes of one vertex hold at a time.
const MAX_UNITS: usize = 32;

/// The products of one direction: of queries (forward only), of `B`, and of results.
#[derive(Debug)]
pub(super) struct Products {
    pub columns: DeviceBuffer<[u32; 8]>,
    /// Columns of each product.
    pub counts: [usize; 3],
    /// Stacked weights from the weights of all heads.
    pub stack: SignedTable,
    /// Length of the stacked weights of a head.
    pub weights: usize,
}

/// Attention prepared for a device.
#[derive(Debug)]
pub(super) struct Plan {
    pub gather: GatherPlan,
    /// Length of a row of `B`.
    pub row: usize,
    /// Strides of rows in shared memory: of `B` and sums, of queries, and of features of the vertices.
    pub strides: [usize; 3],
    pub forward: Products,
    pub backward: Products,
    /// Index in the output of every number of a head, head after head.
    pub places: DeviceBuffer<u32>,
    /// The weights of a convolution to all heads from those of the heads, and back.
    pub join: SignedTable,
    pub split: SignedTable,
    /// Lengths of the joint weights: keys, queries, values and bias.
    pub joint: [usize; 4],
    /// True if rows and weights fit in shared memory.
    pub fits: bool,
    /// Both directions with rows in registers, if the types allow it.
    pub warps: Option<[Warps; 2]>,
}

impl Plan {
    pub fn new(device: &CudaDevice, op: &Attention) -> Result<Arc<Self>> {
        let mut settings = key(&[&op.input, &op.output]);
        settings.push(op.heads);
        device.table("attention", settings, || Self::made(device, op))
    }

    fn made(device: &CudaDevice, op: &Attention) -> Result<Self> {
        let part = op.part();
        let convolution = op.convolution(part.clone(), false);
        let stack = Stack::new(&convolution, 0, Direction::Forward);
        let [queries, keys, values, biases] = op.counts();
        let head_length = queries + keys + values + biases;
        let mut entries = vec![(0, false); stack.weights];
        stack.visit(|place, weight, negative| entries[place] = (weight, negative), |_, _| {});
        let mut reach = [stack.row, part.dimension(), op.input.dimension()];
        let mut products = |direction: Direction| {
            let mut fragments = Fragments::default();
            let mut counts = [0; 3];
            let (first, second) = match direction {
                Direction::Forward => (queries, queries + keys),
                Direction::Backward => (queries + keys, queries),
            };
            if direction == Direction::Forward {
                for block in blocks(&op.input, &part) {
                    let terms = (block.in_start, block.in_width());
                    let results = (block.out_start, block.out_width());
                    let end = fragments.add(terms, results, |from, to| {
                        let part = block.part(to, from);
                        Some((part.weight, part.negative))
                    })?;
                    reach[2] = reach[2].max(end);
                }
                counts[0] = fragments.columns.len();
            }
            for order in &stack.orders {
                let (terms, results) = ((order.result, order.width), (order.start, order.terms));
                let end = fragments.add(terms, results, |column, term| {
                    let (weight, negative) = entries[order.weights + term * order.width + column];
                    Some((first + weight, negative))
                })?;
                reach[1] = reach[1].max(end);
            }
            counts[1] = fragments.columns.len() - counts[0];
            for order in &stack.orders {
                let (terms, results) = ((order.start, order.terms), (order.result, order.width));
                let end = fragments.add(terms, results, |term, column| {
                    let (weight, negative) = entries[order.weights + term * order.width + column];
                    Some((second + weight, negative))
                })?;
                reach[0] = reach[0].max(end);
            }
            counts[2] = fragments.columns.len() - counts[0] - counts[1];
            let heads = (0..op.heads).flat_map(|head| {
                let (to, from) = (head * fragments.weights, head * head_length);
                let parts = fragments.parts.iter();
                parts.map(move |&(place, weight, negative)| (to + place, from + weight, negative))
            });
            Ok::<_, CudaError>(Products {
                columns: device.upload(&fragments.columns)?,
                counts,
                stack: SignedTable::new(device, op.heads * fragments.weights, 1, heads)?,
                weights: fragments.weights,
            })
        };
        let (forward, backward) = (products(Direction::Forward)?, products(Direction::Backward)?);
        let [tile, query, own] = reach.map(row_stride);
        let strides = [tile.max(own), query, own];
        let gather = GatherPlan::new(
            device,
            &op.input,
            stack.gather.rows(),
            (stack.gather.harmonic_count(), convolution.radial(), 0, 1),
            &[],
            stack.row,
        )?;
        let (joint, joined) = joint_weights(op);
        let places = (0..op.heads).flat_map(|head| op.places(head));
        let places: Vec<u32> = places.map(|place| place as u32).collect();
        let kernel = gather.row_kernel(device, strides[0])?;
        let fits = kernel.irreps.len() <= MAX_UNITS
            && 4 * kernel.vertices * (strides[0] + strides[1]) <= MAX_SHARED_BYTES
            && forward.weights.max(backward.weights) <= MAX_FUSED_WEIGHTS;
        let split = joined.iter().map(|&(joint, head)| (head, joint, false));
        let total = joint.iter().sum();
        let warps = [Direction::Forward, Direction::Backward].map(|direction| Warps::new(device, op, direction));
        let [forward_warps, backward_warps] = warps;
        Ok(Self {
            warps: forward_warps?.zip(backward_warps?).map(|(f, b)| [f, b]),
            row: stack.row,
            strides,
            forward,
            backward,
            places: device.upload(&places)?,
            split: SignedTable::new(device, op.parameter_count(), 1, split)?,
            join: SignedTable::new(device, total, 1, joined.iter().map(|&(joint, head)| (joint, head, false)))?,
            joint,
            fits,
            gather,
        })
    }

    /// Applies a table to all weights.
    pub fn converted(
        &self,
        device: &CudaDevice,
        table: &SignedTable,
        (weights, count): (DeviceSlice<'_, f32>, usize),
    ) -> Result<DeviceBuffer<f32>> {
        let mut result = device.buffer(count)?;
        let to = result.view_mut();
        let nothing = DeviceSliceMut::empty();
        table.apply(device, [weights, DeviceSlice::empty()], [&to, &nothing], false)?;
        Ok(result)
    }
}

/// The lengths of the weights of a convolution to all heads, with the queries as its self term (keys, queries, values,
/// bias), and for each of them `(index there, index in the weights of the heads)`.
fn joint_weights(op: &Attention) -> ([usize; 4], Vec<(usize, usize)>) {
    let (part, inputs) = (op.part(), op.input.dimension());
    let [queries, keys, values, biases] = op.counts();
    let lengths = [keys, queries, values, biases].map(|count| op.heads * count);
    let starts = [0, lengths[0], lengths[0] + lengths[1]];
    let bias_start = starts[2] + lengths[2];
    let mut places = Vec::with_capacity(op.parameter_count());
    for head in 0..op.heads {
        let first = head * (queries + keys + values + biases);
        for (row, place) in op.places(head).into_iter().enumerate() {
            for column in 0..inputs {
                let (to, from) = (place * inputs + column, row * inputs + column);
                places.push((starts[0] + to, first + queries + from));
                places.push((starts[2] + to, first + queries + keys + from));
            }
        }
        for (all, own) in blocks(&op.input, &op.output).zip(blocks(&op.input, &part)) {
            for to in 0..own.out_channels {
                let place = head * own.out_channels + to;
                for from in 0..own.in_channels {
                    let mut push = |to: usize, from: usize| places.push((starts[1] + to, first + from));
                    push(all.a(place, from), own.a(to, from));
                    if own.order > 0 {
                        push(all.b(place, from), own.b(to, from));
                    }
                }
            }
        }
        let first_bias = first + queries + keys + values;
        places.extend((0..biases).map(|i| (bias_start + head * biases + i, first_bias + i)));
    }
    (lengths, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_of_a_head_has_one_place_among_all() {
        for (input, output, heads) in [
            ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 2),
            ("3x0 + 5x1 + 2x3", "6x0 + 9x2 + 3x3", 3),
            ("2x1", "4x2", 4),
        ] {
            let op = Attention { input: input.parse().unwrap(), output: output.parse().unwrap(), heads };
            let (lengths, mut places) = joint_weights(&op);
            let count = op.parameter_count();
            assert_eq!(lengths.iter().sum::<usize>(), count);
            places.sort_unstable();
            let (joint, mut of_heads): (Vec<usize>, Vec<usize>) = places.into_iter().unzip();
            of_heads.sort_unstable();
            let all: Vec<usize> = (0..count).collect();
            assert_eq!((joint, of_heads), (all.clone(), all), "{input} to {output}");
            let mut columns: Vec<usize> = (0..heads).flat_map(|head| op.places(head)).collect();
            columns.sort_unstable();
            assert_eq!(columns, (0..op.output.dimension()).collect::<Vec<_>>());
        }
    }
}
