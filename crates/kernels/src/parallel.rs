//! Parallel loops on the current rayon pool whose results do not depend on its size.

use crate::Real;
use pulp::Arch;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Vertices of a tile. Its working memory fits in the second-level cache, and it is a multiple of the row
/// blocks of every instruction set.
pub(crate) const TILE: usize = 72;

/// Largest number of partial sums of a reduction over vertices.
const MOST_PARTIAL_SUMS: usize = 32;

/// Vertices of each partial sum of a reduction: a multiple of the row blocks. Depends only on the number of
/// vertices, so that sums are the same for any number of threads.
pub(crate) fn reduction_block(vertices: usize) -> usize {
    vertices
        .div_ceil(MOST_PARTIAL_SUMS)
        .next_multiple_of(24)
        .max(TILE)
}

/// Largest number of pieces of [`piece_length`].
const MOST_PIECES: usize = 64;

/// Length of the pieces of a loop over `count` items: at least `least` (and 1), and such that there are at
/// most 64 pieces. Depends only on the sizes, so that sums over the pieces, added in order, are the same
/// for any number of threads.
pub(crate) fn piece_length(count: usize, least: usize) -> usize {
    count.div_ceil(MOST_PIECES).max(least).max(1)
}

/// Pieces of a [`Loop`] for each thread: free threads take what others have not begun.
const PIECES_PER_THREAD: usize = 8;

/// Loops over parallel iterators whose threads are compiled once.
///
/// `for_each` of rayon is compiled anew for each loop and number type, with all that threads need to share the work. That
/// was a quarter of the code of this crate.
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
            let mut place = pieces[index].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(piece) = place.take() {
                drop(place);
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
    (0..count).into_par_iter().for_each(work);
}

/// Fewest rows worth a task of their own.
const LEAST_ROWS: usize = 64;

/// Calls `work(row, y_row)` for every row of `width` numbers of `y`.
pub(crate) fn for_rows<T: Real>(y: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if y.is_empty() {
        return;
    }
    let piece = piece_length(y.len() / width, LEAST_ROWS);
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

/// Number of threads used for `items` pieces of work.
pub(crate) fn worker_count(items: usize) -> usize {
    rayon::current_num_threads().min(items).max(1)
}

/// Runs every item of `work` on a free worker. Each worker has its own memory.
pub(crate) fn spread<M: Send, I: Send>(
    memories: impl Iterator<Item = M> + Send,
    work: impl Iterator<Item = I> + Send,
    run: impl Fn(&mut M, I) + Sync,
) {
    let work = Mutex::new(work);
    rayon::scope(|scope| {
        for mut memory in memories {
            let (work, run) = (&work, &run);
            scope.spawn(move |_| {
                loop {
                    let item = work.lock().unwrap_or_else(PoisonError::into_inner).next();
                    match item {
                        Some(item) => run(&mut memory, item),
                        None => break,
                    }
                }
            });
        }
    });
}

/// Adds partial sums of equal length in order. The total overwrites the first.
pub(crate) fn sum_partials<T: Real>(partials: &mut [T], length: usize) -> &[T] {
    if length == 0 || partials.is_empty() {
        return &[];
    }
    let (total, rest) = partials.split_at_mut(length);
    total
        .par_chunks_mut(2048)
        .enumerate()
        .run(|(index, total)| {
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
                assert!(
                    visits
                        .iter()
                        .enumerate()
                        .all(|(index, &sum)| sum == 2 * index + 1)
                );
            }
        }
    }
}
