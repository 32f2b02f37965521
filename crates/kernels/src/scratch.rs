//! Working memory that operators are handed, so that they allocate none themselves.

use crate::Real;

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

    /// `length` numbers of unspecified value.
    pub fn take(&mut self, length: usize) -> &mut [T] {
        if self.buffer.len() < length {
            self.buffer.resize(length, T::zero());
        }
        &mut self.buffer[..length]
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}
