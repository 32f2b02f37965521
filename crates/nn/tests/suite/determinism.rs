//! The same seed gives the same bits, on any number of threads.

use crate::common::{self, random};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Aggregation, FeatureType, Levels, Method, Module, Network, Optimiser, Rows, Schedule, Stream, Tape, Targets,
    Workspace,
};

/// The bits of all parameters after a few training steps with dropout and batch normalisation, and
/// the last loss.
fn train(seed: u64) -> (Vec<Vec<u32>>, f64) {
    let batch = common::batch::<f32>();
    let hidden = FeatureType::uniform(6, 2);
    let (network, mut parameters) = Network::<f32>::builder("3x0".parse().unwrap())
        .aggregation(Aggregation::Mean)
        .residual(&hidden, Regular::relu(5).with_batch_norm())
        .residual(&FeatureType::scalars(8), Regular::relu(5))
        .dropout(0.3)
        .head(16, 4)
        .init(seed)
        .unwrap();
    let levels = Levels::from(&batch);
    let x = random::<f32>(batch.vertex_count() * 3, 1);
    let labels: Vec<u32> = (0..batch.vertex_count() as u32).map(|v| v % 4).collect();
    let mut workspace = Workspace::default();
    network.calibrate(&mut workspace, &mut parameters, levels, &x).unwrap();
    let mut optimiser = Optimiser::new(Method::adam_w(1e-2), &parameters).unwrap();
    let schedule = Schedule::Cosine { steps: 8, last: 0.0 };
    let mut last = 0.0;
    for step in 0..8 {
        parameters.clear_gradients();
        let stream = Stream { seed, step };
        let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
        let input = tape.input("3x0".parse().unwrap(), &x).unwrap();
        let targets = Targets::new(4, &labels);
        let loss = network.classify(&mut tape, levels, input, targets, Rows::default()).unwrap();
        last = loss.value().unwrap();
        tape.backward(&loss).unwrap();
        parameters.clip_gradients(1.0).unwrap();
        let rate = 0.01 * schedule.factor(step);
        optimiser.step(&mut parameters, rate).unwrap();
    }
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
    (parameters.iter().map(|p| bits(p.value())).collect(), last)
}

fn on_threads(threads: usize, seed: u64) -> (Vec<Vec<u32>>, f64) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(|| train(seed))
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_number_of_threads() {
    let once = on_threads(1, 3);
    assert!(once.1.is_finite());
    assert_eq!(once, on_threads(1, 3), "a second run");
    assert_eq!(once, on_threads(2, 3), "two threads");
    assert_ne!(once.0, on_threads(1, 4).0, "another seed");
}
