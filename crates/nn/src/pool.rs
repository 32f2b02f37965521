//! Memory that is used again: buffers return to their pool when they are dropped.
//!
//! A training step asks for the same buffers as the step before, so after the first step the pool
//! serves every request from what it holds. Meshes of other sizes are served by a buffer that is at
//! most a quarter too large, else by a new one; what the pool holds stays below one and a half times
//! the most that was ever in use at once.

use gemcnn_kernels::Real;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A source of buffers in main memory; clones share it.
///
/// ```
/// use gemcnn_nn::Pool;
/// let pool = Pool::<f32>::new();
/// let first = pool.zeros(1000);
/// drop(first);
/// let again = pool.zeros(1000);
/// assert_eq!(pool.usage().allocations, 1);
/// assert_eq!(pool.usage().live_bytes, 4000);
/// # drop(again);
/// ```
#[derive(Debug, Clone)]
pub struct Pool<T> {
    shelves: Arc<Mutex<Shelves<T>>>,
}

/// What a pool has handed out and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Bytes in buffers that somebody holds now.
    pub live_bytes: usize,
    /// The most that `live_bytes` has been since the last [`Pool::reset_peak`].
    pub peak_bytes: usize,
    /// Bytes in buffers that wait to be used again.
    pub idle_bytes: usize,
    /// How often memory was taken from the system.
    pub allocations: usize,
}

#[derive(Debug)]
struct Shelves<T> {
    /// Idle buffers by capacity.
    idle: BTreeMap<usize, Vec<Vec<T>>>,
    usage: PoolUsage,
    /// The most that was ever live: the measure of how much may be held.
    highest_live: usize,
}

impl<T: Real> Pool<T> {
    /// An empty pool.
    pub fn new() -> Self {
        Self {
            shelves: Arc::new(Mutex::new(Shelves {
                idle: BTreeMap::new(),
                usage: PoolUsage::default(),
                highest_live: 0,
            })),
        }
    }

    /// A buffer of `length` numbers of unspecified value.
    pub fn take(&self, length: usize) -> Buffer<T> {
        let mut values = self.lock().take(length);
        values.resize(length, T::zero());
        Buffer {
            values,
            pool: self.clone(),
        }
    }

    /// A buffer of `length` zeros.
    pub fn zeros(&self, length: usize) -> Buffer<T> {
        let mut buffer = self.take(length);
        buffer.fill(T::zero());
        buffer
    }

    /// A buffer that holds a copy of `values`.
    pub fn copy(&self, values: &[T]) -> Buffer<T> {
        let mut buffer = self.take(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// What is in use, what waits and how often memory was taken from the system.
    pub fn usage(&self) -> PoolUsage {
        self.lock().usage
    }

    /// Starts measuring the peak anew from what is in use now.
    pub fn reset_peak(&self) {
        let mut shelves = self.lock();
        shelves.usage.peak_bytes = shelves.usage.live_bytes;
    }

    /// Gives all waiting buffers back to the system.
    pub fn release_idle(&self) {
        let mut shelves = self.lock();
        shelves.idle.clear();
        shelves.usage.idle_bytes = 0;
    }

    /// A panic elsewhere leaves the shelves sound, so a poisoned lock is taken all the same.
    fn lock(&self) -> MutexGuard<'_, Shelves<T>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Real> Default for Pool<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn bytes_of<T>(values: &Vec<T>) -> usize {
    values.capacity() * size_of::<T>()
}

impl<T> Shelves<T> {
    fn take(&mut self, length: usize) -> Vec<T> {
        let fitting = self.idle.range(length..=length + length / 4).next();
        let values = match fitting.map(|(&capacity, _)| capacity) {
            Some(capacity) => self.take_idle(capacity),
            None => {
                self.make_room(length * size_of::<T>());
                self.usage.allocations += 1;
                Vec::with_capacity(length)
            }
        };
        self.usage.live_bytes += bytes_of(&values);
        self.usage.peak_bytes = self.usage.peak_bytes.max(self.usage.live_bytes);
        self.highest_live = self.highest_live.max(self.usage.live_bytes);
        values
    }

    fn take_idle(&mut self, capacity: usize) -> Vec<T> {
        let Some(shelf) = self.idle.get_mut(&capacity) else {
            return Vec::new();
        };
        let values = shelf.pop().unwrap_or_default();
        if shelf.is_empty() {
            self.idle.remove(&capacity);
        }
        self.usage.idle_bytes -= bytes_of(&values);
        values
    }

    /// Drops idle buffers, the largest first, while a new one would let the pool grow too large.
    fn make_room(&mut self, bytes: usize) {
        let most = self.highest_live.max(self.usage.live_bytes + bytes);
        while self.usage.live_bytes + self.usage.idle_bytes + bytes > most + most / 2
            && let Some((&capacity, _)) = self.idle.last_key_value()
        {
            drop(self.take_idle(capacity));
        }
    }

    fn put_back(&mut self, values: Vec<T>) {
        let bytes = bytes_of(&values);
        self.usage.live_bytes -= bytes;
        if bytes > 0 {
            self.usage.idle_bytes += bytes;
            self.idle.entry(values.capacity()).or_default().push(values);
        }
    }
}

/// Numbers in main memory, which return to their pool when dropped.
#[derive(Debug)]
pub struct Buffer<T: Real> {
    values: Vec<T>,
    pool: Pool<T>,
}

impl<T: Real> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: Real> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T: Real> Drop for Buffer<T> {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        self.pool.lock().put_back(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_requests_again_allocate_nothing() {
        let pool = Pool::<f32>::new();
        let step = || {
            let (a, b) = (pool.take(1000), pool.take(1000));
            drop(a);
            let c = pool.zeros(500);
            let d = pool.copy(&[1.0; 1000]);
            assert!(c.iter().all(|&v| v == 0.0) && d.iter().all(|&v| v == 1.0));
            drop(b);
        };
        step();
        let first = pool.usage();
        assert_eq!(first.allocations, 3);
        assert_eq!(first.live_bytes, 0);
        assert_eq!(first.peak_bytes, 4 * 2500);
        step();
        step();
        assert_eq!(pool.usage(), first);
    }

    #[test]
    fn changing_sizes_do_not_pile_up() {
        let pool = Pool::<f64>::new();
        for round in 0..100 {
            let length = 1000 + 37 * ((round * 71) % 100);
            let held = [pool.take(length), pool.take(length)];
            assert!(held.iter().all(|buffer| buffer.len() == length));
            let usage = pool.usage();
            let highest = 8 * 2 * (1000 + 37 * 99) * 5 / 4;
            assert!(usage.live_bytes + usage.idle_bytes <= highest * 3 / 2);
        }
        pool.release_idle();
        assert_eq!(pool.usage().idle_bytes, 0);
    }

    #[test]
    fn a_much_larger_idle_buffer_is_left_alone() {
        let pool = Pool::<f32>::new();
        drop(pool.take(1000));
        let small = pool.take(10);
        assert_eq!(pool.usage().live_bytes, 40);
        assert_eq!(small.len(), 10);
        let empty = pool.take(0);
        assert!(empty.is_empty());
    }
}
