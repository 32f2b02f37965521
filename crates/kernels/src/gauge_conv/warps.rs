//! The convolution with sums in registers, between types with 16 channels of each order.
//!
//! A warp gathers 8 vertices. Four lanes share a vertex, and each of them sums 4 channels of every order: these are the
//! registers in which tensor cores expect a factor, so the sums are multiplied as they are, with weights in shared
//! memory. No row is ever stored, and warps do not wait for each other. A block takes a run of vertices and finds most
//! neighbours in the cache of its multiprocessor.
//!
//! The gradients of the weights are sums over vertices of the gathered rows of `dy` times `x`. Vertices have to be the
//! terms of these products, so rows have to change lanes. Some warps of a block convolve (`dx`) and pass their sums
//! through shared memory to the others, one for each harmonic, which hold the gradients in registers until the end. The
//! sums of the blocks are then added in order.
//!
//! Gain on an H200 (`bench/compare`): without it a convolution takes 144 % longer forward and 91 % longer with its
//! backward pass, and a training step of `correspondence` 18 to 19 %.

use super::GaugeConv;
use super::stacked::{Stack, types};
use crate::aggregate::Direction;
use crate::aggregate::cuda::{GatherRun, number};
use crate::cuda::reduce::{ColumnPartials, SignedTable};
use crate::cuda::{
    Arg, CudaDevice, Define, DeviceBuffer, DeviceEdges, DeviceSlice, KernelSource, Result, args, irrep_rows,
};
use crate::{Aggregation, FeatureType, irrep_dimension};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "warps",
    concat!(include_str!("../cuda/tensor.cu"), include_str!("units.cu"), include_str!("warps.cu")),
);

/// Channels of a unit.
pub(crate) const RUN: usize = 16;
/// Vertices of a warp.
pub(crate) const VERTICES: usize = 8;
/// Most numbers that a lane holds for sums and results.
pub(crate) const MAX_NUMBERS: usize = 140;
/// Most numbers that a lane holds for gradients of weights.
const MAX_GRADIENTS: usize = 120;
/// Warps of a block. With more, each would have too few registers.
pub(crate) const WARPS: usize = 12;

/// One direction of a convolution, prepared for the kernels.
#[derive(Debug)]
pub(super) struct Warps {
    layout: Layout,
    /// Weights in the order in which lanes take them.
    stack: SignedTable,
}

/// The sizes that the kernels are compiled for.
#[derive(Debug)]
struct Layout {
    defines: Vec<Define>,
    /// Length of the weights in the order in which lanes take them.
    weights: usize,
    /// Place in the order of lanes, and place in the layout of [`Stack`].
    places: Vec<(usize, usize)>,
    /// Shared memory of a block, in bytes.
    shared: usize,
    /// Warps that gather, backward.
    producers: usize,
    /// True if the edges of the graph have factors.
    factors: bool,
}

