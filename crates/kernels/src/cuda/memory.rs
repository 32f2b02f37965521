//! Device memory: a pool that keeps what is given back, and buffers and slices of it.
//!
//! All work goes to one stream, so memory given back may be handed out again at once: whoever gets it
//! runs after whoever had it. Copies that run ahead on a stream of their own have a pool of their own, where
//! they wait for that.

use super::error::driver;
use super::{CudaDevice, CudaError};
use bytemuck::Pod;
use cudarc::driver::sys;
use std::collections::{BTreeMap, HashSet};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

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
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is alive as long as `self`.
        driver("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.handle)
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// How much device memory a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Bytes in buffers that are alive.
    pub live: usize,
    /// The most bytes that were alive at once.
    pub peak: usize,
    /// Bytes held from the driver: alive, or kept for reuse.
    pub held: usize,
    /// How often the driver was asked for memory.
    pub allocations: usize,
}

/// Device memory that is kept for reuse.
#[derive(Debug)]
pub(super) struct Pool {
    context: Arc<Context>,
    lane: PoolLane,
    state: Mutex<PoolState>,
}

/// Whose work uses the memory of a pool.
#[derive(Debug)]
pub(super) enum PoolLane {
    /// One stream alone.
    Compute,
    /// Copies on their own stream fill it, and then one other stream uses it: who gets a block again has to
    /// wait for whoever used it last.
    Ahead {
        compute: sys::CUstream,
        copies: sys::CUstream,
    },
}

// SAFETY: streams may be used from any thread with the context current.
unsafe impl Send for PoolLane {}
// SAFETY: as above.
unsafe impl Sync for PoolLane {}

/// Memory from the driver.
#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    size: usize,
    /// Recorded on the compute stream when it was given back; null in the pool of that stream.
    released: sys::CUevent,
}

// SAFETY: the event may be used from any thread with the context current.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Blocks that are free, by their size.
type FreeBlocks = BTreeMap<usize, Vec<Block>>;

#[derive(Debug, Default)]
struct PoolState {
    free: FreeBlocks,
    usage: MemoryUse,
    captured: Option<CapturedBlocks>,
}

/// Blocks used by work that is being captured. Every replay uses them again, so no other work may.
#[derive(Debug)]
struct CapturedBlocks {
    thread: ThreadId,
    addresses: HashSet<u64>,
    free: FreeBlocks,
}

/// Free blocks that belong to a CUDA graph; they return to the pool with it.
#[derive(Debug)]
pub(super) struct KeptBlocks {
    pool: Arc<Pool>,
    blocks: FreeBlocks,
}

impl Drop for KeptBlocks {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        for (size, blocks) in std::mem::take(&mut self.blocks) {
            state.free.entry(size).or_default().extend(blocks);
        }
    }
}

/// Takes a block of the size or a little more.
fn fitting(free: &mut FreeBlocks, size: usize) -> Option<Block> {
    let (&size, blocks) = free.range_mut(size..=size + size / 4).next()?;
    let block = blocks.pop();
    if blocks.is_empty() {
        free.remove(&size);
    }
    block
}

