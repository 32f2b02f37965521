//! The best row of one matrix for every row of another, in both directions, from one product.
//!
//! ```text
//! S = A B^T
//! for_a[i] = argmax_j S_ij - cost_b[j],   for_b[j] = argmax_i S_ij - cost_a[i]
//! ```
//!
//! With costs of half the squared norms these are the nearest rows. `S` exists for one block at a time: a product of
//! some rows of `A` with some rows of `B`, whose largest entries are found while it is in the cache. Of equal entries the
//! first counts. A row for which all entries are NaN has the index 0. f32, on the CPU only.

mod fast;
#[cfg(test)]
mod tests;

use crate::{KernelError, check_length};

const OPERATOR: &str = "best_pairs";

/// Overwrites `for_a` and `for_b` with the indices of the best rows.
///
/// ```
/// use gemcnn_kernels::best_pairs::BestPairs;
/// let (a, b) = ([1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 3.0, 0.0, 1.0, 1.0]);
/// let (mut for_a, mut for_b) = ([0; 2], [0; 3]);
/// BestPairs {
///     width: 2, a: &a, b: &b, cost_a: &[0.0; 2], cost_b: &[0.0; 3], for_a: &mut for_a, for_b: &mut for_b,
/// }
/// .on_host()?;
/// assert_eq!((for_a, for_b), ([1, 0], [1, 0, 0]));
/// # Ok::<(), gemcnn_kernels::KernelError>(())
/// ```
#[derive(Debug)]
pub struct BestPairs<'a> {
    /// Numbers in a row of both matrices.
    pub width: usize,
    /// First matrix, `[m, width]`.
    pub a: &'a [f32],
    /// Second matrix, `[n, width]`.
    pub b: &'a [f32],
    /// Cost of every row of `a` as a choice, `[m]`.
    pub cost_a: &'a [f32],
    /// Cost of every row of `b` as a choice, `[n]`.
    pub cost_b: &'a [f32],
    /// Best row of `b` for every row of `a`, `[m]`.
    pub for_a: &'a mut [u32],
    /// Best row of `a` for every row of `b`, `[n]`.
    pub for_b: &'a mut [u32],
}

impl BestPairs<'_> {
    /// Runs on the CPU. Results do not depend on the number of threads.
    ///
    /// # Errors
    /// A buffer of the wrong length, or one matrix without rows and the other with some.
    pub fn on_host(self) -> Result<(), KernelError> {
        self.check()?;
        fast::best_pairs(self);
        Ok(())
    }

    fn check(&self) -> Result<(), KernelError> {
        let (m, n) = (self.for_a.len(), self.for_b.len());
        check_length(OPERATOR, "a", self.a, m.saturating_mul(self.width))?;
        check_length(OPERATOR, "b", self.b, n.saturating_mul(self.width))?;
        check_length(OPERATOR, "cost_a", self.cost_a, m)?;
        check_length(OPERATOR, "cost_b", self.cost_b, n)?;
        if (m == 0) == (n == 0) && m.max(n) < u32::MAX as usize {
            return Ok(());
        }
        Err(KernelError::Setting {
            operator: OPERATOR,
            problem: format!("{m} and {n} rows; both matrices need rows, and fewer than {}", u32::MAX),
        })
    }
}
