//! Softmax cross-entropy over rows of logits.
//!
//! For logits `z` `[rows, classes]` and one label `y_v` for each row,
//!
//! ```text
//! loss = sum_v w_v (ln sum_k exp z_vk - sum_k t_vk z_vk) / sum_v w_v    over rows with a label
//! dz_vk = dloss * w_v (softmax(z_v)_k - t_vk) / sum_v w_v               0 in rows without one
//! t_vk = (1 - s) [k = y_v] + s / classes
//! ```
//!
//! where `w_v` is the weight of class `y_v` and `s` the label smoothing, 0 by default. Without class weights `w_v` is 1
//! and the loss is the mean over the counted rows. Rows labelled [`IGNORE`] are not counted. If no row is counted, or
//! all weights are 0, loss and gradient are 0. A NaN in a counted row makes the loss NaN.
//!
//! Nothing is saved: `backward` computes the softmax again. Sums over rows are taken in f64.

pub mod cuda;
mod fast;
pub(crate) mod softmax;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::error::NO_LABEL;
use crate::error::check_length;
use crate::{KernelError, Real};

pub use fast::{backward, forward, predict};

/// The label of a row that is not counted.
pub const IGNORE: u32 = NO_LABEL;

/// The targets of a classification on the host.
pub type Targets<'a, T> = ClassTargets<&'a [u32], &'a [T]>;

/// The targets of a classification, with labels `L` and weights `W` on the host or on a device.
#[derive(Debug, Clone, Copy)]
pub struct ClassTargets<L, W> {
    /// Number of classes.
    pub classes: usize,
    /// Class of each row, or [`IGNORE`].
    pub labels: L,
    /// Weight of each class, finite and not negative; `None` for 1.
    pub class_weights: Option<W>,
    /// Label smoothing, in [0, 1): the share of the target that is spread evenly over all classes.
    pub smoothing: f64,
}

/// The result of a classification.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Mean cross-entropy of the counted rows.
    pub loss: f64,
    /// Counted rows whose largest logit is that of their label; the lower class wins ties.
    pub correct: usize,
    /// Rows with a label.
    pub counted: usize,
}

impl<'a, T> Targets<'a, T> {
    /// Targets without class weights and smoothing.
    pub fn new(classes: usize, labels: &'a [u32]) -> Self {
        Self { classes, labels, class_weights: None, smoothing: 0.0 }
    }
}

impl<T: Real> Targets<'_, T> {
    pub(crate) fn check(&self, operator: &'static str) -> Result<(), KernelError> {
        let classes = self.classes;
        let outside = |label: u32| label != IGNORE && label as usize >= classes;
        if let Some(row) = self.labels.iter().position(|&label| outside(label)) {
            return Err(KernelError::Label { operator, row, label: self.labels[row], classes });
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            let problem = format!("smoothing {} must be at least 0 and below 1", self.smoothing);
            return Err(KernelError::Setting { operator, problem });
        }
        if let Some(weights) = self.class_weights {
            check_length(operator, "class_weights", weights, classes)?;
            let bad = |w: &T| !(w.is_finite() && *w >= T::zero());
            if let Some(class) = weights.iter().position(bad) {
                return Err(KernelError::Setting {
                    operator,
                    problem: format!(
                        "the weight of class {class} is {}, but weights must be finite and not negative",
                        weights[class]
                    ),
                });
            }
        }
        Ok(())
    }

    /// Weight of a row with this label in the sum of losses.
    pub(crate) fn weight(&self, label: u32) -> f64 {
        match self.class_weights {
            _ if label == IGNORE => 0.0,
            None => 1.0,
            Some(weights) => weights[label as usize].as_f64(),
        }
    }

    /// The part of the target that every class has.
    pub(crate) fn even_share(&self) -> f64 {
        self.smoothing / self.classes.max(1) as f64
    }

    /// Loss of a row, from its largest logit, the sum of exponentials relative to it, the logit of the label, and
    /// the sum of all logits, which is read only with smoothing.
    pub(crate) fn row_loss(&self, peak: f64, exponentials: f64, own: f64, sum: f64) -> f64 {
        let loss = exponentials.ln() + (peak - own);
        match self.smoothing {
            0.0 => loss,
            smoothing => loss + smoothing * (own - sum / self.classes as f64),
        }
    }

    /// `1 / sum_v w_v`, and 0 if no row counts.
    pub(crate) fn normaliser(&self) -> f64 {
        let total: f64 = self.labels.iter().map(|&label| self.weight(label)).sum();
        if total > 0.0 { total.recip() } else { 0.0 }
    }
}

/// Sums over some rows, before the division by the total weight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    weighted_loss: f64,
    correct: usize,
    counted: usize,
}

impl Tally {
    /// Counts a row with a label.
    pub(crate) fn count(&mut self, weight: f64, loss: f64, correct: bool) {
        // The loss of a class of weight 0 may be infinite: 0 * inf would be NaN.
        if weight > 0.0 {
            self.weighted_loss += weight * loss;
        }
        self.correct += usize::from(correct && !loss.is_nan());
        self.counted += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.weighted_loss += other.weighted_loss;
        self.correct += other.correct;
        self.counted += other.counted;
    }

    pub(crate) fn score(&self, normaliser: f64) -> Score {
        Score { loss: self.weighted_loss * normaliser, correct: self.correct, counted: self.counted }
    }
}

fn check<T: Real>(targets: &Targets<'_, T>, logits: &[T]) -> Result<(), KernelError> {
    const OPERATOR: &str = "cross-entropy";
    let rows = targets.labels.len();
    check_length(OPERATOR, "logits", logits, rows * targets.classes)?;
    targets.check(OPERATOR)
}
