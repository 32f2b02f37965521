//! The CUDA versions: same names and arguments as the CPU versions, after the device.

use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut, KernelSource, check_length};
use gemcnn_kernels::kernel_args;

const SOURCE: KernelSource = KernelSource::new("softsign", include_str!("softsign.cu"));
const NAME: &str = "softsign";

/// `y = x / (1 + |x|)`.
pub fn forward(device: &CudaDevice, x: DeviceSlice<'_, f32>, y: DeviceSliceMut<'_, f32>) -> Result<(), CudaError> {
    check_length(NAME, "y", y.view(), x.len())?;
    let kernel = device.function(SOURCE, &[], "softsign_forward")?;
    // SAFETY: the arguments are those of the kernel, and both slices have the same length.
    unsafe { kernel.over(x.len(), kernel_args![x, &y, x.len()]) }
}

/// `dx = dy / (1 + |x|)^2`.
pub fn backward(
    device: &CudaDevice,
    x: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_length(NAME, "dy", dy, x.len())?;
    check_length(NAME, "dx", dx.view(), x.len())?;
    let kernel = device.function(SOURCE, &[], "softsign_backward")?;
    // SAFETY: the arguments are those of the kernel, and all slices have the same length.
    unsafe { kernel.over(x.len(), kernel_args![x, dy, &dx, x.len()]) }
}
