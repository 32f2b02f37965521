//! Products of blocks, and the largest entries of their rows and columns.

use super::BestPairs;
use crate::parallel::{Loop, memory_length, spread, worker_count};
use crate::{Destination, Matrix, MatrixMut, product};
use pulp::Arch;
use rayon::prelude::*;

/// Rows of `a` of a block: with its columns it fits in the second-level cache.
const ROWS: usize = 192;
/// Rows of `b` of a block: a multiple of `LANES`.
const COLUMNS: usize = 512;
/// Numbers that are compared at a time.
const LANES: usize = 16;

/// The largest entry of a row or column so far, and its index.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    index: u32,
}

const NONE: Best = Best { score: f32::NEG_INFINITY, index: 0 };

pub(super) fn best_pairs(BestPairs { width, a, b, cost_a, cost_b, for_a, for_b }: BestPairs<'_>) {
    if for_a.is_empty() {
        return;
    }
    let (n, blocks) = (for_b.len(), for_a.len().div_ceil(ROWS));
    // The best of each block of rows for every column. The first of equal ones is found for any order of the blocks.
    let mut scores = vec![f32::NEG_INFINITY; blocks * n];
    let mut indices = vec![0; blocks * n];
    let workers = worker_count(blocks);
    let length = memory_length(workers, ROWS * COLUMNS);
    let mut memory = vec![0.0f32; workers * length];
    let work = for_a.chunks_mut(ROWS).zip(scores.chunks_mut(n)).zip(indices.chunks_mut(n)).enumerate();
    spread(memory.chunks_mut(length), work, |memory, (block, ((for_a, scores), indices))| {
        let first = block * ROWS;
        let rows = for_a.len();
        let left = Matrix::new(&a[first * width..], rows, width, width);
        let mut best = [NONE; ROWS];
        let panels = cost_b.chunks(COLUMNS).zip(scores.chunks_mut(COLUMNS)).zip(indices.chunks_mut(COLUMNS));
        for (panel, ((cost_b, scores), indices)) in panels.enumerate() {
            let columns = cost_b.len();
            let right = Matrix::new(&b[panel * COLUMNS * width..], columns, width, width).transposed();
            product(&mut MatrixMut::new(memory, rows, columns, COLUMNS), Destination::Set, left, right);
            let cost_a = &cost_a[first..first + rows];
            let columns = Columns { first: panel * COLUMNS, cost: cost_b, scores, indices };
            Arch::new().dispatch(
                #[inline(always)]
                || columns.compare(memory, first, cost_a, &mut best),
            );
        }
        for (index, best) in for_a.iter_mut().zip(&best) {
            *index = best.index;
        }
    });
    let columns = for_b.par_chunks_mut(COLUMNS).enumerate();
    columns.run(|(panel, for_b)| {
        for (place, index) in (panel * COLUMNS..).zip(for_b) {
            let mut best = NONE;
            for block in 0..blocks {
                let at = block * n + place;
                if scores[at] > best.score {
                    best = Best { score: scores[at], index: indices[at] };
                }
            }
            *index = best.index;
        }
    });
}

/// The columns of a block of scores: the index of the first one, their costs, and the best of each with its index.
struct Columns<'a> {
    first: usize,
    cost: &'a [f32],
    scores: &'a mut [f32],
    indices: &'a mut [u32],
}

impl Columns<'_> {
    /// Compares the rows of a block, starting at row `first`, with the best so far of every row and column.
    #[inline(always)]
    fn compare(self, block: &[f32], first: usize, cost_a: &[f32], best: &mut [Best; ROWS]) {
        let Self { first: first_column, cost, scores, indices } = self;
        let whole = cost.len() / LANES * LANES;
        let (cost, rest) = cost.split_at(whole);
        let (scores, rest_scores) = scores.split_at_mut(whole);
        let (indices, rest_indices) = indices.split_at_mut(whole);
        let rows = block.chunks(COLUMNS).zip(cost_a).zip(best).zip(first as u32..);
        for (((row, &cost_a), best), index) in rows {
            let mut highest = [f32::NEG_INFINITY; LANES];
            let chunks = row.chunks_exact(LANES).zip(cost.chunks_exact(LANES));
            let chunks = chunks.zip(scores.chunks_exact_mut(LANES)).zip(indices.chunks_exact_mut(LANES));
            for (((row, cost), scores), indices) in chunks {
                for lane in 0..LANES {
                    let for_row = row[lane] - cost[lane];
                    highest[lane] = if for_row > highest[lane] { for_row } else { highest[lane] };
                    let for_column = row[lane] - cost_a;
                    let is_better = for_column > scores[lane];
                    scores[lane] = if is_better { for_column } else { scores[lane] };
                    indices[lane] = if is_better { index } else { indices[lane] };
                }
            }
            let highest = highest.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
            if highest > best.score {
                let place = row.iter().zip(cost).position(|(score, cost)| score - cost == highest).unwrap_or(0);
                *best = Best { score: highest, index: (first_column + place) as u32 };
            }
            let rest = (whole..).zip(&row[whole..]).zip(rest);
            let rest = rest.zip(&mut *rest_scores).zip(&mut *rest_indices);
            for ((((place, &score), &cost), best_score), best_index) in rest {
                if score - cost > best.score {
                    *best = Best { score: score - cost, index: (first_column + place) as u32 };
                }
                if score - cost_a > *best_score {
                    (*best_score, *best_index) = (score - cost_a, index);
                }
            }
        }
    }
}
