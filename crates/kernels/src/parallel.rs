//! Parallel loops on the current rayon pool whose results do not depend on its size.

use crate::Real;
use pulp::Arch;
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

/// Fewest rows worth a task of their own.
const LEAST_ROWS: usize = 64;

/// Calls `work(row, y_row)` for every row of `width` numbers of `y`.
pub(crate) fn for_rows<T: Real>(y: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if y.is_empty() {
        return;
    }
    let piece = piece_length(y.len() / width, LEAST_ROWS);
    let pieces = y.par_chunks_mut(piece * width).enumerate();
    pieces.for_each(|(index, rows)| {
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
        .for_each(|(index, total)| {
            for partial in rest.chunks_exact(length) {
                let start = index * 2048;
                for (sum, &term) in total.iter_mut().zip(&partial[start..]) {
                    *sum += term;
                }
            }
        });
    total
}
