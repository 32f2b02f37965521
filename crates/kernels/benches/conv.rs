//! Speed of the gauge convolution: `cargo bench -p gemcnn-kernels --bench conv`.
//!
//! First a table for the hidden layer of the method on a mesh of the size of a scanned body: forward,
//! and forward with backward, on one and on two threads, beside the rate that the general matrix
//! product of the `gemm` crate reaches in the same run. Then the single operators, by divan.

use divan::Bencher;
use gemcnn_kernels::aggregate::{self, Aggregate};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, Weights};
use gemcnn_kernels::self_map::{self, SelfMap};
use gemcnn_kernels::{
    Aggregation, Destination, GraphArrays, GraphParts, Matrix, MatrixMut, Scratch, product,
};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::time::Instant;

const HIDDEN: &str = "16x0 + 16x1 + 16x2";

fn main() {
    print_table();
    divan::main();
}

/// 83 x 83 = 6,889 vertices with six neighbours each.
fn graph() -> GraphArrays<f32> {
    let mesh = shapes::torus(83, 83, 1.0, 0.4, Cells::Triangles).expect("a valid torus");
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).expect("a smooth torus");
    GraphArrays::union(&[GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
    }])
    .expect("arrays of a graph")
}

fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random::<f32>() - 0.5).collect()
}

fn pool(threads: usize) -> ThreadPool {
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("a thread pool")
}

/// A convolution with all its buffers.
struct Layer {
    op: GaugeConv,
    x: Vec<f32>,
    y: Vec<f32>,
    dx: Vec<f32>,
    weights: [Vec<f32>; 3],
    gradients: [Vec<f32>; 3],
    scratch: Scratch<f32>,
}

impl Layer {
    fn new(input: &str, output: &str, vertices: usize) -> Self {
        let kind = |text: &str| text.parse().expect("a feature type");
        let op = GaugeConv::new(kind(input), kind(output));
        let weights =
            [op.neighbour_count(), op.self_count(), op.bias_count()].map(|n| random(1, n));
        let x = random(2, vertices * op.input.dimension());
        Self {
            y: vec![0.0; vertices * op.output.dimension()],
            dx: vec![0.0; x.len()],
            gradients: weights.clone(),
            scratch: Scratch::new(),
            op,
            x,
            weights,
        }
    }

    fn forward(&mut self, graph: &GraphArrays<f32>) {
        let [neighbour, self_term, bias] = self.weights.each_ref().map(|values| &values[..]);
        let weights = Weights {
            neighbour,
            self_term,
            bias,
        };
        gauge_conv::forward(
            &self.op,
            graph.view(),
            &self.x,
            weights,
            &mut self.y,
            &mut self.scratch,
        )
        .expect("buffers of the right size");
    }

    /// Takes the output for its own gradient.
    fn backward(&mut self, graph: &GraphArrays<f32>) {
        let [neighbour, self_term, bias] = self.weights.each_ref().map(|values| &values[..]);
        let weights = Weights {
            neighbour,
            self_term,
            bias,
        };
        let [neighbour, self_term, bias] = self.gradients.each_mut().map(|values| &mut values[..]);
        let gradients = Weights {
            neighbour,
            self_term,
            bias,
        };
        gauge_conv::backward(
            &self.op,
            graph.view(),
            &self.x,
            weights,
            &self.y,
            Some(&mut self.dx),
            gradients,
            &mut self.scratch,
        )
        .expect("buffers of the right size");
    }

    /// Multiply-adds of the products and of the sparse step of a forward pass, for one vertex with
    /// six neighbours.
    fn multiply_adds(&self) -> f64 {
        let (input, output) = (&self.op.input, &self.op.output);
        let square = |(order, channels): (usize, usize)| {
            let width = if order == 0 { channels } else { 2 * channels };
            width * (if order == 0 { 1 } else { 2 } * input.dimension() + input.range(order).len())
        };
        let dense: usize = output.orders().map(square).sum();
        let harmonics = 2 * output.highest_order() + 1;
        let turned = input.dimension() - input.multiplicity(0);
        let sparse = 6 * (harmonics * input.dimension() + 2 * turned);
        (dense + sparse) as f64
    }
}

