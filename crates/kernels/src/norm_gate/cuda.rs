//! Norm and gated nonlinearities on a GPU.

use super::{GatedBackward, GatedForward, NormBackward, NormForward};
use crate::activation::cuda::defines;
use crate::cuda::reduce::add_column_sums;
use crate::cuda::{CudaDevice, DeviceBuffer, KernelSource, Result, args, irrep_count, irreps};
use crate::{FeatureType, Gpu};

pub(crate) const SOURCE: KernelSource = KernelSource::new("norm_gate", include_str!("norm_gate.cu"));

/// Number of irreps, of scalars, width of a row, and number of rows.
fn sizes(kind: &FeatureType, rows: usize) -> [usize; 4] {
    [irrep_count(kind), kind.multiplicity(0), kind.dimension(), rows]
}

pub(super) fn norm_forward(device: &CudaDevice, pass: NormForward<'_, Gpu>) -> Result<()> {
    let NormForward { op, rows, x, bias, y } = pass;
    let table = irreps(device, &op.kind, 1)?;
    let [irreps, scalars, width, count] = sizes(&op.kind, rows);
    let function = device.function(SOURCE, &defines(&op.activation), "norm_forward")?;
    let arguments = args![x, bias, &y, &*table, irreps, scalars, width, op.epsilon as f32, count];
    // SAFETY: lengths were checked.
    unsafe { function.over(rows * irreps, arguments) }
}

pub(super) fn norm_backward(device: &CudaDevice, pass: NormBackward<'_, Gpu>) -> Result<()> {
    let NormBackward { op, rows, x, bias, dy, dx, dbias } = pass;
    let table = irreps(device, &op.kind, 1)?;
    let mut of_bias: DeviceBuffer<f32> = device.buffer(rows * bias.len())?;
    let to = of_bias.view_mut();
    let [irreps, scalars, width, count] = sizes(&op.kind, rows);
    let function = device.function(SOURCE, &defines(&op.activation), "norm_backward")?;
    let arguments = args![x, bias, dy, &dx, &to, &*table, irreps, scalars, width, op.epsilon as f32, count];
    // SAFETY: lengths were checked, and every vertex has a number for each bias.
    unsafe { function.over(rows * irreps, arguments)? };
    add_column_sums(device, of_bias.view(), (rows, bias.len(), bias.len()), &dbias)
}

pub(super) fn gated_forward(device: &CudaDevice, pass: GatedForward<'_, Gpu>) -> Result<()> {
    let GatedForward { op, rows, x, y } = pass;
    let table = irreps(device, &op.output, 1)?;
    let [irreps, scalars, width, count] = sizes(&op.output, rows);
    let function = device.function(SOURCE, &defines(&op.activation), "gated_forward")?;
    // SAFETY: lengths were checked.
    unsafe { function.over(rows * irreps, args![x, &y, &*table, irreps, scalars, width, count]) }
}

pub(super) fn gated_backward(device: &CudaDevice, pass: GatedBackward<'_, Gpu>) -> Result<()> {
    let GatedBackward { op, rows, x, dy, dx } = pass;
    let table = irreps(device, &op.output, 1)?;
    let [irreps, scalars, width, count] = sizes(&op.output, rows);
    let function = device.function(SOURCE, &defines(&op.activation), "gated_backward")?;
    // SAFETY: lengths were checked.
    unsafe { function.over(rows * irreps, args![x, dy, &dx, &*table, irreps, scalars, width, count]) }
}
