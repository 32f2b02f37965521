//! Gather, spread, reduce and softmax on the edges of a graph, on a GPU.

use super::{
    EdgeFrame, Gather, GatherBackward, ReduceBackwardWeights, ReduceForward, Softmax, SoftmaxBackward, Spread,
};
use crate::Gpu;
use crate::aggregate::cuda::number;
use crate::cuda::{CudaDevice, DeviceEdges, DeviceSlice, KernelSource, Result, Share, args, over_irreps};

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("edges", concat!(include_str!("../cuda/rotated_sum.cu"), include_str!("edges.cu")));

/// As the frame is numbered in the kernels.
fn frame_number(frame: EdgeFrame) -> u32 {
    match frame {
        EdgeFrame::Vertex => 0,
        EdgeFrame::Edge => 1,
    }
}

pub(super) fn gather(device: &CudaDevice, pass: Gather<'_, Gpu>) -> Result<()> {
    let Gather { features, frame, graph, x, y } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather"));
    let arguments = args![edges.neighbours, edges.phases, frame_number(frame), x, &y];
    // SAFETY: lengths were checked, and the graph when it was made.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, graph.edge_count(), arguments) }
}

pub(super) fn gather_backward(device: &CudaDevice, pass: GatherBackward<'_, Gpu>) -> Result<()> {
    let GatherBackward { features, frame, graph, dy, dx } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather_backward"));
    let arguments = args![edges.offsets, graph.reverse(), edges.phases, frame_number(frame), dy, &dx];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, graph.vertex_count(), arguments) }
}

pub(super) fn spread(device: &CudaDevice, pass: Spread<'_, Gpu>) -> Result<()> {
    let Spread { op, graph, weights, x, y } = pass;
    let (kernel, share) = ((SOURCE, "spread"), Share::IrrepsOfHeads(op.heads));
    let DeviceEdges { offsets, neighbours, phases, .. } = graph.edges();
    let (frame, aggregation) = (frame_number(op.frame), number(op.aggregation));
    let weights = weights.unwrap_or(DeviceSlice::empty());
    let arguments = args![offsets, neighbours, graph.reverse(), phases, frame, aggregation, weights, op.heads, x, &y];
    // SAFETY: as in `gather`; empty weights are a null pointer, which the kernel does not read.
    unsafe { over_irreps(device, kernel, &op.features, share, graph.edge_count(), arguments) }
}

pub(super) fn reduce(device: &CudaDevice, pass: ReduceForward<'_, Gpu>) -> Result<()> {
    let ReduceForward { op, graph, x, weights, y } = pass;
    let (kernel, share) = ((SOURCE, "reduce"), Share::IrrepsOfHeads(op.heads));
    let DeviceEdges { offsets, phases, .. } = graph.edges();
    let (frame, aggregation) = (frame_number(op.frame), number(op.aggregation));
    let weights = weights.unwrap_or(DeviceSlice::empty());
    let arguments = args![offsets, phases, frame, aggregation, weights, op.heads, x, &y];
    // SAFETY: as in `spread`.
    unsafe { over_irreps(device, kernel, &op.features, share, graph.vertex_count(), arguments) }
}

pub(super) fn reduce_backward_weights(device: &CudaDevice, pass: ReduceBackwardWeights<'_, Gpu>) -> Result<()> {
    let ReduceBackwardWeights { op, graph, x, dy, dweights } = pass;
    let (kernel, share) = ((SOURCE, "reduce_backward_weights"), Share::WarpOfHead(op.heads));
    let DeviceEdges { offsets, neighbours, phases, .. } = graph.edges();
    let (frame, aggregation) = (frame_number(op.frame), number(op.aggregation));
    let arguments = args![offsets, neighbours, graph.reverse(), phases, frame, aggregation, op.heads, x, dy, &dweights];
    // SAFETY: as in `gather`, and every head has the same number of irreps.
    unsafe { over_irreps(device, kernel, &op.features, share, graph.edge_count(), arguments) }
}

pub(super) fn softmax(device: &CudaDevice, pass: Softmax<'_, Gpu>) -> Result<()> {
    let Softmax { heads, graph, x, y } = pass;
    let (offsets, vertices) = (graph.edges().offsets, graph.vertex_count());
    let function = device.function(SOURCE, &[], "softmax")?;
    let arguments = args![offsets, x, &y, heads, vertices];
    // SAFETY: as in `gather`.
    unsafe { function.over(vertices * heads, arguments) }
}

pub(super) fn softmax_backward(device: &CudaDevice, pass: SoftmaxBackward<'_, Gpu>) -> Result<()> {
    let SoftmaxBackward { heads, graph, y, dy, dx } = pass;
    let (offsets, vertices) = (graph.edges().offsets, graph.vertex_count());
    let function = device.function(SOURCE, &[], "softmax_backward")?;
    let arguments = args![offsets, y, dy, &dx, heads, vertices];
    // SAFETY: as in `gather`.
    unsafe { function.over(vertices * heads, arguments) }
}
