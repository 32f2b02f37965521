//! Buffers in device memory, and slices of them.

use super::pool::{Block, Pool};
use super::{CudaDevice, CudaError};
use crate::error::check_count;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Numbers in the memory of a device.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    pool: Arc<Pool>,
    /// None for no numbers.
    block: Option<Block>,
    length: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    pub(super) fn new(pool: &Arc<Pool>, length: usize) -> Result<Self, CudaError> {
        let bytes = length.saturating_mul(size_of::<T>());
        let block = match bytes {
            0 => None,
            bytes => Some(pool.take(bytes)?),
        };
        Ok(Self {
            pool: Arc::clone(pool),
            block,
            length,
            kind: PhantomData,
        })
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn address(&self) -> u64 {
        self.block.map_or(0, |block| block.address)
    }

    /// All numbers, to be read.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// All numbers, to be written.
    pub fn view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// Copies other numbers over these, after all work before. Whoever shares the buffer sees them in the
    /// work that follows.
    ///
    /// # Errors
    /// Another length, or a failed call.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), CudaError> {
        check_count("overwrite", "values", with.len(), self.len())?;
        self.overwrite_start(device, with.view())
    }

    /// Copies `values` over the first numbers, as [`overwrite`](Self::overwrite).
    pub(super) fn overwrite_start(
        &self,
        device: &CudaDevice,
        values: DeviceSlice<'_, T>,
    ) -> Result<(), CudaError> {
        let place = DeviceSliceMut {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        };
        device.copy(values, place.slice(0..values.len()))
    }

    /// A copy, made after all work before.
    ///
    /// # Errors
    /// Too little memory.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self, CudaError> {
        let copy = device.buffer(self.length)?;
        copy.overwrite(device, self)?;
        Ok(copy)
    }

    /// Copies the numbers to the host, after all work before.
    ///
    /// # Errors
    /// `values` of another length, or work that failed.
    pub fn read(&self, device: &CudaDevice, values: &mut [T]) -> Result<(), CudaError> {
        device.read(self.view(), values)
    }

    /// The numbers, after all work before.
    ///
    /// # Errors
    /// Work that failed.
    pub fn to_vec(&self, device: &CudaDevice) -> Result<Vec<T>, CudaError> {
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

/// A part of a buffer that is read.
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
        Self {
            address,
            length,
            buffer: PhantomData,
        }
    }

    /// No numbers.
    pub fn empty() -> Self {
        Self {
            address: 0,
            length: 0,
            buffer: PhantomData,
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Some of the numbers; ends beyond the last number are moved there.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length: end - start,
            buffer: PhantomData,
        }
    }

    /// Address in device memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether `count` numbers of four bytes can be loaded at once from the start.
    pub(crate) fn is_aligned(&self, count: usize) -> bool {
        self.address.is_multiple_of(4 * count as u64)
    }

    /// The numbers from one place on.
    pub(crate) fn from(self, start: usize) -> Self {
        self.slice(start..self.length)
    }
}

/// A part of a buffer that is written.
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
        Self {
            address,
            length,
            buffer: PhantomData,
        }
    }

    /// No numbers.
    pub fn empty() -> Self {
        Self {
            address: 0,
            length: 0,
            buffer: PhantomData,
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The same numbers, to be read.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice {
            address: self.address,
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// The same numbers for a shorter time.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut {
            address: self.address,
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// The first `count` numbers, or all if there are fewer, and the rest.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let count = count.min(self.length);
        let part = |start: usize, length: usize| Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length,
            buffer: PhantomData,
        };
        (part(0, count), part(count, self.length - count))
    }

    /// Some of the numbers; ends beyond the last number are moved there.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length: end - start,
            buffer: PhantomData,
        }
    }
}
