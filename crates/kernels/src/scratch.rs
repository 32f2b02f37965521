//! Working memory that operators are handed, so that they allocate none themselves.

use crate::Real;

const CACHE_LINE_BYTES: usize = 64;

/// Memory that is kept from call to call and grows to the largest need it has met.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    buffer: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// No memory yet.
    pub fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// `length` numbers of unspecified value, starting on a cache line, so that no vector in a row
    /// of them straddles two.
    pub fn take(&mut self, length: usize) -> &mut [T] {
        let line = CACHE_LINE_BYTES / size_of::<T>();
        if self.buffer.len() < length + line {
            self.buffer.resize(length + line, T::zero());
        }
        let start = self
            .buffer
            .as_ptr()
            .align_offset(CACHE_LINE_BYTES)
            .min(line);
        &mut self.buffer[start..start + length]
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}
