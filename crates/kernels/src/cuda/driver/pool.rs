//! Device memory that is kept for reuse.
//!
//! All work of a pool goes to one stream, so a block that is given back may be handed out at once: its next
//! user runs after its last. Copies that run ahead on a stream of their own have a pool of their own, where
//! the next user waits for an event.

use super::context::{Context, Stream};
use super::status::driver;
use super::{CudaError, DeviceMemory, MemoryUse, Result};
use cudarc::driver::sys;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// Device memory that is kept for reuse.
#[derive(Debug)]
pub(in crate::cuda) struct Pool {
    context: Arc<Context>,
    lane: PoolLane,
    state: Mutex<PoolState>,
}

/// Whose work uses the memory of a pool.
#[derive(Debug)]
pub(super) enum PoolLane {
    /// One stream alone.
    Compute,
    /// Copies on their own stream fill a block, and then the compute stream uses it: a block is reused
    /// after the work that used it last.
    Ahead { compute: Arc<Stream>, copies: Arc<Stream> },
    /// Memory of the caller, for work on one stream. Nothing is kept here.
    Foreign { memory: Arc<dyn DeviceMemory>, stream: usize },
}

/// An allocation of the driver.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) struct Block {
    pub address: u64,
    size: usize,
    /// Event on the compute stream, recorded when the block was given back; null in the pool of that stream.
    released: sys::CUevent,
}

// SAFETY: the event may be used from any thread with the context current.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Free blocks by size.
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

/// Takes a free block of `size` to 1.25 `size` bytes.
fn fitting(free: &mut FreeBlocks, size: usize) -> Option<Block> {
    let (&size, blocks) = free.range_mut(size..=size + size / 4).next()?;
    let block = blocks.pop();
    if blocks.is_empty() {
        free.remove(&size);
    }
    block
}

impl Pool {
    pub(super) fn new(context: Arc<Context>, lane: PoolLane) -> Self {
        Self { context, lane, state: Mutex::default() }
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
    pub(super) fn end_capture(self: &Arc<Self>) -> KeptBlocks {
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
        KeptBlocks { pool: Arc::clone(self), blocks }
    }

    /// A block of at least `bytes`.
    pub fn take(&self, bytes: usize) -> Result<Block> {
        if let PoolLane::Foreign { memory, stream } = &self.lane {
            self.context.bind()?;
            let address = memory.allocate(bytes, *stream as *mut _);
            return Ok(Block {
                address: address.map_err(|problem| CudaError::Call { call: "the allocator of the caller", problem })?,
                size: bytes,
                released: std::ptr::null_mut(),
            });
        }
        let size = rounded(bytes);
        let mut state = self.state();
        let PoolState { free, captured, .. } = &mut *state;
        let mut own = match (captured, &self.lane) {
            (Some(captured), PoolLane::Compute) if captured.thread == std::thread::current().id() => Some(captured),
            _ => None,
        };
        let reused = (own.as_mut().and_then(|own| fitting(&mut own.free, size))).or_else(|| fitting(free, size));
        let of_capture = own.is_some();
        let block = match reused {
            Some(block) => block,
            None => self.allocate(&mut state, size)?,
        };
        if let PoolLane::Ahead { copies, .. } = &self.lane {
            self.context.bind()?;
            // SAFETY: stream and event are alive.
            driver("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(copies.handle(), block.released, 0) })?;
        }
        if of_capture && let Some(captured) = &mut state.captured {
            captured.addresses.insert(block.address);
        }
        state.usage.live += block.size;
        state.usage.peak = state.usage.peak.max(state.usage.live);
        Ok(block)
    }

    fn allocate(&self, state: &mut PoolState, size: usize) -> Result<Block> {
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
                    driver("cuEventCreate", unsafe { sys::cuEventCreate(&mut released, flags) })?;
                }
                return Ok(Block { address, size, released });
            }
            if attempt == 0 {
                self.free_all(state);
            }
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        driver("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Err(CudaError::OutOfMemory { asked: size, free, total })
    }

    /// Returns all free blocks to the driver, which first waits for the device.
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

    pub fn give_back(&self, block: Block) {
        if let PoolLane::Foreign { memory, .. } = &self.lane {
            return memory.free(block.address);
        }
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

    /// Makes a block available to work queued from now on.
    fn release(&self, state: &mut PoolState, block: Block) {
        if let PoolLane::Ahead { compute, .. } = &self.lane {
            let recorded_event = self.context.bind().and_then(|()| {
                // SAFETY: stream and event are alive.
                driver("cuEventRecord", unsafe { sys::cuEventRecord(block.released, compute.handle()) })
            });
            if recorded_event.is_err() {
                // The device failed. The block may still be in use, so it is never reused.
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

/// Sizes are rounded up to multiples of 512 bytes, above 1 MiB to eighths of a power of two, so that batches
/// of similar size share blocks.
fn rounded(bytes: usize) -> usize {
    let unit = if bytes <= 1 << 20 { 512 } else { bytes.next_power_of_two() / 8 };
    bytes.div_ceil(unit).saturating_mul(unit).max(512)
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
