//! What the tests of the operators share.

use crate::{FeatureType, Real};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers in [-1, 1), the same for the same seed.
pub(crate) fn random<T: Real>(count: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| T::of(2.0 * rng.random::<f64>() - 1.0))
        .collect()
}

/// Checks a gradient against central differences of `loss`, entry by entry, to 1e-6 relative to the
/// largest entry (and to 1).
pub(crate) fn check_gradient(x: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(x.len(), gradient.len());
    let scale = gradient.iter().fold(1.0, |most: f64, g| most.max(g.abs()));
    let step = 1e-5;
    let mut moved = x.to_vec();
    for (at, &expected) in gradient.iter().enumerate() {
        moved[at] = x[at] + step;
        let up = loss(&moved);
        moved[at] = x[at] - step;
        let down = loss(&moved);
        moved[at] = x[at];
        let slope = (up - down) / (2.0 * step);
        assert!(
            (slope - expected).abs() <= 1e-6 * scale,
            "entry {at}: the gradient says {expected}, differences say {slope}"
        );
    }
}

/// Checks that two lists agree to `tolerance`, relative to the largest entry (and to 1).
pub(crate) fn check_close<T: Real>(found: &[T], expected: &[T], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected
        .iter()
        .fold(1.0, |most: f64, e| most.max(e.as_f64().abs()));
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f.as_f64() - e.as_f64()).abs() <= tolerance * scale,
            "{what}, entry {at}: {f} is not {e}"
        );
    }
}

/// Runs the same work on 1, 2 and 3 threads, and checks that the results are equal.
pub(crate) fn check_threads<R: PartialEq + std::fmt::Debug + Send>(work: impl Fn() -> R + Sync) {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(&work)
    };
    let one = run(1);
    for threads in [2, 3] {
        assert!(run(threads) == one, "{threads} threads differ from one");
    }
}

/// `<a, b>` in f64.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.as_f64() * b.as_f64()).sum()
}

/// Features seen from frames that are turned by `angles`: `rho(-a_p) f_p`.
pub(crate) fn turned(features: &FeatureType, values: &[f64], angles: &[f64]) -> Vec<f64> {
    let dimension = features.dimension();
    let mut turned = values.to_vec();
    for (vertex, &angle) in angles.iter().enumerate() {
        let row = &mut turned[vertex * dimension..(vertex + 1) * dimension];
        for (order, channels) in features.orders().filter(|&(order, _)| order > 0) {
            let (sine, cosine) = (-(order as f64) * angle).sin_cos();
            let block = &mut row[features.range(order)];
            for c in 0..channels {
                let (a, b) = (block[c], block[channels + c]);
                block[c] = cosine * a - sine * b;
                block[channels + c] = sine * a + cosine * b;
            }
        }
    }
    turned
}
