//! Attention from features with 16 channels of each order, without rows in memory.
//!
//! A warp computes one head of 8 vertices, four lanes each. A lane holds `B` of 4 channels of every order in registers,
//! then the weighted sums in their place, as [`gauge_conv::warps`](crate::gauge_conv::warps) does. Each product leaves
//! its results where the next one takes its factors, so queries, `B`, sums and results never pass from lane to lane.
//! The weights of all heads are in shared memory. Logits go through global memory, one number for each edge and head.
//!
//! Gain on an H200 (`bench/compare`): without it attention takes 186 % longer forward and 91 % longer with its backward
//! pass.

use super::Attention;
use super::cuda::Run;
use crate::aggregate::Direction;
use crate::cuda::reduce::SignedTable;
use crate::cuda::{
    Arg, CudaDevice, Define, DeviceBuffer, DeviceEdges, DeviceSlice, DeviceSliceMut, KernelSource, Result, args,
};
use crate::gauge_conv::Stack;
use crate::gauge_conv::warps::{MAX_NUMBERS, RUN, VERTICES, WARPS, lanes, unit_defines};
use crate::irrep_dimension;
use crate::self_map::blocks;

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "attention warps",
    concat!(include_str!("../cuda/tensor.cu"), include_str!("../gauge_conv/units.cu"), include_str!("warps.cu")),
);

/// Numbers that a product of 8 channels by 8 or 16 by 8 takes from each of 32 lanes.
const BLOCK: usize = 4 * 32;
/// Channels of a run of results.
const OCTET: usize = 8;

/// One direction of attention, prepared for the kernel.
#[derive(Debug)]
pub(super) struct Warps {
    layout: Layout,
    /// The weights of all heads in the order in which lanes take them.
    stack: SignedTable,
    heads: usize,
}

/// The sizes that the kernel is compiled for.
#[derive(Debug)]
struct Layout {
    defines: Vec<Define>,
    /// Length of the weights of a head.
    weights: usize,
    /// Place in the order of lanes, and weight of a head with its sign.
    parts: Vec<(usize, usize, bool)>,
}

impl Layout {
    /// `None` for types that do not fit.
    fn new(op: &Attention, direction: Direction) -> Option<Self> {
        let part = op.part();
        let channels = part.uniform_multiplicity()?;
        let highest = part.highest_order();
        let harmonics = 2 * highest + 1;
        let numbers = 4 * harmonics * (2 * op.input.highest_order() + 1 + channels / OCTET);
        if op.input.uniform_multiplicity() != Some(RUN) || !channels.is_multiple_of(OCTET) || numbers > MAX_NUMBERS {
            return None;
        }
        let convolution = op.convolution(part.clone(), false);
        let stack = Stack::new(&convolution, 0, Direction::Forward);
        let mut entries = vec![(0, false); stack.weights];
        stack.visit(|place, weight, negative| entries[place] = (weight, negative), |_, _| {});
        // The weight from a number of the features to a number of an order of the result, at a harmonic of this order.
        let entry = |order: usize, sine: usize, from: usize, to: usize| {
            let of = &stack.orders[order];
            let term = sine * op.input.dimension() + from;
            entries[of.weights + term * of.width + to]
        };
        let [queries, keys, ..] = op.counts();
        let (first, second) = match direction {
            Direction::Forward => (queries, queries + keys),
            Direction::Backward => (queries + keys, queries),
        };
        let (mut parts, mut weights) = (Vec::new(), 0);
        let mut add = |weight: &dyn Fn([usize; 3]) -> (usize, bool)| {
            for (place, (lane, place_of_lane)) in (weights..).zip(lanes()) {
                let (weight, negative) = weight([lane / 4, lane % 4, place_of_lane]);
                parts.push((place, weight, negative));
            }
            weights += BLOCK;
        };
        let runs = |order: usize| (0..irrep_dimension(order) * channels).step_by(OCTET);
        let inputs = || (0..op.input.dimension()).step_by(RUN);
        if direction == Direction::Forward {
            for block in blocks(&op.input, &part) {
                for from in (0..block.in_width()).step_by(RUN) {
                    for to in runs(block.order) {
                        add(&|[g, t, i]| {
                            let part = block.part(to + g, from + 4 * t + i);
                            (part.weight, part.negative)
                        });
                    }
                }
            }
        }
        // Order, and 1 for a sine.
        let of_harmonic = |harmonic: usize| {
            let is_sine = harmonic > 0 && harmonic.is_multiple_of(2);
            (harmonic.div_ceil(2), usize::from(is_sine))
        };
        for (order, sine) in (0..harmonics).map(of_harmonic) {
            for from in inputs() {
                for to in runs(order) {
                    // Two columns of each lane of the factor, for 4 channels of each lane of the result.
                    add(&|[g, t, i]| {
                        let channel = g / 2 * 4 + i / 2 * 2 + g % 2;
                        let (weight, negative) = entry(order, sine, from + channel, to + 2 * t + i % 2);
                        (first + weight, negative)
                    });
                }
            }
        }
        for (order, sine) in (0..harmonics).map(of_harmonic) {
            for from in inputs() {
                for to in runs(order) {
                    add(&|[g, t, i]| {
                        let (weight, negative) = entry(order, sine, from + 4 * t + i, to + g);
                        (second + weight, negative)
                    });
                }
            }
        }
        let one = |value: usize| value.to_string();
        let mut defines = unit_defines(&op.input, &part);
        defines.extend([
            ("BACKWARD", one(0)),
            ("LAST", one(usize::from(direction == Direction::Backward))),
            ("PART", one(channels / OCTET)),
            ("COLUMNS", one(1)),
            ("HEADS", one(op.heads)),
            ("CHANGING", one(1)),
        ]);
        Some(Self { defines, weights, parts })
    }
}

