//! What the tests of several operators share.

use crate::{FeatureType, GraphArrays, GraphParts, KernelError, Real};
pub(crate) use gemcnn_fixtures::gauge_graphs as weighted_graphs;
use gemcnn_mesh::{GaugeGraph, NeighbourWeights};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers in [-1, 1), the same for the same seed.
pub(crate) fn random<T: Real>(count: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draw = |_| T::of(2.0 * rng.random::<f64>() - 1.0);
    (0..count).map(draw).collect()
}

/// The arrays of a gauge graph, as operators take them.
pub(crate) fn parts(graph: &GaugeGraph) -> GraphParts<'_> {
    GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
        coefficients: graph.coefficients(),
    }
}

/// Graphs of every kind that an operator must get right.
pub(crate) fn gauge_graphs() -> Vec<(&'static str, GaugeGraph)> {
    weighted_graphs(NeighbourWeights::Count)
}

/// The same graphs as arrays.
pub(crate) fn graphs<T: Real>() -> Vec<(&'static str, GraphArrays<T>)> {
    arrays(gauge_graphs())
}

/// Graphs as arrays.
pub(crate) fn arrays<T: Real>(graphs: Vec<(&'static str, GaugeGraph)>) -> Vec<(&'static str, GraphArrays<T>)> {
    let arrays = |graph: &GaugeGraph| GraphArrays::union(&[parts(graph)]).unwrap();
    graphs.iter().map(|(name, g)| (*name, arrays(g))).collect()
}

/// Largest difference, relative to the largest number (at least 1).
pub(crate) fn difference<T: Real>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(1.0, |most, b| b.as_f64().abs().max(most));
    let largest = |most: f64, (a, b): (&T, &T)| {
        let difference = (a.as_f64() - b.as_f64()).abs();
        assert!(!difference.is_nan(), "not a number");
        most.max(difference)
    };
    a.iter().zip(b).fold(0.0, largest) / size
}

/// `(buffer, found, expected)` of a length error.
pub(crate) fn wrong_length(error: KernelError) -> (&'static str, usize, usize) {
    match error {
        KernelError::Length { buffer, found, expected, .. } => (buffer, found, expected),
        other => panic!("{other}"),
    }
}

/// `<a, b>` in f64.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.as_f64() * b.as_f64()).sum()
}

/// Compares `gradient` at `at` with central differences of `value` along random directions.
pub(crate) fn assert_gradient(what: &str, value: impl Fn(&[f64]) -> f64, at: &[f64], gradient: &[f64]) {
    let step = 1e-5;
    for seed in 0..4 {
        let direction: Vec<f64> = random(at.len(), 1000 + seed);
        let moved = |by: f64| {
            let values = at.iter().zip(&direction).map(|(a, d)| a + by * d);
            value(&values.collect::<Vec<_>>())
        };
        let expected = (moved(step) - moved(-step)) / (2.0 * step);
        let found = dot(gradient, &direction);
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{what}: gradient {found}, differences {expected}"
        );
    }
}

/// Asserts `<A x, y> = <x, A^T y>` to 1e-12 for a map that is linear in `x`.
pub(crate) fn assert_adjoint(what: &str, output: f64, x: &[f64], adjoint: &[f64]) {
    let found = dot(x, adjoint);
    assert!((found - output).abs() <= 1e-12 * output.abs().max(1.0), "{what}: {found} is not {output}");
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
    let scale = expected.iter().fold(1.0, |most: f64, e| most.max(e.as_f64().abs()));
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f.as_f64() - e.as_f64()).abs() <= tolerance * scale, "{what}, entry {at}: {f} is not {e}");
    }
}

/// Runs the same work on 1, 2 and 3 threads, and checks that all bits of the results are the same: as text, which has
/// all digits, and the sign of a zero.
pub(crate) fn check_threads<R: std::fmt::Debug + Send>(work: impl Fn() -> R + Sync) {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        format!("{:?}", pool.build().unwrap().install(&work))
    };
    let one = run(1);
    for threads in [2, 3] {
        assert!(run(threads) == one, "{threads} threads differ from one");
    }
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
