//! Buffers in device memory, and slices of them.

use super::driver::{Block, Pool};
use super::{CudaDevice, Result};
use crate::error::check_count;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Device memory in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Bytes of live buffers.
    pub live: usize,
    /// Largest value of `live` so far.
    pub peak: usize,
    /// Bytes allocated from the driver: live, or kept for reuse.
    pub held: usize,
    /// Number of allocations from the driver.
    pub allocations: usize,
}

/// An allocator of device memory in stream order: memory that was freed may be used by work that is queued on the
/// same stream afterwards.
///
/// # Safety
/// `allocate` returns the address of `bytes` bytes of the device, aligned to 256 bytes, which nothing else uses until
/// `free` is called with the same address.
pub unsafe trait DeviceMemory: Send + Sync + std::fmt::Debug {
    /// The address of memory for work on a stream.
    ///
    /// # Errors
    /// The reason, for example that there is not enough.
    fn allocate(&self, bytes: usize, stream: *mut std::ffi::c_void) -> Result<u64, String>;

    /// Gives memory back.
    fn free(&self, address: u64);
}

/// An array in device memory. Its memory returns to the pool of the device when it is dropped.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    pool: Arc<Pool>,
    /// `None` for an empty buffer.
    block: Option<Block>,
    length: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    pub(super) fn new(pool: &Arc<Pool>, length: usize) -> Result<Self> {
        let bytes = length.saturating_mul(size_of::<T>());
        let block = match bytes {
            0 => None,
            bytes => Some(pool.take(bytes)?),
        };
        Ok(Self { pool: Arc::clone(pool), block, length, kind: PhantomData })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn address(&self) -> u64 {
        self.block.map_or(0, |block| block.address)
    }

    /// The whole buffer for reading.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address(), length: self.length, buffer: PhantomData }
    }

    /// The whole buffer for writing.
    pub fn view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address(), length: self.length, buffer: PhantomData }
    }

    /// Copies another buffer over this one, in stream order. All work queued afterwards sees the new values.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        check_count("overwrite", "values", with.len(), self.len())?;
        self.overwrite_start(device, with.view())
    }

    /// Copies `values` to the start, as [`overwrite`](Self::overwrite).
    pub(super) fn overwrite_start(&self, device: &CudaDevice, values: DeviceSlice<'_, T>) -> Result<()> {
        device.copy(values, self.place().slice(0..values.len()))
    }

    /// The whole buffer for writing in stream order, as [`overwrite`](Self::overwrite), while others read it.
    pub(crate) fn place(&self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address(), length: self.length, buffer: PhantomData }
    }

    /// A copy, made in stream order.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self> {
        let copy = device.buffer(self.length)?;
        copy.overwrite(device, self)?;
        Ok(copy)
    }

    /// Copies the values to the host. Waits for all work queued before.
    ///
    /// # Errors
    /// `values` of another length, or failed work on the device.
    pub fn read(&self, device: &CudaDevice, values: &mut [T]) -> Result<()> {
        device.read(self.view(), values)
    }

    /// The values. Waits for all work queued before.
    pub fn to_vec(&self, device: &CudaDevice) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.length];
        self.read(device, &mut values)?;
        Ok(values)
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            self.pool.give_back(block);
        }
    }
}

/// A slice of device memory for reading.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    pub(super) address: u64,
    length: usize,
    buffer: PhantomData<&'a T>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T> DeviceSlice<'a, T> {
    /// A slice of device memory that was not allocated here, for example of a PyTorch tensor.
    ///
    /// # Safety
    /// `address` must be the start of `length` values in memory of the device that will use the slice,
    /// aligned to the size of `T` (at most 16 bytes). The memory must stay allocated, and not be written, for
    /// `'a` and until all work queued in that time has run. Work that wrote the memory must be ordered
    /// before the work of the device: queued on the same stream, or waited for.
    pub unsafe fn from_raw_parts(address: u64, length: usize) -> Self {
        Self { address, length, buffer: PhantomData }
    }

    /// An empty slice.
    pub fn empty() -> Self {
        Self { address: 0, length: 0, buffer: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of the slice. A range that ends beyond the slice is shortened.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self { address: self.address + (start * size_of::<T>()) as u64, length: end - start, buffer: PhantomData }
    }

    /// Address in device memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// True if the start is aligned for a load of `count` values of four bytes.
    pub(crate) fn is_aligned(&self, count: usize) -> bool {
        self.address.is_multiple_of(4 * count as u64)
    }

    /// The values starting at index `start`.
    pub(crate) fn from(self, start: usize) -> Self {
        self.slice(start..self.length)
    }
}

/// A slice of device memory for writing.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    pub(super) address: u64,
    length: usize,
    buffer: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// A slice of device memory that was not allocated here, to be written.
    ///
    /// # Safety
    /// As [`DeviceSlice::from_raw_parts`]; moreover nothing else may use the memory for `'a` and until all
    /// work queued in that time has run.
    pub unsafe fn from_raw_parts(address: u64, length: usize) -> Self {
        Self { address, length, buffer: PhantomData }
    }

    /// An empty slice.
    pub fn empty() -> Self {
        Self { address: 0, length: 0, buffer: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The same slice for reading.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, length: self.length, buffer: PhantomData }
    }

    /// The same slice with a shorter lifetime.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address, length: self.length, buffer: PhantomData }
    }

    /// The first `count` values (all if there are fewer), and the rest.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let count = count.min(self.length);
        let part = |start: usize, length: usize| Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length,
            buffer: PhantomData,
        };
        (part(0, count), part(count, self.length - count))
    }

    /// A part of the slice. A range that ends beyond the slice is shortened.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self { address: self.address + (start * size_of::<T>()) as u64, length: end - start, buffer: PhantomData }
    }
}
