//! Replaces `driver` in builds without the feature `cuda`: the same items, for a device that cannot exist. The
//! documentation is in `driver`.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_safety_doc)]

use super::{
    Arg, CudaError, Define, DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut, KernelSource, MemoryUse, Product,
    ProductMode, Result,
};
use bytemuck::Pod;
use std::convert::Infallible;
use std::ffi::c_void;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice(Infallible);

#[derive(Debug)]
pub struct Event(Infallible);

#[derive(Debug)]
pub struct Timer(Infallible);

#[derive(Debug)]
pub struct CudaGraph<R>(Infallible, R);

#[derive(Debug, Clone, Copy)]
pub struct Launch<'a>(&'a CudaDevice);

#[derive(Debug)]
pub(super) struct Pool(Infallible);

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub address: u64,
}

impl Pool {
    pub fn take(&self, _: usize) -> Result<Block> {
        match self.0 {}
    }

    pub fn give_back(&self, _: Block) {
        match self.0 {}
    }
}

pub fn nvrtc_version() -> Result<(i32, i32)> {
    Err(CudaError::NotBuilt)
}

pub fn compile_for(_: KernelSource, _: &[Define], _: i32) -> Result<Vec<u8>> {
    Err(CudaError::NotBuilt)
}

impl CudaDevice {
    pub fn new(_: usize) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    pub unsafe fn on_stream(_: usize, _: *mut c_void) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    pub unsafe fn foreign(&self, _: *mut c_void, _: Arc<dyn DeviceMemory>) -> Self {
        match self.0 {}
    }

    pub fn table<R>(&self, _: &'static str, _: Vec<usize>, _: impl FnOnce() -> Result<R>) -> Result<Arc<R>> {
        match self.0 {}
    }

    pub fn capture<R, E>(&self, _: impl FnOnce() -> Result<R, E>) -> Result<CudaGraph<R>, E> {
        match self.0 {}
    }
}

/// Methods of a device that cannot exist.
macro_rules! absent {
    ($($visibility:vis fn $name:ident $(<$number:ident>)? ($($argument:ty),*) $(-> $output:ty)?;)*) => {
        impl CudaDevice {
            $($visibility fn $name $(<$number: Pod>)? (&self, $(_: $argument),*) $(-> $output)? {
                match self.0 {}
            })*
        }
    };
}

absent! {
    pub fn ordinal() -> usize;
    pub fn name() -> &str;
    pub fn capability() -> (i32, i32);
    pub fn driver_version() -> (i32, i32);
    pub(crate) fn multiprocessors() -> usize;
    pub(crate) fn shared_bytes() -> usize;
    pub fn total_memory() -> usize;
    pub fn memory() -> MemoryUse;
    pub fn reset_peak_memory();
    pub fn set_tile_bytes(usize);
    pub fn tile_bytes() -> usize;
    pub fn buffer<T>(usize) -> Result<DeviceBuffer<T>>;
    pub fn zeros<T>(usize) -> Result<DeviceBuffer<T>>;
    pub fn upload<T>(&[T]) -> Result<DeviceBuffer<T>>;
    pub fn write<T>(DeviceSliceMut<'_, T>, &[T]) -> Result<()>;
    pub fn read<T>(DeviceSlice<'_, T>, &mut [T]) -> Result<()>;
    pub fn copy<T>(DeviceSlice<'_, T>, DeviceSliceMut<'_, T>) -> Result<()>;
    pub fn clear<T>(DeviceSliceMut<'_, T>) -> Result<()>;
    pub fn synchronise() -> Result<()>;
    pub fn ahead() -> Self;
    pub fn is_ahead() -> bool;
    pub fn set_product_mode(ProductMode);
    pub fn product_mode() -> ProductMode;
    pub fn event() -> Result<Event>;
    pub fn wait_for(&Event) -> Result<()>;
    pub fn function(KernelSource, &[Define], &'static str) -> Result<Launch<'_>>;
    pub fn function_with_shared(KernelSource, &[Define], &'static str, usize) -> Result<Launch<'_>>;
    pub(super) fn multiply(&Product<'_>, DeviceSlice<'_, f32>, (usize, usize)) -> Result<()>;
}

impl Launch<'_> {
    pub unsafe fn run(self, _: (usize, usize), _: (usize, usize), _: &[Arg]) -> Result<()> {
        match self.0.0 {}
    }

    pub unsafe fn over(self, _: usize, _: &[Arg]) -> Result<()> {
        match self.0.0 {}
    }

    pub unsafe fn over_fours(self, _: usize, _: &[Arg]) -> Result<()> {
        match self.0.0 {}
    }
}

impl Timer {
    pub fn new(device: &CudaDevice) -> Result<Self> {
        match device.0 {}
    }

    pub fn milliseconds<E>(&mut self, _: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        match self.0 {}
    }
}

impl<R> CudaGraph<R> {
    pub fn replay(&self) -> Result<()> {
        match self.0 {}
    }

    pub fn output(&self) -> &R {
        &self.1
    }
}
