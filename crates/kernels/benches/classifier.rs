//! The fused classifier at the sizes of shape correspondence: 6,890 vertices, 6,890 classes.
//!
//! `cargo bench -p gemcnn-kernels --bench classifier`
//!
//! `plain_product` computes and stores the same logits by one matrix product: the rate to compare with. The
//! counter is two operations for each multiply-add.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use gemcnn_kernels::classifier::{Classifier, Gradients, Rows, evaluate, loss_and_gradients};
use gemcnn_kernels::cross_entropy::Targets;
use gemcnn_kernels::cuda::ProductMode;
use gemcnn_kernels::{Destination, Matrix, MatrixMut, Scratch, product};
use rayon::ThreadPool;

const VERTICES: usize = 6890;
const CLASSES: usize = 6890;
const CHANNELS: usize = 256;

fn main() {
    divan::main();
}

/// Numbers in [-0.1, 0.1].
fn numbers(count: usize, step: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * step) % 1009) as f32 / 5045.0 - 0.1).collect()
}

/// Powers of two up to the number of processors.
fn thread_counts() -> Vec<usize> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (0..=processors.ilog2()).map(|power| 1 << power).collect()
}

fn pool(threads: usize) -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn plain_product(bencher: Bencher) {
    let (h, w) = (numbers(VERTICES * CHANNELS, 7919), numbers(CLASSES * CHANNELS, 6007));
    let mut logits = vec![0.0; VERTICES * CLASSES];
    bencher.counter(ItemsCount::new(2 * VERTICES * CLASSES * CHANNELS)).bench_local(|| {
        product(
            &mut MatrixMut::new(black_box(&mut logits), VERTICES, CLASSES, CLASSES),
            Destination::Set,
            Matrix::new(&h, VERTICES, CHANNELS, CHANNELS),
            Matrix::new(&w, CLASSES, CHANNELS, CHANNELS).transposed(),
        );
    });
}

#[divan::bench(args = thread_counts(), sample_count = 5, sample_size = 1)]
fn training(bencher: Bencher, threads: usize) {
    train(bencher, threads, ProductMode::F32);
}

#[divan::bench(args = thread_counts(), sample_count = 5, sample_size = 1)]
fn training_bf16(bencher: Bencher, threads: usize) {
    train(bencher, threads, ProductMode::Bf16);
}

fn train(bencher: Bencher, threads: usize, products: ProductMode) {
    let (h, w) = (numbers(VERTICES * CHANNELS, 7919), numbers(CLASSES * CHANNELS, 6007));
    let bias = numbers(CLASSES, 31);
    let labels: Vec<u32> = (0..VERTICES as u32).collect();
    let classifier =
        Classifier { channels: CHANNELS, weight: &w, bias: &bias, targets: Targets::new(CLASSES, &labels) };
    let (mut dh, mut dw, mut db) = (vec![0.0; h.len()], vec![0.0; w.len()], vec![0.0; CLASSES]);
    let mut scratch = Scratch::new();
    let pool = pool(threads);
    bencher.counter(ItemsCount::new(6 * VERTICES * CLASSES * CHANNELS)).bench_local(|| {
        pool.install(|| {
            let gradients = Gradients { features: &mut dh[..], weight: &mut dw[..], bias: &mut db[..] };
            let rows = Rows::default();
            loss_and_gradients(&classifier, black_box(&h), 1.0, gradients, rows, products, &mut scratch)
        })
    });
}

#[divan::bench(args = thread_counts(), sample_count = 5, sample_size = 1)]
fn evaluation(bencher: Bencher, threads: usize) {
    let (h, w) = (numbers(VERTICES * CHANNELS, 7919), numbers(CLASSES * CHANNELS, 6007));
    let bias = numbers(CLASSES, 31);
    let labels: Vec<u32> = (0..VERTICES as u32).collect();
    let classifier =
        Classifier { channels: CHANNELS, weight: &w, bias: &bias, targets: Targets::new(CLASSES, &labels) };
    let mut scratch = Scratch::new();
    let pool = pool(threads);
    bencher
        .counter(ItemsCount::new(2 * VERTICES * CLASSES * CHANNELS))
        .bench_local(|| pool.install(|| evaluate(&classifier, black_box(&h), Rows::default(), &mut scratch)));
}
