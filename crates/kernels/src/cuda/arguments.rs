//! Arguments of kernels.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, LARGEST_COUNT};
use bytemuck::Pod;

/// One argument of a kernel: a number (`u32`, `u64`, `f32` or `f64`), a count (`usize`), or the address of device memory.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    pub(super) bits: u64,
    /// A count that a kernel cannot take.
    pub(super) too_large: Option<usize>,
}

impl Arg {
    fn new(bits: u64) -> Self {
        Self { bits, too_large: None }
    }
}

/// A count, which is `u32` in the kernel. Launches refuse one that does not fit.
impl From<usize> for Arg {
    fn from(count: usize) -> Self {
        let fits = count <= LARGEST_COUNT;
        Self { too_large: (!fits).then_some(count), ..Self::new(count as u64) }
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self::new(u64::from(value))
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self::new(value)
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Self {
        Self::new(u64::from(value.to_bits()))
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self::new(value.to_bits())
    }
}

impl<T> From<DeviceSlice<'_, T>> for Arg {
    fn from(slice: DeviceSlice<'_, T>) -> Self {
        Self::new(slice.address())
    }
}

impl<T> From<&DeviceSliceMut<'_, T>> for Arg {
    fn from(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self::new(slice.view().address())
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Arg {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self::new(buffer.view().address())
    }
}

/// The arguments of a kernel in order, each converted to an [`Arg`](crate::cuda::Arg).
///
/// The Rust types must match the kernel's: `u32` or `usize` for `u32`, [`DeviceSlice<f32>`](crate::cuda::DeviceSlice)
/// for `const float *`, and so on.
#[macro_export]
macro_rules! kernel_args {
    ($($value:expr),* $(,)?) => { &[$($crate::cuda::Arg::from($value)),*] };
}
