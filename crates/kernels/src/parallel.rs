//! Parallel loops on the current rayon pool whose results do not depend on its size.

use crate::Real;
use pulp::Arch;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Vertices of a tile. Its working memory fits in the second-level cache, and it is a multiple of the row
/// blocks of every instruction set.
pub(crate) const TILE: usize = 72;

/// Largest number of partial sums of a reduction over vertices.
const MAX_PARTIAL_SUMS: usize = 32;

/// Vertices of each partial sum of a reduction: a multiple of the row blocks. Depends only on the number of
/// vertices, so that sums are the same for any number of threads.
pub(crate) fn reduction_block(vertices: usize) -> usize {
    vertices.div_ceil(MAX_PARTIAL_SUMS).next_multiple_of(24).max(TILE)
}

/// Largest number of pieces of [`piece_length`].
const MAX_PIECES: usize = 64;

/// Length of the pieces of a loop over `count` items: at least `least` (and 1), and such that there are at
/// most 64 pieces. Depends only on the sizes, so that sums over the pieces, added in order, are the same
/// for any number of threads.
pub(crate) fn piece_length(count: usize, least: usize) -> usize {
    count.div_ceil(MAX_PIECES).max(least).max(1)
}

/// Pieces of a [`Loop`] for each thread: free threads take what others have not begun.
const PIECES_PER_THREAD: usize = 8;

/// Loops over parallel iterators whose threads are compiled once.
///
/// `for_each` of rayon is compiled anew for each loop and number type, with all that threads need to share the work.
/// That was a quarter of the code of this crate.
pub trait Loop: IndexedParallelIterator {
    /// Calls `work` for every item, as `for_each` does.
    fn run(self, work: impl Fn(Self::Item) + Sync) {
        let length = self.len();
        self.with_producer(Work { length, work });
    }
}

impl<I: IndexedParallelIterator> Loop for I {}

struct Work<W> {
    length: usize,
    work: W,
}

impl<I, W: Fn(I) + Sync> ProducerCallback<I> for Work<W> {
    type Output = ();

    fn callback<P: Producer<Item = I>>(self, mut items: P) {
        let Self { length, work } = self;
        let threads = rayon::current_num_threads();
        let count = (PIECES_PER_THREAD * threads).min(length / items.min_len().max(1));
        if threads == 1 || count < 2 {
            return call_for_each(items, &work);
        }
        let piece = |index: usize| index * length / count;
        let mut pieces = Vec::with_capacity(count);
        for index in 1..count {
            let (first, rest) = items.split_at(piece(index) - piece(index - 1));
            pieces.push(Mutex::new(Some(first)));
            items = rest;
        }
        pieces.push(Mutex::new(Some(items)));
        in_parallel(count, &|index| {
            if let Some(piece) = take(&pieces[index]) {
                call_for_each(piece, &work);
            }
        });
    }
}

/// Not within its callers: `work` would be compiled twice.
#[inline(never)]
fn call_for_each<P: Producer>(items: P, work: &impl Fn(P::Item)) {
    items.into_iter().for_each(work);
}

/// Calls `work` with every number below `count`.
fn in_parallel(count: usize, work: &(dyn Fn(usize) + Sync)) {
    share(worker_count(count), count, &|_, items| items.for_each(work));
}

/// The first item of a part that no worker has begun, on cache lines of its own.
#[repr(align(128))]
struct Next(AtomicUsize);

/// Divides the items below `count` between workers: calls `work(worker, items)` for each worker.
///
/// There is one part per worker. A thread of the pool starts with the part of its own number, and then helps with the
/// others. So successive loops find the same rows in the caches of the same cores: cores that share no cache take
/// longer to fetch a row from each other than to compute it.
fn share(workers: usize, count: usize, work: &(dyn Fn(usize, &mut dyn Iterator<Item = usize>) + Sync)) {
    if workers < 2 {
        return work(0, &mut (0..count));
    }
    let start = |part: usize| part * count / workers;
    let next: Vec<Next> = (0..workers).map(|part| Next(start(part).into())).collect();
    let run = |worker: usize| {
        let own = rayon::current_thread_index().unwrap_or(worker);
        let parts = (own..own + workers).map(|part| part % workers);
        let mut items = parts.flat_map(|part| {
            let (next, end) = (&next[part].0, start(part + 1));
            let begin = || next.fetch_add(1, Ordering::Relaxed);
            std::iter::repeat_with(begin).take_while(move |&item| item < end)
        });
        work(worker, &mut items);
    };
    rayon::scope(|scope| {
        for worker in 1..workers {
            scope.spawn(move |_| run(worker));
        }
        run(0);
    });
}

