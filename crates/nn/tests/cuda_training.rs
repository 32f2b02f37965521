//! Whole training steps and inference on a GPU against the CPU. Without a GPU that works every test
//! says why it is skipped.

mod common;

use common::{batch, random};
use gemcnn_mesh::{GeometryOptions, Hierarchy, shapes};
use gemcnn_nn::layers::{
    AngularConvConfig, EquivariantLinearConfig, GatedNonlinearityConfig, GlobalPool,
    NormNonlinearityConfig, Regular, TransportPool, TransportUnpool,
};
use gemcnn_nn::{
    Activation, Aggregation, Archive, Builder, CudaDevice, Device, FeatureType, GraphBatch,
    HierarchyBatch, Method, Network, NetworkConfig, NnError, Optimiser, Parameters, Penalty,
    ProductMode, Real, Rows, Stream, Tape, Targets, Var, Workspace,
};

/// A GPU that multiplies in f32, or none after saying why.
fn gpu(test: &str) -> Option<Device> {
    match CudaDevice::new(0) {
        Ok(device) => {
            device.set_product_mode(ProductMode::F32);
            Some(Device::Cuda(device))
        }
        Err(problem) => {
            println!("{test} skipped: {problem}");
            None
        }
    }
}

const CLASSES: usize = 19;

fn config() -> NetworkConfig {
    let regular = || Regular::relu(5).with_batch_norm();
    let hidden = FeatureType::uniform(6, 2);
    Network::builder(FeatureType::scalars(3))
        .aggregation(Aggregation::Mean)
        .residual(&hidden, regular())
        .norm()
        .dropout(0.2)
        .rings(2, 1.5)
        .residual(&hidden, Regular::relu(7))
        .residual(&FeatureType::scalars(9), regular())
        .linear(33)
        .activation(Activation::Relu)
        .dropout(0.5)
        .linear(CLASSES)
}

fn labels(rows: usize) -> Vec<u32> {
    (0..rows).map(|row| ((row * 7) % CLASSES) as u32).collect()
}

/// `|found - expected| / |expected|` of all numbers together.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |sum: f64, value: f64| sum + value * value;
    let pairs = found.iter().zip(expected);
    let error = pairs
        .map(|(&a, b)| f64::from(a) - b)
        .fold(0.0, square)
        .sqrt();
    let size = expected.iter().copied().fold(0.0, square).sqrt();
    error / size.max(f64::MIN_POSITIVE)
}

struct Outcome<T> {
    output: Vec<T>,
    loss: f64,
    correct: usize,
    /// Of each trained parameter, then running statistics.
    gradients: Vec<(String, Vec<T>)>,
    statistics: Vec<(String, Vec<T>)>,
    predictions: Vec<u32>,
}

