//! A device: its context and stream, its memory, its kernels and its cuBLAS handle.

use super::context::{Context, Stream, without_captures};
use super::foreign::Foreign;
use super::launch::Modules;
use super::pool::{Pool, PoolLane};
use super::staging::Staging;
use super::status::{describe, driver};
use super::{CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, MemoryUse, ProductMode, Result, compiler, library};
use crate::error::check_count;
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// A GPU that operators run on. Clones refer to the same device.
#[derive(Debug, Clone)]
pub struct CudaDevice {
    pub(super) inner: Arc<Inner>,
    pub(super) lane: Lane,
}

/// The stream that work is queued on.
#[derive(Debug, Clone)]
pub(super) enum Lane {
    Compute,
    /// Copies to the device that run beside the compute stream.
    Ahead,
    /// A stream and memory of the caller.
    Foreign(Arc<Foreign>),
}

/// Devices are equal if they are clones: one GPU opened twice has two streams.
impl PartialEq for CudaDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for CudaDevice {}

type Tables = HashMap<(TypeId, &'static str, Vec<usize>), Arc<dyn Any + Send + Sync>>;

pub(super) struct Inner {
    ordinal: usize,
    name: String,
    pub capability: (i32, i32),
    pub driver: i32,
    total_memory: usize,
    multiprocessors: usize,
    shared_bytes: usize,
    pub stream: Arc<Stream>,
    /// The stream of copies that run ahead.
    copies: Arc<Stream>,
    /// The thread whose work is being captured.
    pub capturing: Mutex<Option<ThreadId>>,
    blas: super::blas::Handle,
    pub mode: AtomicU8,
    tile_bytes: AtomicUsize,
    staging: Mutex<Staging>,
    pub modules: Mutex<Modules>,
    tables: Mutex<Tables>,
    pub pool: Arc<Pool>,
    pub ahead_pool: Arc<Pool>,
    pub context: Arc<Context>,
}

// SAFETY: the cuBLAS handle may be used from any thread with the context current; calls that share it go
// through a lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaDevice({}: {})", self.ordinal, self.name)
    }
}

/// Default memory of a tile, the gathered rows of a convolution or the logits of a classifier: this part of the memory
/// of the GPU, and at least so much.
const TILE_PART: usize = 128;
const MIN_TILE_BYTES: usize = 256 << 20;

