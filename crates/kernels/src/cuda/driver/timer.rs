//! Time of work on the device, measured by events.

use super::status::driver;
use super::{CudaDevice, CudaError, Result};
use cudarc::driver::sys;

/// `cuEventElapsedTime` with the signature of all drivers since CUDA 12.
type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// A stopwatch for work on the stream of a device.
#[derive(Debug)]
pub struct Timer {
    device: CudaDevice,
    events: [sys::CUevent; 2],
}

impl Timer {
    /// A timer for a device.
    pub fn new(device: &CudaDevice) -> Result<Self> {
        device.bind()?;
        let mut events = [std::ptr::null_mut(); 2];
        for event in &mut events {
            // SAFETY: the context is current, and the place outlives the call.
            driver("cuEventCreate", unsafe { sys::cuEventCreate(event, 0) })?;
        }
        Ok(Self { device: device.clone(), events })
    }

    /// Milliseconds that the device takes for the work queued by `work`. Waits for it.
    pub fn milliseconds<E: From<CudaError>>(&mut self, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        self.record(0)?;
        work()?;
        self.record(1)?;
        Ok(self.elapsed()?)
    }

    /// Milliseconds between the two events. Waits for the second.
    fn elapsed(&self) -> Result<f64> {
        let mut time = 0.0f32;
        // SAFETY: both events are alive and recorded.
        unsafe {
            driver("cuEventSynchronize", sys::cuEventSynchronize(self.events[1]))?;
            let elapsed = sys::culib()
                .get::<ElapsedTime>(b"cuEventElapsedTime")
                .map_err(|error| CudaError::Call { call: "cuEventElapsedTime", problem: error.to_string() })?;
            driver("cuEventElapsedTime", elapsed(&mut time, self.events[0], self.events[1]))?;
        }
        Ok(f64::from(time))
    }

    fn record(&self, event: usize) -> Result<()> {
        self.device.bind()?;
        // SAFETY: event and stream are alive.
        driver("cuEventRecord", unsafe { sys::cuEventRecord(self.events[event], self.device.stream()) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            for event in self.events {
                // SAFETY: created once, destroyed once.
                unsafe { sys::cuEventDestroy_v2(event) };
            }
        }
    }
}