impl Pool {
    pub fn new(context: Arc<Context>, lane: PoolLane) -> Self {
        Self {
            context,
            lane,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn usage(&self) -> MemoryUse {
        self.state().usage
    }

    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.usage.peak = state.usage.live;
    }

    /// Starts a capture: blocks that this thread takes from now on belong to it. Blocks given back to the
    /// pool of copies wait for its end, because an event on the compute stream would be captured.
    pub fn begin_capture(&self) {
        self.state().captured = Some(CapturedBlocks {
            thread: std::thread::current().id(),
            addresses: HashSet::new(),
            free: FreeBlocks::new(),
        });
    }

    /// Ends a capture and returns its blocks that no buffer holds.
    pub fn end_capture(self: &Arc<Self>) -> KeptBlocks {
        let mut state = self.state();
        let mut blocks = match state.captured.take() {
            Some(captured) => captured.free,
            None => FreeBlocks::new(),
        };
        if let PoolLane::Ahead { .. } = self.lane {
            for block in std::mem::take(&mut blocks).into_values().flatten() {
                self.release(&mut state, block);
            }
        }
        KeptBlocks {
            pool: Arc::clone(self),
            blocks,
        }
    }

    /// A block of at least `bytes`.
    fn take(&self, bytes: usize) -> Result<Block, CudaError> {
        let size = rounded(bytes);
        let mut state = self.state();
        let PoolState { free, captured, .. } = &mut *state;
        let mut own = match (captured, &self.lane) {
            (Some(captured), PoolLane::Compute)
                if captured.thread == std::thread::current().id() =>
            {
                Some(captured)
            }
            _ => None,
        };
        let reused = (own.as_mut().and_then(|own| fitting(&mut own.free, size)))
            .or_else(|| fitting(free, size));
        let of_capture = own.is_some();
        let block = match reused {
            Some(block) => block,
            None => self.allocate(&mut state, size)?,
        };
        if let PoolLane::Ahead { copies, .. } = self.lane {
            self.context.bind()?;
            // SAFETY: stream and event are alive.
            driver("cuStreamWaitEvent", unsafe {
                sys::cuStreamWaitEvent(copies, block.released, 0)
            })?;
        }
        if of_capture && let Some(captured) = &mut state.captured {
            captured.addresses.insert(block.address);
        }
        state.usage.live += block.size;
        state.usage.peak = state.usage.peak.max(state.usage.live);
        Ok(block)
    }

    fn allocate(&self, state: &mut PoolState, size: usize) -> Result<Block, CudaError> {
        self.context.bind()?;
        for attempt in 0..2 {
            let mut address = 0;
            // SAFETY: the context is current, and the place outlives the call.
            let status = unsafe { sys::cuMemAlloc_v2(&mut address, size) };
            if status != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                driver("cuMemAlloc", status)?;
                state.usage.held += size;
                state.usage.allocations += 1;
                let mut released = std::ptr::null_mut();
                if let PoolLane::Ahead { .. } = self.lane {
                    let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
                    // SAFETY: as above.
                    driver("cuEventCreate", unsafe {
                        sys::cuEventCreate(&mut released, flags)
                    })?;
                }
                return Ok(Block {
                    address,
                    size,
                    released,
                });
            }
            if attempt == 0 {
                self.free_all(state);
            }
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        driver("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&mut free, &mut total)
        })?;
        Err(CudaError::OutOfMemory {
            asked: size,
            free,
            total,
        })
    }

    /// Gives everything that is free back to the driver, which waits for the device first.
    fn free_all(&self, state: &mut PoolState) {
        for block in std::mem::take(&mut state.free).into_values().flatten() {
            // SAFETY: the block came from `cuMemAlloc`, its event if any from `cuEventCreate`, and nobody
            // holds them.
            unsafe {
                sys::cuMemFree_v2(block.address);
                if !block.released.is_null() {
                    sys::cuEventDestroy_v2(block.released);
                }
            }
            state.usage.held -= block.size;
        }
    }

    fn give_back(&self, block: Block) {
        let mut state = self.state();
        state.usage.live -= block.size;
        let of_copies = matches!(self.lane, PoolLane::Ahead { .. });
        match &mut state.captured {
            Some(captured) if of_copies || captured.addresses.contains(&block.address) => {
                captured.free.entry(block.size).or_default().push(block);
            }
            _ => self.release(&mut state, block),
        }
    }

