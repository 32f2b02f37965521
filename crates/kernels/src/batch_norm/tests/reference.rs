//! The formulas of the module documentation in f64, irrep by irrep.

use crate::Real;
use crate::batch_norm::{BatchNorm, HostNormalisation, Origin, Statistics, moment_weight};

/// Mean and variance of every slot, in two passes.
pub fn statistics<T: Real>(config: &BatchNorm, vertices: usize, x: &[T]) -> Statistics {
    let columns: Vec<(usize, usize)> = config.columns().collect();
    let slots = columns.iter().map(|&(slot, _)| slot + 1).max().unwrap_or(0);
    let count = (vertices as f64).max(1.0);
    let (mut mean, mut variance) = (vec![0.0; slots], vec![0.0; slots]);
    for row in x.chunks_exact(columns.len().max(1)) {
        for (value, &(slot, order)) in row.iter().zip(&columns) {
            if order == 0 {
                mean[slot] += value.as_f64() / count;
            }
        }
    }
    for row in x.chunks_exact(columns.len().max(1)) {
        for (value, &(slot, order)) in row.iter().zip(&columns) {
            let centre = if order == 0 { mean[slot] } else { 0.0 };
            variance[slot] += moment_weight(order) * (value.as_f64() - centre).powi(2) / count;
        }
    }
    Statistics { mean, variance, origin: Origin::Batch { vertices } }
}

/// `z = (x - mean)/sqrt(var + epsilon)` of one value, and `gamma/sqrt(var + epsilon)`.
fn standardised<T: Real>(normalisation: &HostNormalisation<'_, T>, slot: usize, order: usize, x: T) -> (f64, f64) {
    let statistics = normalisation.statistics;
    let deviation = (statistics.variance[slot] + normalisation.config.epsilon).sqrt();
    let centre = if order == 0 { statistics.mean[slot] } else { 0.0 };
    ((x.as_f64() - centre) / deviation, normalisation.gamma[slot].as_f64() / deviation)
}

/// `y` from `x`.
pub fn forward<T: Real>(normalisation: &HostNormalisation<'_, T>, x: &[T], y: &mut [T]) {
    let columns: Vec<(usize, usize)> = normalisation.config.columns().collect();
    for ((y, &x), &(slot, order)) in y.iter_mut().zip(x).zip(columns.iter().cycle()) {
        let (z, _) = standardised(normalisation, slot, order, x);
        let shift = if order == 0 { normalisation.beta[slot].as_f64() } else { 0.0 };
        *y = T::of(normalisation.gamma[slot].as_f64() * z + shift);
    }
}

/// `dx` from `x` and `dy`; adds to the gradients of gamma and beta.
pub fn backward<T: Real>(
    normalisation: &HostNormalisation<'_, T>,
    x: &[T],
    dy: &[T],
    dx: &mut [T],
    gradients: [&mut [T]; 2],
) {
    let columns: Vec<(usize, usize)> = normalisation.config.columns().collect();
    let slots = normalisation.gamma.len();
    let (mut dgamma, mut dbeta) = (vec![0.0; slots], vec![0.0; slots]);
    for ((&x, &dy), &(slot, order)) in x.iter().zip(dy).zip(columns.iter().cycle()) {
        let (z, _) = standardised(normalisation, slot, order, x);
        dgamma[slot] += dy.as_f64() * z;
        if order == 0 {
            dbeta[slot] += dy.as_f64();
        }
    }
    let through = match normalisation.statistics.origin {
        Origin::Batch { vertices } => 1.0 / (vertices as f64).max(1.0),
        Origin::Running => 0.0,
    };
    let inputs = x.iter().zip(dy).zip(columns.iter().cycle());
    for (dx, ((&x, &dy), &(slot, order))) in dx.iter_mut().zip(inputs) {
        let (z, scale) = standardised(normalisation, slot, order, x);
        let shifted = if order == 0 { dbeta[slot] } else { 0.0 };
        let through_statistics = shifted + moment_weight(order) * z * dgamma[slot];
        *dx = T::of(scale * (dy.as_f64() - through * through_statistics));
    }
    for slot in 0..slots {
        gradients[0][slot] += T::of(dgamma[slot]);
        gradients[1][slot] += T::of(dbeta[slot]);
    }
}
