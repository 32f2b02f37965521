//! Per-vertex operators on features `16x0 + 16x1 + 16x2` of 6,890 vertices, in f32 on one thread. A copy of
//! the features is the lower bound of their time.
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
    // The measuring thread does the work itself: no other thread has to wake up.
    let one_thread = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread();
    one_thread
        .build_global()
        .expect("no global thread pool exists yet");
    divan::main();
}

fn hidden() -> FeatureType {
    FeatureType::uniform(16, 2)
}

/// Features in [-1, 1), from the random number generator of dropout.
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
        let normalisation = Normalisation {
            config: &config,
            statistics: &statistics,
            gamma: &[1.0; 16],
            beta: &[0.0; 16],
        };
        regular::forward_normalised(&plan, &normalisation, VERTICES, &x, &mut y).unwrap();
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
    let normalisation = Normalisation {
        config: &config,
        statistics: &statistics,
        gamma: &[1.0; 16],
        beta: &[0.0; 16],
    };
    let (mut dgamma, mut dbeta) = ([0.0; 16], [0.0; 16]);
    bencher.bench_local(|| {
        let gradients = &mut NormGradients {
            gamma: &mut dgamma,
            beta: &mut dbeta,
        };
        let (x, dy, dx) = (&x, &dy, &mut dx);
        regular::backward_normalised(
            &plan,
            &normalisation,
            VERTICES,
            x,
            dy,
            dx,
            gradients,
            scratch,
        )
        .unwrap();
    });
}

const FUNCTIONS: [Activation; 4] = [
    Activation::Relu,
    Activation::Elu,
    Activation::Gelu,
    Activation::Tanh,
];

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
    let config = Dropout {
        kind: hidden(),
        unit: DropoutUnit::Irrep,
        probability: 0.5,
    };
    let stream = Stream { seed: 1, step: 1 };
    let x = map(&hidden(), VERTICES, 1);
    let mut y = x.clone();
    bencher.bench_local(|| dropout::forward(&config, stream, VERTICES, &x, &mut y).unwrap());
}
