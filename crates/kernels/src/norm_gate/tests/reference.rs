//! The formulas of the module documentation in f64, irrep by irrep.

use crate::norm_gate::{GatedNonlinearity, NormNonlinearity, blocks, sigmoid};
use crate::{FeatureType, Real};

/// `(irrep, index of a, index of b)` of every irrep of order above 0.
fn irreps(kind: &FeatureType) -> Vec<(usize, usize, usize)> {
    let blocks = blocks(kind).into_iter();
    blocks
        .flat_map(|block| {
            (0..block.channels).map(move |channel| {
                let a = block.start + channel;
                (block.first + channel, a, a + block.channels)
            })
        })
        .collect()
}

/// Norm nonlinearity, `y` from `x`.
pub fn norm_forward<T: Real>(config: &NormNonlinearity, x: &[T], bias: &[T], y: &mut [T]) {
    let width = config.kind.dimension().max(1);
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        for channel in 0..config.kind.multiplicity(0) {
            y[channel] = config.activation.value(x[channel]);
        }
        for (irrep, a, b) in irreps(&config.kind) {
            let (xa, xb) = (x[a].as_f64(), x[b].as_f64());
            let r = (xa * xa + xb * xb + config.epsilon).sqrt();
            let factor = config.activation.value(r + bias[irrep].as_f64()) / r;
            y[a] = T::of(xa * factor);
            y[b] = T::of(xb * factor);
        }
    }
}

/// Norm nonlinearity, `dx` from `x` and `dy`; adds to `dbias`.
pub fn norm_backward<T: Real>(config: &NormNonlinearity, x: &[T], bias: &[T], dy: &[T], dx: &mut [T], dbias: &mut [T]) {
    let width = config.kind.dimension().max(1);
    let mut of_bias = vec![0.0; dbias.len()];
    let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
        for channel in 0..config.kind.multiplicity(0) {
            dx[channel] = config.activation.slope(x[channel]) * dy[channel];
        }
        for (irrep, a, b) in irreps(&config.kind) {
            let (xa, xb) = (x[a].as_f64(), x[b].as_f64());
            let (da, db) = (dy[a].as_f64(), dy[b].as_f64());
            let r = (xa * xa + xb * xb + config.epsilon).sqrt();
            let shifted = r + bias[irrep].as_f64();
            let (value, slope) = (config.activation.value(shifted), config.activation.slope(shifted));
            let along = xa * da + xb * db;
            let radial = (slope / r - value / (r * r)) / r * along;
            dx[a] = T::of(value / r * da + radial * xa);
            dx[b] = T::of(value / r * db + radial * xb);
            of_bias[irrep] += slope / r * along;
        }
    }
    for (dbias, sum) in dbias.iter_mut().zip(of_bias) {
        *dbias += T::of(sum);
    }
}

/// Gated nonlinearity, `y` from `x`.
pub fn gated_forward<T: Real>(config: &GatedNonlinearity, x: &[T], y: &mut [T]) {
    let (input, output) = (config.input().dimension().max(1), config.output.dimension().max(1));
    let scalars = config.output.multiplicity(0);
    let gates = crate::norm_gate::rotating_irreps(&config.output);
    for (x, y) in x.chunks_exact(input).zip(y.chunks_exact_mut(output)) {
        for channel in 0..scalars {
            y[channel] = config.activation.value(x[channel]);
        }
        for (irrep, a, b) in irreps(&config.output) {
            let gate = sigmoid(x[scalars + irrep]);
            y[a] = gate * x[a + gates];
            y[b] = gate * x[b + gates];
        }
    }
}

/// Gated nonlinearity, `dx` from `x` and `dy`.
pub fn gated_backward<T: Real>(config: &GatedNonlinearity, x: &[T], dy: &[T], dx: &mut [T]) {
    let (input, output) = (config.input().dimension().max(1), config.output.dimension().max(1));
    let scalars = config.output.multiplicity(0);
    let gates = crate::norm_gate::rotating_irreps(&config.output);
    let rows = x.chunks_exact(input).zip(dy.chunks_exact(output));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(input)) {
        for channel in 0..scalars {
            dx[channel] = config.activation.slope(x[channel]) * dy[channel];
        }
        for (irrep, a, b) in irreps(&config.output) {
            let gate = sigmoid(x[scalars + irrep]);
            dx[a + gates] = gate * dy[a];
            dx[b + gates] = gate * dy[b];
            let along = x[a + gates] * dy[a] + x[b + gates] * dy[b];
            dx[scalars + irrep] = gate * (T::one() - gate) * along;
        }
    }
}
