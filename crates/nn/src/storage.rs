//! The numbers of features, on the host or on a GPU.

use crate::device::{expect_single, single_slice, single_slice_mut};
use crate::{Buffer, NnError, Workspace};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut};
use gemcnn_kernels::{Real, elementwise};
use std::borrow::Cow;

/// Numbers where their tape runs.
#[derive(Debug)]
pub(crate) enum Storage<T: Real> {
    Host(Buffer<T>),
    /// Only ever made for `T` = f32.
    Cuda {
        device: CudaDevice,
        numbers: DeviceBuffer<f32>,
    },
}

impl<T: Real> Storage<T> {
    pub fn len(&self) -> usize {
        match self {
            Self::Host(values) => values.len(),
            Self::Cuda { numbers, .. } => numbers.len(),
        }
    }

    pub fn host(&self) -> Result<&[T], NnError> {
        match self {
            Self::Host(values) => Ok(values),
            Self::Cuda { .. } => Err(elsewhere()),
        }
    }

    pub fn host_mut(&mut self) -> Result<&mut [T], NnError> {
        match self {
            Self::Host(values) => Ok(values),
            Self::Cuda { .. } => Err(elsewhere()),
        }
    }

    pub fn cuda(&self) -> Result<DeviceSlice<'_, f32>, NnError> {
        match self {
            Self::Host(_) => Err(elsewhere()),
            Self::Cuda { numbers, .. } => Ok(numbers.view()),
        }
    }

    pub fn cuda_mut(&mut self) -> Result<DeviceSliceMut<'_, f32>, NnError> {
        match self {
            Self::Host(_) => Err(elsewhere()),
            Self::Cuda { numbers, .. } => Ok(numbers.view_mut()),
        }
    }

    /// The numbers on the host; those of a GPU are copied, after all work before.
    pub fn read(&self) -> Result<Cow<'_, [T]>, NnError> {
        match self {
            Self::Host(values) => Ok(Cow::Borrowed(values)),
            Self::Cuda { device, numbers } => {
                let mut values = vec![T::zero(); numbers.len()];
                numbers.read(device, single_slice_mut(&mut values)?)?;
                Ok(Cow::Owned(values))
            }
        }
    }

    /// Adds other numbers.
    pub fn add(&mut self, other: &Self) -> Result<(), NnError> {
        match self {
            Self::Host(values) => elementwise::accumulate(other.host()?, values)?,
            Self::Cuda { device, numbers } => {
                elementwise::cuda::accumulate(device, other.cuda()?, numbers.view_mut())?;
            }
        }
        Ok(())
    }
}

fn elsewhere() -> NnError {
    NnError::setting(
        "tape",
        "features of another device; put their numbers on this tape as input",
    )
}

impl<T: Real> Workspace<T> {
    /// Room for `length` numbers of unspecified value.
    pub(crate) fn take(&self, length: usize) -> Result<Storage<T>, NnError> {
        Ok(match self.cuda() {
            None => Storage::Host(self.pool.take(length)),
            Some(device) => {
                expect_single::<T>()?;
                Storage::Cuda {
                    device: device.clone(),
                    numbers: device.buffer(length)?,
                }
            }
        })
    }

    /// `length` zeros.
    pub(crate) fn zeros(&self, length: usize) -> Result<Storage<T>, NnError> {
        let mut zeros = self.take(length)?;
        match &mut zeros {
            Storage::Host(values) => values.fill(T::zero()),
            Storage::Cuda { device, numbers } => device.clear(numbers.view_mut())?,
        }
        Ok(zeros)
    }

    /// A copy of numbers of the host.
    pub(crate) fn put(&self, values: &[T]) -> Result<Storage<T>, NnError> {
        let mut copy = self.take(values.len())?;
        match &mut copy {
            Storage::Host(copy) => copy.copy_from_slice(values),
            Storage::Cuda { device, numbers } => {
                device.write(numbers.view_mut(), single_slice(values)?)?;
            }
        }
        Ok(copy)
    }

    /// A copy where the numbers are.
    pub(crate) fn duplicate(&self, values: &Storage<T>) -> Result<Storage<T>, NnError> {
        let mut copy = self.take(values.len())?;
        match &mut copy {
            Storage::Host(copy) => copy.copy_from_slice(values.host()?),
            Storage::Cuda { device, numbers } => {
                device.copy(values.cuda()?, numbers.view_mut())?;
            }
        }
        Ok(copy)
    }
}
