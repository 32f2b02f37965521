//! Operators on an NVIDIA GPU, without a CUDA toolkit at build time.
//!
//! [`CudaDevice::new`] loads the driver, NVRTC and cuBLAS, or says which of them is missing
//! ([`CudaError`]). NVRTC compiles the kernels, CUDA C++ in `.cu` files beside their operators, for the
//! architecture of the GPU; cuBLAS computes large matrix products. The GPU version of operator `NAME` is
//! `NAME::cuda`. Operators outside of this crate use the same interface: see [`KernelSource`].
//!
//! Without the feature `cuda` (on by default) the interface is the same, and [`CudaDevice::new`] fails with
//! [`CudaError::NotBuilt`].
//!
//! All work of a device runs on one stream, in the order of the calls. Only reading values back waits for
//! the device ([`DeviceBuffer::read`], [`DeviceBuffer::to_vec`]). Sums over vertices use partial sums whose
//! number depends on the sizes only, and no atomics, so the same inputs give the same bits on the same
//! device.

// Without devices much of it is never called.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

mod arguments;
#[cfg_attr(not(feature = "cuda"), path = "absent.rs")]
mod driver;
mod error;
pub(crate) mod graph;
mod memory;
pub mod optimiser;
mod products;
pub(crate) mod reduce;
mod sources;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

pub use arguments::Arg;
pub use driver::{CudaDevice, CudaGraph, Event, Launch, Timer, compile_for, nvrtc_version};
pub use error::{CudaError, Result};
pub use graph::{DeviceEdges, DeviceGraph, DeviceGraphSlices, DeviceGraphView, ReversedSlices};
pub use memory::{DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut, MemoryUse};
pub use products::{Operand, Product, ProductMode};
pub use sources::{Define, KernelSource};
pub use tables::irreps;
pub(crate) use tables::{Share, irrep_count, irrep_rows, irreps_of_heads, key, over_irreps};

use crate::KernelError;
pub(crate) use crate::kernel_args as args;

/// Checks the length of a buffer on the device.
///
/// # Errors
/// [`KernelError::Length`] with the names of operator and buffer.
pub fn check_length<T>(
    operator: &'static str,
    buffer: &'static str,
    values: DeviceSlice<'_, T>,
    expected: usize,
) -> Result<(), KernelError> {
    crate::error::check_count(operator, buffer, values.len(), expected)
}

/// A size as kernels take it: below 2^31, so that sums of two sizes fit in 32 bits.
///
/// # Errors
/// [`KernelError::Setting`] for a larger size.
pub fn to_u32(operator: &'static str, value: usize) -> Result<u32, KernelError> {
    match value {
        0..=LARGEST_COUNT => Ok(value as u32),
        _ => Err(uncountable(operator, value)),
    }
}

/// Largest count that a kernel takes.
const LARGEST_COUNT: usize = i32::MAX as usize;

/// The error of a count that is too large.
fn uncountable(operator: &'static str, value: usize) -> KernelError {
    let problem = format!("{value} items are more than a kernel can count ({LARGEST_COUNT})");
    KernelError::Setting { operator, problem }
}