/// Seconds of the fastest of many calls.
fn fastest(pool: &ThreadPool, mut call: impl FnMut() + Send) -> f64 {
    pool.install(|| {
        let start = Instant::now();
        let mut best = f64::INFINITY;
        while start.elapsed().as_secs_f64() < 2.0 {
            let start = Instant::now();
            call();
            best = best.min(start.elapsed().as_secs_f64());
        }
        best
    })
}

fn print_table() {
    let graph = graph();
    let vertices = graph.vertex_count();
    println!(
        "{vertices} vertices, {} directed edges, f32, fastest of 2 s\n",
        graph.edge_count()
    );
    let (a, b) = (random(3, vertices * 80), random(4, 80 * 80));
    let mut c = vec![0.0f32; vertices * 80];
    let seconds = fastest(&pool(1), || {
        let mut c = MatrixMut::new(&mut c, vertices, 80, 80);
        let (a, b) = (
            Matrix::new(&a, vertices, 80, 80),
            Matrix::new(&b, 80, 80, 80),
        );
        product(&mut c, Destination::Set, a, b);
    });
    let rate = |multiply_adds: f64, seconds: f64| 2e-9 * multiply_adds / seconds;
    let gemm = rate((vertices * 80 * 80) as f64, seconds);
    println!("gemm {vertices}x80x80, 1 thread: {gemm:.0} GFLOP/s\n");

    for (input, output) in [
        (HIDDEN, HIDDEN),
        ("3x0", HIDDEN),
        (HIDDEN, "16x0"),
        ("64x0", "64x0"),
    ] {
        println!("{input} -> {output}");
        let mut single = [0.0; 2];
        for threads in [1, 2] {
            let pool = pool(threads);
            let mut layer = Layer::new(input, output, vertices);
            let forward = fastest(&pool, || layer.forward(&graph));
            let both = fastest(&pool, || {
                layer.forward(&graph);
                layer.backward(&graph);
            });
            if threads == 1 {
                single = [forward, both];
            }
            let work = layer.multiply_adds() * vertices as f64;
            println!(
                "  {threads} thread(s): forward {:6.3} ms ({:3.0} GFLOP/s, {:.2}x)   forward+backward {:6.3} ms ({:.2}x)",
                1e3 * forward,
                rate(work, forward),
                single[0] / forward,
                1e3 * both,
                single[1] / both,
            );
        }
    }
    println!();
}

#[divan::bench(args = [1, 2])]
fn convolution_forward(bencher: Bencher<'_, '_>, threads: usize) {
    let graph = graph();
    let mut layer = Layer::new(HIDDEN, HIDDEN, graph.vertex_count());
    let pool = pool(threads);
    bencher.bench_local(|| pool.install(|| layer.forward(&graph)));
}

#[divan::bench(args = [1, 2])]
fn convolution_backward(bencher: Bencher<'_, '_>, threads: usize) {
    let graph = graph();
    let mut layer = Layer::new(HIDDEN, HIDDEN, graph.vertex_count());
    let pool = pool(threads);
    bencher.bench_local(|| pool.install(|| layer.backward(&graph)));
}

#[divan::bench]
fn aggregation_alone(bencher: Bencher<'_, '_>) {
    let graph = graph();
    let op = Aggregate {
        input: HIDDEN.parse().expect("a feature type"),
        highest_order: 2,
        rings: 1,
        max_radius: 1.0,
        aggregation: Aggregation::Sum,
    };
    let x = random(1, graph.vertex_count() * 80);
    let mut a = vec![0.0; graph.vertex_count() * op.dimension()];
    let (pool, mut scratch) = (pool(1), Scratch::new());
    bencher.bench_local(|| {
        pool.install(|| aggregate::forward(&op, graph.view(), &x, &mut a, &mut scratch))
            .expect("buffers of the right size");
    });
}

#[divan::bench]
fn self_map_forward(bencher: Bencher<'_, '_>) {
    let vertices = 6889;
    let op = SelfMap {
        input: HIDDEN.parse().expect("a feature type"),
        output: HIDDEN.parse().expect("a feature type"),
        bias: true,
    };
    let x = random(1, vertices * 80);
    let weight = random(2, op.parameter_count());
    let bias = random(3, op.bias_count());
    let mut y = vec![0.0; x.len()];
    let (pool, mut scratch) = (pool(1), Scratch::new());
    bencher.bench_local(|| {
        pool.install(|| self_map::forward(&op, vertices, &x, &weight, &bias, &mut y, &mut scratch))
            .expect("buffers of the right size");
    });
}
