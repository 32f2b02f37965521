//! Two searches, in f64.

use crate::best_pairs::BestPairs;

/// Reference version of [`BestPairs`].
pub fn best_pairs(BestPairs { width, a, b, cost_a, cost_b, for_a, for_b }: BestPairs<'_>) {
    search(width, a, b, cost_b, for_a);
    search(width, b, a, cost_a, for_b);
}

fn search(width: usize, from: &[f32], to: &[f32], cost: &[f32], best: &mut [u32]) {
    for (row, best) in from.chunks_exact(width).zip(best) {
        let mut highest = f64::NEG_INFINITY;
        for (index, (other, &cost)) in (0..).zip(to.chunks_exact(width).zip(cost)) {
            let score =
                row.iter().zip(other).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>() - f64::from(cost);
            if score > highest {
                (highest, *best) = (score, index);
            }
        }
    }
}