/// Fewest rows worth a task of their own.
const MIN_ROWS: usize = 64;

/// Calls `work(row, y_row)` for every row of `width` numbers of `y`.
pub(crate) fn for_rows<T: Real>(y: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if y.is_empty() {
        return;
    }
    let piece = piece_length(y.len() / width, MIN_ROWS);
    let pieces = y.par_chunks_mut(piece * width).enumerate();
    pieces.run(|(index, rows)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (place, y) in rows.chunks_exact_mut(width).enumerate() {
                    work(index * piece + place, y);
                }
            },
        );
    });
}

/// Numbers between the memories of two workers.
const GAP: usize = 1 << 15;

/// Length of the memory of each worker if all need `length` numbers. Cores prefetch beyond the memory that they work
/// on. Without a gap, those cache lines belong to another worker, and the two cores take them from each other.
pub(crate) fn memory_length(workers: usize, length: usize) -> usize {
    match workers {
        0 | 1 => length,
        _ => length + GAP,
    }
}

/// Number of threads used for `items` pieces of work.
pub(crate) fn worker_count(items: usize) -> usize {
    rayon::current_num_threads().min(items).max(1)
}

/// Runs every item of `work` on one of the workers, each of which has its own memory.
pub(crate) fn spread<M: Send, I: Send>(
    memories: impl Iterator<Item = M>,
    work: impl Iterator<Item = I>,
    run: impl Fn(&mut M, I) + Sync,
) {
    let memories: Vec<_> = memories.map(Some).map(Mutex::new).collect();
    let items: Vec<_> = work.map(Some).map(Mutex::new).collect();
    share(memories.len(), items.len(), &|worker, places| {
        let Some(mut memory) = take(&memories[worker]) else { return };
        for item in places.filter_map(|place| take(&items[place])) {
            run(&mut memory, item);
        }
    });
}

fn take<I>(place: &Mutex<Option<I>>) -> Option<I> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Adds partial sums of equal length in order. The total overwrites the first.
pub(crate) fn sum_partials<T: Real>(partials: &mut [T], length: usize) -> &[T] {
    if length == 0 || partials.is_empty() {
        return &[];
    }
    let (total, rest) = partials.split_at_mut(length);
    total.par_chunks_mut(2048).enumerate().run(|(index, total)| {
        for partial in rest.chunks_exact(length) {
            let start = index * 2048;
            for (sum, &term) in total.iter_mut().zip(&partial[start..]) {
                *sum += term;
            }
        }
    });
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_loop_visits_every_item_once_in_its_place() {
        for (threads, least) in [(1, 1), (2, 1), (3, 40)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("a few threads can be started");
            for length in [0, 1, 2, 25, 1000] {
                let mut visits = vec![0; length];
                let numbers: Vec<usize> = (1..=length).collect();
                pool.install(|| {
                    let pairs = visits.par_iter_mut().zip(&numbers).enumerate();
                    pairs.with_min_len(least).run(|(index, (visit, number))| {
                        *visit += index + number;
                    });
                });
                assert!(visits.iter().enumerate().all(|(index, &sum)| sum == 2 * index + 1));
            }
        }
    }

    #[test]
    fn threads_begin_with_the_part_of_their_number() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        let pool = pool.expect("two threads can be started");
        let (both, met) = (Barrier::new(2), Mutex::new(Vec::new()));
        pool.install(|| {
            share(2, 10, &|worker, items| {
                let first = items.next();
                met.lock().unwrap().push((rayon::current_thread_index(), worker, first));
                both.wait();
                items.for_each(drop);
            });
        });
        let mut met = met.into_inner().unwrap();
        met.sort();
        assert_eq!(met[0].0.zip(met[0].2), Some((0, 0)));
        assert_eq!(met[1].0.zip(met[1].2), Some((1, 5)));
        assert_ne!(met[0].1, met[1].1);
    }

    #[test]
    fn every_item_is_spread_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
        let pool = pool.expect("three threads can be started");
        for (workers, items) in [(1, 5), (2, 0), (3, 1), (3, 100), (5, 7)] {
            let (mut counts, mut visits) = (vec![0; workers], vec![0; items]);
            pool.install(|| {
                spread(counts.iter_mut(), visits.iter_mut(), |count, visit| {
                    **count += 1;
                    *visit += 1;
                });
            });
            assert!(visits.iter().all(|&visits| visits == 1), "{visits:?}");
            assert_eq!(counts.iter().sum::<usize>(), items);
        }
    }
}
