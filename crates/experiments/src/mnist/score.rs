//! What logits are worth.

use crate::digits::{CLASSES, Digits};

/// The digit that each row of logits says; the lower one wins ties.
pub(super) fn predictions(logits: &[f32]) -> impl Iterator<Item = u8> {
    logits.chunks_exact(CLASSES).map(|row| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let class = row.iter().position(|&logit| logit == largest);
        class.unwrap_or(0) as u8
    })
}

/// How many rows say another digit than the label.
pub(super) fn wrong(logits: &[f32], digits: &Digits) -> usize {
    predictions(logits)
        .zip(digits.labels())
        .filter(|(said, label)| said != *label)
        .count()
}

/// Mean cross-entropy of the labels, in f64.
pub(super) fn cross_entropy(logits: &[f32], digits: &Digits) -> f64 {
    let loss = |(row, &label): (&[f32], &u8)| {
        let row: Vec<f64> = row.iter().map(|&logit| logit.into()).collect();
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
        largest + sum.ln() - row[usize::from(label)]
    };
    let rows = logits.chunks_exact(CLASSES).zip(digits.labels());
    rows.map(loss).sum::<f64>() / digits.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digits::Mnist;

    #[test]
    fn by_hand() {
        let digits = Mnist::few().unwrap().train.range(0..2); // 5 and 0
        assert_eq!(digits.labels(), [5, 0]);
        let mut logits = vec![0.0; 20];
        logits[5] = 2.0;
        logits[13] = 1.0;
        assert_eq!(predictions(&logits).collect::<Vec<_>>(), [5, 3]);
        assert_eq!(wrong(&logits, &digits), 1);
        let first = (9.0 + 2.0f64.exp()).ln() - 2.0;
        let second = (9.0 + 1.0f64.exp()).ln();
        let loss = cross_entropy(&logits, &digits);
        assert!((loss - 0.5 * (first + second)).abs() < 1e-12, "{loss}");
    }
}
