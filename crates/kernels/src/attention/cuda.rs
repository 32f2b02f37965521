//! Attention on a GPU.
//!
//! Gain on an H200 (`bench/compare`): as a composition of operators attention takes 2.1 to 2.2 times as long.

use super::plan::Plan;
use super::{Attention, HeadWeights, OPERATOR};
use crate::KernelError;
use crate::aggregate::Direction;
use crate::cuda::reduce::{self, ColumnPartials};
use crate::cuda::{
    Arg, CudaDevice, CudaError, Define, DeviceBuffer, DeviceEdges, DeviceGraphView, DeviceSlice, DeviceSliceMut,
    KernelSource, ProductMode, Result, args, check_length,
};
use crate::gauge_conv::Weights;
use crate::gauge_conv::cuda::transposed;
use crate::self_map::blocks;
use crate::weighted_conv::cuda::reversed_factors;
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "attention",
    concat!(include_str!("../cuda/tensor.cu"), include_str!("../aggregate/gather.cu"), include_str!("attention.cu")),
);

/// True if one kernel can do it: the device multiplies on tensor cores, and rows and weights are small enough.
pub fn supports(device: &CudaDevice, op: &Attention) -> Result<bool> {
    let counts = op.output.multiplicities();
    let empty = op.input.dimension() == 0 || op.output.dimension() == 0;
    if device.product_mode() == ProductMode::F32
        || device.capability() < (8, 0)
        || empty
        || op.heads == 0
        || counts.iter().any(|count| !count.is_multiple_of(op.heads))
    {
        return Ok(false);
    }
    Ok(Plan::new(device, op)?.fits)
}

fn plan(device: &CudaDevice, op: &Attention) -> Result<Arc<Plan>> {
    if supports(device, op)? {
        return Plan::new(device, op);
    }
    Err(CudaError::Kernel(KernelError::Setting {
        operator: OPERATOR,
        problem: format!(
            "{} to {} with {} heads in products of {:?} does not fit in one kernel; use `weighted_conv`",
            op.input,
            op.output,
            op.heads,
            device.product_mode()
        ),
    }))
}

/// Copies the weights of one head to those of all heads, or with `add` adds gradients the other way round.
fn copy_parts(
    device: &CudaDevice,
    op: &Attention,
    head: usize,
    (parts, add): (HeadWeights<DeviceSlice<'_, f32>>, bool),
    packed: DeviceSlice<'_, f32>,
) -> Result<()> {
    let counts = op.counts();
    let all = [("query", parts.query), ("key", parts.key), ("value", parts.value), ("bias", parts.bias)];
    for ((name, part), count) in all.into_iter().zip(counts) {
        check_length(OPERATOR, name, part, count)?;
    }
    check_length(OPERATOR, "weights", packed, op.parameter_count())?;
    let total: usize = counts.iter().sum();
    let packed = packed.slice(head * total..(head + 1) * total);
    reduce::copy_parts(device, OPERATOR, all.map(|(_, part)| part), packed, add)
}

/// Copies the weights of a head to its place in `all`, the weights of all heads
/// ([`parameter_count`](Attention::parameter_count) numbers).
pub fn pack(
    device: &CudaDevice,
    op: &Attention,
    head: usize,
    weights: HeadWeights<DeviceSlice<'_, f32>>,
    all: &DeviceSliceMut<'_, f32>,
) -> Result<()> {
    copy_parts(device, op, head, (weights, false), all.view())
}

/// Adds the gradients of a head, from those of all heads.
pub fn add_gradients(
    device: &CudaDevice,
    op: &Attention,
    head: usize,
    all: DeviceSlice<'_, f32>,
    gradients: &HeadWeights<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    copy_parts(device, op, head, (gradients.each_ref().map(DeviceSliceMut::view), true), all)
}

/// What a kernel reads and writes.
pub(super) struct Run<'a> {
    pub graph: DeviceGraphView<'a>,
    pub weights: DeviceSlice<'a, f32>,
    pub x: DeviceSlice<'a, f32>,
    /// `x`, or the gradient of the result.
    pub own: DeviceSlice<'a, f32>,
    pub queries: &'a DeviceSliceMut<'a, f32>,
    /// Weights of attention, in the backward pass.
    pub given: DeviceSlice<'a, f32>,
    /// Weights of attention, or gradients of the logits.
    pub edge_values: &'a DeviceSliceMut<'a, f32>,
    pub result: &'a DeviceSliceMut<'a, f32>,
}

