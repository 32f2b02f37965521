//! A device: its context and stream, its memory, its kernels and its cuBLAS handle.

use super::error::{describe, driver};
use super::memory::{Context, KeptBlocks, Pool, PoolLane, Staging};
use super::sources::KernelSource;
use super::{
    CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, MemoryUse, ProductMode, compiler, library,
};
use crate::error::check_count;
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// A GPU that operators run on. Clones are the same device.
#[derive(Debug, Clone)]
pub struct CudaDevice {
    inner: Arc<Inner>,
    lane: Lane,
}

/// Where work is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Compute,
    /// Copies to the device that run beside the work of the other lane.
    Ahead,
}

/// Two handles are equal if they are clones: the same card opened twice has two streams.
impl PartialEq for CudaDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CudaDevice {}

type TableKey = (&'static str, Vec<usize>);
type Tables = HashMap<TableKey, Arc<dyn Any + Send + Sync>>;
type Modules = HashMap<(&'static str, Vec<Define>), Arc<Module>>;

struct Inner {
    ordinal: usize,
    name: String,
    capability: (i32, i32),
    driver: i32,
    total_memory: usize,
    stream: sys::CUstream,
    /// For copies that run ahead.
    copies: sys::CUstream,
    /// The thread whose work is being recorded.
    recorder: Mutex<Option<ThreadId>>,
    blas: super::products::Handle,
    mode: AtomicU8,
    tile_bytes: AtomicUsize,
    staging: Mutex<Staging>,
    modules: Mutex<Modules>,
    tables: Mutex<Tables>,
    pool: Arc<Pool>,
    ahead_pool: Arc<Pool>,
    context: Arc<Context>,
}

// SAFETY: streams and handle are the driver's and may be used from any thread with the context
// current; calls that share the handle go through a lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaDevice({}: {})", self.ordinal, self.name)
    }
}

