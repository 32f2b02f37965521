//! The context of a device, and its streams.

use super::Result;
use super::status::driver;
use cudarc::driver::sys;
use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The primary context of a device.
#[derive(Debug)]
pub(super) struct Context {
    pub device: sys::CUdevice,
    pub handle: sys::CUcontext,
}

// SAFETY: a context may be used from any thread that makes it current, which `bind` does.
unsafe impl Send for Context {}
// SAFETY: as above; the driver's calls are safe to make from several threads.
unsafe impl Sync for Context {}

impl Context {
    /// Makes it the calling thread's context.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is alive as long as `self`.
        driver("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Held for reading by captures, and for writing by calls that wait for the whole context: such a call, from any
/// thread, invalidates every capture of the context. All devices that open one GPU share its context.
static CAPTURES: RwLock<()> = RwLock::new(());

thread_local! {
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, no other thread waits for a whole context.
#[derive(Debug)]
pub(super) struct CaptureGuard {
    _shared: RwLockReadGuard<'static, ()>,
}

impl CaptureGuard {
    /// `None` if this thread holds one already.
    pub fn new() -> Option<Self> {
        let free = !IS_CAPTURING.replace(true);
        free.then(|| Self { _shared: CAPTURES.read().unwrap_or_else(PoisonError::into_inner) })
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        IS_CAPTURING.set(false);
    }
}

/// Waits for the captures of other threads, and delays new ones while the result lives. `None` in a thread that
/// captures, which cannot wait for itself.
pub(super) fn without_captures() -> Option<RwLockWriteGuard<'static, ()>> {
    (!IS_CAPTURING.get()).then(|| CAPTURES.write().unwrap_or_else(PoisonError::into_inner))
}

/// A stream: a queue of work that runs in the order of the calls.
#[derive(Debug)]
pub(super) struct Stream {
    handle: sys::CUstream,
    context: Arc<Context>,
    /// False for a stream of the caller, which is never destroyed here.
    owned: bool,
}

// SAFETY: a stream may be used from any thread with the context current.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream that does not synchronise with the legacy default stream.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        context.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and `handle` outlives the call.
        driver("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut handle, flags) })?;
        Ok(Self { handle, context: Arc::clone(context), owned: true })
    }

    /// A stream of the caller; null is the legacy default stream.
    ///
    /// # Safety
    /// It must be a stream of the context, and outlive this value.
    pub unsafe fn borrowed(context: &Arc<Context>, handle: sys::CUstream) -> Self {
        Self { handle, context: Arc::clone(context), owned: false }
    }

    pub fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// True for the legacy default stream, which cannot be captured.
    pub fn is_legacy(&self) -> bool {
        self.handle.is_null() || self.handle as usize == 1
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned && self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once; the driver first completes what is queued.
            unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}
