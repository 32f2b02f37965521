//! Memory that training steps share.

use crate::{Device, Pool, Result};
use gemcnn_kernels::cuda::{CudaDevice, ProductMode};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{Executor, HostScratch, Real, Scratch};
use std::sync::Arc;

/// A device, a pool of buffers and the scratch memory of operators, kept from step to step.
///
/// Each [`Tape`](crate::Tape) borrows a workspace and runs on its device. After the first step nothing large is
/// allocated. A GPU has its own pool ([`CudaDevice::memory`]).
#[derive(Debug)]
pub struct Workspace<T> {
    device: Device,
    /// Precision of matrix products on the CPU.
    products: ProductMode,
    pub(crate) pool: Pool<T>,
    pub(crate) scratch: Scratch<T>,
    /// For statistics, which are summed in f64 in any precision.
    pub(crate) wide_scratch: Scratch<f64>,
    /// Random number stream of the current step on the GPU, and its copy on the host.
    random: Option<(Arc<DeviceStream>, Stream)>,
    /// True if an operator has made features with a row for each edge.
    pub(crate) has_edge_rows: bool,
    /// True if an operator has read data of the batch that a captured step cannot replace.
    pub(crate) has_fixed_data: bool,
}

impl<T: Real> Workspace<T> {
    /// Empty memory on a device.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            products: ProductMode::F32,
            pool: Pool::new(),
            scratch: Scratch::new(),
            wide_scratch: Scratch::new(),
            random: None,
            has_edge_rows: false,
            has_fixed_data: false,
        }
    }

    /// Sets the precision of matrix products on this device. On the CPU, [`ProductMode::Bf16`] rounds the factors of
    /// the [classifier](crate::Tape::classifier) in training if the features are f32, there are more than 32 classes,
    /// and the CPU has AVX512-BF16. All other products there are in the precision of the features.
    pub fn set_product_mode(&mut self, mode: ProductMode) {
        match &self.device {
            Device::Cpu => self.products = mode,
            Device::Cuda(device) => device.set_product_mode(mode),
        }
    }

    /// Precision of matrix products on this device.
    pub fn product_mode(&self) -> ProductMode {
        match &self.device {
            Device::Cpu => self.products,
            Device::Cuda(device) => device.product_mode(),
        }
    }

    /// The random number stream of a step on the GPU, always at the same address.
    pub(crate) fn device_stream(&mut self, device: &CudaDevice, stream: Stream) -> Result<Arc<DeviceStream>> {
        let place = match &mut self.random {
            Some((place, held)) => {
                if *held != stream {
                    place.set(device, stream)?;
                    *held = stream;
                }
                place.clone()
            }
            None => {
                let place = Arc::new(DeviceStream::new(device, stream)?);
                self.random = Some((place.clone(), stream));
                place
            }
        };
        Ok(place)
    }

    /// Device that tapes run on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The GPU, if tapes run on one.
    pub(crate) fn cuda(&self) -> Option<&CudaDevice> {
        match &self.device {
            Device::Cpu => None,
            Device::Cuda(device) => Some(device),
        }
    }

    /// Where operators run: the CPU with its scratch memory, or the GPU.
    pub(crate) fn executor(&mut self) -> Executor<'_, T> {
        match &self.device {
            Device::Cpu => Executor::Host(HostScratch { narrow: &mut self.scratch, wide: &mut self.wide_scratch }),
            Device::Cuda(device) => Executor::Cuda(device),
        }
    }

    /// The pool of feature buffers on the host.
    pub fn pool(&self) -> &Pool<T> {
        &self.pool
    }

    /// Bytes of scratch memory of operators on the host.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.wide_scratch.bytes()
    }
}

impl<T: Real> Default for Workspace<T> {
    fn default() -> Self {
        Self::new(Device::Cpu)
    }
}
