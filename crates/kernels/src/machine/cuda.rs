//! Measured memory bandwidth and matrix product speed of a GPU.

use super::{copied_bytes, fastest, noise, product_operations, square_map};
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, Result, Timer};
use crate::linear;

/// Values of a copy: 1 GiB, at most a sixteenth of the memory of the GPU.
const COPIED: usize = 1 << 28;
/// Side of the square matrices of a product.
const SIDE: usize = 8192;

/// Bytes per second, read and written together, of a large copy from device memory to device memory.
pub fn copy_rate(device: &CudaDevice) -> Result<f64> {
    let count = COPIED.min(device.total_memory() / (16 * size_of::<f32>()));
    let from: DeviceBuffer<f32> = device.zeros(count)?;
    let mut to: DeviceBuffer<f32> = device.buffer(count)?;
    let mut timer = Timer::new(device)?;
    let milliseconds = fastest(|| timer.milliseconds(|| device.copy(from.view(), to.view_mut())))?;
    Ok(1e3 * copied_bytes(count) / milliseconds)
}

/// Operations per second, two for each multiply-add, of a large square product in the device's
/// [`ProductMode`](crate::cuda::ProductMode), made as linear maps make theirs.
pub fn product_rate(device: &CudaDevice) -> Result<f64> {
    let op = square_map(SIDE);
    let x = device.upload(&noise(SIDE * SIDE, 1))?;
    let weight = device.upload(&noise(SIDE * SIDE, 2))?;
    let mut y: DeviceBuffer<f32> = device.buffer(SIDE * SIDE)?;
    let mut timer = Timer::new(device)?;
    let milliseconds = fastest(|| {
        timer.milliseconds(|| {
            let (x, weight) = (x.view(), weight.view());
            let bias = DeviceSlice::empty();
            linear::Forward { op: &op, rows: SIDE, x, weight, bias, y: y.view_mut() }.launch(device)
        })
    })?;
    Ok(1e3 * product_operations(SIDE) / milliseconds)
}
