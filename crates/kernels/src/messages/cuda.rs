//! The ends of messages along edges, on a GPU.

use super::{Gather, GatherBackward, OPERATOR, Reduce, ReduceBackward};
use crate::Gpu;
use crate::cuda::{
    CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, Share, args, check_length, over_irreps,
};

pub(crate) const SOURCE: KernelSource = KernelSource::new("messages", include_str!("messages.cu"));

pub(super) fn gather(device: &CudaDevice, pass: Gather<'_, Gpu>) -> Result<()> {
    let Gather { features, range, graph, x, z } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather"));
    let arguments = args![edges.neighbours, graph.reverse(), edges.phases, range.start, x, &z];
    // SAFETY: range and lengths were checked, and the graph when it was made.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, range.len(), arguments) }
}

pub(super) fn gather_backward(device: &CudaDevice, pass: GatherBackward<'_, Gpu>) -> Result<()> {
    let GatherBackward { features, range, graph, dz, dx } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "gather_backward"));
    let arguments = args![edges.offsets, graph.reverse(), edges.phases, range.start, range.len(), dz, &dx];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, graph.vertex_count(), arguments) }
}

pub(super) fn reduce(device: &CudaDevice, pass: Reduce<'_, Gpu>) -> Result<()> {
    let Reduce { features, range, graph, values, y } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "reduce"));
    let arguments = args![edges.offsets, edges.phases, range.start, range.len(), values, &y];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, graph.vertex_count(), arguments) }
}

pub(super) fn reduce_backward(device: &CudaDevice, pass: ReduceBackward<'_, Gpu>) -> Result<()> {
    let ReduceBackward { features, range, graph, dy, dvalues } = pass;
    let (edges, kernel) = (graph.edges(), (SOURCE, "reduce_backward"));
    let arguments = args![edges.offsets, edges.neighbours, graph.reverse(), edges.phases, range.start, dy, &dvalues];
    // SAFETY: as in `gather`.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, range.len(), arguments) }
}

/// Overwrites rows of `to`, as wide as `table`, with columns of `rows`, as `table` numbers them; `u32::MAX` is a zero.
pub(super) fn place_columns(
    device: &CudaDevice,
    table: &DeviceBuffer<u32>,
    (rows, width): (DeviceSlice<'_, f32>, usize),
    to: &DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let count = rows.len() / width.max(1) * table.len();
    check_length(OPERATOR, "columns", to.view(), count)?;
    let function = device.function(SOURCE, &[], "place_columns")?;
    let arguments = args![table, table.len(), rows, width, to, count as u64];
    // SAFETY: lengths were checked, and the table numbers columns of rows of this width.
    unsafe { function.over(count, arguments) }
}
