//! Element-wise operators, concatenation, slices and gauge transformations on a GPU.

use super::{Run, Slice, check_blocks, concatenation};
use crate::FeatureType;
use crate::cuda::reduce::column_threads;
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, args, check_length, key, to_u32,
};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new("elementwise", include_str!("elementwise.cu"));

/// `y = a + b`.
pub fn add(
    device: &CudaDevice,
    a: DeviceSlice<'_, f32>,
    b: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_length("add", "b", b, a.len())?;
    check_length("add", "y", y.view(), a.len())?;
    let function = device.function(SOURCE, &[], "add")?;
    // SAFETY: all have the same length.
    unsafe { function.over_fours(a.len(), args![a, b, &y, a.len() as u64]) }
}

/// `y += a`.
pub fn accumulate(device: &CudaDevice, a: DeviceSlice<'_, f32>, y: DeviceSliceMut<'_, f32>) -> Result<(), CudaError> {
    check_length("accumulate", "y", y.view(), a.len())?;
    let function = device.function(SOURCE, &[], "add")?;
    // SAFETY: both have the same length; the kernel may read what it overwrites.
    unsafe { function.over_fours(a.len(), args![a, y.view(), &y, a.len() as u64]) }
}

/// `y = factor x`.
pub fn scale(
    device: &CudaDevice,
    factor: f64,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_length("scale", "y", y.view(), x.len())?;
    let function = device.function(SOURCE, &[], "scale")?;
    // SAFETY: both have the same length.
    unsafe { function.over_fours(x.len(), args![factor as f32, x, &y, x.len() as u64]) }
}

/// `y` = the softmax of each row; see [`softmax`](super::softmax).
pub fn softmax(
    device: &CudaDevice,
    width: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let rows = x.len() / width.max(1);
    check_length("softmax", "x", x, rows * width)?;
    check_length("softmax", "y", y.view(), x.len())?;
    let function = device.function(SOURCE, &[], "softmax")?;
    // SAFETY: both have `rows * width` values.
    unsafe { function.over(rows, args![x, &y, to_u32("softmax", width)?, rows as u64]) }
}

/// Overwrites `dx` with the gradient of [`softmax`], from its output `y`.
pub fn softmax_backward(
    device: &CudaDevice,
    width: usize,
    y: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let rows = y.len() / width.max(1);
    check_length("softmax", "y", y, rows * width)?;
    check_length("softmax", "dy", dy, y.len())?;
    check_length("softmax", "dx", dx.view(), y.len())?;
    let function = device.function(SOURCE, &[], "softmax_backward")?;
    let width = to_u32("softmax", width)?;
    // SAFETY: all have `rows * width` values.
    unsafe { function.over(rows, args![y, dy, &dx, width, rows as u64]) }
}

/// `y` = the largest of the blocks of each row; see [`block_maximum`](super::block_maximum).
pub fn block_maximum(
    device: &CudaDevice,
    blocks: usize,
    width: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let count = check_blocks(blocks, width, ("x", x), ("y", y.view()))?;
    let [blocks, width] = [to_u32("block maximum", blocks)?, to_u32("block maximum", width)?];
    let function = device.function(SOURCE, &[], "block_maximum")?;
    // SAFETY: lengths were checked.
    unsafe { function.over(count, args![x, &y, blocks, width, count as u64]) }
}

