//! What the tests of several operators share.

use crate::{GraphArrays, GraphParts, Real};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers in [-1, 1), the same for the same seed.
pub(crate) fn random<T: Real>(seed: u64, count: usize) -> Vec<T> {
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
    }
}

/// Graphs of every kind that an operator must get right.
pub(crate) fn gauge_graphs() -> Vec<(&'static str, GaugeGraph)> {
    let points = |count: usize| {
        let at = |i: usize| DVec3::new(i as f64, 0.5, 0.0);
        Mesh::new((0..count).map(at).collect(), Default::default()).unwrap()
    };
    let shaken = |mesh: Mesh, seed: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || 0.05 * (rng.random::<f64>() - 0.5);
        mesh.map_vertices(|v| v + DVec3::new(draw(), draw(), draw()))
            .unwrap()
    };
    // A fan with a hub of high degree, and vertices that no face uses.
    let hub = {
        let rim = |i: usize| {
            let angle = 0.3 * i as f64;
            DVec3::new(angle.cos(), angle.sin(), 0.0)
        };
        let vertices = std::iter::once(DVec3::Z).chain((0..24).map(rim)).collect();
        let faces = (1..20u32).map(|i| [0, i, i + 1]).collect::<Vec<_>>();
        Mesh::new(vertices, faces.iter().collect()).unwrap()
    };
    [
        ("closed", shaken(shapes::icosphere(2).unwrap(), 1)),
        (
            "open",
            shaken(shapes::grid(9, 11, Cells::Triangles).unwrap(), 2),
        ),
        ("hub and isolated vertices", hub),
        ("one vertex", points(1)),
        ("no vertex", points(0)),
    ]
    .map(|(name, mesh)| {
        (
            name,
            GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap(),
        )
    })
    .into()
}

/// The same graphs as arrays.
pub(crate) fn graphs<T: Real>() -> Vec<(&'static str, GraphArrays<T>)> {
    let arrays = |graph: &GaugeGraph| GraphArrays::union(&[parts(graph)]).unwrap();
    let graphs = gauge_graphs();
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

/// `<a, b>` in f64.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.as_f64() * b.as_f64()).sum()
}

/// Compares `gradient` at `at` with central differences of `value` along random directions.
pub(crate) fn assert_gradient(
    what: &str,
    value: impl Fn(&[f64]) -> f64,
    at: &[f64],
    gradient: &[f64],
) {
    let step = 1e-5;
    for seed in 0..4 {
        let direction: Vec<f64> = random(1000 + seed, at.len());
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

/// Runs `compute` in pools of 1, 2 and 3 threads and asserts that its results are the same to the bit.
pub(crate) fn assert_same_on_any_threads<T: Real>(compute: impl Fn() -> Vec<T> + Sync) {
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(&compute)
    };
    let single = on(1);
    for threads in [2, 3] {
        assert!(
            bytemuck::cast_slice::<T, u8>(&single) == bytemuck::cast_slice::<T, u8>(&on(threads)),
            "results differ on {threads} threads"
        );
    }
}
