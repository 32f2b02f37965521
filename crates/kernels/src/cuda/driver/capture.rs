//! Events, and work captured once as a CUDA graph and replayed.

use super::context::{CaptureGuard, Context};
use super::device::{Lane, locked};
use super::pool::KeptBlocks;
use super::status::driver;
use super::{CudaDevice, CudaError, Result};
use cudarc::driver::sys;
use std::sync::Arc;

/// A point in the work queued on a stream, to be waited for.
#[derive(Debug)]
pub struct Event {
    handle: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used from any thread with the context current.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once; streams that wait for it are not affected.
            unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

impl CudaDevice {
    /// An event that completes when all work queued so far has run.
    ///
    /// # Errors
    /// [`CudaError::Capture`] during a capture, or a failed driver call.
    pub fn event(&self) -> Result<Event> {
        self.expect_no_capture("recording an event")?;
        self.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current, and `handle` outlives the call.
        driver("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        let event = Event { handle, context: Arc::clone(&self.inner.context) };
        // SAFETY: stream and event are alive.
        driver("cuEventRecord", unsafe { sys::cuEventRecord(handle, self.stream()) })?;
        Ok(event)
    }

    /// Makes all work queued from now on run after the event. The calling thread does not wait.
    ///
    /// # Errors
    /// [`CudaError::Capture`] during a capture, or a failed driver call.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.expect_no_capture("waiting for an event")?;
        self.bind()?;
        // SAFETY: stream and event are alive.
        driver("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.stream(), event.handle, 0) })
    }

    /// Captures the work that `work` queues as a CUDA graph. Nothing runs until
    /// [`CudaGraph::replay`], which queues all of it with one call.
    ///
    /// Between replays the contents of buffers may change, but not their addresses. Buffers that `work`
    /// uses but does not allocate must outlive the CUDA graph. `work` cannot copy from or to the host. While
    /// it runs, other threads can only queue copies [`ahead`](Self::ahead).
    ///
    /// # Errors
    /// The error of `work`, or [`CudaError::Capture`] for work that cannot be captured.
    pub fn capture<R, E: From<CudaError>>(&self, work: impl FnOnce() -> Result<R, E>) -> Result<CudaGraph<R>, E> {
        let capture = Capture::begin(self)?;
        let output = work();
        let (graph, kept) = capture.end();
        let output = output?;
        let graph = graph?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is alive, and `executable` outlives the call.
        driver("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph.0, 0) })?;
        Ok(CudaGraph { device: self.clone(), executable, output, _kept: kept })
    }
}

/// The driver's handle of captured work.
struct Graph(sys::CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// A capture in progress. Dropping it ends the capture.
struct Capture<'a> {
    device: &'a CudaDevice,
    ended: bool,
    _guard: Option<CaptureGuard>,
}

impl<'a> Capture<'a> {
    fn begin(device: &'a CudaDevice) -> Result<Self> {
        if !matches!(device.lane, Lane::Compute) {
            return Err(CudaError::Capture { what: "copies that run ahead, and work on streams of the caller" });
        }
        if device.inner.stream.is_legacy() {
            return Err(CudaError::Capture { what: "work on the legacy default stream" });
        }
        device.bind()?;
        let guard = CaptureGuard::new();
        let mut capturing = locked(&device.inner.capturing);
        if capturing.is_some() {
            return Err(CudaError::Capture { what: "a second capture" });
        }
        // Relaxed, because `work` may allocate memory.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        device.inner.pool.begin_capture();
        device.inner.ahead_pool.begin_capture();
        *capturing = Some(std::thread::current().id());
        drop(capturing);
        let mut capture = Self { device, ended: true, _guard: guard };
        // SAFETY: the stream is alive and not being captured.
        let began = driver("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(device.stream(), mode) });
        if let Err(error) = began {
            capture.leave();
            return Err(error);
        }
        capture.ended = false;
        Ok(capture)
    }

    /// The captured work, and the memory that it uses.
    fn end(mut self) -> (Result<Graph>, KeptBlocks) {
        let graph = self.stop();
        (graph, self.leave())
    }

    fn stop(&mut self) -> Result<Graph> {
        self.ended = true;
        let mut graph = Graph(std::ptr::null_mut());
        // SAFETY: the stream is being captured since `begin`, and `graph` outlives the call.
        driver("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.device.stream(), &mut graph.0) })?;
        Ok(graph)
    }

    fn leave(&self) -> KeptBlocks {
        let inner = &self.device.inner;
        drop(inner.ahead_pool.end_capture());
        let kept = inner.pool.end_capture();
        *locked(&inner.capturing) = None;
        kept
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // Only reached before the end if the work panicked.
        if !self.ended {
            let _ = self.stop();
            self.leave();
        }
    }
}

/// Work captured by [`CudaDevice::capture`], with the value that the captured closure returned.
#[derive(Debug)]
pub struct CudaGraph<R> {
    device: CudaDevice,
    executable: sys::CUgraphExec,
    output: R,
    _kept: KeptBlocks,
}

// SAFETY: the executable may be used from any thread with the context current, and replaying takes it by
// shared reference only to put it on a stream.
unsafe impl<R: Send> Send for CudaGraph<R> {}

impl<R> CudaGraph<R> {
    /// Queues the captured work. It reads what its buffers hold when it runs.
    ///
    /// # Errors
    /// [`CudaError::Capture`] during another capture, or a failed driver call.
    pub fn replay(&self) -> Result<()> {
        self.device.expect_no_capture("replaying a CUDA graph")?;
        self.device.bind()?;
        // SAFETY: the executable and the stream are alive, and so are the buffers, as the caller of
        // `capture` promised.
        driver("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, self.device.stream()) })
    }

    /// The value that the captured closure returned.
    pub fn output(&self) -> &R {
        &self.output
    }
}

impl<R> Drop for CudaGraph<R> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: created once, destroyed once; the driver keeps it until running replays are done.
            unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}
