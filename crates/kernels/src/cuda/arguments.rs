//! Arguments of kernels.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use bytemuck::Pod;

/// One argument of a kernel: a number (`u32`, `u64`, `f32` or `f64`), or the address of device memory.
#[derive(Debug, Clone, Copy)]
pub struct Arg(pub(super) u64);

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Self {
        Self(u64::from(value.to_bits()))
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl<T> From<DeviceSlice<'_, T>> for Arg {
    fn from(slice: DeviceSlice<'_, T>) -> Self {
        Self(slice.address())
    }
}

impl<T> From<&DeviceSliceMut<'_, T>> for Arg {
    fn from(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self(slice.view().address())
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Arg {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self(buffer.view().address())
    }
}

/// The arguments of a kernel in order, each converted to an [`Arg`](crate::cuda::Arg).
///
/// The Rust types must match the kernel's: `u32` for `u32`, [`DeviceSlice<f32>`](crate::cuda::DeviceSlice)
/// for `const float *`, and so on.
#[macro_export]
macro_rules! kernel_args {
    ($($value:expr),* $(,)?) => { &[$($crate::cuda::Arg::from($value)),*] };
}