impl Warps {
    /// `None` for types that do not fit.
    pub fn new(device: &CudaDevice, op: &Attention, direction: Direction) -> Result<Option<Self>> {
        let layout = Layout::new(op, direction);
        let fits = |layout: &Layout| 4 * op.heads * layout.weights <= device.shared_bytes();
        let Some(layout) = layout.filter(fits) else { return Ok(None) };
        let length: usize = op.counts().iter().sum();
        let placed = (0..op.heads).flat_map(|head| {
            let (to, from) = (head * layout.weights, head * length);
            let parts = layout.parts.iter();
            parts.map(move |&(place, weight, negative)| (to + place, from + weight, negative))
        });
        let stack = SignedTable::new(device, op.heads * layout.weights, 1, placed)?;
        Ok(Some(Self { layout, stack, heads: op.heads }))
    }

    /// True if the features and results of a run are aligned as the kernel needs them.
    pub fn reads(&self, run: &Run<'_>) -> bool {
        let results = [run.queries.view(), run.result.view()];
        let features = [run.x, run.own].into_iter();
        let mut all = features.chain(results).filter(|values| !values.is_empty());
        all.all(|values| values.is_aligned(4))
    }

    pub fn run(&self, device: &CudaDevice, op: &Attention, run: &Run<'_>) -> Result<()> {
        let layout = &self.layout;
        let count = self.heads * layout.weights;
        let mut stacked: DeviceBuffer<f32> = device.buffer(count)?;
        let (to, nothing) = (stacked.view_mut(), DeviceSliceMut::empty());
        let from = [run.weights, DeviceSlice::empty()];
        self.stack.apply(device, from, [&to, &nothing], false)?;
        let function = device.function_with_shared(SOURCE, &layout.defines, "attend", 4 * count)?;
        let vertices = run.graph.vertex_count();
        let DeviceEdges { offsets, neighbours, phases, .. } = run.graph.edges();
        let first: &[Arg] = args![offsets, neighbours, phases, vertices, run.x, run.own, &stacked, layout.weights / 4];
        let arguments = [first, &run.arguments(op)].concat();
        let blocks = device.multiprocessors().min(vertices.div_ceil(VERTICES));
        // SAFETY: the lengths of features, edge values and weights were checked against the graph and the settings, the
        // graph when it was made, and rows are aligned (`reads`).
        unsafe { function.run((blocks, 1), (32 * WARPS, 1), &arguments) }
    }
}

/// Macros for types that stand for all that occur.
pub(crate) fn variants() -> Vec<Vec<Define>> {
    let types = [("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", 2), ("16x0 + 16x1", "16x0 + 16x1 + 16x2", 1)];
    let layouts = types.into_iter().flat_map(|(input, output, heads)| {
        let op = match (input.parse(), output.parse()) {
            (Ok(input), Ok(output)) => Some(Attention { input, output, heads }),
            _ => None,
        };
        [Direction::Forward, Direction::Backward].map(|direction| Layout::new(op.as_ref()?, direction))
    });
    layouts.flatten().map(|layout| layout.defines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(input: &str, output: &str, heads: usize, direction: Direction) -> Option<Layout> {
        let op = Attention { input: input.parse().unwrap(), output: output.parse().unwrap(), heads };
        Layout::new(&op, direction)
    }

    #[test]
    fn every_place_has_a_weight_and_every_weight_a_place() {
        let wide = "16x0 + 16x1 + 16x2";
        // Of a head: queries, keys and values.
        let (queries, others) = (8 * 16 + 2 * 2 * 8 * 16, 40 * 80);
        for (direction, unused) in [(Direction::Forward, 0), (Direction::Backward, queries)] {
            let layout = layout(wide, wide, 2, direction).unwrap();
            let weights = 9 * 128 + 2 * 5760;
            let of_queries = if unused > 0 { 9 * 128 } else { 0 };
            assert_eq!(layout.weights, weights - of_queries);
            assert!(layout.parts.iter().map(|part| part.0).eq(0..layout.weights));
            let mut used: Vec<usize> = layout.parts.iter().map(|part| part.1).collect();
            used.sort_unstable();
            used.dedup();
            assert!(used.into_iter().eq(unused..queries + 2 * others));
        }
    }

    #[test]
    fn other_types_take_the_general_path() {
        for (input, output, heads) in [
            ("16x0 + 16x1", "16x0 + 16x1", 4),
            ("8x0 + 8x1", "16x0 + 16x1", 2),
            ("16x0 + 16x1", "16x0 + 8x1", 1),
            ("16x0 + 16x1 + 16x2 + 16x3", "16x0 + 16x1 + 16x2", 2),
        ] {
            assert!(layout(input, output, heads, Direction::Forward).is_none());
        }
        assert_eq!(variants().len(), 4);
    }
}
