//! All that calls the libraries of CUDA. `absent.rs` stands in for it in builds without the feature `cuda`.

mod blas;
mod capture;
mod compiler;
mod context;
mod device;
mod foreign;
mod launch;
mod library;
mod pool;
mod staging;
mod status;
mod timer;

pub use capture::{CudaGraph, Event};
pub use compiler::{compile_for, nvrtc_version};
pub use device::CudaDevice;
pub use launch::Launch;
pub(super) use pool::{Block, Pool};
pub use timer::Timer;

use super::{
    Arg, CudaError, Define, DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut, KernelSource, MemoryUse,
    ProductMode, Result, products, sources, uncountable,
};
