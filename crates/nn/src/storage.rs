//! Buffers of numbers on the host or on a GPU.

use crate::device::{expect_f32, f32_slice, f32_slice_mut};
use crate::pool::clear;
use crate::{Buffer, Result, Workspace};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::elementwise::Accumulate;
use gemcnn_kernels::{OnDevice, Real, View, ViewMut};
use std::borrow::Cow;

/// A buffer on the device of its tape. It returns to its memory pool when dropped.
#[derive(Debug)]
pub struct Storage<T: Real> {
    memory: OnDevice<Buffer<T>, CudaMemory>,
}

/// Only for `T` = f32.
#[derive(Debug)]
struct CudaMemory {
    device: CudaDevice,
    numbers: DeviceBuffer<f32>,
}

impl<T: Real> From<Buffer<T>> for Storage<T> {
    fn from(buffer: Buffer<T>) -> Self {
        Self { memory: OnDevice::Host(buffer) }
    }
}

impl<T: Real> Storage<T> {
    /// A buffer on a GPU.
    pub(crate) fn on_cuda(device: &CudaDevice, numbers: DeviceBuffer<f32>) -> Self {
        Self { memory: OnDevice::Cuda(CudaMemory { device: device.clone(), numbers }) }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, to be read by an operator.
    pub fn view(&self) -> View<'_, T> {
        match &self.memory {
            OnDevice::Host(values) => OnDevice::Host(values),
            OnDevice::Cuda(memory) => OnDevice::Cuda(memory.numbers.view()),
        }
    }

    /// The values, to be written by an operator.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        match &mut self.memory {
            OnDevice::Host(values) => OnDevice::Host(values),
            OnDevice::Cuda(memory) => OnDevice::Cuda(memory.numbers.view_mut()),
        }
    }

    /// The values on the host. Values of a GPU are copied, after all queued work.
    pub fn read(&self) -> Result<Cow<'_, [T]>> {
        match &self.memory {
            OnDevice::Host(values) => Ok(Cow::Borrowed(values)),
            OnDevice::Cuda(CudaMemory { device, numbers }) => {
                let mut values = vec![T::zero(); numbers.len()];
                numbers.read(device, f32_slice_mut(&mut values)?)?;
                Ok(Cow::Owned(values))
            }
        }
    }

    /// Copies other values of the same length over these on a GPU, for the batch that a captured step reads.
    pub(crate) fn overwrite(&self, with: &Self) -> Result<()> {
        match (&self.memory, &with.memory) {
            (OnDevice::Cuda(to), OnDevice::Cuda(from)) => Ok(to.numbers.overwrite(&to.device, &from.numbers)?),
            _ => Err(gemcnn_kernels::KernelError::OtherDevice.into()),
        }
    }
}

impl<T: Real> Workspace<T> {
    /// A buffer of `length` unspecified values.
    pub(crate) fn take(&self, length: usize) -> Result<Storage<T>> {
        Ok(match self.cuda() {
            None => self.pool.take(length).into(),
            Some(device) => {
                expect_f32::<T>()?;
                Storage::on_cuda(device, device.buffer(length)?)
            }
        })
    }

    /// A buffer of `length` zeros.
    pub(crate) fn zeros(&self, length: usize) -> Result<Storage<T>> {
        let mut zeros = self.take(length)?;
        match &mut zeros.memory {
            OnDevice::Host(values) => clear(values),
            OnDevice::Cuda(CudaMemory { device, numbers }) => device.clear(numbers.view_mut())?,
        }
        Ok(zeros)
    }

    /// A copy of values of the host.
    pub(crate) fn put(&self, values: &[T]) -> Result<Storage<T>> {
        let mut copy = self.take(values.len())?;
        match &mut copy.memory {
            OnDevice::Host(copy) => copy.copy_from_slice(values),
            OnDevice::Cuda(CudaMemory { device, numbers }) => {
                device.write(numbers.view_mut(), f32_slice(values)?)?;
            }
        }
        Ok(copy)
    }

    /// A copy on the same device.
    pub(crate) fn duplicate(&self, values: &Storage<T>) -> Result<Storage<T>> {
        let mut copy = self.take(values.len())?;
        match (&mut copy.memory, values.view()) {
            (OnDevice::Host(copy), OnDevice::Host(values)) => copy.copy_from_slice(values),
            (OnDevice::Cuda(CudaMemory { device, numbers }), OnDevice::Cuda(values)) => {
                device.copy(values, numbers.view_mut())?;
            }
            _ => return Err(gemcnn_kernels::KernelError::OtherDevice.into()),
        }
        Ok(copy)
    }

    /// Adds `other` to `sum`.
    pub(crate) fn accumulate(&mut self, sum: &mut Storage<T>, other: &Storage<T>) -> Result<()> {
        Ok(Accumulate { a: other.view(), y: sum.view_mut() }.run(&mut self.executor())?)
    }
}
