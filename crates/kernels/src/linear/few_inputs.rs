//! The linear map of few inputs on a GPU. Its time is that of writing the results, so it multiplies in f32 whatever the
//! mode of products is, and reads and writes each number once; cuBLAS needs another pass for the bias, in both
//! directions.

use super::{Backward, Forward, Linear, OPERATOR};
use crate::Gpu;
use crate::cuda::reduce::{ColumnPartials, sum_partials_and};
use crate::cuda::{CudaDevice, CudaError, Define, DeviceBuffer, DeviceSlice, KernelSource, args, to_u32};

pub(crate) const SOURCE: KernelSource = KernelSource::new("few_inputs", include_str!("few_inputs.cu"));

/// Most inputs, whose weights for four outputs stay in registers.
const MAX_INPUTS: usize = 16;
/// Threads of a block, and rows that it takes at a time, as in the kernels.
const THREADS: (usize, usize) = (32, 8);
const ROWS: usize = 8 * 8;

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [1, 3, MAX_INPUTS].map(defines).to_vec()
}

fn defines(inputs: usize) -> Vec<Define> {
    vec![("INPUTS", inputs.to_string())]
}

/// True if the kernels can do the work; `fours` are the slices that are read or written four numbers at a time.
pub(super) fn applies(op: &Linear, fours: &[DeviceSlice<'_, f32>]) -> bool {
    // Results that take longer to write than inputs to read, four of them for each thread.
    let enough = op.outputs >= 4 * op.inputs.max(4) && op.outputs.is_multiple_of(4);
    (1..=MAX_INPUTS).contains(&op.inputs) && enough && fours.iter().all(|slice| slice.is_aligned(4))
}

/// Blocks of threads over rows, at most `most` of them, and over outputs.
fn blocks(op: &Linear, rows: usize, most: usize) -> (usize, usize) {
    let across = (op.outputs / 4).div_ceil(THREADS.0);
    (rows.div_ceil(ROWS).clamp(1, most), across)
}

/// As [`forward`](super::cuda::forward), for work to which this applies.
pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<(), CudaError> {
    let Forward { op, rows, x, weight, bias, y } = pass;
    let size = |n: usize| to_u32(OPERATOR, n);
    let blocks = blocks(op, rows, 4 * device.multiprocessors());
    let function = device.function(SOURCE, &defines(op.inputs), "few_inputs_forward")?;
    let arguments = args![x, weight, bias, &y, size(op.outputs / 4)?, size(rows)?];
    // SAFETY: lengths were checked, and rows of four numbers are aligned.
    unsafe { function.run(blocks, THREADS, arguments) }
}

/// Adds to the gradients of weights and bias, as [`backward`](super::cuda::backward).
pub(super) fn gradients(device: &CudaDevice, pass: &Backward<'_, Gpu>) -> Result<(), CudaError> {
    let Backward { op, rows, x, dy, dweight, dbias, .. } = pass;
    let size = |n: usize| to_u32(OPERATOR, n);
    let blocks = blocks(op, *rows, 2 * device.multiprocessors());
    let partials: DeviceBuffer<f32> = device.buffer(blocks.0 * op.weight_count())?;
    let bias_partials: DeviceBuffer<f64> = device.buffer(blocks.0 * dbias.len())?;
    let function = device.function(SOURCE, &defines(op.inputs), "few_inputs_gradients")?;
    let arguments = args![*x, *dy, size(op.outputs / 4)?, size(*rows)?, &partials, &bias_partials];
    // SAFETY: as above, and there are sums for all blocks; an empty buffer is a null pointer.
    unsafe { function.run(blocks, THREADS, arguments)? };
    let columns = ColumnPartials::of_partials(bias_partials, dbias.len());
    sum_partials_and(device, partials.view(), blocks.0, (dweight, true), (&columns, dbias))
}