fn outcome<T: Real>(config: &NetworkConfig, device: &Device) -> Outcome<T> {
    let batch = batch::<T>();
    let (network, parameters) = config.clone().init::<f64>(3).unwrap();
    let mut archive = Archive::new();
    network.store(&mut archive, &parameters).unwrap();
    let (network, mut parameters) = Network::<T>::from_archive(&archive).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let x = random::<T>(batch.vertex_count() * network.input().dimension(), 1);
    let labels = labels(batch.vertex_count());
    let targets = Targets {
        classes: CLASSES,
        labels: &labels,
        class_weights: None,
    };
    let stream = Stream { seed: 5, step: 2 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let input = tape.input(network.input().clone(), &x).unwrap();
    let loss = network
        .classify(&mut tape, &batch, input, targets, Rows::default())
        .unwrap();
    tape.backward_sum(&[(&loss, 0.5)]).unwrap();

    let mut predictions = vec![0; batch.vertex_count()];
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let input = tape.input(network.input().clone(), &x).unwrap();
    let output = network.forward(&mut tape, &batch, input.clone()).unwrap();
    let output = output.values().unwrap().to_vec();
    let rows = Rows {
        predictions: Some(&mut predictions),
        ..Rows::default()
    };
    network
        .classify(&mut tape, &batch, input, targets, rows)
        .unwrap();
    parameters.to_host().unwrap();
    let named = |trained: bool| {
        let entries = parameters.iter().filter(move |e| e.is_trained() == trained);
        let numbers = move |e: &gemcnn_nn::Parameter<T>| match trained {
            true => e.gradient().to_vec(),
            false => e.value().to_vec(),
        };
        entries.map(|e| (e.name().into(), numbers(e))).collect()
    };
    Outcome {
        output,
        loss: loss.value().unwrap(),
        correct: loss.score().unwrap().unwrap().correct,
        gradients: named(true),
        statistics: named(false),
        predictions,
    }
}

#[test]
fn a_step_agrees_with_the_cpu() {
    let Some(device) = gpu("a step") else { return };
    let expected = outcome::<f64>(&config(), &Device::Cpu);
    let found = outcome::<f32>(&config(), &device);
    let mut worst = relative_error(&found.output, &expected.output);
    println!("outputs: {worst:.1e}");
    assert!(worst < 1e-5);
    assert!((found.loss - expected.loss).abs() < 1e-5 * expected.loss);
    assert_eq!(found.correct, expected.correct);
    assert_eq!(found.predictions, expected.predictions);
    for (found, expected) in [
        (&found.gradients, &expected.gradients),
        (&found.statistics, &expected.statistics),
    ] {
        assert_eq!(found.len(), expected.len());
        // A bias before a batch normalisation has no effect: compared with the size of the largest.
        let size = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let largest = expected.iter().map(|(_, e)| size(e)).fold(0.0, f64::max);
        for ((name, found), (_, expected)) in found.iter().zip(expected) {
            let own = size(expected).max(1e-4 * largest);
            let error =
                relative_error(found, expected) * size(expected).max(f64::MIN_POSITIVE) / own;
            assert!(error < 1e-4, "{name}: {error:.1e}");
            worst = worst.max(error);
        }
    }
    println!("gradients and statistics: at most {worst:.1e}");
}

/// Twenty steps; the losses, the trained network and the optimiser.
fn train(device: &Device) -> (Vec<f64>, Network<f32>, Parameters<f32>, Optimiser<f32>) {
    let batch = batch::<f32>();
    let (network, mut parameters) = config().init::<f32>(3).unwrap();
    let mut optimiser = Optimiser::new(Method::adam_w(0.01), &parameters).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let x = random::<f32>(batch.vertex_count() * 3, 1);
    let labels = labels(batch.vertex_count());
    let mut losses = Vec::new();
    for step in 0..20 {
        parameters.clear_gradients();
        let stream = Stream { seed: 5, step };
        let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
        let input = tape.input(network.input().clone(), &x).unwrap();
        let targets = Targets {
            classes: CLASSES,
            labels: &labels,
            class_weights: None,
        };
        let loss = network
            .classify(&mut tape, &batch, input, targets, Rows::default())
            .unwrap();
        tape.backward(&loss).unwrap();
        if step % 5 == 0 {
            parameters.clip_gradients(0.5).unwrap();
        }
        optimiser.step(&mut parameters, 3e-3).unwrap();
        losses.push(loss);
    }
    let losses = losses.iter().map(|loss| loss.value().unwrap()).collect();
    (losses, network, parameters, optimiser)
}

fn bits(parameters: &Parameters<f32>) -> Vec<u32> {
    let values = parameters.iter().flat_map(|entry| entry.value());
    values.map(|value| value.to_bits()).collect()
}

#[test]
fn training_repeats_to_the_bit_and_follows_the_cpu() {
    let Some(device) = gpu("training") else {
        return;
    };
    let (losses, _, mut parameters, _) = train(&device);
    let (again, _, mut same, _) = train(&device);
    parameters.to_host().unwrap();
    same.to_host().unwrap();
    assert_eq!(losses, again);
    assert_eq!(bits(&parameters), bits(&same));
    let (expected, ..) = train(&Device::Cpu);
    println!("losses on the GPU {losses:.4?}\nlosses on the CPU {expected:.4?}");
    for (found, expected) in losses.iter().zip(&expected) {
        assert!((found - expected).abs() < 2e-2 * expected);
    }
    assert!(losses[19] < losses[0]);
}

#[test]
fn weights_come_back_and_training_goes_on_to_the_bit() {
    let Some(device) = gpu("weights") else { return };
    let (_, network, mut parameters, optimiser) = train(&device);
    let mut archive = Archive::new();
    network.store(&mut archive, &parameters).unwrap();
    optimiser
        .store(&mut archive, "optimiser", &parameters)
        .unwrap();
    let copy = parameters.clone();
    parameters.to_host().unwrap();
    let (_, loaded) = Network::<f32>::from_archive(&archive).unwrap();
    assert_eq!(bits(&loaded), bits(&parameters));
    let steps = |mut parameters: Parameters<f32>, mut optimiser: Optimiser<f32>| {
        let batch = batch::<f32>();
        let mut workspace = Workspace::new(device.clone());
        let x = random::<f32>(batch.vertex_count() * 3, 2);
        let target = random::<f32>(batch.vertex_count() * CLASSES, 3);
        for step in 20..23 {
            parameters.clear_gradients();
            let stream = Stream { seed: 5, step };
            let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
            let input = tape.input(network.input().clone(), &x).unwrap();
            let y = network.forward(&mut tape, &batch, input).unwrap();
            let loss = tape.mean_square(y, &target).unwrap();
            tape.backward(&loss).unwrap();
            optimiser.step(&mut parameters, 1e-3).unwrap();
        }
        parameters.to_host().unwrap();
        bits(&parameters)
    };
    let restored = Optimiser::load(&archive, "optimiser", &loaded).unwrap();
    let went_on = steps(copy, optimiser.clone());
    assert_eq!(went_on, steps(loaded, restored));
    assert_eq!(went_on, steps(parameters, optimiser));
}

#[test]
fn what_cannot_run_says_so() {
    let Some(device) = gpu("refusals") else {
        return;
    };
    let batch = batch::<f64>();
    let (network, parameters) = config().init::<f64>(1).unwrap();
    let mut workspace = Workspace::<f64>::new(device.clone());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = vec![0.0; batch.vertex_count() * 3];
    let message = tape.input(network.input().clone(), &x).unwrap_err();
    assert!(message.to_string().contains("f32"), "{message}");

    let (_, _, trained, _) = train(&device);
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, &trained);
    let batch = common::batch::<f32>();
    let x = vec![0.0; batch.vertex_count() * 3];
    let (network, _) = config().init::<f32>(1).unwrap();
    let x = tape.input(network.input().clone(), &x).unwrap();
    let message = network.forward(&mut tape, &batch, x).unwrap_err();
    assert!(message.to_string().contains("to_host"), "{message}");
}

/// Output and gradients, by input and by parameters, of any layers.
fn layers_outcome<T: Real>(
    device: &Device,
    input: &FeatureType,
    rows: usize,
    init: impl Fn(&mut Builder<'_, T>),
    run: impl for<'a> Fn(&mut Tape<'a, T>, Var<T>) -> Result<Var<T>, NnError>,
) -> Vec<Vec<T>> {
    let mut parameters = Parameters::<T>::new();
    init(&mut Builder::new(&mut parameters, 9));
    let mut workspace = Workspace::new(device.clone());
    let stream = Stream { seed: 5, step: 2 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let x = random::<T>(rows * input.dimension(), 1);
    let x = tape.tracked_input(input.clone(), &x).unwrap();
    let y = run(&mut tape, x.clone()).unwrap();
    let output = y.values().unwrap().to_vec();
    let target = random::<T>(output.len(), 2);
    let loss = tape.regression(Penalty::L1, y, &target, None).unwrap();
    let gradients = tape.backward_to(&loss, &[&x]).unwrap();
    parameters.to_host().unwrap();
    let mut all = vec![output, gradients[0].to_vec()];
    all.extend(parameters.iter().map(|entry| entry.gradient().to_vec()));
    all
}
