//! Gather, spread, reduce and softmax on the edges of a graph, on a GPU.

use super::{EdgeFrame, OPERATOR, Reduce, check};
use crate::FeatureType;
use crate::aggregate::cuda::number;
use crate::cuda::{
    CudaDevice, CudaError, DeviceGraphView, DeviceSlice, DeviceSliceMut, KernelSource, Share, args, check_length,
    over_irreps, to_u32,
};

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("edges", concat!(include_str!("../cuda/rotated_sum.cu"), include_str!("edges.cu")));

/// As the frame is numbered in the kernels.
fn frame_number(frame: EdgeFrame) -> u32 {
    match frame {
        EdgeFrame::Vertex => 0,
        EdgeFrame::Edge => 1,
    }
}

/// Features of the neighbour at every edge; see [`gather`](super::gather).
pub fn gather(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph.counts(), ("x", x), ("y", y.view()))?;
    let (edges, share) = (graph.edges(), Share::Irreps);
    let (kernel, rows) = ((SOURCE, "gather"), graph.edge_count());
    let arguments = args![edges.neighbours, edges.phases, frame_number(frame), x, &y];
    // SAFETY: lengths were checked, and the graph when it was made.
    unsafe { over_irreps(device, kernel, features, share, rows, arguments) }
}

/// Overwrites `dx` with the gradient of [`gather`].
pub fn gather_backward(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: DeviceGraphView<'_>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph.counts(), ("dx", dx.view()), ("dy", dy))?;
    let (edges, share) = (graph.edges(), Share::Irreps);
    let (kernel, rows) = ((SOURCE, "gather_backward"), graph.vertex_count());
    let (reverse, frame) = (graph.reverse(), frame_number(frame));
    let arguments = args![edges.offsets, reverse, edges.phases, frame, dy, &dx];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, share, rows, arguments) }
}

/// Features of the vertex itself at every edge of its row; see [`spread`](super::spread).
pub fn spread(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph.counts(), ("x", x), ("y", y.view()))?;
    let op = Reduce::sum(features.clone(), frame);
    weighted_spread(device, &op, graph, DeviceSlice::empty(), x, &y)
}

/// Overwrites `dx` with the gradient of [`spread`].
pub fn spread_backward(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: DeviceGraphView<'_>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph.counts(), ("dx", dx.view()), ("dy", dy))?;
    let op = Reduce::sum(features.clone(), frame);
    reduce(device, &op, graph, dy, None, dx)
}

/// `y_pq = s_p w_pq R_pq^T x_p`; empty weights are ones.
fn weighted_spread(
    device: &CudaDevice,
    op: &Reduce,
    graph: DeviceGraphView<'_>,
    weights: DeviceSlice<'_, f32>,
    x: DeviceSlice<'_, f32>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (edges, share) = (graph.edges(), Share::IrrepsOfHeads(op.heads));
    let (kernel, rows) = ((SOURCE, "spread"), graph.edge_count());
    let arguments = args![
        edges.offsets,
        edges.neighbours,
        graph.reverse(),
        edges.phases,
        frame_number(op.frame),
        number(op.aggregation),
        weights,
        to_u32(OPERATOR, op.heads)?,
        x,
        y,
    ];
    // SAFETY: as in `gather`; empty weights are a null pointer, which the kernel does not read.
    unsafe { over_irreps(device, kernel, &op.features, share, rows, arguments) }
}

/// Weighted sum over the edges of each vertex; see [`reduce`](super::reduce).
pub fn reduce(
    device: &CudaDevice,
    op: &Reduce,
    graph: DeviceGraphView<'_>,
    values: DeviceSlice<'_, f32>,
    weights: Option<DeviceSlice<'_, f32>>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(graph.counts(), ("values", values), weights, ("y", y.view()))?;
    let (edges, share) = (graph.edges(), Share::IrrepsOfHeads(op.heads));
    let (kernel, rows) = ((SOURCE, "reduce"), graph.vertex_count());
    let arguments = args![
        edges.offsets,
        edges.phases,
        frame_number(op.frame),
        number(op.aggregation),
        weights.unwrap_or(DeviceSlice::empty()),
        to_u32(OPERATOR, op.heads)?,
        values,
        &y,
    ];
    // SAFETY: as in `weighted_spread`.
    unsafe { over_irreps(device, kernel, &op.features, share, rows, arguments) }
}

/// Overwrites the gradients of [`reduce`] that are wanted. `values` are needed for `dweights` alone.
#[allow(clippy::too_many_arguments)]
pub fn reduce_backward(
    device: &CudaDevice,
    op: &Reduce,
    graph: DeviceGraphView<'_>,
    values: Option<DeviceSlice<'_, f32>>,
    weights: Option<DeviceSlice<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    dvalues: Option<DeviceSliceMut<'_, f32>>,
    dweights: Option<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    if let Some(dvalues) = dvalues {
        op.check(graph.counts(), ("dvalues", dvalues.view()), weights, ("dy", dy))?;
        let weights = weights.unwrap_or(DeviceSlice::empty());
        weighted_spread(device, op, graph, weights, dy, &dvalues)?;
    }
    let Some(dweights) = dweights else {
        return Ok(());
    };
    let values = values.unwrap_or(DeviceSlice::empty());
    op.check(graph.counts(), ("values", values), weights, ("dy", dy))?;
    let (edge_count, edges) = (graph.edge_count(), graph.edges());
    check_length(OPERATOR, "dweights", dweights.view(), edge_count * op.heads)?;
    let kernel = (SOURCE, "reduce_backward_weights");
    let share = Share::WarpOfHead(op.heads);
    let arguments = args![
        edges.offsets,
        edges.neighbours,
        graph.reverse(),
        edges.phases,
        frame_number(op.frame),
        number(op.aggregation),
        to_u32(OPERATOR, op.heads)?,
        values,
        dy,
        &dweights,
    ];
    // SAFETY: as in `gather`, and every head has the same number of irreps.
    unsafe { over_irreps(device, kernel, &op.features, share, edge_count, arguments) }
}

/// Softmax over the edges of each vertex; see [`softmax`](super::softmax).
pub fn softmax(
    device: &CudaDevice,
    heads: usize,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (vertices, count) = (graph.vertex_count(), graph.edge_count() * heads);
    check_length(OPERATOR, "x", x, count)?;
    check_length(OPERATOR, "y", y.view(), count)?;
    let function = device.function(SOURCE, &[], "softmax")?;
    let offsets = graph.edges().offsets;
    // SAFETY: as in `gather`.
    unsafe {
        function.over(vertices * heads, args![offsets, x, &y, to_u32(OPERATOR, heads)?, to_u32(OPERATOR, vertices)?])
    }
}

/// Overwrites `dx` with the gradient of [`softmax`], from its output `y`.
pub fn softmax_backward(
    device: &CudaDevice,
    heads: usize,
    graph: DeviceGraphView<'_>,
    y: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (vertices, count) = (graph.vertex_count(), graph.edge_count() * heads);
    for (name, values) in [("y", y), ("dy", dy), ("dx", dx.view())] {
        check_length(OPERATOR, name, values, count)?;
    }
    let function = device.function(SOURCE, &[], "softmax_backward")?;
    let offsets = graph.edges().offsets;
    // SAFETY: as in `gather`.
    unsafe {
        function
            .over(vertices * heads, args![offsets, y, dy, &dx, to_u32(OPERATOR, heads)?, to_u32(OPERATOR, vertices)?])
    }
}
