//! Working memory of operators.

use crate::{Aligned, Real};

/// Working memory that is passed to operators and reused. It grows to the largest size requested.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    buffer: Aligned<T>,
}

impl<T: Real> Scratch<T> {
    /// An empty scratch buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// `length` values of unspecified content, aligned to a cache line.
    pub fn take(&mut self, length: usize) -> &mut [T] {
        if self.buffer.len() < length {
            self.buffer = Aligned::default();
            self.buffer = Aligned::zeros(length);
        }
        &mut self.buffer[..length]
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}