/// A macro of a kernel source and its value.
pub(crate) type Define = (&'static str, String);

/// A compiled source on the device.
#[derive(Debug)]
pub(super) struct Module {
    handle: sys::CUmodule,
    functions: Mutex<HashMap<&'static str, usize>>,
}

// SAFETY: a module may be used from any thread with the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Bytes that the gathered rows of a convolution, or the logits of a classifier, may take at a time.
const TILE_BYTES: usize = 256 << 20;

/// Bytes that one copy to the device takes through pinned memory.
const STAGED_BYTES: usize = 32 << 20;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// The device with this number, counted from 0.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn new(ordinal: usize) -> Result<Self, CudaError> {
        library::driver()?;
        let mut version = 0;
        // SAFETY: the library is there, and the place outlives the call.
        driver("cuDriverGetVersion", unsafe {
            sys::cuDriverGetVersion(&mut version)
        })?;
        if version < 12_000 {
            return Err(CudaError::OldDriver { version });
        }
        let none = |problem: String| CudaError::NoDevice { problem };
        result::init().map_err(|error| none(describe(&error)))?;
        let count = result::device::get_count().map_err(|error| none(describe(&error)))?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(none("the driver counts none".into()));
        }
        if ordinal >= count {
            return Err(CudaError::Ordinal { ordinal, count });
        }
        let failed = |call: &'static str| {
            move |error: result::DriverError| CudaError::Call {
                call,
                problem: describe(&error),
            }
        };
        let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
        let name = result::device::get_name(device).map_err(failed("cuDeviceGetName"))?;
        let attribute = |attribute| {
            // SAFETY: the device is one of the driver's.
            unsafe { result::device::get_attribute(device, attribute) }
                .map_err(failed("cuDeviceGetAttribute"))
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < (7, 5) {
            return Err(CudaError::Capability { name, capability });
        }
        let (major, minor) = compiler::nvrtc_version()?;
        if major < 12 {
            return Err(CudaError::NoNvrtc {
                searched: format!("and found version {major}.{minor}, but 12.0 or later is needed"),
            });
        }
        library::cublas()?;
        // SAFETY: the device is one of the driver's.
        let handle = unsafe { result::primary_ctx::retain(device) }
            .map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let context = Arc::new(Context { device, handle });
        context.bind()?;
        // SAFETY: as above.
        let total_memory =
            unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))?;
        let new_stream = || {
            let mut stream = std::ptr::null_mut();
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the context is current, and the place outlives the call.
            driver("cuStreamCreate", unsafe {
                sys::cuStreamCreate(&mut stream, flags)
            })
            .map(|()| stream)
        };
        let (stream, copies) = (new_stream()?, new_stream()?);
        let pool = Arc::new(Pool::new(Arc::clone(&context), PoolLane::Compute));
        let ahead = PoolLane::Ahead {
            compute: stream,
            copies,
        };
        let ahead_pool = Arc::new(Pool::new(Arc::clone(&context), ahead));
        let blas = super::products::Handle::new(&pool, stream)?;
        Ok(Self {
            lane: Lane::Compute,
            inner: Arc::new(Inner {
                ordinal,
                name,
                capability,
                driver: version,
                total_memory,
                stream,
                copies,
                recorder: Mutex::default(),
                blas,
                mode: AtomicU8::new(ProductMode::default() as u8),
                tile_bytes: AtomicUsize::new(TILE_BYTES),
                staging: Mutex::default(),
                modules: Mutex::default(),
                tables: Mutex::default(),
                pool,
                ahead_pool,
                context,
            }),
        })
    }

    /// Number of the device.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Name of the card.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Compute capability: major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.inner.capability
    }

    /// CUDA version that the driver supports: major and minor.
    pub fn driver_version(&self) -> (i32, i32) {
        (self.inner.driver / 1000, self.inner.driver % 1000 / 10)
    }

    /// Bytes of memory on the card.
    pub fn total_memory(&self) -> usize {
        self.inner.total_memory
    }

    /// Memory held and used by buffers.
    pub fn memory(&self) -> MemoryUse {
        let (compute, ahead) = (self.inner.pool.usage(), self.inner.ahead_pool.usage());
        MemoryUse {
            live: compute.live + ahead.live,
            peak: compute.peak + ahead.peak,
            held: compute.held + ahead.held,
            allocations: compute.allocations + ahead.allocations,
        }
    }

    /// Makes the present use the new peak.
    pub fn reset_peak_memory(&self) {
        self.inner.pool.reset_peak();
        self.inner.ahead_pool.reset_peak();
    }

    /// How products are computed from now on.
    pub fn set_product_mode(&self, mode: ProductMode) {
        self.inner.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// How products are computed.
    pub fn product_mode(&self) -> ProductMode {
        if self.inner.mode.load(Ordering::Relaxed) == ProductMode::Tf32 as u8 {
            ProductMode::Tf32
        } else {
            ProductMode::F32
        }
    }

    /// Sets how many bytes gathered rows or logits may take at a time.
    pub fn set_tile_bytes(&self, bytes: usize) {
        self.inner.tile_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// How many bytes gathered rows or logits may take at a time.
    pub fn tile_bytes(&self) -> usize {
        self.inner.tile_bytes.load(Ordering::Relaxed)
    }

    /// Memory for `length` numbers of unspecified value.
    ///
    /// # Errors
    /// Too little memory.
    pub fn buffer<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>, CudaError> {
        let pool = match self.lane {
            Lane::Compute => &self.inner.pool,
            Lane::Ahead => &self.inner.ahead_pool,
        };
        DeviceBuffer::new(pool, length)
    }

    /// `length` numbers whose bytes are zero.
    ///
    /// # Errors
    /// Too little memory.
    pub fn zeros<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>, CudaError> {
        let mut buffer = self.buffer(length)?;
        self.clear(buffer.view_mut())?;
        Ok(buffer)
    }

    /// A copy of `values` on the device. The values are taken at once; the copy runs with the work
    /// that follows.
    ///
    /// # Errors
    /// Too little memory.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, CudaError> {
        let mut buffer = self.buffer(values.len())?;
        self.write(buffer.view_mut(), values)?;
        Ok(buffer)
    }

    /// Copies `values` to the device, as [`upload`](Self::upload) does.
    ///
    /// # Errors
    /// Lengths that differ.
    pub fn write<T: Pod>(&self, to: DeviceSliceMut<'_, T>, values: &[T]) -> Result<(), CudaError> {
        check_count("copy to the device", "values", values.len(), to.len())?;
        if values.is_empty() {
            return Ok(());
        }
        self.expect_no_recording("a copy of numbers of the host")?;
        self.bind()?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut staging = locked(&self.inner.staging);
        for (place, piece) in bytes.chunks(STAGED_BYTES).enumerate() {
            let address = to.address + (place * STAGED_BYTES) as u64;
            staging.copy(piece, address, self.stream())?;
        }
        Ok(())
    }

    /// Copies numbers to the host, after all work before.
    ///
    /// # Errors
    /// Lengths that differ, or work that failed.
    pub fn read<T: Pod>(
        &self,
        from: DeviceSlice<'_, T>,
        values: &mut [T],
    ) -> Result<(), CudaError> {
        check_count("copy from the device", "values", values.len(), from.len())?;
        if values.is_empty() {
            return Ok(());
        }
        self.expect_no_recording("reading numbers")?;
        self.bind()?;
        // SAFETY: both sides are as long as `values`, which outlives the wait below.
        driver("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                values.as_mut_ptr().cast(),
                from.address,
                size_of_val(values),
                self.stream(),
            )
        })?;
        self.synchronise()
    }

    /// Copies numbers within the device.
    ///
    /// # Errors
    /// Lengths that differ.
    pub fn copy<T: Pod>(
        &self,
        from: DeviceSlice<'_, T>,
        to: DeviceSliceMut<'_, T>,
    ) -> Result<(), CudaError> {
        check_count("copy on the device", "destination", to.len(), from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: both slices are alive and as long as each other.
        driver("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(
                to.address,
                from.address,
                from.len() * size_of::<T>(),
                self.stream(),
            )
        })
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// A failed call.
    pub fn clear<T: Pod>(&self, slice: DeviceSliceMut<'_, T>) -> Result<(), CudaError> {
        if slice.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let bytes = slice.len() * size_of::<T>();
        // SAFETY: the slice is alive and this long.
        driver("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(slice.address, 0, bytes, self.stream())
        })
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// Work that failed.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        self.expect_no_recording("waiting for the device")?;
        self.bind()?;
        // SAFETY: the stream is alive.
        driver("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream())
        })
    }

    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.inner.context.bind()
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        match self.lane {
            Lane::Compute => self.inner.stream,
            Lane::Ahead => self.inner.copies,
        }
    }

    /// Fails while work of this lane is being recorded.
    fn expect_no_recording(&self, what: &'static str) -> Result<(), CudaError> {
        match (self.lane, &*locked(&self.inner.recorder)) {
            (Lane::Compute, Some(_)) => Err(CudaError::Recording { what }),
            _ => Ok(()),
        }
    }

    /// Fails while another thread records work of this lane.
    fn expect_own_recording(&self) -> Result<(), CudaError> {
        let current = || std::thread::current().id();
        match (self.lane, &*locked(&self.inner.recorder)) {
            (Lane::Compute, Some(thread)) if *thread != current() => Err(CudaError::Recording {
                what: "work of another thread",
            }),
            _ => Ok(()),
        }
    }

    /// The same device with another queue, for copies that run beside the work: what is uploaded through
    /// it may be used by the device itself after [`wait_for`](Self::wait_for) the
    /// [`ready`](Self::ready) of this one.
    ///
    /// Memory that such buffers give back is not handed out again before the work queued until then is
    /// done.
    pub fn ahead(&self) -> Self {
        Self {
            lane: Lane::Ahead,
            ..self.clone()
        }
    }

    /// Whether it is the queue of copies that run ahead.
    pub fn is_ahead(&self) -> bool {
        self.lane == Lane::Ahead
    }

    /// A mark after all work queued so far.
    ///
    /// # Errors
    /// A failed call.
    pub fn ready(&self) -> Result<Ready, CudaError> {
        self.expect_no_recording("marking a place in the queue")?;
        self.bind()?;
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current, and the place outlives the call.
        driver("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, flags)
        })?;
        let ready = Ready {
            event,
            context: Arc::clone(&self.inner.context),
        };
        // SAFETY: stream and event are alive.
        driver("cuEventRecord", unsafe {
            sys::cuEventRecord(event, self.stream())
        })?;
        Ok(ready)
    }

    /// Lets the work that follows run after what was marked; this thread does not wait.
    ///
    /// # Errors
    /// A failed call.
    pub fn wait_for(&self, ready: &Ready) -> Result<(), CudaError> {
        self.expect_no_recording("waiting for other work")?;
        self.bind()?;
        // SAFETY: stream and event are alive.
        driver("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(self.stream(), ready.event, 0)
        })
    }

    /// Records what `work` queues, to be run by [`Recording::replay`] as often as wanted; nothing runs
    /// now. Replaying costs one call, however much work it is.
    ///
    /// The numbers that the work reads may change between replays, but not where they lie: buffers that
    /// `work` does not make itself must be kept as long as the recording. `work` cannot copy from or to the
    /// host, and other threads cannot queue work meanwhile, but for copies that run
    /// [`ahead`](Self::ahead).
    ///
    /// # Errors
    /// What `work` returns, or work that cannot be recorded.
    pub fn record<R, E: From<CudaError>>(
        &self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<Recording<R>, E> {
        let capture = Capture::begin(self)?;
        let output = work();
        let (graph, kept) = capture.end();
        let output = output?;
        let graph = graph?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is alive, and the place outlives the call.
        driver("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&mut executable, graph.0, 0)
        })?;
        Ok(Recording {
            device: self.clone(),
            executable,
            output,
            _kept: kept,
        })
    }

    pub(super) fn blas(&self) -> &super::products::Handle {
        &self.inner.blas
    }

    /// Something that depends on settings only, made once.
    pub(crate) fn table<R: Send + Sync + 'static>(
        &self,
        name: &'static str,
        key: Vec<usize>,
        make: impl FnOnce() -> Result<R, CudaError>,
    ) -> Result<Arc<R>, CudaError> {
        let key = (name, key);
        if let Some(table) = locked(&self.inner.tables).get(&key)
            && let Ok(table) = Arc::clone(table).downcast::<R>()
        {
            return Ok(table);
        }
        let table = Arc::new(make()?);
        let erased: Arc<dyn Any + Send + Sync> = table.clone();
        locked(&self.inner.tables).insert(key, erased);
        Ok(table)
    }

    /// A function of a source, compiled with these macros.
    pub(crate) fn function(
        &self,
        source: KernelSource,
        defines: &[Define],
        name: &'static str,
    ) -> Result<Launch<'_>, CudaError> {
        self.expect_own_recording()?;
        self.bind()?;
        let module = self.module(source, defines)?;
        let mut functions = locked(&module.functions);
        let function = match functions.get(name) {
            Some(&function) => function,
            None => {
                let text = CString::new(name).unwrap_or_default();
                let mut function = std::ptr::null_mut();
                // SAFETY: the module is alive, and the places outlive the call.
                driver("cuModuleGetFunction", unsafe {
                    sys::cuModuleGetFunction(&mut function, module.handle, text.as_ptr())
                })?;
                functions.insert(name, function as usize);
                function as usize
            }
        };
        Ok(Launch {
            device: self,
            function: function as sys::CUfunction,
            shared_bytes: 0,
        })
    }

    /// A function whose blocks have this much shared memory beside what it declares.
    pub(crate) fn function_with_shared(
        &self,
        source: KernelSource,
        defines: &[Define],
        name: &'static str,
        shared_bytes: usize,
    ) -> Result<Launch<'_>, CudaError> {
        let launch = self.function(source, defines, name)?;
        let attribute =
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is one of a module that is loaded.
        driver("cuFuncSetAttribute", unsafe {
            sys::cuFuncSetAttribute(launch.function, attribute, shared_bytes as i32)
        })?;
        Ok(Launch {
            shared_bytes,
            ..launch
        })
    }

    fn module(&self, source: KernelSource, defines: &[Define]) -> Result<Arc<Module>, CudaError> {
        let key = (source.name, defines.to_vec());
        let mut modules = locked(&self.inner.modules);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let defines: Vec<(String, String)> = defines
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        let (major, minor) = self.inner.capability;
        let image = compiler::compile_cached(
            source.name,
            &source.text(),
            &defines,
            10 * major + minor,
            self.inner.driver,
        )?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin, or PTX that ends in a zero byte, as NVRTC made it.
        let status = unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
        status.result().map_err(|error| CudaError::Load {
            source_name: source.name.into(),
            problem: describe(&error),
        })?;
        let module = Arc::new(Module {
            handle,
            functions: Mutex::default(),
        });
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.bind().is_err() {
            return;
        }
        // SAFETY: nobody holds the device any more, so nothing new is put on the stream; modules and
        // stream are destroyed once, after all work.
        unsafe {
            sys::cuStreamSynchronize(self.copies);
            sys::cuStreamSynchronize(self.stream);
            locked(&self.staging).release();
            for module in locked(&self.modules).values() {
                sys::cuModuleUnload(module.handle);
            }
            self.blas.destroy();
            sys::cuStreamDestroy_v2(self.copies);
            sys::cuStreamDestroy_v2(self.stream);
        }
    }
}