    /// Lets others have a block, after the work so far.
    fn release(&self, state: &mut PoolState, block: Block) {
        if let PoolLane::Ahead { compute, .. } = self.lane {
            let recorded_event = self.context.bind().and_then(|()| {
                // SAFETY: stream and event are alive.
                driver("cuEventRecord", unsafe {
                    sys::cuEventRecord(block.released, compute)
                })
            });
            if recorded_event.is_err() {
                // A device that failed: nothing can be known of the block, so nobody gets it again.
                return;
            }
        }
        state.free.entry(block.size).or_default().push(block);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let mut state = std::mem::take(&mut *self.state());
            self.free_all(&mut state);
        }
    }
}

/// Sizes are rounded up, to 512 bytes below 1 MiB and to an eighth of a power of two above, so that
/// batches of nearly the same size share blocks.
fn rounded(bytes: usize) -> usize {
    let unit = if bytes <= 1 << 20 {
        512
    } else {
        bytes.next_power_of_two() / 8
    };
    bytes.div_ceil(unit).saturating_mul(unit).max(512)
}

/// Numbers in the memory of a device.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    pool: Arc<Pool>,
    /// None for no numbers.
    block: Option<Block>,
    length: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    pub(super) fn new(pool: &Arc<Pool>, length: usize) -> Result<Self, CudaError> {
        let bytes = length.saturating_mul(size_of::<T>());
        let block = match bytes {
            0 => None,
            bytes => Some(pool.take(bytes)?),
        };
        Ok(Self {
            pool: Arc::clone(pool),
            block,
            length,
            kind: PhantomData,
        })
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn address(&self) -> u64 {
        self.block.map_or(0, |block| block.address)
    }

    /// All numbers, to be read.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// All numbers, to be written.
    pub fn view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// Copies other numbers over these, after all work before. Whoever shares the buffer sees them in the
    /// work that follows.
    ///
    /// # Errors
    /// Another length, or a failed call.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), CudaError> {
        let place = DeviceSliceMut {
            address: self.address(),
            length: self.length,
            buffer: PhantomData,
        };
        device.copy(with.view(), place)
    }

    /// A copy, made after all work before.
    ///
    /// # Errors
    /// Too little memory.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self, CudaError> {
        let copy = device.buffer(self.length)?;
        copy.overwrite(device, self)?;
        Ok(copy)
    }

    /// Copies the numbers to the host, after all work before.
    ///
    /// # Errors
    /// `values` of another length, or work that failed.
    pub fn read(&self, device: &CudaDevice, values: &mut [T]) -> Result<(), CudaError> {
        device.read(self.view(), values)
    }

    /// The numbers, after all work before.
    ///
    /// # Errors
    /// Work that failed.
    pub fn to_vec(&self, device: &CudaDevice) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); self.length];
        self.read(device, &mut values)?;
        Ok(values)
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            self.pool.give_back(block);
        }
    }
}

/// A part of a buffer that is read.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    pub(super) address: u64,
    length: usize,
    buffer: PhantomData<&'a T>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T> DeviceSlice<'a, T> {
    /// No numbers.
    pub fn empty() -> Self {
        Self {
            address: 0,
            length: 0,
            buffer: PhantomData,
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Some of the numbers; ends beyond the last number are moved there.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length: end - start,
            buffer: PhantomData,
        }
    }

    /// Address in device memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether `count` numbers of four bytes can be loaded at once from the start.
    pub(crate) fn is_aligned(&self, count: usize) -> bool {
        self.address.is_multiple_of(4 * count as u64)
    }

    /// The numbers from one place on.
    pub(crate) fn from(self, start: usize) -> Self {
        self.slice(start..self.length)
    }
}

/// A part of a buffer that is written.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    pub(super) address: u64,
    length: usize,
    buffer: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// No numbers.
    pub fn empty() -> Self {
        Self {
            address: 0,
            length: 0,
            buffer: PhantomData,
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The same numbers, to be read.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice {
            address: self.address,
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// The same numbers for a shorter time.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut {
            address: self.address,
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// The first `count` numbers, or all if there are fewer, and the rest.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let count = count.min(self.length);
        let part = |start: usize, length: usize| Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length,
            buffer: PhantomData,
        };
        (part(0, count), part(count, self.length - count))
    }

    /// Some of the numbers; ends beyond the last number are moved there.
    pub fn slice(self, range: Range<usize>) -> Self {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        Self {
            address: self.address + (start * size_of::<T>()) as u64,
            length: end - start,
            buffer: PhantomData,
        }
    }
}