/// Overwrites `dx` with the gradient of [`block_maximum`], from its input and output.
pub fn block_maximum_backward(
    device: &CudaDevice,
    blocks: usize,
    width: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_blocks(blocks, width, ("x", x), ("y", y))?;
    let count = check_blocks(blocks, width, ("dx", dx.view()), ("dy", dy))?;
    let [blocks, width] = [to_u32("block maximum", blocks)?, to_u32("block maximum", width)?];
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
) -> Result<Arc<DeviceBuffer<u32>>, CudaError> {
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

fn select(
    device: &CudaDevice,
    [a, b]: [(DeviceSlice<'_, f32>, usize); 2],
    table: &DeviceBuffer<u32>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let size = |n: usize| to_u32("selection of columns", n);
    let function = device.function(SOURCE, &[], "select_columns")?;
    let width = table.len().max(1);
    let (rows, threads) = (y.len() / width, column_threads(width));
    let blocks = (rows.div_ceil(4 * threads.1), width.div_ceil(threads.0));
    // SAFETY: the operators checked the lengths, and the table names columns of the sources only.
    unsafe {
        function.run(blocks, threads, args![a.0, size(a.1)?, b.0, size(b.1)?, table, y, size(width)?, size(rows)?,])
    }
}

/// `y` = the concatenation of `a` and `b`: `vertices` rows of `first.concatenated(second)`.
pub fn concatenate(
    device: &CudaDevice,
    first: &FeatureType,
    second: &FeatureType,
    vertices: usize,
    a: DeviceSlice<'_, f32>,
    b: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let widths = (first.dimension(), second.dimension());
    let both = widths.0 + widths.1;
    check_length("concatenate", "a", a, vertices * widths.0)?;
    check_length("concatenate", "b", b, vertices * widths.1)?;
    check_length("concatenate", "y", y.view(), vertices * both)?;
    let table = columns(device, "concatenate", key(&[first, second]), both, || {
        let (first_runs, second_runs) = concatenation(first, second);
        let of = |runs: &[Run], source: u32| -> Vec<(usize, usize, u32)> {
            numbers(runs).map(|(narrow, wide)| (wide, narrow, source)).collect()
        };
        [of(&first_runs, 0), of(&second_runs, SECOND)].concat()
    })?;
    select(device, [(a, widths.0), (b, widths.1)], &table, &y)
}

/// The parts of a concatenated feature map: the inverse of [`concatenate`], and its backward pass.
pub fn split(
    device: &CudaDevice,
    first: &FeatureType,
    second: &FeatureType,
    vertices: usize,
    y: DeviceSlice<'_, f32>,
    a: DeviceSliceMut<'_, f32>,
    b: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let widths = (first.dimension(), second.dimension());
    let both = widths.0 + widths.1;
    check_length("split", "y", y, vertices * both)?;
    check_length("split", "a", a.view(), vertices * widths.0)?;
    check_length("split", "b", b.view(), vertices * widths.1)?;
    for (name, part, to, width) in [("split, first part", 0, &a, widths.0), ("split, second part", 1, &b, widths.1)] {
        let table = columns(device, name, key(&[first, second]), width, || {
            let (first_runs, second_runs) = concatenation(first, second);
            let runs = if part == 0 { first_runs } else { second_runs };
            numbers(&runs).map(|(narrow, wide)| (narrow, wide, 0)).collect()
        })?;
        select(device, [(y, both), (DeviceSlice::empty(), 0)], &table, to)?;
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

/// `y` = the selected channels of `x`.
pub fn slice(
    device: &CudaDevice,
    config: &Slice,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let output = config.output()?;
    let (wide, narrow) = (config.kind.dimension(), output.dimension());
    check_length("slice", "x", x, vertices * wide)?;
    check_length("slice", "y", y.view(), vertices * narrow)?;
    let table = columns(device, "slice", config.key(), narrow, || {
        let runs = config.runs(&output);
        numbers(&runs).map(|(narrow, wide)| (narrow, wide, 0)).collect()
    })?;
    select(device, [(x, wide), (DeviceSlice::empty(), 0)], &table, &y)
}

/// The backward pass of [`slice()`]: `dx` is `dy` in the selected channels, zero in the others.
pub fn unslice(
    device: &CudaDevice,
    config: &Slice,
    vertices: usize,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let output = config.output()?;
    let (wide, narrow) = (config.kind.dimension(), output.dimension());
    check_length("unslice", "dy", dy, vertices * narrow)?;
    check_length("unslice", "dx", dx.view(), vertices * wide)?;
    let table = columns(device, "unslice", config.key(), wide, || {
        let runs = config.runs(&output);
        numbers(&runs).map(|(narrow, wide)| (wide, narrow, 0)).collect()
    })?;
    select(device, [(dy, narrow), (DeviceSlice::empty(), 0)], &table, &dx)
}
