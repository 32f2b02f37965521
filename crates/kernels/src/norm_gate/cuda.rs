//! Norm and gated nonlinearities on a GPU.

use super::{GatedNonlinearity, NormNonlinearity};
use crate::activation::cuda::defines;
use crate::cuda::reduce::add_column_sums;
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, args, check_length, irrep_count,
    irreps, to_u32,
};

pub(crate) const SOURCE: KernelSource = KernelSource::new("norm_gate", include_str!("norm_gate.cu"));

/// `y` = the norm nonlinearity of `x`; both are `vertices` rows of the type.
pub fn norm_forward(
    device: &CudaDevice,
    config: &NormNonlinearity,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    bias: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let operator = "norm nonlinearity forward";
    config.check(operator, vertices, bias, &[("x", x), ("y", y.view())])?;
    let table = irreps(device, &config.kind, 1)?;
    let count = irrep_count(&config.kind);
    let size = |n: usize| to_u32(operator, n);
    let function = device.function(SOURCE, &defines(&config.activation), "norm_forward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            vertices * count,
            args![
                x,
                bias,
                &y,
                &*table,
                size(count)?,
                size(config.kind.multiplicity(0))?,
                size(config.kind.dimension())?,
                config.epsilon as f32,
                size(vertices)?,
            ],
        )
    }
}

/// Overwrites `dx` and adds to the gradient of the bias.
#[allow(clippy::too_many_arguments)]
pub fn norm_backward(
    device: &CudaDevice,
    config: &NormNonlinearity,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    bias: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
    dbias: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let operator = "norm nonlinearity backward";
    let maps = [("x", x), ("dy", dy), ("dx", dx.view())];
    config.check(operator, vertices, bias, &maps)?;
    check_length(operator, "dbias", dbias.view(), bias.len())?;
    let table = irreps(device, &config.kind, 1)?;
    let count = irrep_count(&config.kind);
    let mut of_bias: DeviceBuffer<f32> = device.buffer(vertices * bias.len())?;
    let size = |n: usize| to_u32(operator, n);
    let function = device.function(SOURCE, &defines(&config.activation), "norm_backward")?;
    // SAFETY: lengths were checked, and every vertex has a number for each bias.
    unsafe {
        function.over(
            vertices * count,
            args![
                x,
                bias,
                dy,
                &dx,
                &of_bias.view_mut(),
                &*table,
                size(count)?,
                size(config.kind.multiplicity(0))?,
                size(config.kind.dimension())?,
                config.epsilon as f32,
                size(vertices)?,
            ],
        )?;
    }
    let shape = (vertices, bias.len(), bias.len());
    add_column_sums(device, of_bias.view(), shape, &dbias)
}

/// `y` = the gated nonlinearity of `x`. `x` has `vertices` rows of the input type, `y` of the output type.
pub fn gated_forward(
    device: &CudaDevice,
    config: &GatedNonlinearity,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let operator = "gated nonlinearity forward";
    let width = config.output.dimension();
    check_length(operator, "x", x, vertices * config.input().dimension())?;
    check_length(operator, "y", y.view(), vertices * width)?;
    let table = irreps(device, &config.output, 1)?;
    let count = irrep_count(&config.output);
    let size = |n: usize| to_u32(operator, n);
    let function = device.function(SOURCE, &defines(&config.activation), "gated_forward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            vertices * count,
            args![x, &y, &*table, size(count)?, size(config.output.multiplicity(0))?, size(width)?, size(vertices)?,],
        )
    }
}

/// Overwrites `dx`, including the gradients of the gates.
pub fn gated_backward(
    device: &CudaDevice,
    config: &GatedNonlinearity,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let operator = "gated nonlinearity backward";
    let (input, width) = (config.input().dimension(), config.output.dimension());
    check_length(operator, "x", x, vertices * input)?;
    check_length(operator, "dy", dy, vertices * width)?;
    check_length(operator, "dx", dx.view(), vertices * input)?;
    let table = irreps(device, &config.output, 1)?;
    let count = irrep_count(&config.output);
    let size = |n: usize| to_u32(operator, n);
    let function = device.function(SOURCE, &defines(&config.activation), "gated_backward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            vertices * count,
            args![
                x,
                dy,
                &dx,
                &*table,
                size(count)?,
                size(config.output.multiplicity(0))?,
                size(width)?,
                size(vertices)?,
            ],
        )
    }
}
