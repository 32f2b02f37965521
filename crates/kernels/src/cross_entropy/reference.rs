//! The definition in f64, row by row.

use super::{IGNORE, Score, Targets, check};
use crate::{KernelError, Real};

/// Mean cross-entropy of the rows with a label; see the [module](super).
///
/// # Errors
/// Buffers of the wrong length, a label that is not a class, or a class weight that is negative or not
/// finite.
pub fn forward<T: Real>(targets: &Targets<'_, T>, logits: &[T]) -> Result<Score, KernelError> {
    check(targets, logits)?;
    let mut score = Score::default();
    let mut total = 0.0;
    for (row, &label) in targets.labels.iter().enumerate() {
        if label == IGNORE {
            continue;
        }
        let logits = &logits[row * targets.classes..][..targets.classes];
        let weight = targets.weight(label);
        let (loss, prediction) = row_loss(logits, label);
        if weight > 0.0 {
            score.loss += weight * loss;
        }
        total += weight;
        score.correct += usize::from(prediction == label as usize && !loss.is_nan());
        score.counted += 1;
    }
    if total > 0.0 {
        score.loss /= total;
    }
    Ok(score)
}

/// `dlogits` for the gradient `dloss` of the loss.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Real>(
    targets: &Targets<'_, T>,
    logits: &[T],
    dloss: f64,
    dlogits: &mut [T],
) -> Result<(), KernelError> {
    check(targets, logits)?;
    check(targets, dlogits)?;
    let total: f64 = targets.labels.iter().map(|&y| targets.weight(y)).sum();
    for (row, &label) in targets.labels.iter().enumerate() {
        let range = row * targets.classes..(row + 1) * targets.classes;
        let (z, dz) = (&logits[range.clone()], &mut dlogits[range]);
        let weight = targets.weight(label);
        if weight == 0.0 {
            dz.fill(T::zero());
            continue;
        }
        let most = z.iter().fold(f64::NEG_INFINITY, |m, z| m.max(z.as_f64()));
        let sum: f64 = z.iter().map(|z| (z.as_f64() - most).exp()).sum();
        for (class, dz) in dz.iter_mut().enumerate() {
            let target = f64::from(u8::from(class == label as usize));
            let probability = (z[class].as_f64() - most).exp() / sum;
            *dz = T::of(dloss * weight * (probability - target) / total);
        }
    }
    Ok(())
}

/// Cross-entropy of one row, and its predicted class.
fn row_loss<T: Real>(logits: &[T], label: u32) -> (f64, usize) {
    let mut best = 0;
    for (class, value) in logits.iter().enumerate() {
        if *value > logits[best] || (logits[best].is_nan() && !value.is_nan()) {
            best = class;
        }
    }
    let most = logits[best].as_f64();
    let sum: f64 = logits.iter().map(|z| (z.as_f64() - most).exp()).sum();
    (sum.ln() + most - logits[label as usize].as_f64(), best)
}
