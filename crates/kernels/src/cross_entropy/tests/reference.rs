//! The definition in f64, row by row.

use crate::cross_entropy::{IGNORE, Score, Targets, check};
use crate::{KernelError, Real};

/// Mean cross-entropy of the rows with a label; see the [module](crate::cross_entropy).
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
        let (loss, prediction) = row_loss(targets, logits, label);
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
            let target = target(targets, label, class);
            let probability = (z[class].as_f64() - most).exp() / sum;
            *dz = T::of(dloss * weight * (probability - target) / total);
        }
    }
    Ok(())
}

/// Share of a class in the target of a row.
fn target<T>(targets: &Targets<'_, T>, label: u32, class: usize) -> f64 {
    let own = f64::from(u8::from(class == label as usize));
    (1.0 - targets.smoothing) * own + targets.smoothing / targets.classes as f64
}

/// Cross-entropy of one row, and its predicted class.
fn row_loss<T: Real>(targets: &Targets<'_, T>, logits: &[T], label: u32) -> (f64, usize) {
    let mut best = 0;
    for (class, value) in logits.iter().enumerate() {
        if *value > logits[best] || (logits[best].is_nan() && !value.is_nan()) {
            best = class;
        }
    }
    let most = logits[best].as_f64();
    let sum: f64 = logits.iter().map(|z| (z.as_f64() - most).exp()).sum();
    // A share of 0 of an infinite logit is 0.
    let shares = logits.iter().enumerate().map(|(class, z)| match target(targets, label, class) {
        0.0 => 0.0,
        share => share * (most - z.as_f64()),
    });
    (sum.ln() + shares.sum::<f64>(), best)
}
