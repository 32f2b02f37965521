//! Random numbers for each value of features and parameters. As in [`columns`](crate::columns), these loops are
//! compiled here: the generator is inlined, and slow without optimisation.

use crate::FeatureType;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A number from 0 to 1.
#[inline(never)]
pub fn uniform(random: &mut ChaCha8Rng) -> f64 {
    random.random()
}

/// A factor near 1 with this standard deviation, uniformly distributed.
#[inline(never)]
pub fn noise(deviation: f32, random: &mut ChaCha8Rng) -> f32 {
    let uniform: f32 = random.random();
    1.0 + deviation * 12f32.sqrt() * (uniform - 0.5)
}

/// For each of `count` items whether it is chosen, with a probability from 0 to 1.
pub fn choices(count: usize, probability: f64, random: &mut ChaCha8Rng) -> Vec<bool> {
    let probability = probability.clamp(0.0, 1.0);
    (0..count).map(|_| random.random_bool(probability)).collect()
}

/// Multiplies each irrep of each row by a factor with mean 1, which changes the length of a vector and not its
/// direction.
pub fn perturb(kind: &FeatureType, rows: &mut [f32], deviation: f32, random: &mut ChaCha8Rng) {
    let width = kind.dimension();
    if width == 0 {
        return;
    }
    for row in rows.chunks_exact_mut(width) {
        for (order, channels) in kind.orders() {
            for channel in 0..channels {
                let factor = noise(deviation, random);
                let components = kind.range(order).skip(channel).step_by(channels);
                components.for_each(|at| row[at] *= factor);
            }
        }
    }
}
