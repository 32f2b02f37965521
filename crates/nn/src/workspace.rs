//! The memory that steps share.

use crate::{Device, Pool};
use gemcnn_kernels::{Real, Scratch};

/// The pool of buffers and the working memory of operators, kept from step to step. Each
/// [`Tape`](crate::Tape) borrows one, so that after the first step nothing large is allocated.
#[derive(Debug)]
pub struct Workspace<T> {
    pub(crate) pool: Pool<T>,
    pub(crate) scratch: Scratch<T>,
    /// For statistics, which are summed up in f64 whatever the features are.
    pub(crate) wide_scratch: Scratch<f64>,
}

impl<T: Real> Workspace<T> {
    /// Empty memory on a device.
    pub fn new(device: Device) -> Self {
        Self {
            pool: Pool::new(device),
            scratch: Scratch::new(),
            wide_scratch: Scratch::new(),
        }
    }

    /// The pool of feature buffers.
    pub fn pool(&self) -> &Pool<T> {
        &self.pool
    }

    /// Bytes of working memory that operators have needed.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.wide_scratch.bytes()
    }
}

impl<T: Real> Default for Workspace<T> {
    fn default() -> Self {
        Self::new(Device::Cpu)
    }
}
