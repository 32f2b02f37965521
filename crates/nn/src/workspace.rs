//! The memory that steps share.

use crate::{Device, NnError, Pool};
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{Executor, HostScratch, Real, Scratch};
use std::sync::Arc;

/// The pool of buffers and the working memory of operators, kept from step to step. Each
/// [`Tape`](crate::Tape) borrows one, so that after the first step nothing large is allocated, and
/// runs on its device. A GPU has a pool of its own ([`CudaDevice::memory`]).
#[derive(Debug)]
pub struct Workspace<T> {
    device: Device,
    pub(crate) pool: Pool<T>,
    pub(crate) scratch: Scratch<T>,
    /// For statistics, which are summed up in f64 whatever the features are.
    pub(crate) wide_scratch: Scratch<f64>,
    /// True once an operator made a row for each edge ([`Context::edge_rows`](crate::Context::edge_rows)).
    pub(crate) edge_rows: bool,
    /// Random numbers of the present step on the GPU, and which they are.
    random: Option<(Arc<DeviceStream>, Stream)>,
}

impl<T: Real> Workspace<T> {
    /// Empty memory on a device.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            pool: Pool::new(),
            scratch: Scratch::new(),
            wide_scratch: Scratch::new(),
            edge_rows: false,
            random: None,
        }
    }

    /// The random numbers of a step on the GPU, always in the same place.
    pub(crate) fn device_stream(
        &mut self,
        device: &CudaDevice,
        stream: Stream,
    ) -> Result<Arc<DeviceStream>, NnError> {
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

    /// Where tapes run.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The GPU, if it is one.
    pub(crate) fn cuda(&self) -> Option<&CudaDevice> {
        match &self.device {
            Device::Cpu => None,
            Device::Cuda(device) => Some(device),
        }
    }

    /// Where operators run: the CPU with its scratch memory, or the GPU.
    pub(crate) fn executor(&mut self) -> Executor<'_, T> {
        match &self.device {
            Device::Cpu => Executor::Host(HostScratch {
                narrow: &mut self.scratch,
                wide: &mut self.wide_scratch,
            }),
            Device::Cuda(device) => Executor::Cuda(device),
        }
    }

    /// The pool of feature buffers on the host.
    pub fn pool(&self) -> &Pool<T> {
        &self.pool
    }

    /// Bytes of working memory on the host that operators have needed.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.wide_scratch.bytes()
    }
}

impl<T: Real> Default for Workspace<T> {
    fn default() -> Self {
        Self::new(Device::Cpu)
    }
}
