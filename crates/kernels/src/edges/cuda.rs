//! Gather, spread, reduce and softmax on the edges of a graph, on a GPU.

use super::{EdgeFrame, OPERATOR, Reduce};
use crate::aggregate::cuda::number;
use crate::cuda::{
    CudaDevice, CudaError, CudaGraph, DeviceSlice, DeviceSliceMut, KernelSource, args,
    check_length, head_irreps, irrep_count, to_u32,
};
use crate::irrep::check_heads;
use crate::{FeatureType, KernelError};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "edges",
    concat!(
        include_str!("../cuda/rotated_sum.cu"),
        include_str!("edges.cu")
    ),
);

/// As the frame is numbered in the kernels.
fn frame_number(frame: EdgeFrame) -> u32 {
    match frame {
        EdgeFrame::Vertex => 0,
        EdgeFrame::Edge => 1,
    }
}

fn check(
    features: &FeatureType,
    graph: &CudaGraph,
    (vertex_name, at_vertices): (&'static str, DeviceSlice<'_, f32>),
    (edge_name, at_edges): (&'static str, DeviceSlice<'_, f32>),
) -> Result<(), KernelError> {
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let width = features.dimension();
    check_length(OPERATOR, vertex_name, at_vertices, vertices * width)?;
    check_length(OPERATOR, edge_name, at_edges, edges * width)
}

fn size(count: usize) -> Result<u32, KernelError> {
    to_u32(OPERATOR, count)
}

/// Features of the neighbour at every edge; see [`gather`](super::gather).
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn gather(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: &CudaGraph,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph, ("x", x), ("y", y.view()))?;
    let (table, count) = (head_irreps(device, features, 1)?, irrep_count(features));
    let edges = graph.edges();
    let function = device.function(SOURCE, &[], "gather")?;
    // SAFETY: lengths were checked, and the graph when it was made.
    unsafe {
        function.over(
            graph.edge_count() * count,
            args![
                edges.neighbours,
                edges.phases,
                frame_number(frame),
                x,
                &y,
                &*table,
                size(count)?,
                size(features.dimension())?,
                size(graph.edge_count())?,
            ],
        )
    }
}

/// Overwrites `dx` with the gradient of [`gather`].
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn gather_backward(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: &CudaGraph,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph, ("dx", dx.view()), ("dy", dy))?;
    let (table, count) = (head_irreps(device, features, 1)?, irrep_count(features));
    let edges = graph.edges();
    let function = device.function(SOURCE, &[], "gather_backward")?;
    // SAFETY: as in `gather`.
    unsafe {
        function.over(
            graph.vertex_count() * count,
            args![
                edges.offsets,
                graph.reverse(),
                edges.phases,
                frame_number(frame),
                dy,
                &dx,
                &*table,
                size(count)?,
                size(features.dimension())?,
                size(graph.vertex_count())?,
            ],
        )
    }
}

/// Features of the vertex itself at every edge of its row; see [`spread`](super::spread).
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn spread(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: &CudaGraph,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph, ("x", x), ("y", y.view()))?;
    let op = Reduce::sum(features.clone(), frame);
    weighted_spread(device, &op, graph, DeviceSlice::empty(), x, &y)
}

/// Overwrites `dx` with the gradient of [`spread`].
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn spread_backward(
    device: &CudaDevice,
    features: &FeatureType,
    frame: EdgeFrame,
    graph: &CudaGraph,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, graph, ("dx", dx.view()), ("dy", dy))?;
    let op = Reduce::sum(features.clone(), frame);
    reduce(device, &op, graph, dy, None, dx)
}

/// `y_pq = s_p w_pq R_pq^T x_p`; empty weights are ones.
fn weighted_spread(
    device: &CudaDevice,
    op: &Reduce,
    graph: &CudaGraph,
    weights: DeviceSlice<'_, f32>,
    x: DeviceSlice<'_, f32>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let table = head_irreps(device, &op.features, op.heads)?;
    let (count, edges) = (irrep_count(&op.features), graph.edges());
    let function = device.function(SOURCE, &[], "spread")?;
    // SAFETY: as in `gather`; empty weights are a null pointer, which the kernel does not read.
    unsafe {
        function.over(
            graph.edge_count() * count,
            args![
                edges.offsets,
                edges.neighbours,
                graph.reverse(),
                edges.phases,
                frame_number(op.frame),
                number(op.aggregation),
                weights,
                size(op.heads)?,
                x,
                y,
                &*table,
                size(count)?,
                size(op.features.dimension())?,
                size(graph.edge_count())?,
            ],
        )
    }
}

