//! The layout of products of rows in shared memory on tensor cores, as `gather.cu` reads it.
//!
//! Gain on an H200 (`bench/compare`): with rows in memory and cuBLAS a training step of `mnist` takes 10 % longer, one of
//! `correspondence` on one mesh 5 %.

use super::OPERATOR;
use crate::KernelError;
use crate::cuda::to_u32;

/// Terms of one step of a product, and columns of the result.
const STEP: usize = 16;

/// Products of rows with matrices, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// `(start, steps, weights, first, count)` for every 16 columns of a result.
    pub columns: Vec<[u32; 8]>,
    /// Length of the stacked weights, with zeros for the terms and columns that complete a step.
    pub weights: usize,
    /// `(place in the stacked weights, weight, negative)`.
    pub parts: Vec<(usize, usize, bool)>,
}

impl Fragments {
    /// Adds the product of `terms` numbers of a row, starting at `start`, with a `[terms, width]` matrix to the result,
    /// starting at `result`. `entry` gives the weight at a place of the matrix, and whether it is negated; `None` is
    /// zero. Returns the end of the numbers of a row that are read.
    pub fn add(
        &mut self,
        (start, terms): (usize, usize),
        (result, width): (usize, usize),
        entry: impl Fn(usize, usize) -> Option<(usize, bool)>,
    ) -> Result<usize, KernelError> {
        let steps = terms.div_ceil(STEP);
        for first in (0..width).step_by(STEP) {
            let count = STEP.min(width - first);
            let mut columns = [0; 8];
            let numbers = [start, steps, self.weights / 4, result + first, count];
            for (entry, value) in columns.iter_mut().zip(numbers) {
                *entry = to_u32(OPERATOR, value)?;
            }
            self.columns.push(columns);
            for term in 0..terms {
                for column in 0..count {
                    if let Some((weight, negative)) = entry(term, first + column) {
                        let place = self.weights + fragment_place(term, column);
                        self.parts.push((place, weight, negative));
                    }
                }
            }
            self.weights += steps * STEP * STEP;
        }
        Ok(start + steps * STEP)
    }
}

/// The stride of rows of which `reach` numbers are read: rows start 4 banks apart, so that 8 rows by 4 terms are read
/// at once.
pub(crate) fn row_stride(reach: usize) -> usize {
    (reach + 3) / 8 * 8 + 4
}

/// Index of a weight among those of its 16 columns: lane `4 g + t` of half `h` takes the terms `t`, `t + 4`,
/// `t + 8` and `t + 12` of each step for the column `8 h + g`, one after the other.
fn fragment_place(term: usize, column: usize) -> usize {
    let (step, term) = (term / STEP, term % STEP);
    let (half, g) = (column / 8, column % 8);
    ((step * 2 + half) * 32 + 4 * g + term % 4) * 4 + term / 4
}