/// Pinned host memory that copies to the device go through, so that they need not wait.
#[derive(Debug, Default)]
pub(super) struct Staging {
    blocks: Vec<PinnedBlock>,
}

#[derive(Debug)]
struct PinnedBlock {
    address: *mut u8,
    size: usize,
    /// Recorded after the last copy out of it.
    copied: sys::CUevent,
}

// SAFETY: the memory belongs to the process and the event may be used from any thread with the
// context current.
unsafe impl Send for Staging {}

impl Staging {
    /// Smallest block.
    const LEAST: usize = 1 << 16;
    /// Most blocks; then the oldest one is waited for.
    const MOST: usize = 64;

    /// Copies bytes to the device on a stream; the context is current. The bytes are taken at once.
    pub fn copy(&mut self, bytes: &[u8], to: u64, stream: sys::CUstream) -> Result<(), CudaError> {
        let place = self.block(bytes.len())?;
        let block = &self.blocks[place];
        // SAFETY: the block is at least as long as the bytes, no copy out of it is under way, and it
        // stays alive and untouched until the event says that this copy is done.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.address, bytes.len());
            driver(
                "cuMemcpyHtoDAsync",
                sys::cuMemcpyHtoDAsync_v2(to, block.address.cast(), bytes.len(), stream),
            )?;
            driver("cuEventRecord", sys::cuEventRecord(block.copied, stream))
        }
    }

    /// A block of at least `size` bytes that no copy is reading.
    fn block(&mut self, size: usize) -> Result<usize, CudaError> {
        // SAFETY: the event is alive.
        let done = |block: &PinnedBlock| unsafe {
            sys::cuEventQuery(block.copied) == sys::CUresult::CUDA_SUCCESS
        };
        let fits = |block: &PinnedBlock| block.size >= size;
        if let Some(place) = (self.blocks.iter()).position(|block| fits(block) && done(block)) {
            return Ok(place);
        }
        if self.blocks.len() >= Self::MOST
            && let Some(place) = self.blocks.iter().position(fits)
        {
            // SAFETY: the event is alive.
            driver("cuEventSynchronize", unsafe {
                sys::cuEventSynchronize(self.blocks[place].copied)
            })?;
            return Ok(place);
        }
        let size = size.next_power_of_two().max(Self::LEAST);
        let (mut address, mut copied) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the context is current, and both places outlive the calls.
        unsafe {
            driver("cuMemHostAlloc", sys::cuMemHostAlloc(&mut address, size, 0))?;
            let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
            driver("cuEventCreate", sys::cuEventCreate(&mut copied, flags))?;
        }
        self.blocks.push(PinnedBlock {
            address: address.cast(),
            size,
            copied,
        });
        Ok(self.blocks.len() - 1)
    }

    /// Gives everything back; the context is current and the stream idle.
    pub fn release(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: nothing uses the block any more.
            unsafe {
                sys::cuEventDestroy_v2(block.copied);
                sys::cuMemFreeHost(block.address.cast());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn sizes_are_rounded_up_by_at_most_an_eighth_above_a_mebibyte() {
        assert_eq!((rounded(1), rounded(512), rounded(513)), (512, 512, 1024));
        for bytes in [(1 << 20) + 1, 5_000_000, 123_456_789, 1 << 32] {
            let size = rounded(bytes);
            assert!(size >= bytes && size <= bytes + bytes / 4, "{bytes} {size}");
        }
        assert!(rounded(usize::MAX / 2) >= usize::MAX / 2);
    }
}
