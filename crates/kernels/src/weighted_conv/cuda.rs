//! The gauge convolution with weights of edges on a GPU, and the products with keys.

use super::{Backward, Forward, OPERATOR, Products, fast::plain};
use crate::Gpu;
use crate::aggregate::Direction;
use crate::cuda::reduce::SignedTable;
use crate::cuda::{
    CudaDevice, DeviceBuffer, DeviceEdges, DeviceGraphView, DeviceSlice, DeviceSliceMut, KernelSource, Operand,
    Product, Result, Share, args, check_length, key, over_irreps, to_u32,
};
use crate::gauge_conv::{self, GaugeConv, Order, Stack};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new("weighted_conv", include_str!("weighted_conv.cu"));

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, graph, factors, x, weight, bias, y } = pass;
    let (graph, self_term) = (graph.with_factors(factors), DeviceSlice::empty());
    gauge_conv::Forward { op, graph, x, neighbour: weight, self_term, bias, y }.launch(device)
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, graph, factors, x, weight, bias, dy, dx, dweight, dbias } = pass;
    let reversed = reversed_factors(device, graph, factors, 1)?;
    let graph = graph.with_reversed_factors(device, factors, reversed.view(), 1)?;
    let (neighbour, dneighbour) = (weight, dweight);
    let (self_term, dself_term) = (DeviceSlice::empty(), DeviceSliceMut::empty());
    let pass = gauge_conv::Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias };
    pass.launch(device)
}

/// The factors of the reverse of every edge, `[edges, heads]`.
pub(crate) fn reversed_factors(
    device: &CudaDevice,
    graph: DeviceGraphView<'_>,
    factors: DeviceSlice<'_, f32>,
    heads: usize,
) -> Result<DeviceBuffer<f32>> {
    let count = graph.edge_count() * heads;
    check_length(OPERATOR, "factors", factors, count)?;
    let mut reversed: DeviceBuffer<f32> = device.buffer(count)?;
    let function = device.function(SOURCE, &[], "reverse_factors")?;
    let to = reversed.view_mut();
    // SAFETY: there is a factor for each edge and head, and the reverse of an edge is an edge.
    unsafe {
        function.over(count, args![graph.reverse(), factors, &to, heads, count])?;
    }
    Ok(reversed)
}

/// The layout of `B`.
#[derive(Debug)]
struct Plan {
    orders: Vec<Order>,
    row: usize,
    weights: usize,
    stack: SignedTable,
    /// Start of `B[cos m]` and of `B[sin m]` in a row, for every order `m`.
    places: DeviceBuffer<[i32; 2]>,
}

impl Plan {
    fn new(device: &CudaDevice, op: &GaugeConv) -> Result<Arc<Self>> {
        device.table("weighted_conv", key(&[&op.input, &op.output]), || {
            let op = plain(op);
            let stack = Stack::new(&op, 0, Direction::Forward);
            let mut places = vec![[-1; 2]; op.output.highest_order() + 1];
            for row in stack.gather.rows() {
                let start = to_u32(OPERATOR, row.destination)? as i32;
                places[row.harmonic.div_ceil(2)][usize::from(row.harmonic > 0 && row.harmonic.is_multiple_of(2))] =
                    start;
            }
            let mut parts = Vec::with_capacity(stack.weights);
            stack.visit(|place, weight, negative| parts.push((place, weight, negative)), |_, _| {});
            Ok(Self {
                stack: SignedTable::new(device, stack.weights, 1, parts)?,
                places: device.upload(&places)?,
                row: stack.row,
                weights: stack.weights,
                orders: stack.orders,
            })
        })
    }
}

pub(super) fn products(device: &CudaDevice, pass: Products<'_, Gpu>) -> Result<()> {
    let Products { op, graph, y, x, weight, mut products } = pass;
    let vertices = graph.vertex_count();
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    if inputs == 0 || outputs == 0 {
        return device.clear(products.reborrow());
    }
    let plan = Plan::new(device, op)?;
    let mut stacked: DeviceBuffer<f32> = device.buffer(plan.weights)?;
    let to = stacked.view_mut();
    plan.stack.apply(device, [weight, DeviceSlice::empty()], [&to, &DeviceSliceMut::empty()], false)?;
    let chunk = (device.tile_bytes() / (4 * plan.row)).clamp(1, vertices.max(1));
    let mut rows: DeviceBuffer<f32> = device.buffer(chunk * plan.row)?;
    let DeviceEdges { offsets, neighbours, phases, .. } = graph.edges();
    for first in (0..vertices).step_by(chunk) {
        let count = chunk.min(vertices - first);
        for order in &plan.orders {
            let weights = Operand::new(stacked.view().from(order.weights), order.width);
            let start = order.start;
            let (a, b) = (Operand::new(y.from(first * outputs + order.result), outputs), weights.transposed());
            let product = Product { m: count, n: order.terms, k: order.width, a, b, add: false, batches: 1 };
            product.run(device, &rows.view_mut().slice(start..usize::MAX), (plan.row, 0))?;
        }
        let (rows, places) = (rows.view(), &plan.places);
        let arguments = args![offsets, neighbours, phases, x, rows, plan.row, places, places.len(), first, &products];
        let kernel = (SOURCE, "products");
        // SAFETY: lengths were checked, the graph when it was made, and a row has a part of the width of `x` from each
        // place.
        unsafe {
            over_irreps(device, kernel, &op.input, Share::WarpOfHead(1), count, arguments)?;
        }
    }
    Ok(())
}