/// A place in a queue of work.
#[derive(Debug)]
pub struct Ready {
    event: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: the event may be used from any thread with the context current.
unsafe impl Send for Ready {}
// SAFETY: as above.
unsafe impl Sync for Ready {}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once; whoever waits for it keeps its place in the queue.
            unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}

/// The driver's form of recorded work.
struct Graph(sys::CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made once, destroyed once.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// A stream whose work is being recorded, until it ends or is dropped.
struct Capture<'a> {
    device: &'a CudaDevice,
    ended: bool,
}

impl<'a> Capture<'a> {
    fn begin(device: &'a CudaDevice) -> Result<Self, CudaError> {
        if device.lane != Lane::Compute {
            return Err(CudaError::Recording {
                what: "copies that run ahead cannot be recorded",
            });
        }
        device.bind()?;
        let mut recorder = locked(&device.inner.recorder);
        if recorder.is_some() {
            return Err(CudaError::Recording {
                what: "a second recording",
            });
        }
        // Memory may be asked for on the way: relaxed.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        device.inner.pool.begin_recording();
        device.inner.ahead_pool.begin_recording();
        *recorder = Some(std::thread::current().id());
        drop(recorder);
        let mut capture = Self {
            device,
            ended: true,
        };
        // SAFETY: the stream is alive and not being recorded.
        let began = driver("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(device.stream(), mode)
        });
        if let Err(error) = began {
            capture.leave();
            return Err(error);
        }
        capture.ended = false;
        Ok(capture)
    }

    /// The recorded work, and the memory that it uses.
    fn end(mut self) -> (Result<Graph, CudaError>, KeptBlocks) {
        let graph = self.stop();
        (graph, self.leave())
    }

    fn stop(&mut self) -> Result<Graph, CudaError> {
        self.ended = true;
        let mut graph = Graph(std::ptr::null_mut());
        // SAFETY: the stream is being recorded since `begin`, and the place outlives the call.
        driver("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(self.device.stream(), &mut graph.0)
        })?;
        Ok(graph)
    }

    fn leave(&self) -> KeptBlocks {
        let inner = &self.device.inner;
        drop(inner.ahead_pool.end_recording());
        let kept = inner.pool.end_recording();
        *locked(&inner.recorder) = None;
        kept
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // Only when the work panicked.
        if !self.ended {
            let _ = self.stop();
            self.leave();
        }
    }
}

