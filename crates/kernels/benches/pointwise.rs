//! Per-vertex operators on a map of 6,890 vertices with 16x0 + 16x1 + 16x2 in f32, on one thread,
//! beside a copy of the map, which is the least that any of them can cost.
//!
//! `cargo bench -p gemcnn-kernels --bench pointwise`

use divan::{Bencher, black_box};
use gemcnn_kernels::batch_norm::{self, BatchNorm, NormGradients, NormGroups, Normalisation};
use gemcnn_kernels::dropout::{self, Dropout, DropoutUnit};
use gemcnn_kernels::norm_gate::{self, NormNonlinearity};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::regular::{self, Plan, Regular};
use gemcnn_kernels::{Activation, FeatureType, Scratch};

const VERTICES: usize = 6890;
const SAMPLES: [usize; 3] = [5, 7, 101];

fn main() {
    // The thread that measures is the one that works: nothing has to be woken up.
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    one_thread.build_global().expect("no thread pool stands yet");
    divan::main();
}

fn hidden() -> FeatureType {
    FeatureType::uniform(16, 2)
}

/// Numbers in [-1, 1), from the generator of the dropout.
fn map(kind: &FeatureType, vertices: usize, seed: u64) -> Vec<f32> {
    let mut words = vec![0; vertices * kind.dimension()];
    Stream { seed, step: 0 }.fill(0, &mut words);
    let unit = |word: u32| word as f32 / (1u64 << 31) as f32 - 1.0;
    words.into_iter().map(unit).collect()
}

#[divan::bench]
fn copy(bencher: Bencher) {
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    bencher.bench_local(|| y.copy_from_slice(black_box(&x)));
}

#[divan::bench(args = SAMPLES)]
fn regular_forward(bencher: Bencher, samples: usize) {
    let plan = Plan::new(&Regular::new(hidden(), samples, Activation::Relu)).unwrap();
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    bencher.bench_local(|| regular::forward(&plan, VERTICES, &x, &mut y).unwrap());
}

#[divan::bench(args = SAMPLES)]
fn regular_backward(bencher: Bencher, samples: usize) {
    let plan = Plan::new(&Regular::new(hidden(), samples, Activation::Relu)).unwrap();
    let (x, dy) = (map(&hidden(), VERTICES, 1), map(&hidden(), VERTICES, 2));
    let mut dx = x.clone();
    bencher.bench_local(|| regular::backward(&plan, VERTICES, &x, &dy, &mut dx).unwrap());
}

/// Statistics, normalisation and nonlinearity.
#[divan::bench(args = SAMPLES)]
fn normalised_forward(bencher: Bencher, samples: usize) {
    let plan = Plan::new(&Regular::new(hidden(), samples, Activation::Relu)).unwrap();
    let config = BatchNorm::new(hidden(), NormGroups::PerChannel);
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    let scratch = &mut Scratch::new();
    bencher.bench_local(|| {
        let statistics = batch_norm::statistics(&config, VERTICES, &x, scratch).unwrap();
        let normalisation =
            Normalisation { config: &config, statistics: &statistics, gamma: &[1.0; 16][..], beta: &[0.0; 16][..] };
        regular::forward_normalised(&plan, normalisation, VERTICES, &x, &mut y).unwrap();
    });
}

#[divan::bench(args = SAMPLES)]
fn normalised_backward(bencher: Bencher, samples: usize) {
    let plan = Plan::new(&Regular::new(hidden(), samples, Activation::Relu)).unwrap();
    let config = BatchNorm::new(hidden(), NormGroups::PerChannel);
    let (x, dy) = (map(&hidden(), VERTICES, 1), map(&hidden(), VERTICES, 2));
    let mut dx = x.clone();
    let scratch = &mut Scratch::new();
    let statistics = batch_norm::statistics(&config, VERTICES, &x, scratch).unwrap();
    let normalisation =
        Normalisation { config: &config, statistics: &statistics, gamma: &[1.0; 16][..], beta: &[0.0; 16][..] };
    let (mut dgamma, mut dbeta) = ([0.0; 16], [0.0; 16]);
    bencher.bench_local(|| {
        let gradients = NormGradients { gamma: &mut dgamma[..], beta: &mut dbeta[..] };
        let (x, dy, dx) = (&x, &dy, &mut dx);
        regular::backward_normalised(&plan, normalisation, VERTICES, x, dy, dx, gradients, scratch).unwrap();
    });
}

const FUNCTIONS: [Activation; 4] = [Activation::Relu, Activation::Elu, Activation::Gelu, Activation::Tanh];

#[divan::bench(args = 0..4)]
fn functions_forward(bencher: Bencher, function: usize) {
    let plan = Plan::new(&Regular::new(hidden(), 7, FUNCTIONS[function].clone())).unwrap();
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    bencher.bench_local(|| regular::forward(&plan, VERTICES, &x, &mut y).unwrap());
}

#[divan::bench]
fn norm_forward(bencher: Bencher) {
    let config = NormNonlinearity::new(hidden(), Activation::Relu);
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    let bias = [0.0; 32];
    bencher.bench_local(|| norm_gate::norm_forward(&config, VERTICES, &x, &bias, &mut y).unwrap());
}

#[divan::bench]
fn dropout_forward(bencher: Bencher) {
    let config = Dropout { kind: hidden(), unit: DropoutUnit::Irrep, probability: 0.5 };
    let stream = Stream { seed: 1, step: 1 };
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    bencher.bench_local(|| dropout::forward(&config, stream, VERTICES, &x, &mut y).unwrap());
}

/// Band limits and numbers of samples, for 16 channels and 200 vertices.
const SIZES: [(usize, usize); 12] = [
    (2, 101),
    (2, 128),
    (2, 1024),
    (8, 32),
    (8, 1024),
    (16, 64),
    (16, 1024),
    (32, 128),
    (32, 1024),
    (64, 129),
    (64, 256),
    (64, 1024),
];

#[divan::bench(args = SIZES.map(|(b, n)| format!("B={b} N={n}")))]
fn regular_sizes(bencher: Bencher, size: &str) {
    let (band_limit, samples) =
        SIZES.into_iter().find(|(b, n)| size == format!("B={b} N={n}")).expect("names come from the same list");
    let kind = FeatureType::uniform(16, band_limit);
    let config = Regular::new(kind.clone(), samples, Activation::Relu);
    let plan = Plan::new(&config).unwrap();
    let x = map(&kind, 200, 1);
    let mut y = x.clone();
    bencher.bench_local(|| regular::forward(&plan, 200, &x, &mut y).unwrap());
}
