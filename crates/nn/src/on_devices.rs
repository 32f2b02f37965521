//! Arrays in main memory with a copy on a GPU.

use crate::device::DeviceCopy;
use crate::{Device, Result};
use gemcnn_kernels::OnDevice;
use gemcnn_kernels::cuda::CudaDevice;
use std::ops::Deref;
use std::sync::Arc;

/// Arrays in main memory that have a form on a GPU.
pub trait Upload {
    /// The form on a GPU.
    type Uploaded;

    /// Copies the arrays to a GPU.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32.
    fn upload(&self, device: &CudaDevice) -> Result<Self::Uploaded>;
}

/// Arrays `H` in main memory, and their copy `D` on a GPU. The copy is made once, by the first operator that needs it
/// or ahead of it ([`copy_to`](Self::copy_to)). Clones share both. Two are equal if their arrays in main memory are.
#[derive(Debug)]
pub struct OnDevices<H, D> {
    host: Arc<H>,
    copy: DeviceCopy<D>,
}

impl<H, D> OnDevices<H, D> {
    /// Arrays without a copy on a GPU.
    pub fn of(host: H) -> Self {
        Self { host: Arc::new(host), copy: DeviceCopy::default() }
    }

    /// The same arrays without the copy: it is made again, and freed with the result.
    pub fn without_copy(&self) -> Self {
        Self { host: Arc::clone(&self.host), copy: DeviceCopy::default() }
    }

    /// The same arrays with another copy.
    pub(crate) fn with_copy(&self, device: &CudaDevice, copy: D) -> Self {
        Self { host: Arc::clone(&self.host), copy: DeviceCopy::holding(device, copy) }
    }
}

impl<H: Upload<Uploaded = D>, D> OnDevices<H, D> {
    /// The arrays where a device reads them.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn on(&self, device: &Device) -> Result<ArraysOn<'_, H, D>> {
        Ok(ArraysOn(match device {
            Device::Cpu => OnDevice::Host(&self.host),
            Device::Cuda(device) => OnDevice::Cuda(self.on_cuda(device)?),
        }))
    }

    /// Copies the arrays to a GPU if they are not there yet.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn copy_to(&self, device: &Device) -> Result<()> {
        self.on(device).map(drop)
    }

    pub(crate) fn on_cuda(&self, device: &CudaDevice) -> Result<Arc<D>> {
        self.copy.to(device, || self.host.upload(device))
    }
}

impl<H, D> Deref for OnDevices<H, D> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.host
    }
}

// Derived implementations would require the same of `D`.
impl<H, D> Clone for OnDevices<H, D> {
    fn clone(&self) -> Self {
        Self { host: Arc::clone(&self.host), copy: self.copy.clone() }
    }
}

impl<H: PartialEq, D> PartialEq for OnDevices<H, D> {
    fn eq(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

/// Arrays on the device of a tape, for operators.
#[derive(Debug)]
pub struct ArraysOn<'b, H, D>(pub(crate) OnDevice<&'b H, Arc<D>>);

impl<H, D> ArraysOn<'_, H, D> {
    /// The arrays in the form of the device.
    pub fn get(&self) -> OnDevice<&H, &D> {
        match &self.0 {
            OnDevice::Host(host) => OnDevice::Host(host),
            OnDevice::Cuda(copy) => OnDevice::Cuda(copy),
        }
    }
}
