//! The formulas of the module documentation, channel by channel.

use crate::Real;
use crate::regular::{Regular, harmonic, projection_weight};

/// Samples of one channel of one vertex.
fn samples<T: Real>(config: &Regular, row: &[T], channel: usize) -> Vec<f64> {
    let channels = config.input.multiplicity(0);
    let components = 2 * config.input.highest_order() + 1;
    (0..config.samples)
        .map(|t| (0..components).map(|k| harmonic(t, k, config.samples) * row[k * channels + channel].as_f64()).sum())
        .collect()
}

/// `y` from `x`.
pub fn forward<T: Real>(config: &Regular, x: &[T], y: &mut [T]) {
    let (input, output) = (config.input.dimension(), config.output().dimension());
    let channels = config.input.multiplicity(0);
    for (x, y) in x.chunks_exact(input).zip(y.chunks_exact_mut(output)) {
        for channel in 0..channels {
            let samples = samples(config, x, channel);
            for k in 0..output / channels {
                let sum: f64 = (samples.iter().enumerate())
                    .map(|(t, &s)| config.activation.value(s) * harmonic(t, k, samples.len()))
                    .sum();
                y[k * channels + channel] = T::of(projection_weight(k, samples.len()) * sum);
            }
        }
    }
}

/// `dx` from `x` and `dy`.
pub fn backward<T: Real>(config: &Regular, x: &[T], dy: &[T], dx: &mut [T]) {
    let (input, output) = (config.input.dimension(), config.output().dimension());
    let channels = config.input.multiplicity(0);
    let rows = x.chunks_exact(input).zip(dy.chunks_exact(output));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(input)) {
        for channel in 0..channels {
            let samples = samples(config, x, channel);
            let gradients: Vec<f64> = (samples.iter().enumerate())
                .map(|(t, &s)| {
                    let of_value: f64 = (0..output / channels)
                        .map(|k| {
                            projection_weight(k, samples.len())
                                * harmonic(t, k, samples.len())
                                * dy[k * channels + channel].as_f64()
                        })
                        .sum();
                    config.activation.slope(s) * of_value
                })
                .collect();
            for k in 0..input / channels {
                let sum: f64 =
                    (gradients.iter().enumerate()).map(|(t, gradient)| gradient * harmonic(t, k, samples.len())).sum();
                dx[k * channels + channel] = T::of(sum);
            }
        }
    }
}