impl Run<'_> {
    /// The last arguments of the kernels: scale, queries, values of edges, biases and the result.
    pub fn arguments(&self, op: &Attention) -> [Arg; 8] {
        let [queries, keys, values, biases] = op.counts();
        let (first, all) = (queries + keys + values, queries + keys + values + biases);
        let bias = self.weights.from(first);
        *args![op.scale(), self.queries, self.given, self.edge_values, bias, all, biases, self.result]
    }
}

/// Macros of the kernel beside those of a gather.
fn direction_defines([_, query, own]: [usize; 3], direction: Direction) -> [Define; 4] {
    let backward = usize::from(direction == Direction::Backward);
    [("ATTENTION", 1), ("BACKWARD", backward), ("QUERY", query), ("OWN", own)]
        .map(|(name, value)| (name, value.to_string()))
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    let gathers = crate::aggregate::cuda::variants().into_iter();
    let plain = gathers.filter(|defines| {
        let is = |name: &str, value: &str| defines.iter().any(|(n, v)| *n == name && v == value);
        is("TENSOR", "1") && is("COLUMNS", "0") && is("RADIAL", "0")
    });
    plain
        .flat_map(|defines| {
            [Direction::Forward, Direction::Backward].map(|direction| {
                let own = direction_defines([0, 20, 36], direction);
                [&defines[..], &own].concat()
            })
        })
        .collect()
}

impl Plan {
    fn run(&self, device: &CudaDevice, op: &Attention, direction: Direction, run: &Run<'_>) -> Result<()> {
        let (products, place) = match direction {
            Direction::Forward => (&self.forward, 0),
            Direction::Backward => (&self.backward, 1),
        };
        let warps = self.warps.as_ref().map(|warps| &warps[place]);
        if let Some(warps) = warps.filter(|warps| warps.reads(run)) {
            return warps.run(device, op, run);
        }
        let count = op.heads * products.weights;
        let stacked = self.converted(device, &products.stack, (run.weights, count))?;
        let mut kernel = self.gather.row_kernel(device, self.strides[0])?;
        if !run.x.is_aligned(kernel.vector) {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("the features are not aligned to {} numbers", kernel.vector),
            }));
        }
        kernel.defines.extend(direction_defines(self.strides, direction));
        let bytes = 4 * kernel.vertices * (self.strides[0] + self.strides[1]);
        let function = device.function_with_shared(SOURCE, &kernel.defines, "attend", bytes)?;
        let vertices = run.graph.vertex_count();
        let DeviceEdges { offsets, neighbours, phases, .. } = run.graph.edges();
        let ([one, two, three], irreps, places) = (products.counts, &*kernel.irreps, &self.places);
        let features: &[Arg] = args![offsets, neighbours, phases, run.x, op.input.dimension(), irreps, irreps.len()];
        let rows: &[Arg] = args![kernel.destinations, self.row, vertices, run.own];
        let outputs: &[Arg] = args![places, places.len() / op.heads, op.output.dimension()];
        let factors: &[Arg] = args![&stacked, products.weights / 4, &products.columns, one, two, three];
        let arguments = [features, rows, outputs, factors, &run.arguments(op)].concat();
        let blocks = (vertices.div_ceil(kernel.vertices), op.heads);
        // SAFETY: the lengths of features, edge values and weights were checked against the graph and the settings, the
        // graph when it was made, and the columns are places in rows of these strides, as they were laid out.
        unsafe { function.run(blocks, (kernel.threads, 1), &arguments) }
    }
}

