//! Mean-square and L1 losses on feature maps of any type.
//!
//! With `d_v = x_v - t_v` the difference of prediction and target at vertex `v`,
//!
//! ```text
//! mean square:  loss = 1/n sum_v sum_i d_vi^2
//! L1:           loss = 1/n sum_v ( sum_c |d_vc| over scalars + sum_c |(a_vc, b_vc)| over irreps )
//! ```
//!
//! where `n` is the number of counted vertices and `(a, b)` the two components of one irrep of order above
//! 0: the mean over vertices of a sum over channels, not divided by the number of channels. A change of
//! gauge multiplies `d_v` by an orthogonal matrix that acts within irreps, so both losses are gauge
//! invariant; a sum of `|a| + |b|` would not be. Tangent vectors have type `1x1`.
//!
//! At `d = 0`, where the L1 loss has no gradient, the gradient is 0. If no vertex is counted, loss and
//! gradient are 0. Nothing is saved: `backward` reads prediction and target again. Sums over vertices are
//! taken in f64.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::error::check_length;
use crate::{FeatureType, KernelError};

pub use fast::{backward, forward};

/// Penalty of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Penalty {
    /// Squared length.
    MeanSquare,
    /// Absolute value of scalars, length of irreps of higher order.
    L1,
}

/// A loss on features of one type.
#[derive(Debug, Clone, Copy)]
pub struct Regression<'a> {
    /// Type of prediction and target.
    pub features: &'a FeatureType,
    /// Penalty of a difference.
    pub penalty: Penalty,
    /// Which vertices are counted; `None` for all.
    pub mask: Option<&'a [bool]>,
}

const OPERATOR: &str = "regression loss";

impl Regression<'_> {
    /// Checks sizes and returns the number of vertices.
    fn check<T>(&self, prediction: &[T], target: &[T]) -> Result<usize, KernelError> {
        let dimension = self.features.dimension();
        let vertices = match (self.mask, dimension) {
            (Some(mask), _) => mask.len(),
            (None, 0) => 0,
            (None, _) => prediction.len().div_ceil(dimension),
        };
        check_length(OPERATOR, "prediction", prediction, vertices * dimension)?;
        check_length(OPERATOR, "target", target, vertices * dimension)?;
        Ok(vertices)
    }

    fn counts(&self, vertex: usize) -> bool {
        self.mask.is_none_or(|mask| mask[vertex])
    }

    /// `1 / n`, and 0 if no vertex is counted.
    fn normaliser(&self, vertices: usize) -> f64 {
        match (0..vertices).filter(|&vertex| self.counts(vertex)).count() {
            0 => 0.0,
            counted => (counted as f64).recip(),
        }
    }
}