impl Reduce {
    fn check_device(
        &self,
        graph: &CudaGraph,
        values: (&'static str, DeviceSlice<'_, f32>),
        weights: Option<DeviceSlice<'_, f32>>,
        y: (&'static str, DeviceSlice<'_, f32>),
    ) -> Result<(), KernelError> {
        check_heads(OPERATOR, &self.features, self.heads)?;
        check(&self.features, graph, y, values)?;
        match weights {
            Some(weights) => check_length(
                OPERATOR,
                "weights",
                weights,
                graph.edge_count() * self.heads,
            ),
            None => Ok(()),
        }
    }
}

/// Weighted sum over the edges of each vertex; see [`reduce`](super::reduce).
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
pub fn reduce(
    device: &CudaDevice,
    op: &Reduce,
    graph: &CudaGraph,
    values: DeviceSlice<'_, f32>,
    weights: Option<DeviceSlice<'_, f32>>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check_device(graph, ("values", values), weights, ("y", y.view()))?;
    let table = head_irreps(device, &op.features, op.heads)?;
    let (count, edges) = (irrep_count(&op.features), graph.edges());
    let function = device.function(SOURCE, &[], "reduce")?;
    // SAFETY: as in `weighted_spread`.
    unsafe {
        function.over(
            graph.vertex_count() * count,
            args![
                edges.offsets,
                edges.phases,
                frame_number(op.frame),
                number(op.aggregation),
                weights.unwrap_or(DeviceSlice::empty()),
                size(op.heads)?,
                values,
                &y,
                &*table,
                size(count)?,
                size(op.features.dimension())?,
                size(graph.vertex_count())?,
            ],
        )
    }
}

/// Overwrites the gradients of [`reduce`] that are wanted. `values` are needed for `dweights` alone.
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
#[allow(clippy::too_many_arguments)]
pub fn reduce_backward(
    device: &CudaDevice,
    op: &Reduce,
    graph: &CudaGraph,
    values: Option<DeviceSlice<'_, f32>>,
    weights: Option<DeviceSlice<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    dvalues: Option<DeviceSliceMut<'_, f32>>,
    dweights: Option<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    if let Some(dvalues) = dvalues {
        op.check_device(graph, ("dvalues", dvalues.view()), weights, ("dy", dy))?;
        let weights = weights.unwrap_or(DeviceSlice::empty());
        weighted_spread(device, op, graph, weights, dy, &dvalues)?;
    }
    let Some(dweights) = dweights else {
        return Ok(());
    };
    let values = values.unwrap_or(DeviceSlice::empty());
    op.check_device(graph, ("values", values), weights, ("dy", dy))?;
    let (edge_count, edges) = (graph.edge_count(), graph.edges());
    check_length(OPERATOR, "dweights", dweights.view(), edge_count * op.heads)?;
    let table = head_irreps(device, &op.features, op.heads)?;
    let function = device.function(SOURCE, &[], "reduce_backward_weights")?;
    // SAFETY: as in `gather`, and every head has the same number of irreps.
    unsafe {
        function.over(
            32 * edge_count * op.heads,
            args![
                edges.offsets,
                edges.neighbours,
                graph.reverse(),
                edges.phases,
                frame_number(op.frame),
                number(op.aggregation),
                size(op.heads)?,
                values,
                dy,
                &dweights,
                &*table,
                size(irrep_count(&op.features))?,
                size(op.features.dimension())?,
                size(edge_count)?,
            ],
        )
    }
}

/// Softmax over the edges of each vertex; see [`softmax`](super::softmax).
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn softmax(
    device: &CudaDevice,
    heads: usize,
    graph: &CudaGraph,
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
        function.over(
            vertices * heads,
            args![offsets, x, &y, size(heads)?, size(vertices)?],
        )
    }
}

/// Overwrites `dx` with the gradient of [`softmax`], from its output `y`.
///
/// # Errors
/// Lengths that do not fit, or a failed call.
pub fn softmax_backward(
    device: &CudaDevice,
    heads: usize,
    graph: &CudaGraph,
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
        function.over(
            vertices * heads,
            args![offsets, y, dy, &dx, size(heads)?, size(vertices)?],
        )
    }
}