impl Layout {
    /// `None` for types that do not fit. Backward, the gradients of the weights have to fit too.
    fn new(op: &GaugeConv, stack: &Stack<'_>, direction: Direction, (columns, heads): (usize, usize)) -> Option<Self> {
        let (source, target) = types(op, direction);
        let (dimension, highest) = (source.dimension(), target.highest_order());
        let uniform = |kind: &FeatureType| kind.uniform_multiplicity() == Some(RUN);
        // The channels of a lane are those of one head.
        let split = [1, 2, 4].contains(&heads);
        if !uniform(source) || !uniform(target) || highest == 0 || columns > 1 || op.rings > 1 || !split {
            return None;
        }
        let units = irrep_rows(source, RUN);
        let harmonics = 2 * highest + 1;
        // Width, first number, first weight and self term of each order of the result.
        let mut orders = vec![[0; 4]; highest + 1];
        // Order and first number of every 16 numbers of the result.
        let mut tiles = Vec::new();
        for order in &stack.orders {
            let own = usize::from(order.terms > irrep_dimension(order.order) * dimension);
            orders[order.order] = [order.width, order.result, order.weights, own];
            tiles.extend((0..order.width).step_by(RUN).map(|n| (order.order, n)));
        }
        if 8 * harmonics * units.len() + 4 * tiles.len() > MAX_NUMBERS {
            return None;
        }
        let mut places = Vec::new();
        let mut weights = 0;
        // The weights of 8 of 16 channels and all numbers of an order, 16 numbers at a time: lane 4 g + t takes the
        // channels 4 t + half and the next for the numbers g and g + 8.
        let mut multiply = |order: usize, term: usize, half: usize| {
            let [width, _, start, _] = orders[order];
            for &(_, first) in tiles.iter().filter(|tile| tile.0 == order) {
                for (place, (lane, entry)) in (weights..).zip(lanes()) {
                    let number = first + lane / 4 + entry % 2 * 8;
                    let channel = term + lane % 4 * 4 + half + entry / 2;
                    places.push((place, start + channel * width + number));
                }
                weights += 4 * 32;
            }
        };
        for &[cosine, sine, order, _] in &units {
            let order = order as usize;
            for place in [cosine, sine].into_iter().take(irrep_dimension(order)) {
                let place = place as usize;
                for half in [0, 2] {
                    // All cosines, then all sines.
                    (0..=highest).for_each(|to| multiply(to, place, half));
                    (1..=highest).for_each(|to| multiply(to, dimension + place, half));
                }
                if orders.get(order).is_some_and(|of| of[3] > 0) {
                    let gathered = irrep_dimension(order) * dimension;
                    let term = gathered + place - source.range(order).start;
                    [0, 2].into_iter().for_each(|half| multiply(order, term, half));
                }
            }
        }
        let mut shared = 4 * weights;
        let (consumers, kinds) = (2 * highest, 2 * units.len() - 1);
        let backward = direction == Direction::Backward;
        if backward {
            if 4 * (4 * kinds + kinds.div_ceil(highest) + 5) > MAX_GRADIENTS {
                return None;
            }
            let numbers = 32 * harmonics + 8 + stack.result + 8;
            shared += (WARPS - consumers) * (4 * VERTICES * numbers + 16);
        }
        let one = |value: usize| value.to_string();
        let of_orders = |entry: usize| list(orders.iter().map(|order| order[entry]));
        let mut defines = unit_defines(source, target);
        defines.extend([
            ("BACKWARD", one(usize::from(backward))),
            ("RESULT", one(stack.result)),
            ("WEIGHTS", one(weights / 4)),
            ("OUT_STARTS", of_orders(1)),
            ("STACK_STARTS", of_orders(2)),
            ("OWN", of_orders(3)),
            ("OUT_TILES", one(tiles.len())),
            ("TILE_ORDERS", list(tiles.iter().map(|tile| tile.0))),
            ("TILE_FIRSTS", list(tiles.iter().map(|tile| tile.1))),
            ("COLUMNS", one(columns)),
            ("HEADS", one(heads)),
            ("CHANGING", one(0)),
        ]);
        Some(Self { defines, weights, places, shared, producers: WARPS - consumers, factors: columns > 0 })
    }
}

fn list(values: impl Iterator<Item = usize>) -> String {
    let texts: Vec<String> = values.map(|value| value.to_string()).collect();
    texts.join(",")
}

/// Macros of `units.cu` for sums of features of type `source` for a result of type `target`.
pub(crate) fn unit_defines(source: &FeatureType, target: &FeatureType) -> Vec<Define> {
    let units = irrep_rows(source, RUN);
    let of_units = |entry: usize| list(units.iter().map(|unit| unit[entry] as usize));
    let orders = 0..=target.highest_order();
    let one = |value: usize| value.to_string();
    vec![
        ("TENSOR", one(1)),
        ("THREADS", one(32 * WARPS)),
        ("UNITS", one(units.len())),
        ("PASS_UNITS", one(units.len())),
        ("UNIT_COSINES", of_units(0)),
        ("UNIT_SINES", of_units(1)),
        ("UNIT_ORDERS", of_units(2)),
        ("MAX_ORDER", one(source.highest_order())),
        ("DIMENSION", one(source.dimension())),
        ("OUT_ORDERS", one(target.highest_order() + 1)),
        ("OUT_WIDTHS", list(orders.map(|order| target.range(order).len()))),
    ]
}

