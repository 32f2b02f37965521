//! Work on the streams, and in the memory, of another library.
//!
//! It shares the compiled kernels, tables and cuBLAS handle of a device. Its work is queued on a stream of the
//! caller, and its buffers come from an allocator of the caller, for example those of PyTorch. Tables are made by
//! the first call on any stream, which waits for them, so that later calls may read them on every stream.

use super::context::Stream;
use super::device::Lane;
use super::pool::{Pool, PoolLane};
use super::status::driver;
use super::{CudaDevice, CudaError, DeviceMemory, ProductMode, Result};
use cudarc::driver::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Stream, memory and settings of work in another library.
#[derive(Debug)]
pub(super) struct Foreign {
    stream: Stream,
    pub pool: Arc<Pool>,
    mode: AtomicU8,
}

impl Foreign {
    pub fn stream(&self) -> sys::CUstream {
        self.stream.handle()
    }

    pub fn mode(&self) -> &AtomicU8 {
        &self.mode
    }

    /// Fails while the caller captures the stream.
    pub fn expect_no_capture(&self, what: &'static str) -> Result<()> {
        let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, and `status` outlives the call.
        driver("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.stream(), &mut status) })?;
        match status {
            sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
            _ => Err(CudaError::Capture { what }),
        }
    }
}

impl CudaDevice {
    /// The same GPU with its work queued on a stream of the caller, and its buffers in memory of the caller. Null is
    /// the legacy default stream. Work may be captured by the caller after the same operators have run once on any
    /// stream.
    ///
    /// # Safety
    /// The stream must belong to the primary context of the device, and must outlive the returned value and its clones.
    pub unsafe fn foreign(&self, stream: *mut std::ffi::c_void, memory: Arc<dyn DeviceMemory>) -> Self {
        let context = &self.inner.context;
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { Stream::borrowed(context, stream.cast()) };
        let lane = PoolLane::Foreign { memory, stream: stream.handle() as usize };
        Self {
            inner: Arc::clone(&self.inner),
            lane: Lane::Foreign(Arc::new(Foreign {
                stream,
                pool: Arc::new(Pool::new(Arc::clone(context), lane)),
                mode: AtomicU8::new(ProductMode::default() as u8),
            })),
        }
    }

    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.lane, Lane::Foreign(_))
    }

    /// Where the precision of matrix products is stored.
    pub(super) fn mode(&self) -> &AtomicU8 {
        match &self.lane {
            Lane::Foreign(foreign) => foreign.mode(),
            Lane::Compute | Lane::Ahead => &self.inner.mode,
        }
    }

    /// Sets the precision of matrix products.
    pub fn set_product_mode(&self, mode: ProductMode) {
        self.mode().store(mode as u8, Ordering::Relaxed);
    }

    /// Precision of matrix products.
    pub fn product_mode(&self) -> ProductMode {
        const TF32: u8 = ProductMode::Tf32 as u8;
        const BF16: u8 = ProductMode::Bf16 as u8;
        match self.mode().load(Ordering::Relaxed) {
            TF32 => ProductMode::Tf32,
            BF16 => ProductMode::Bf16,
            _ => ProductMode::F32,
        }
    }
}