/// Work that was recorded once and runs as often as it is replayed; with what the recording returned.
#[derive(Debug)]
pub struct Recording<R> {
    device: CudaDevice,
    executable: sys::CUgraphExec,
    output: R,
    _kept: KeptBlocks,
}

// SAFETY: the executable may be used from any thread with the context current, and replaying takes it by
// shared reference only to put it on a stream.
unsafe impl<R: Send> Send for Recording<R> {}

impl<R> Recording<R> {
    /// Runs the work after all work before, on the numbers that its buffers then hold.
    ///
    /// # Errors
    /// A failed call.
    pub fn replay(&self) -> Result<(), CudaError> {
        self.device.expect_no_recording("replaying")?;
        self.device.bind()?;
        // SAFETY: the executable and the stream are alive, and so are the buffers, as the caller of `record`
        // promised.
        driver("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.executable, self.device.stream())
        })
    }

    /// What the recorded work returned.
    pub fn output(&self) -> &R {
        &self.output
    }
}

impl<R> Drop for Recording<R> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made once, destroyed once; the driver keeps it until what runs of it is done.
            unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}

/// An argument of a kernel, as the eight bytes that its first bytes are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arg(u64);

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Self {
        Self(u64::from(value.to_bits()))
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl<T> From<DeviceSlice<'_, T>> for Arg {
    fn from(slice: DeviceSlice<'_, T>) -> Self {
        Self(slice.address)
    }
}

