//! Copies from host memory that do not wait.

use super::Result;
use super::status::driver;
use cudarc::driver::sys;

/// Pinned host memory for copies to the device, so that the calling thread does not wait.
#[derive(Debug, Default)]
pub(super) struct Staging {
    blocks: Vec<PinnedBlock>,
}

#[derive(Debug)]
struct PinnedBlock {
    address: *mut u8,
    size: usize,
    /// Event recorded after the last copy from the block.
    copied: sys::CUevent,
}

// SAFETY: the memory belongs to the process and the event may be used from any thread with the
// context current.
unsafe impl Send for Staging {}

impl Staging {
    /// Smallest size of a block, in bytes.
    const LEAST: usize = 1 << 16;
    /// Largest number of blocks. Further copies wait for a block.
    const MOST: usize = 64;

    /// Copies bytes to the device on a stream. The context is current. `bytes` are read before this returns.
    pub fn copy(&mut self, bytes: &[u8], to: u64, stream: sys::CUstream) -> Result<()> {
        let place = self.block(bytes.len())?;
        let block = &self.blocks[place];
        // SAFETY: the block is at least as long as the bytes, no copy out of it is under way, and it
        // stays alive and untouched until the event says that this copy is done.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.address, bytes.len());
            driver("cuMemcpyHtoDAsync", sys::cuMemcpyHtoDAsync_v2(to, block.address.cast(), bytes.len(), stream))?;
            driver("cuEventRecord", sys::cuEventRecord(block.copied, stream))
        }
    }

    /// A block of at least `size` bytes that no copy is reading.
    fn block(&mut self, size: usize) -> Result<usize> {
        // SAFETY: the event is alive.
        let done = |block: &PinnedBlock| unsafe { sys::cuEventQuery(block.copied) == sys::CUresult::CUDA_SUCCESS };
        let fits = |block: &PinnedBlock| block.size >= size;
        if let Some(place) = (self.blocks.iter()).position(|block| fits(block) && done(block)) {
            return Ok(place);
        }
        if self.blocks.len() >= Self::MOST
            && let Some(place) = self.blocks.iter().position(fits)
        {
            // SAFETY: the event is alive.
            driver("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.blocks[place].copied) })?;
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
        self.blocks.push(PinnedBlock { address: address.cast(), size, copied });
        Ok(self.blocks.len() - 1)
    }

    /// Frees all blocks. The context is current and the streams are idle.
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
