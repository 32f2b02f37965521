//! The ends of messages along edges, on a GPU.

use super::{OPERATOR, check_range};
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceGraphView, DeviceSlice, DeviceSliceMut, KernelSource, Share, args,
    check_length, over_irreps, to_u32,
};
use crate::{FeatureType, KernelError};
use std::ops::Range;

pub(crate) const SOURCE: KernelSource = KernelSource::new("messages", include_str!("messages.cu"));

fn check(
    (features, parts): (&FeatureType, usize),
    range: &Range<usize>,
    graph: DeviceGraphView<'_>,
    (vertex_name, at_vertices): (&'static str, DeviceSlice<'_, f32>),
    (edge_name, at_edges): (&'static str, DeviceSlice<'_, f32>),
) -> Result<(u32, u32), KernelError> {
    check_range(range, graph.edge_count())?;
    let (vertices, width) = (graph.vertex_count(), features.dimension());
    check_length(OPERATOR, vertex_name, at_vertices, vertices * width)?;
    check_length(OPERATOR, edge_name, at_edges, range.len() * parts * width)?;
    Ok((to_u32(OPERATOR, range.start)?, to_u32(OPERATOR, range.len())?))
}

/// The features of both vertices at every edge; see [`gather`](super::gather).
pub fn gather(
    device: &CudaDevice,
    features: &FeatureType,
    range: Range<usize>,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    z: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (first, _) = check((features, 2), &range, graph, ("x", x), ("z", z.view()))?;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather"));
    let arguments = args![edges.neighbours, graph.reverse(), edges.phases, first, x, &z];
    // SAFETY: range and lengths were checked, and the graph when it was made.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, range.len(), arguments) }
}

/// Adds the gradient of [`gather`] to `dx`.
pub fn gather_backward(
    device: &CudaDevice,
    features: &FeatureType,
    range: Range<usize>,
    graph: DeviceGraphView<'_>,
    dz: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let at_vertices = ("dx", dx.view());
    let (first, count) = check((features, 2), &range, graph, at_vertices, ("dz", dz))?;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather_backward"));
    let arguments = args![edges.offsets, graph.reverse(), edges.phases, first, count, dz, &dx];
    let vertices = graph.vertex_count();
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, vertices, arguments) }
}

/// Adds the part of the mean over edges that comes from `range`; see [`reduce`](super::reduce).
pub fn reduce(
    device: &CudaDevice,
    features: &FeatureType,
    range: Range<usize>,
    graph: DeviceGraphView<'_>,
    values: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let at_vertices = ("y", y.view());
    let (first, count) = check((features, 1), &range, graph, at_vertices, ("values", values))?;
    let (edges, kernel) = (graph.edges(), (SOURCE, "reduce"));
    let arguments = args![edges.offsets, edges.phases, first, count, values, &y];
    let vertices = graph.vertex_count();
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, vertices, arguments) }
}

/// Overwrites `dvalues` with the gradient of [`reduce`].
pub fn reduce_backward(
    device: &CudaDevice,
    features: &FeatureType,
    range: Range<usize>,
    graph: DeviceGraphView<'_>,
    dy: DeviceSlice<'_, f32>,
    dvalues: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let values = ("dvalues", dvalues.view());
    let (first, _) = check((features, 1), &range, graph, ("dy", dy), values)?;
    let (edges, kernel) = (graph.edges(), (SOURCE, "reduce_backward"));
    let arguments = args![edges.offsets, edges.neighbours, graph.reverse(), edges.phases, first, dy, &dvalues];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, range.len(), arguments) }
}

/// Overwrites rows of `to`, as wide as `table`, with columns of `rows`, as `table` numbers them; `u32::MAX` is a zero.
pub(super) fn place_columns(
    device: &CudaDevice,
    table: &DeviceBuffer<u32>,
    (rows, width): (DeviceSlice<'_, f32>, usize),
    to: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let count = rows.len() / width.max(1) * table.len();
    check_length(OPERATOR, "columns", to.view(), count)?;
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(SOURCE, &[], "place_columns")?;
    let arguments = args![table, size(table.len())?, rows, size(width)?, to, count as u64];
    // SAFETY: lengths were checked, and the table numbers columns of rows of this width.
    unsafe { function.over(count, arguments) }
}
