//! A pool of buffers in main memory: buffers return to it when they are dropped.
//!
//! A training step requests the same buffers as the previous step, so after the first step the pool serves every
//! request from idle buffers. A request is served by an idle buffer that is at most a quarter too large, else by a
//! new allocation. The pool holds at most one and a half times the largest number of bytes ever in use at once.

use gemcnn_kernels::{Aligned, Real, compiled};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pool of buffers in main memory. Clones share the same buffers.
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
    store: Arc<Mutex<Store<T>>>,
}

/// Memory use of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Bytes of buffers in use.
    pub live_bytes: usize,
    /// Maximum of `live_bytes` so far.
    pub peak_bytes: usize,
    /// Bytes of idle buffers.
    pub idle_bytes: usize,
    /// Number of allocations.
    pub allocations: usize,
}

#[derive(Debug)]
struct Store<T> {
    /// Idle buffers by capacity.
    idle: BTreeMap<usize, Vec<Aligned<T>>>,
    usage: PoolUsage,
    /// Maximum of live bytes ever, which bounds the size of the pool.
    highest_live: usize,
}

impl<T: Real> Pool<T> {
    /// An empty pool.
    pub fn new() -> Self {
        Self {
            store: Arc::new(Mutex::new(Store { idle: BTreeMap::new(), usage: PoolUsage::default(), highest_live: 0 })),
        }
    }

    /// A buffer of `length` unspecified values.
    pub fn take(&self, length: usize) -> Buffer<T> {
        let mut values = self.lock().take(length);
        values.set_length(length);
        Buffer { values, pool: self.clone() }
    }

    /// A buffer of `length` zeros.
    pub fn zeros(&self, length: usize) -> Buffer<T> {
        let mut buffer = self.take(length);
        clear(&mut buffer);
        buffer
    }

    /// Current memory use.
    pub fn usage(&self) -> PoolUsage {
        self.lock().usage
    }

    /// The state is consistent after a panic of another thread, so a poisoned lock is ignored.
    fn lock(&self) -> MutexGuard<'_, Store<T>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Overwrites all values with 0.
pub(crate) fn clear<T: Real>(values: &mut [T]) {
    compiled!(fill_zero as fn(&mut [T]))(values);
}

fn fill_zero<T: Real>(values: &mut [T]) {
    values.fill(T::zero());
}

impl<T: Real> Default for Pool<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn bytes_of<T: Real>(values: &Aligned<T>) -> usize {
    values.capacity() * size_of::<T>()
}

impl<T: Real> Store<T> {
    fn take(&mut self, length: usize) -> Aligned<T> {
        let fitting = self.idle.range(length..=length + length / 4).next();
        let values = match fitting.map(|(&capacity, _)| capacity) {
            Some(capacity) => self.take_idle(capacity),
            None => {
                self.make_room(length * size_of::<T>());
                self.usage.allocations += 1;
                Aligned::zeros(length)
            }
        };
        self.usage.live_bytes += bytes_of(&values);
        self.usage.peak_bytes = self.usage.peak_bytes.max(self.usage.live_bytes);
        self.highest_live = self.highest_live.max(self.usage.live_bytes);
        values
    }

    fn take_idle(&mut self, capacity: usize) -> Aligned<T> {
        let Some(idle) = self.idle.get_mut(&capacity) else { return Aligned::default() };
        let values = idle.pop().unwrap_or_default();
        if idle.is_empty() {
            self.idle.remove(&capacity);
        }
        self.usage.idle_bytes -= bytes_of(&values);
        values
    }

    /// Frees idle buffers, the largest first, until a new one of `bytes` fits into the bound.
    fn make_room(&mut self, bytes: usize) {
        let most = self.highest_live.max(self.usage.live_bytes + bytes);
        while self.usage.live_bytes + self.usage.idle_bytes + bytes > most + most / 2
            && let Some((&capacity, _)) = self.idle.last_key_value()
        {
            drop(self.take_idle(capacity));
        }
    }

    fn put_back(&mut self, values: Aligned<T>) {
        let bytes = bytes_of(&values);
        self.usage.live_bytes -= bytes;
        if bytes > 0 {
            self.usage.idle_bytes += bytes;
            self.idle.entry(values.capacity()).or_default().push(values);
        }
    }
}

/// A buffer in main memory, aligned to a cache line, which returns to its pool when dropped.
#[derive(Debug)]
pub struct Buffer<T: Real> {
    values: Aligned<T>,
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
    fn repeated_requests_allocate_nothing() {
        let pool = Pool::<f32>::new();
        let step = || {
            let (a, b) = (pool.take(1000), pool.take(1000));
            drop(a);
            let (c, d) = (pool.zeros(500), pool.take(1000));
            assert!(c.iter().all(|&v| v == 0.0) && d.len() == 1000);
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
    fn changing_sizes_do_not_accumulate() {
        let pool = Pool::<f64>::new();
        for round in 0..100 {
            let length = 1000 + 37 * ((round * 71) % 100);
            let held = [pool.take(length), pool.take(length)];
            assert!(held.iter().all(|buffer| buffer.len() == length));
            let usage = pool.usage();
            let highest = 8 * 2 * (1000 + 37 * 99) * 5 / 4;
            assert!(usage.live_bytes + usage.idle_bytes <= highest * 3 / 2);
        }
    }

    #[test]
    fn a_much_larger_idle_buffer_is_not_used() {
        let pool = Pool::<f32>::new();
        drop(pool.take(1000));
        let small = pool.take(10);
        assert_eq!(pool.usage().live_bytes, 40);
        assert_eq!(small.len(), 10);
        let empty = pool.take(0);
        assert!(empty.is_empty());
    }
}