impl<T> From<&DeviceSliceMut<'_, T>> for Arg {
    fn from(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self(slice.address)
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Arg {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self(buffer.view().address)
    }
}

/// The arguments of a kernel, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::cuda::Arg::from($value)),*] };
}
pub(crate) use args;

/// A kernel that is ready to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    device: &'a CudaDevice,
    function: sys::CUfunction,
    shared_bytes: usize,
}

impl Launch<'_> {
    /// Most arguments of a kernel.
    const MOST: usize = 28;

    /// Runs the kernel on `blocks` (x, y) of `threads` (x, y). Nothing runs on no blocks.
    ///
    /// # Safety
    /// The arguments must be those of the kernel in number, order and size, and the kernel must stay
    /// within the buffers.
    pub unsafe fn run(
        self,
        blocks: (usize, usize),
        threads: (usize, usize),
        arguments: &[Arg],
    ) -> Result<(), CudaError> {
        if blocks.0 == 0 || blocks.1 == 0 {
            return Ok(());
        }
        assert!(arguments.len() <= Self::MOST, "too many kernel arguments");
        let mut pointers = [std::ptr::null_mut(); Self::MOST];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = std::ptr::from_ref(&argument.0).cast_mut().cast();
        }
        let [blocks_x, blocks_y] = [blocks.0, blocks.1].map(|n| n as u32);
        let [threads_x, threads_y] = [threads.0, threads.1].map(|n| n as u32);
        // SAFETY: the caller vouches for the arguments; the context is current since `function`.
        driver("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks_x,
                blocks_y,
                1,
                threads_x,
                threads_y,
                1,
                self.shared_bytes as u32,
                self.device.stream(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }

    /// Runs a kernel whose thread `i` works on item `i` of `count`, 256 threads to a block.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn over(self, count: usize, arguments: &[Arg]) -> Result<(), CudaError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.run((count.div_ceil(256), 1), (256, 1), arguments) }
    }
}
