//! Element-wise operators, concatenation, slices and gauge transformations on a GPU.

use super::{
    Accumulate, Add, BlockMaximum, BlockMaximumBackward, Concatenate, Run, Scale, Select, Slice, Softmax,
    SoftmaxBackward, Split, Unselect, concatenation,
};
use crate::Gpu;
use crate::cuda::reduce::column_threads;
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args, key, to_u32};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new("elementwise", include_str!("elementwise.cu"));

pub(super) fn add(device: &CudaDevice, Add { a, b, y }: Add<'_, Gpu>) -> Result<()> {
    let function = device.function(SOURCE, &[], "add")?;
    // SAFETY: all have the same length.
    unsafe { function.over_fours(a.len(), args![a, b, &y, a.len() as u64]) }
}

pub(super) fn accumulate(device: &CudaDevice, Accumulate { a, y }: Accumulate<'_, Gpu>) -> Result<()> {
    let function = device.function(SOURCE, &[], "add")?;
    // SAFETY: both have the same length; the kernel may read what it overwrites.
    unsafe { function.over_fours(a.len(), args![a, y.view(), &y, a.len() as u64]) }
}

pub(super) fn scale(device: &CudaDevice, Scale { factor, x, y }: Scale<'_, Gpu>) -> Result<()> {
    let function = device.function(SOURCE, &[], "scale")?;
    // SAFETY: both have the same length.
    unsafe { function.over_fours(x.len(), args![factor as f32, x, &y, x.len() as u64]) }
}

pub(super) fn softmax(device: &CudaDevice, Softmax { width, rows, x, y }: Softmax<'_, Gpu>) -> Result<()> {
    let function = device.function(SOURCE, &[], "softmax")?;
    // SAFETY: both have `rows * width` values.
    unsafe { function.over(rows, args![x, &y, width, rows as u64]) }
}

pub(super) fn softmax_backward(device: &CudaDevice, pass: SoftmaxBackward<'_, Gpu>) -> Result<()> {
    let SoftmaxBackward { width, rows, y, dy, dx } = pass;
    let function = device.function(SOURCE, &[], "softmax_backward")?;
    // SAFETY: all have `rows * width` values.
    unsafe { function.over(rows, args![y, dy, &dx, width, rows as u64]) }
}

pub(super) fn block_maximum(device: &CudaDevice, pass: BlockMaximum<'_, Gpu>) -> Result<()> {
    let BlockMaximum { blocks, width, rows, x, y } = pass;
    let count = rows * width;
    let function = device.function(SOURCE, &[], "block_maximum")?;
    // SAFETY: lengths were checked.
    unsafe { function.over(count, args![x, &y, blocks, width, count as u64]) }
}

pub(super) fn block_maximum_backward(device: &CudaDevice, pass: BlockMaximumBackward<'_, Gpu>) -> Result<()> {
    let BlockMaximumBackward { blocks, width, rows, x, y, dy, dx } = pass;
    let count = rows * width;
    let function = device.function(SOURCE, &[], "block_maximum_backward")?;
    // SAFETY: lengths were checked.
    unsafe { function.over(count, args![x, y, dy, &dx, blocks, width, count as u64]) }
}

/// The source of every column of a row.
const NOTHING: u32 = u32::MAX;
const SECOND: u32 = 1 << 31;

/// The table of a selection: the source of every column of the result.
fn columns(
    device: &CudaDevice,
    name: &'static str,
    settings: Vec<usize>,
    width: usize,
    places: impl FnOnce() -> Vec<(usize, usize, u32)>,
) -> Result<Arc<DeviceBuffer<u32>>> {
    device.table(name, settings, || {
        let mut table = vec![NOTHING; width];
        for (column, from, source) in places() {
            table[column] = to_u32(name, from)? | source;
        }
        device.upload(&table)
    })
}

/// `(narrow, wide)` index of every value of some runs.
fn numbers(runs: &[Run]) -> impl Iterator<Item = (usize, usize)> + '_ {
    runs.iter().flat_map(|run| (0..run.length).map(|i| (run.narrow + i, run.wide + i)))
}

fn select_columns(
    device: &CudaDevice,
    [a, b]: [(DeviceSlice<'_, f32>, usize); 2],
    table: &DeviceBuffer<u32>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let function = device.function(SOURCE, &[], "select_columns")?;
    let width = table.len().max(1);
    let (rows, threads) = (y.len() / width, column_threads(width));
    let blocks = (rows.div_ceil(4 * threads.1), width.div_ceil(threads.0));
    // SAFETY: the operators checked the lengths, and the table names columns of the sources only.
    unsafe { function.run(blocks, threads, args![a.0, a.1, b.0, b.1, table, y, width, rows]) }
}

pub(super) fn concatenate(device: &CudaDevice, pass: Concatenate<'_, Gpu>) -> Result<()> {
    let Concatenate { first, second, a, b, y, .. } = pass;
    let widths = (first.dimension(), second.dimension());
    let table = columns(device, "concatenate", key(&[first, second]), widths.0 + widths.1, || {
        let (first_runs, second_runs) = concatenation(first, second);
        let of = |runs: &[Run], source: u32| -> Vec<(usize, usize, u32)> {
            numbers(runs).map(|(narrow, wide)| (wide, narrow, source)).collect()
        };
        [of(&first_runs, 0), of(&second_runs, SECOND)].concat()
    })?;
    select_columns(device, [(a, widths.0), (b, widths.1)], &table, &y)
}

pub(super) fn split(device: &CudaDevice, pass: Split<'_, Gpu>) -> Result<()> {
    let Split { first, second, y, a, b, .. } = pass;
    let widths = (first.dimension(), second.dimension());
    for (name, part, to, width) in [("split, first part", 0, &a, widths.0), ("split, second part", 1, &b, widths.1)] {
        let table = columns(device, name, key(&[first, second]), width, || {
            let (first_runs, second_runs) = concatenation(first, second);
            let runs = if part == 0 { first_runs } else { second_runs };
            numbers(&runs).map(|(narrow, wide)| (narrow, wide, 0)).collect()
        })?;
        select_columns(device, [(y, widths.0 + widths.1), (DeviceSlice::empty(), 0)], &table, to)?;
    }
    Ok(())
}

impl Slice {
    fn key(&self) -> Vec<usize> {
        let mut settings = key(&[&self.kind]);
        settings.extend(self.channels.iter().flat_map(|range| [range.start, range.end]));
        settings
    }
}

pub(super) fn select(device: &CudaDevice, Select { slice, x, y, .. }: Select<'_, Gpu>) -> Result<()> {
    let output = slice.output()?;
    let table = columns(device, "slice", slice.key(), output.dimension(), || {
        numbers(&slice.runs(&output)).map(|(narrow, wide)| (narrow, wide, 0)).collect()
    })?;
    select_columns(device, [(x, slice.kind.dimension()), (DeviceSlice::empty(), 0)], &table, &y)
}

pub(super) fn unselect(device: &CudaDevice, Unselect { slice, dy, dx, .. }: Unselect<'_, Gpu>) -> Result<()> {
    let output = slice.output()?;
    let table = columns(device, "unslice", slice.key(), slice.kind.dimension(), || {
        numbers(&slice.runs(&output)).map(|(narrow, wide)| (wide, narrow, 0)).collect()
    })?;
    select_columns(device, [(dy, output.dimension()), (DeviceSlice::empty(), 0)], &table, &dx)
}
