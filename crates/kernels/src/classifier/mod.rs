//! The last linear layer of a classifier, fused with softmax cross-entropy.
//!
//! For features `h` `[rows, channels]`, weights `W` `[classes, channels]` and bias `b` the logits are
//! `z = h W^T + b`, and the loss is that of [`cross_entropy`](crate::cross_entropy). With
//! `P = dloss/dz` the gradients are
//!
//! ```text
//! dh = P W        dW = P^T h        db = sum_v P_v
//! ```
//!
//! Fused: logits, softmax and all three products, in one pass over tiles of at most 512 rows. The full
//! `rows x classes` logits are never stored: a tile of them is computed in scratch memory, replaced by `P`
//! in place, used by both products, and overwritten by the next tile. Nothing is saved and nothing is
//! recomputed, because the loss is the last step: its gradient is known together with its value.
//!
//! A tile is stored in blocks of 256 classes, each `[rows of the tile, classes of the block]`. A task owns
//! a block: it computes the logits, the maximum and the sum of exponentials of its part of every row, and
//! later the same rows of `dW`. The parts of a row are combined in between. With few classes there are few
//! blocks; then tasks are slabs of rows, each with its own `dW`, added in order. Both numbers depend only
//! on the sizes, so results do not depend on the number of threads.
//!
//! In training with [`ProductMode::Bf16`](crate::cuda::ProductMode) the factors of the three products are rounded to
//! bf16 on a CPU and on Hopper: features, weights and `P`. Softmax, logits, sums and results stay in f32. With
//! [`ProductMode::Tf32`](crate::cuda::ProductMode) they are rounded to 10 bits of mantissa on a GPU, on Hopper in fp16 with
//! scales; where Hopper's kernels do not apply, `Bf16` means the same on a GPU. Products of at most 32 classes take little
//! time. On a GPU they are in f32 with any of the three, unless there are too many channels for one kernel to do all the
//! work.

mod bf16_factors;
pub mod cuda;
mod fast;
pub(crate) mod few_classes;
pub(crate) mod hopper;
mod plan;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::cross_entropy::Targets;
use crate::cross_entropy::cuda::FEW_CLASSES;
use crate::cuda::ProductMode;
use crate::error::check_length;
use crate::{KernelError, Real};

pub use fast::{evaluate, loss_and_gradients};

/// A linear map to classes with weights `S`, and the labels `L` of the rows.
#[derive(Debug, Clone, Copy)]
pub struct Map<S, L> {
    /// Length of one row of features.
    pub channels: usize,
    /// `W`, `[classes, channels]`.
    pub weight: S,
    /// `b`, one for each class.
    pub bias: S,
    /// Labels of the rows, and weights of the classes.
    pub targets: L,
}

/// A [`Map`] on the host.
pub type Classifier<'a, T> = Map<&'a [T], Targets<'a, T>>;

/// Where gradients go.
#[derive(Debug)]
pub struct Gradients<S> {
    /// Gradient of the features `[rows, channels]`, overwritten.
    pub features: S,
    /// Gradient of the weights `[classes, channels]`, overwritten.
    pub weight: S,
    /// Gradient of the bias, overwritten.
    pub bias: S,
}
crate::view::fields!(Gradients { features, weight, bias });

/// Optional results for every row, beside the score.
#[derive(Debug)]
pub struct RowResults<S> {
    /// Class with the largest logit, the lower one in ties; also for rows without label.
    pub predictions: Option<S>,
    /// How many classes come before that of the label, so that a row is among the best `k` if its
    /// rank is below `k`; [`IGNORE`](crate::cross_entropy::IGNORE) for rows without label. Classes
    /// that are not comparable to it, because of NaN, come before it.
    pub ranks: Option<S>,
}

/// [`RowResults`] on the host.
pub type Rows<'a> = RowResults<&'a mut [u32]>;

impl<S> Default for RowResults<S> {
    fn default() -> Self {
        Self { predictions: None, ranks: None }
    }
}

const OPERATOR: &str = "classifier";

/// True if training rounds the factors of its products to bf16: with few classes that brings no speed.
fn rounds_to_bf16(mode: ProductMode, classes: usize) -> bool {
    mode == ProductMode::Bf16 && classes > FEW_CLASSES
}

impl<T: Real> Classifier<'_, T> {
    fn check(&self, features: &[T]) -> Result<(), KernelError> {
        let (rows, classes) = (self.targets.labels.len(), self.targets.classes);
        check_length(OPERATOR, "features", features, rows * self.channels)?;
        check_length(OPERATOR, "weight", self.weight, classes * self.channels)?;
        check_length(OPERATOR, "bias", self.bias, classes)?;
        self.targets.check(OPERATOR)
    }

    fn check_gradients(&self, gradients: &Gradients<&mut [T]>) -> Result<(), KernelError> {
        let (rows, classes) = (self.targets.labels.len(), self.targets.classes);
        let width = self.channels;
        check_length(OPERATOR, "gradients.features", gradients.features, rows * width)?;
        check_length(OPERATOR, "gradients.weight", gradients.weight, classes * width)?;
        check_length(OPERATOR, "gradients.bias", gradients.bias, classes)
    }

    fn check_rows(&self, rows: &Rows<'_>) -> Result<(), KernelError> {
        for (name, values) in [("predictions", &rows.predictions), ("ranks", &rows.ranks)] {
            if let Some(values) = values {
                check_length(OPERATOR, name, values, self.targets.labels.len())?;
            }
        }
        Ok(())
    }
}
