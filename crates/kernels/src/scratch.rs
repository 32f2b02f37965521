//! Working memory of operators.

use crate::Real;
use crate::real::compiled;

const CACHE_LINE_BYTES: usize = 64;

/// Working memory that is passed to operators and reused. It grows to the largest size requested.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    buffer: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// An empty scratch buffer.
    pub fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// `length` values of unspecified content, aligned to a cache line.
    pub fn take(&mut self, length: usize) -> &mut [T] {
        let line = CACHE_LINE_BYTES / size_of::<T>();
        if self.buffer.len() < length + line {
            compiled!(resize as fn(&mut Vec<T>, usize))(&mut self.buffer, length + line);
        }
        let start = self
            .buffer
            .as_ptr()
            .align_offset(CACHE_LINE_BYTES)
            .min(line);
        &mut self.buffer[start..start + length]
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}

fn resize<T: Real>(buffer: &mut Vec<T>, length: usize) {
    buffer.resize(length, T::zero());
}
