//! Memory whose first number starts a cache line.

use crate::Real;
use crate::real::compiled;
use std::ops::{Deref, DerefMut};

const CACHE_LINE_BYTES: usize = 64;

/// Numbers that start at a cache line. A vector of AVX-512 is a whole line: without alignment, every vector would be
/// read from two lines.
#[derive(Debug, Default)]
pub struct Aligned<T> {
    buffer: Vec<T>,
    start: usize,
    length: usize,
}

impl<T: Real> Aligned<T> {
    /// `length` zeros.
    pub fn zeros(length: usize) -> Self {
        if length == 0 {
            return Self::default();
        }
        let line = CACHE_LINE_BYTES / size_of::<T>();
        let buffer = compiled!(zeros as fn(usize) -> Vec<T>)(length + line);
        let start = buffer.as_ptr().align_offset(CACHE_LINE_BYTES).min(line);
        Self { buffer, start, length }
    }

    /// The greatest length for which there is memory.
    pub fn capacity(&self) -> usize {
        let line = CACHE_LINE_BYTES / size_of::<T>();
        self.buffer.len().saturating_sub(line)
    }

    /// Sets the length. Further numbers have unspecified values.
    ///
    /// # Panics
    /// If `length` is above the [capacity](Self::capacity).
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.capacity());
        self.length = length;
    }
}

fn zeros<T: Real>(length: usize) -> Vec<T> {
    vec![T::zero(); length]
}

impl<T: Real> From<&[T]> for Aligned<T> {
    fn from(values: &[T]) -> Self {
        let mut copy = Self::zeros(values.len());
        copy.copy_from_slice(values);
        copy
    }
}

impl<T: Real> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer[self.start..self.start + self.length]
    }
}

impl<T: Real> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_a_cache_line() {
        for length in [0, 1, 16, 1000] {
            let mut numbers = Aligned::from(&vec![1.0f32; length][..]);
            assert!(numbers.len() == length && numbers.capacity() == length);
            assert!(length == 0 || numbers.as_ptr().addr().is_multiple_of(CACHE_LINE_BYTES));
            numbers.set_length(length / 2);
            assert!(numbers.iter().all(|&number| number == 1.0));
            assert_eq!(numbers.len(), length / 2);
        }
    }
}
