//! Whole training steps on one mesh of 6,890 vertices, in f32: forward, backward and Adam.
//!
//! `cargo bench -p gemcnn-nn --bench training`
//!
//! `blocks`: three residual blocks of `16x0 + 16x1 + 16x2`, six convolutions. `correspondence`: the
//! whole network that names each vertex of a body, `3x0` to 6,890 classes by way of three blocks and a
//! head of 256 channels. `inference`: the forward pass of the latter, predictions included.

use divan::{Bencher, black_box};
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Aggregation, FeatureType, GraphBatch, Method, Module, Network, NetworkConfig, Optimiser,
    Parameters, Rows, Stream, Tape, Targets, Workspace,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

fn main() {
    divan::main();
}

const VERTICES: usize = 6890;
const THREADS: [usize; 2] = [1, 2];

fn batch() -> GraphBatch<f32> {
    let mesh = torus(130, 53, 1.0, 0.4, Cells::Triangles).expect("a valid torus");
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).expect("a smooth surface");
    GraphBatch::new([&graph]).expect("one mesh")
}

fn hidden() -> FeatureType {
    FeatureType::uniform(16, 2)
}

fn features(kind: &FeatureType) -> Vec<f32> {
    let numbers = 0..VERTICES * kind.dimension();
    numbers
        .map(|i| ((i * 7919) % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn correspondence() -> NetworkConfig<f32> {
    let regular = || Regular::relu(5).with_batch_norm();
    Network::builder(FeatureType::scalars(3))
        .aggregation(Aggregation::Mean)
        .residual(&hidden(), regular())
        .residual(&hidden(), regular())
        .residual(&FeatureType::scalars(64), regular())
        .linear(256)
        .activation(gemcnn_nn::Activation::Relu)
        .dropout(0.5)
        .linear(VERTICES)
}

/// A network with all that a step of its training needs.
struct Trainee {
    network: Network<f32>,
    parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    workspace: Workspace<f32>,
    batch: GraphBatch<f32>,
    features: Vec<f32>,
    /// What a network without labels is trained towards.
    zeros: Vec<f32>,
    step: u64,
}

impl Trainee {
    fn new(config: &NetworkConfig<f32>) -> Self {
        let (network, parameters) = config.init(1).expect("a valid network");
        Self {
            optimiser: Optimiser::new(Method::adam(), &parameters).expect("valid settings"),
            features: features(network.input()),
            zeros: vec![0.0; VERTICES * network.output().dimension()],
            network,
            parameters,
            workspace: Workspace::default(),
            batch: batch(),
            step: 0,
        }
    }

    /// One step towards `labels`, or towards zero.
    fn train(&mut self, labels: Option<&[u32]>) {
        self.parameters.clear_gradients();
        let stream = Stream {
            seed: 1,
            step: self.step,
        };
        let mut tape = Tape::training(&mut self.workspace, &mut self.parameters, stream);
        let x = tape
            .input(self.network.input().clone(), &self.features)
            .expect("features fit");
        let loss = match labels {
            Some(labels) => {
                let targets = Targets {
                    classes: VERTICES,
                    labels,
                    class_weights: None,
                };
                self.network
                    .classify(&mut tape, (&self.batch).into(), x, targets, Rows::default())
            }
            None => {
                let y = self
                    .network
                    .forward(&mut tape, (&self.batch).into(), x)
                    .expect("types fit");
                tape.mean_square(y, &self.zeros)
            }
        };
        tape.backward(&loss.expect("sizes fit"))
            .expect("a recorded loss");
        self.optimiser
            .step(&mut self.parameters, 1e-3)
            .expect("the same parameters");
        self.step += 1;
    }
}

impl Trainee {
    fn predict(&mut self, labels: &[u32], predictions: &mut [u32]) {
        let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
        let x = tape
            .input(self.network.input().clone(), &self.features)
            .expect("features fit");
        let targets = Targets {
            classes: VERTICES,
            labels,
            class_weights: None,
        };
        let rows = Rows {
            predictions: Some(predictions),
            ..Rows::default()
        };
        let loss = self
            .network
            .classify(&mut tape, (&self.batch).into(), x, targets, rows);
        black_box(loss.expect("sizes fit"));
    }
}

fn labels() -> Vec<u32> {
    (0..VERTICES as u32).collect()
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("threads")
}

fn bench_step(
    bencher: Bencher,
    threads: usize,
    config: &NetworkConfig<f32>,
    labels: Option<Vec<u32>>,
) {
    let pool = pool(threads);
    let mut trainee = Trainee::new(config);
    // The first steps fill the pool of buffers.
    for _ in 0..2 {
        pool.install(|| trainee.train(labels.as_deref()));
    }
    let peak = trainee.workspace.pool().usage().peak_bytes as f64 / 1e6;
    println!("    {threads} thread(s): features and gradients take {peak:.1} MB at most");
    bencher.bench_local(|| pool.install(|| trainee.train(labels.as_deref())));
}

#[divan::bench(args = THREADS, max_time = 6)]
fn blocks(bencher: Bencher, threads: usize) {
    let regular = || Regular::relu(5).with_batch_norm();
    let config = Network::builder(hidden())
        .aggregation(Aggregation::Mean)
        .residual(&hidden(), regular())
        .residual(&hidden(), regular())
        .residual(&hidden(), regular());
    bench_step(bencher, threads, &config, None);
}

#[divan::bench(name = "correspondence", args = THREADS, max_time = 10)]
fn correspondence_step(bencher: Bencher, threads: usize) {
    bench_step(bencher, threads, &correspondence(), Some(labels()));
}

#[divan::bench(args = THREADS, max_time = 6)]
fn inference(bencher: Bencher, threads: usize) {
    let pool = pool(threads);
    let mut trainee = Trainee::new(&correspondence());
    let labels = labels();
    let mut predictions = vec![0; VERTICES];
    bencher.bench_local(|| pool.install(|| trainee.predict(&labels, &mut predictions)));
}