/// The lanes of a warp, and the entries of the factor that each of them holds.
pub(crate) fn lanes() -> impl Iterator<Item = (usize, usize)> {
    (0..4 * 32).map(|place| (place / 4, place % 4))
}

impl Warps {
    /// For a layout with these parts of the stacked weights: `(place, weight, negative)`. `None` if it does not fit.
    pub fn new(
        device: &CudaDevice,
        op: &GaugeConv,
        stack: &Stack<'_>,
        (direction, columns, heads): (Direction, usize, usize),
        parts: &[(usize, usize, bool)],
    ) -> Result<Option<Self>> {
        let layout = Layout::new(op, stack, direction, (columns, heads));
        let Some(layout) = layout.filter(|layout| layout.shared <= device.shared_bytes()) else { return Ok(None) };
        let mut entries = vec![None; stack.weights];
        for &(place, weight, negative) in parts {
            entries[place] = Some((weight, negative));
        }
        let placed = layout
            .places
            .iter()
            .filter_map(|&(place, from)| entries[from].map(|(weight, negative)| (place, weight, negative)));
        Ok(Some(Self { stack: SignedTable::new(device, layout.weights, 1, placed)?, layout }))
    }

    /// The convolution of a run, whose rows are not stored.
    pub fn convolve(&self, device: &CudaDevice, run: &GatherRun<'_>, weights: [DeviceSlice<'_, f32>; 2]) -> Result<()> {
        let (bias, y, _) = run.bias;
        let blocks = self.blocks(device, run);
        self.launch(device, "convolve", run, (weights, blocks), args![bias, bias.len(), y])
    }

    /// The convolution of a run of the transposed operator, or with `add` its sum with what is in the result. Returns
    /// partial gradients of the stacked weights, sums over vertices of the gathered rows times `x`, and their number.
    /// If `columns` are the scalars of the rows that reach the vertex itself, they are summed too.
    pub fn differentiate<'a>(
        &self,
        device: &CudaDevice,
        run: &GatherRun<'_>,
        weights: [DeviceSlice<'_, f32>; 2],
        x: DeviceSlice<'_, f32>,
        add: bool,
        columns: ColumnPartials<'a>,
    ) -> Result<(DeviceBuffer<f32>, usize, ColumnPartials<'a>)> {
        let blocks = self.blocks(device, run);
        let mut partials = device.buffer(blocks * self.layout.weights)?;
        let sums_columns = columns.are_columns_of(run.own, RUN);
        let parts = if sums_columns { blocks * self.layout.producers } else { 0 };
        let mut column_partials: DeviceBuffer<f64> = device.buffer(parts * RUN)?;
        let (_, dx, _) = run.bias;
        let last = args![dx, u32::from(add), x, &partials.view_mut(), &column_partials.view_mut()];
        self.launch(device, "differentiate", run, (weights, blocks), last)?;
        let columns = match sums_columns {
            true => ColumnPartials::of_partials(column_partials, RUN),
            false => columns.in_parts(device)?,
        };
        Ok((partials, blocks, columns))
    }

    fn launch(
        &self,
        device: &CudaDevice,
        name: &'static str,
        run: &GatherRun<'_>,
        (weights, blocks): ([DeviceSlice<'_, f32>; 2], usize),
        last: &[Arg],
    ) -> Result<()> {
        let layout = &self.layout;
        // Factors of edges take the place of the scale.
        let aggregation = if layout.factors { Aggregation::Sum } else { run.aggregation };
        let DeviceEdges { offsets, neighbours, phases, coefficients, .. } = run.edges;
        let graph: &[Arg] = args![offsets, neighbours, phases, coefficients, number(aggregation), run.vertices.1];
        let [weight, rest] = weights;
        let rows: &[Arg] = args![run.x, run.own, self.stack.entries(), weight, weight.len(), rest];
        let function = device.function_with_shared(SOURCE, &layout.defines, name, layout.shared)?;
        // SAFETY: the operators checked the lengths of features, weights and results against the graph, whose arrays
        // were checked when it was made; features are aligned (`reads`), and every block has its part of the partial
        // gradients.
        unsafe { function.run((blocks, 1), (32 * WARPS, 1), &[graph, rows, last].concat()) }
    }

    /// True if the features of a run, and others, are aligned as the kernels need them.
    pub fn reads(&self, run: &GatherRun<'_>, x: DeviceSlice<'_, f32>) -> bool {
        [run.x, run.own, x].iter().all(|features| features.is_aligned(4))
    }

    /// Blocks of a launch: one on each multiprocessor, as long as each has a warp with vertices.
    fn blocks(&self, device: &CudaDevice, run: &GatherRun<'_>) -> usize {
        let (_, count) = run.vertices;
        device.multiprocessors().min(count.div_ceil(VERTICES))
    }
}

/// Macros for types that stand for all that occur.
pub(crate) fn variants() -> Vec<Vec<Define>> {
    let types = [
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", (0, 1)),
        ("16x0 + 16x1", "16x0 + 16x1 + 16x2", (1, 1)),
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", (1, 2)),
    ];
    let directions = [Direction::Forward, Direction::Backward];
    let layouts = types.into_iter().flat_map(|(input, output, kind)| {
        let op = match (input.parse(), output.parse()) {
            (Ok(input), Ok(output)) => Some(GaugeConv::new(input, output)),
            _ => None,
        };
        directions.map(|direction| {
            let op = op.as_ref()?;
            let stack = Stack::new(op, kind.0, direction);
            Layout::new(op, &stack, direction, kind)
        })
    });
    layouts.flatten().map(|layout| layout.defines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Backward, Forward};

    fn layout(input: &str, output: &str, direction: Direction, kind: (usize, usize)) -> Option<Layout> {
        let op = GaugeConv::new(input.parse().unwrap(), output.parse().unwrap());
        let stack = Stack::new(&op, kind.0, direction);
        Layout::new(&op, &stack, direction, kind)
    }

    #[test]
    fn every_weight_has_one_place() {
        let (wide, narrow) = ("16x0 + 16x1 + 16x2", "16x0 + 16x1");
        for (input, output, weights) in [
            (wide, wide, 13_824),
            (narrow, wide, 48 * 144 + 16 * 16 + 32 * 32),
            (narrow, narrow, 48 * 80 + 16 * 16 + 32 * 32),
        ] {
            for direction in [Forward, Backward] {
                let layout = layout(input, output, direction, (0, 1)).unwrap();
                let count = layout.weights;
                if direction == Forward {
                    assert_eq!(count, weights, "{input} to {output}");
                }
                assert!(layout.places.iter().map(|place| place.0).eq(0..count));
                let mut stacked: Vec<usize> = layout.places.iter().map(|place| place.1).collect();
                stacked.sort_unstable();
                assert!(stacked.into_iter().eq(0..count));
            }
        }
    }

    /// The digest of the order for which the results on a GPU were checked.
    #[test]
    fn weights_stand_in_the_order_of_the_kernels() {
        let wide = "16x0 + 16x1 + 16x2";
        for direction in [Forward, Backward] {
            let layout = layout(wide, wide, direction, (0, 1)).unwrap();
            let digest: usize = (layout.places.iter()).map(|(place, stacked)| (place + 1) * (stacked + 1)).sum();
            assert_eq!(digest, 746_378_420_608);
        }
    }

    #[test]
    fn other_types_take_the_general_path() {
        for (input, output, direction, kind) in [
            ("3x0", "16x0 + 16x1 + 16x2", Forward, (0, 1)),
            ("16x0 + 8x1", "16x0 + 16x1", Forward, (0, 1)),
            ("16x0 + 16x1", "16x0 + 16x1", Forward, (3, 1)),
            ("16x0 + 16x1", "16x0", Forward, (0, 1)),
            ("16x0", "16x0 + 16x1", Backward, (0, 1)),
            ("32x0 + 32x1", "32x0 + 32x1", Backward, (0, 1)),
            ("16x0 + 16x1", "16x0 + 16x1", Backward, (1, 8)),
        ] {
            assert!(layout(input, output, direction, kind).is_none());
        }
        assert_eq!(variants().len(), 6);
    }
}