/// Bytes of one copy through pinned memory.
const STAGED_BYTES: usize = 32 << 20;

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// The device with this number, counted from 0, with a stream of its own.
    ///
    /// # Errors
    /// A missing driver, device or library, with the way to get it.
    pub fn new(ordinal: usize) -> Result<Self> {
        Self::open(ordinal, Stream::new)
    }

    /// The device with this number, with its work queued on a stream of the caller, for example the current
    /// stream of PyTorch. `stream` is a `CUstream` or `cudaStream_t`; null is the legacy default stream.
    ///
    /// The device has its own memory pool and its own stream for copies [`ahead`](Self::ahead). It never
    /// destroys the caller's stream. Every call makes the primary context of the device current on the
    /// calling thread and leaves it so.
    ///
    /// # Safety
    /// The stream must belong to the primary context of the device, and must outlive the returned value, its
    /// clones, and all buffers, events and CUDA graphs made with them.
    pub unsafe fn on_stream(ordinal: usize, stream: *mut std::ffi::c_void) -> Result<Self> {
        // SAFETY: the caller vouches for it.
        Self::open(ordinal, |context| unsafe { Ok(Stream::borrowed(context, stream.cast())) })
    }

    fn open(ordinal: usize, make_stream: impl FnOnce(&Arc<Context>) -> Result<Stream>) -> Result<Self> {
        library::driver()?;
        let mut version = 0;
        // SAFETY: the library is there, and the place outlives the call.
        driver("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
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
        let failed =
            |call: &'static str| move |error: result::DriverError| CudaError::Call { call, problem: describe(&error) };
        let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
        let name = result::device::get_name(device).map_err(failed("cuDeviceGetName"))?;
        let attribute = |attribute| {
            // SAFETY: the device is one of the driver's.
            unsafe { result::device::get_attribute(device, attribute) }.map_err(failed("cuDeviceGetAttribute"))
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_bytes = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
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
        let handle = unsafe { result::primary_ctx::retain(device) }.map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let context = Arc::new(Context { device, handle });
        context.bind()?;
        // SAFETY: as above.
        let total_memory = unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))?;
        let stream = Arc::new(make_stream(&context)?);
        let copies = Arc::new(Stream::new(&context)?);
        let pool = Arc::new(Pool::new(Arc::clone(&context), PoolLane::Compute));
        let ahead = PoolLane::Ahead { compute: Arc::clone(&stream), copies: Arc::clone(&copies) };
        let ahead_pool = Arc::new(Pool::new(Arc::clone(&context), ahead));
        // cuBLAS waits for the context.
        let quiet = without_captures();
        let blas = super::blas::Handle::new(&pool, stream.handle())?;
        drop(quiet);
        Ok(Self {
            lane: Lane::Compute,
            inner: Arc::new(Inner {
                ordinal,
                name,
                capability,
                driver: version,
                total_memory,
                multiprocessors: multiprocessors.max(1) as usize,
                shared_bytes: shared_bytes.max(0) as usize,
                stream,
                copies,
                capturing: Mutex::default(),
                blas,
                mode: AtomicU8::new(ProductMode::default() as u8),
                tile_bytes: AtomicUsize::new(MIN_TILE_BYTES.max(total_memory / TILE_PART)),
                staging: Mutex::default(),
                modules: Mutex::default(),
                tables: Mutex::default(),
                pool,
                ahead_pool,
                context,
            }),
        })
    }

    /// Number of the device, from 0.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Name of the GPU.
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

    /// Number of multiprocessors.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.inner.multiprocessors
    }

    /// Most shared memory of a block, in bytes.
    pub(crate) fn shared_bytes(&self) -> usize {
        self.inner.shared_bytes
    }

    /// Bytes of memory on the GPU.
    pub fn total_memory(&self) -> usize {
        self.inner.total_memory
    }

    /// Memory use of all buffers.
    pub fn memory(&self) -> MemoryUse {
        let (compute, ahead) = (self.inner.pool.usage(), self.inner.ahead_pool.usage());
        MemoryUse {
            live: compute.live + ahead.live,
            peak: compute.peak + ahead.peak,
            held: compute.held + ahead.held,
            allocations: compute.allocations + ahead.allocations,
        }
    }

    /// Sets the peak of the memory use to the present use.
    pub fn reset_peak_memory(&self) {
        self.inner.pool.reset_peak();
        self.inner.ahead_pool.reset_peak();
    }

    /// Sets the memory of a tile, in bytes: the gathered rows of a convolution, or the logits of a
    /// classifier, that exist at one time.
    pub fn set_tile_bytes(&self, bytes: usize) {
        self.inner.tile_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Memory of a tile, in bytes.
    pub fn tile_bytes(&self) -> usize {
        self.inner.tile_bytes.load(Ordering::Relaxed)
    }

    /// A buffer of `length` values that are not initialised.
    pub fn buffer<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        let pool = match &self.lane {
            Lane::Compute => &self.inner.pool,
            Lane::Ahead => &self.inner.ahead_pool,
            Lane::Foreign(foreign) => &foreign.pool,
        };
        DeviceBuffer::new(pool, length)
    }

    /// A buffer of `length` values, all zero.
    pub fn zeros<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.buffer(length)?;
        self.clear(buffer.view_mut())?;
        Ok(buffer)
    }

    /// A copy of `values` on the device. `values` may be changed or freed as soon as this returns; the copy
    /// itself runs in stream order.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.buffer(values.len())?;
        self.write(buffer.view_mut(), values)?;
        Ok(buffer)
    }

    /// Copies `values` to a slice of the device, as [`upload`](Self::upload) does.
    pub fn write<T: Pod>(&self, to: DeviceSliceMut<'_, T>, values: &[T]) -> Result<()> {
        check_count("copy to the device", "values", values.len(), to.len())?;
        if values.is_empty() {
            return Ok(());
        }
        self.expect_no_capture("a copy from the host")?;
        self.bind()?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut staging = locked(&self.inner.staging);
        for (place, piece) in bytes.chunks(STAGED_BYTES).enumerate() {
            let address = to.address + (place * STAGED_BYTES) as u64;
            staging.copy(piece, address, self.stream())?;
        }
        Ok(())
    }

    /// Copies a slice to the host. Waits for all work queued before.
    pub fn read<T: Pod>(&self, from: DeviceSlice<'_, T>, values: &mut [T]) -> Result<()> {
        check_count("copy from the device", "values", values.len(), from.len())?;
        if values.is_empty() {
            return Ok(());
        }
        self.expect_no_capture("a copy to the host")?;
        self.bind()?;
        // SAFETY: both sides are as long as `values`, which outlives the wait below.
        driver("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), from.address, size_of_val(values), self.stream())
        })?;
        self.synchronise()
    }

    /// Copies a slice to another on the device, in stream order.
    pub fn copy<T: Pod>(&self, from: DeviceSlice<'_, T>, to: DeviceSliceMut<'_, T>) -> Result<()> {
        check_count("copy on the device", "destination", to.len(), from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: both slices are alive and as long as each other.
        driver("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.address, from.address, from.len() * size_of::<T>(), self.stream())
        })
    }

    /// Sets all bytes of a slice to zero, in stream order.
    pub fn clear<T: Pod>(&self, slice: DeviceSliceMut<'_, T>) -> Result<()> {
        if slice.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let bytes = slice.len() * size_of::<T>();
        // SAFETY: the slice is alive and this long.
        driver("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(slice.address, 0, bytes, self.stream()) })
    }

    /// Waits for all work queued so far.
    pub fn synchronise(&self) -> Result<()> {
        self.expect_no_capture("synchronisation")?;
        self.bind()?;
        // SAFETY: the stream is alive.
        driver("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream()) })
    }

    pub(super) fn bind(&self) -> Result<()> {
        self.inner.context.bind()
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        match &self.lane {
            Lane::Compute => self.inner.stream.handle(),
            Lane::Ahead => self.inner.copies.handle(),
            Lane::Foreign(foreign) => foreign.stream(),
        }
    }

    /// Fails while work of this lane is being captured.
    pub(super) fn expect_no_capture(&self, what: &'static str) -> Result<()> {
        match (&self.lane, &*locked(&self.inner.capturing)) {
            (Lane::Compute, Some(_)) => Err(CudaError::Capture { what }),
            (Lane::Foreign(foreign), _) => foreign.expect_no_capture(what),
            _ => Ok(()),
        }
    }

    /// Fails while another thread captures work of this lane.
    pub(super) fn expect_own_capture(&self) -> Result<()> {
        let current = || std::thread::current().id();
        match (&self.lane, &*locked(&self.inner.capturing)) {
            (Lane::Compute, Some(thread)) if *thread != current() => {
                Err(CudaError::Capture { what: "work of another thread" })
            }
            _ => Ok(()),
        }
    }

    /// The same device with its second stream, for copies that run beside the computation.
    ///
    /// Buffers uploaded through it may be used on the compute stream after
    /// [`wait_for`](Self::wait_for) an [`event`](Self::event) of this stream. Their memory is reused only
    /// after the compute work queued before they were dropped.
    pub fn ahead(&self) -> Self {
        Self { lane: Lane::Ahead, ..self.clone() }
    }

    /// True for the stream of copies that run ahead.
    pub fn is_ahead(&self) -> bool {
        matches!(self.lane, Lane::Ahead)
    }

    pub(super) fn blas(&self) -> &super::blas::Handle {
        &self.inner.blas
    }

    /// A value that depends only on settings, such as a table in device memory: made by the first call and
    /// kept as long as the device. Values are told apart by type, name and key.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn table<R: Send + Sync + 'static>(
        &self,
        name: &'static str,
        key: Vec<usize>,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        let key = (TypeId::of::<R>(), name, key);
        if let Some(table) = locked(&self.inner.tables).get(&key)
            && let Ok(table) = Arc::clone(table).downcast::<R>()
        {
            return Ok(table);
        }
        let table = Arc::new(make()?);
        if self.is_foreign() {
            // Calls on other streams may read it as soon as they find it.
            self.synchronise()?;
        }
        let erased: Arc<dyn Any + Send + Sync> = table.clone();
        locked(&self.inner.tables).insert(key, erased);
        Ok(table)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.bind().is_err() {
            return;
        }
        // SAFETY: both streams are alive. Nothing holds the device any more, so nothing new is queued.
        unsafe {
            sys::cuStreamSynchronize(self.copies.handle());
            sys::cuStreamSynchronize(self.stream.handle());
        }
        // What follows waits for the context.
        let _quiet = without_captures();
        locked(&self.staging).release();
        for module in locked(&self.modules).values() {
            module.unload();
        }
        self.blas.destroy();
    }
}