/// Overwrites `y`, the queries and the weights of attention. Empty `queries` are not written. `weights` are those of
/// all heads ([`pack`]).
#[allow(clippy::too_many_arguments)]
pub fn forward(
    device: &CudaDevice,
    op: &Attention,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: DeviceSlice<'_, f32>,
    mut queries: DeviceSliceMut<'_, f32>,
    attention: DeviceSliceMut<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let plan = plan(device, op)?;
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let outputs = vertices * op.output.dimension();
    check_length(OPERATOR, "x", x, vertices * op.input.dimension())?;
    check_length(OPERATOR, "weights", weights, op.parameter_count())?;
    check_length(OPERATOR, "attention", attention.view(), edges * op.heads)?;
    check_length(OPERATOR, "y", y.view(), outputs)?;
    if !queries.is_empty() {
        check_length(OPERATOR, "queries", queries.view(), outputs)?;
        // The kernel does not write orders that the features lack.
        let part = op.part();
        if blocks(&op.input, &part).count() < part.orders().count() {
            device.clear(queries.reborrow())?;
        }
    }
    let run = Run {
        graph,
        weights,
        x,
        own: x,
        queries: &queries,
        given: DeviceSlice::empty(),
        edge_values: &attention,
        result: &y,
    };
    plan.run(device, op, Direction::Forward, &run)
}

/// Overwrites `dx` if it is given, and the gradients of the weights of all heads ([`add_gradients`]).
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &Attention,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: DeviceSlice<'_, f32>,
    queries: DeviceSlice<'_, f32>,
    attention: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    mut dx: Option<DeviceSliceMut<'_, f32>>,
    gradients: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let plan = plan(device, op)?;
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let outputs = op.output.dimension();
    check_length(OPERATOR, "x", x, vertices * op.input.dimension())?;
    check_length(OPERATOR, "weights", weights, op.parameter_count())?;
    check_length(OPERATOR, "queries", queries, vertices * outputs)?;
    check_length(OPERATOR, "attention", attention, edges * op.heads)?;
    check_length(OPERATOR, "dy", dy, vertices * outputs)?;
    check_length(OPERATOR, "gradients", gradients.view(), weights.len())?;
    let mut dlogits: DeviceBuffer<f32> = device.buffer(edges * op.heads)?;
    let mut dqueries: DeviceBuffer<f32> = device.buffer(vertices * outputs)?;
    let run = Run {
        graph,
        weights,
        x,
        own: dy,
        queries: &DeviceSliceMut::empty(),
        given: attention,
        edge_values: &dlogits.view_mut(),
        result: &dqueries.view_mut(),
    };
    plan.run(device, op, Direction::Backward, &run)?;

    let total: usize = plan.joint.iter().sum();
    let joint = plan.converted(device, &plan.join, (weights, total))?;
    let mut sums: DeviceBuffer<f32> = device.buffer(total)?;
    device.clear(sums.view_mut())?;
    let [keys, own, values, _] = plan.joint;
    let (dkeys, rest) = sums.view_mut().split_at(keys);
    let (down, rest) = rest.split_at(own);
    let (dvalues, dbias) = rest.split_at(values);
    let columns = ColumnPartials::of_rows(device, dy, (vertices, outputs, dbias.len()))?;

    let part = |start: usize, count: usize| joint.view().slice(start..start + count);
    let (nothing, none) = (DeviceSlice::empty(), DeviceSliceMut::empty);
    let reversed = reversed_factors(device, graph, attention, op.heads)?;
    let weighted = graph.with_reversed_factors(device, attention, reversed.view(), op.heads)?;
    let convolution = op.convolution(op.output.clone(), false);
    let weights = Weights { neighbour: part(keys + own, values), self_term: nothing, bias: nothing };
    let to = dx.as_mut().map(DeviceSliceMut::reborrow);
    let sums_of_values = Weights { neighbour: dvalues, self_term: none(), bias: dbias };
    transposed(device, &convolution, weighted, x, weights, [dy, dy], to, false, sums_of_values, columns)?;

    let reversed = reversed_factors(device, graph, dlogits.view(), op.heads)?;
    let weighted = graph.with_reversed_factors(device, dlogits.view(), reversed.view(), op.heads)?;
    let convolution = op.convolution(op.output.clone(), true);
    let weights = Weights { neighbour: part(0, keys), self_term: part(keys, own), bias: nothing };
    let sums_of_keys = Weights { neighbour: dkeys, self_term: down, bias: none() };
    let from = [queries, dqueries.view()];
    transposed(
        device,
        &convolution,
        weighted,
        x,
        weights,
        from,
        dx,
        true,
        sums_of_keys,
        ColumnPartials::none(device)?,
    )?;
    let nothing = DeviceSlice::empty();
    let to = [&gradients, &DeviceSliceMut::empty()];
    plan.split.apply(device, [sums.view(), nothing], to, false)
}
