//! Whole training steps and inference in f32 on a GPU, and on the CPU, against f64 on the CPU. Without a
//! working GPU each test prints what it skips and why, or fails if `GEMCNN_REQUIRE_CUDA` is 1.

use crate::common::{self, batch, bumpy_grid, bumpy_sphere, random};
use gemcnn_kernels::elementwise::Accumulate;
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, shapes};
use gemcnn_nn::layers::{AngularConvConfig, EquivariantLinearConfig, Gates, GlobalPool, Nonlinearity, Norms, Regular};
use gemcnn_nn::{
    Activation, Aggregation, Archive, Builder, CudaDevice, CudaError, Device, FeatureType, Geometry, GraphBatch,
    IGNORE, Levels, Method, Module, Network, NetworkConfig, NnError, Objective, Optimiser, Parameters, Penalty,
    ProductMode, Real, Rows, Slice, StepSettings, Stepper, Stream, Tape, Target, Targets, TrainingBatch, Workspace,
};
use std::sync::Arc;

/// A GPU that multiplies in f32, or none after saying why.
pub fn gpu(test: &str) -> Option<Device> {
    match CudaDevice::new(0) {
        Ok(device) => {
            device.set_product_mode(ProductMode::F32);
            Some(Device::Cuda(device))
        }
        Err(problem) => {
            let required = std::env::var("GEMCNN_REQUIRE_CUDA").is_ok_and(|value| value == "1");
            assert!(!required, "{test} needs a GPU: {problem}");
            println!("{test} skipped: {problem}");
            None
        }
    }
}

/// The CPU, and a GPU if one works.
pub fn devices(test: &str) -> Vec<Device> {
    let mut devices = vec![Device::Cpu];
    devices.extend(gpu(test));
    devices
}

const CLASSES: usize = 19;

fn config<T: Real>() -> NetworkConfig<T> {
    let regular = || Regular::relu(5).with_batch_norm();
    let hidden = FeatureType::uniform(6, 2);
    Network::builder(FeatureType::scalars(3))
        .aggregation(Aggregation::Mean)
        .residual(&hidden, regular())
        .norm()
        .dropout(0.2)
        .rings(2, 1.5)
        .residual(&hidden, Regular::relu(7))
        .conv(&FeatureType::uniform(8, 3))
        .nonlinearity(regular())
        .dropout(0.1)
        .residual(&FeatureType::scalars(9), regular())
        .linear(33)
        .activation(Activation::Relu)
        .linear(36)
        .activation(Activation::Relu)
        .dropout(0.5)
        .linear(CLASSES)
}

fn labels(rows: usize) -> Vec<u32> {
    (0..rows).map(|row| ((row * 7) % CLASSES) as u32).collect()
}

pub fn size(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// `|found - expected| / |expected|` of all numbers together.
pub fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let differences: Vec<f64> = pairs.map(|(&a, b)| f64::from(a) - b).collect();
    size(&differences) / size(expected).max(f64::MIN_POSITIVE)
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

fn outcome<T: Real>(device: &Device) -> Outcome<T> {
    let batch = batch::<T>();
    let levels = Levels::from(&batch);
    let (network, mut parameters) = config::<T>().init(3).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let x = random::<T>(batch.vertex_count() * network.input().dimension(), 1);
    let labels = labels(batch.vertex_count());
    let targets = Targets::new(CLASSES, &labels);
    let stream = Stream { seed: 5, step: 2 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let input = tape.input(network.input().clone(), &x).unwrap();
    let loss = network.classify(&mut tape, levels, input, targets, Rows::default()).unwrap();
    tape.backward_sum(&[(&loss, 0.5)]).unwrap();

    let mut predictions = vec![0; batch.vertex_count()];
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let input = tape.input(network.input().clone(), &x).unwrap();
    let output = network.forward(&mut tape, levels, input.clone()).unwrap();
    let output = output.values().unwrap().to_vec();
    let rows = Rows { predictions: Some(&mut predictions), ..Rows::default() };
    network.classify(&mut tape, levels, input.clone(), targets, rows).unwrap();
    let classes = network.predict_classes(&mut tape, levels, input).unwrap();
    assert_eq!(classes, predictions, "without labels");
    drop(tape);
    parameters.move_to_host().unwrap();
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
fn a_step_agrees_with_f64_on_the_cpu() {
    let expected = outcome::<f64>(&Device::Cpu);
    for device in devices("a step") {
        let found = outcome::<f32>(&device);
        let mut worst = relative_error(&found.output, &expected.output);
        println!("{device:?}: outputs differ by {worst:.1e}");
        assert!(worst < 1e-5);
        assert!((found.loss - expected.loss).abs() < 1e-5 * expected.loss);
        assert_eq!(found.correct, expected.correct);
        assert_eq!(found.predictions, expected.predictions);
        for (found, expected) in [(&found.gradients, &expected.gradients), (&found.statistics, &expected.statistics)] {
            assert_eq!(found.len(), expected.len());
            let all = |lists: &[(String, Vec<f64>)]| -> Vec<f64> {
                lists.iter().flat_map(|(_, list)| list.clone()).collect()
            };
            let together: Vec<f32> = found.iter().flat_map(|(_, list)| list.clone()).collect();
            let error = relative_error(&together, &all(expected));
            println!("{device:?}: gradients or statistics together differ by {error:.1e}");
            assert!(error < 1e-5);
            let largest = expected.iter().map(|(_, e)| size(e)).fold(0.0, f64::max);
            for ((name, found), (_, expected)) in found.iter().zip(expected) {
                // The gradient of a bias before a batch normalisation is nothing but rounding.
                let scale = size(expected) / size(expected).max(1e-3 * largest);
                let error = relative_error(found, expected) * scale;
                assert!(error < 3e-4, "{name}: {error:.1e}");
                worst = worst.max(error);
            }
        }
        println!("{device:?}: single gradients and statistics differ by at most {worst:.1e}");
    }
}

/// Twenty steps; the losses, the trained network and the optimiser.
fn train(device: &Device) -> (Vec<f64>, Network<f32>, Parameters<f32>, Optimiser<f32>) {
    let batch = batch::<f32>();
    let levels = Levels::from(&batch);
    let (network, mut parameters) = config::<f32>().init(3).unwrap();
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
        let targets = Targets::new(CLASSES, &labels);
        let loss = network.classify(&mut tape, levels, input, targets, Rows::default()).unwrap();
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
    let Some(device) = gpu("training") else { return };
    let (losses, _, mut parameters, _) = train(&device);
    let (again, _, mut same, _) = train(&device);
    parameters.move_to_host().unwrap();
    same.move_to_host().unwrap();
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
    parameters.store(&mut archive, "weights").unwrap();
    optimiser.store(&mut archive, "optimiser", &parameters).unwrap();
    let copy = parameters.clone();
    parameters.move_to_host().unwrap();
    let (_, mut loaded) = config::<f32>().init(4).unwrap();
    loaded.load(&archive, "weights").unwrap();
    assert_eq!(bits(&loaded), bits(&parameters));
    let steps = |mut parameters: Parameters<f32>, mut optimiser: Optimiser<f32>| {
        let batch = batch::<f32>();
        let levels = Levels::from(&batch);
        let mut workspace = Workspace::new(device.clone());
        let x = random::<f32>(batch.vertex_count() * 3, 2);
        let target = random::<f32>(batch.vertex_count() * CLASSES, 3);
        for step in 20..23 {
            parameters.clear_gradients();
            let stream = Stream { seed: 5, step };
            let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
            let input = tape.input(network.input().clone(), &x).unwrap();
            let y = network.forward(&mut tape, levels, input).unwrap();
            let loss = tape.mean_square(y, &target).unwrap();
            tape.backward(&loss).unwrap();
            optimiser.step(&mut parameters, 1e-3).unwrap();
        }
        parameters.move_to_host().unwrap();
        bits(&parameters)
    };
    let restored = Optimiser::load(&archive, "optimiser", &loaded).unwrap();
    let went_on = steps(copy, optimiser.clone());
    assert_eq!(went_on, steps(loaded, restored));
    assert_eq!(went_on, steps(parameters, optimiser));
}

#[test]
fn what_cannot_run_says_so() {
    let Some(device) = gpu("refusals") else { return };
    let batch = batch::<f64>();
    let (network, parameters) = config::<f64>().init(1).unwrap();
    let mut workspace = Workspace::<f64>::new(device.clone());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = vec![0.0; batch.vertex_count() * 3];
    let error = tape.input(network.input().clone(), &x).unwrap_err();
    assert!(matches!(error, NnError::Setting { .. }), "{error}");

    let (_, _, trained, _) = train(&device);
    let batch = common::batch::<f32>();
    let levels = Levels::from(&batch);
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, &trained);
    let x = vec![0.0; batch.vertex_count() * 3];
    let (network, _) = config::<f32>().init(1).unwrap();
    let x = tape.input(network.input().clone(), &x).unwrap();
    let error = network.forward(&mut tape, levels, x).unwrap_err();
    let NnError::Layer { source, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(&*source, NnError::Setting { what, .. } if what == "parameters"), "{source}");
}

/// Layers that the network above does not have: output, losses and gradients of the parameters.
fn other_layers<T: Real>(device: &Device) -> Vec<Vec<T>> {
    let options = HierarchyOptions { ratios: vec![0.4], radii: vec![1.2], ..HierarchyOptions::default() };
    let hierarchies = [&bumpy_sphere(), &bumpy_grid()].map(|mesh| Hierarchy::new(mesh, &options).unwrap());
    let batch = Geometry::<T>::new(&hierarchies).unwrap();
    let levels = Levels::from(&batch);
    let (clusters, _) = levels.coarser().unwrap();
    let rows = levels.graph().unwrap().vertex_count();
    let kind: FeatureType = "3x0 + 2x1 + 1x2".parse().unwrap();
    let mut parameters = Parameters::<T>::new();
    let builder = &mut Builder::new(&mut parameters, 9);
    let gated: Box<dyn Module<T>> = Gates::relu().init("gated", &kind, builder).unwrap();
    let to_gates = EquivariantLinearConfig::new(kind.clone(), gated.input().clone()).init("to_gates", builder).unwrap();
    let norm = Norms::relu().init("norm", &kind, builder).unwrap();
    let to_scalars = EquivariantLinearConfig::new(kind.concatenated(&kind), FeatureType::scalars(8))
        .init("to_scalars", builder)
        .unwrap();
    let angular = AngularConvConfig::new(8, 5, 2).init("angular", builder).unwrap();
    let slice = Arc::new(Slice { kind: FeatureType::scalars(5), channels: std::iter::once(1..4).collect() });

    let joined = random::<T>(rows * 2 * kind.dimension(), 3);
    let target = random::<T>(2 * 6, 2);
    let targets = Targets::new(6, &[4, 1]);

    let mut workspace = Workspace::new(device.clone());
    let stream = Stream { seed: 5, step: 2 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let numbers = random::<T>(rows * kind.dimension(), 1);
    let x = tape.input(kind.clone(), &numbers).unwrap();
    let gates = to_gates.forward(&mut tape, levels, x.clone()).unwrap();
    let a = gated.forward(&mut tape, levels, gates).unwrap();
    let b = norm.forward(&mut tape, levels, x.clone()).unwrap();
    let b = tape.transport_pool(clusters, b).unwrap();
    let b = tape.transport_unpool(clusters, b).unwrap();
    let b = tape.scale(1.5, b).unwrap();
    let y = tape.concatenate(a, b).unwrap();
    let rotating = tape.regression(Penalty::MeanSquare, y.clone(), &joined, None).unwrap();
    let y = to_scalars.forward(&mut tape, levels, y).unwrap();
    let y = angular.forward(&mut tape, levels, y).unwrap();
    let y = tape.slice(&slice, y).unwrap();
    let [mean, largest] = [GlobalPool::Mean, GlobalPool::Max].map(|pool| {
        let pool = pool.init(3);
        pool.forward(&mut tape, levels, y.clone()).unwrap()
    });
    let y = tape.concatenate(mean, largest).unwrap();
    let output = y.values().unwrap().to_vec();
    let entropy = tape.cross_entropy(y.clone(), targets).unwrap();
    let distance = tape.regression(Penalty::L1, y, &target, None).unwrap();
    let values = [&entropy, &distance, &rotating].map(|loss| T::of(loss.value().unwrap()));
    tape.backward_sum(&[(&entropy, 0.7), (&distance, 0.4), (&rotating, 0.5)]).unwrap();
    parameters.move_to_host().unwrap();
    let mut all = vec![output, values.to_vec()];
    all.extend(parameters.iter().map(|entry| entry.gradient().to_vec()));
    all
}

#[test]
fn all_other_layers_agree_with_f64_on_the_cpu() {
    let expected = other_layers::<f64>(&Device::Cpu);
    for device in devices("other layers") {
        let found = other_layers::<f32>(&device);
        assert_eq!(found.len(), expected.len());
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = relative_error(found, expected);
            println!("{device:?}: result {place} differs by {error:.1e}");
            assert!(error < 1e-4);
        }
    }
}

fn rough_sphere(subdivisions: u32, seed: u64) -> GaugeGraph {
    let sphere = shapes::icosphere(subdivisions).unwrap();
    let mut noise = random::<f64>(sphere.vertex_count(), seed).into_iter();
    let rough = |p: DVec3| p * (1.0 + 0.1 * noise.next().unwrap_or(0.0));
    let mesh = sphere.map_vertices(rough).unwrap();
    GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap()
}

/// Training through a stepper on batches of two shapes: two of one, and now and then one of the other.
fn stepped(device: &Device, mut stepper: Stepper<f32>) -> (Vec<f64>, Vec<u32>, bool) {
    let (network, mut parameters) = config::<f32>().init(3).unwrap();
    let mut optimiser = Optimiser::new(Method::adam_w(0.01), &parameters).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let training_batch = |graph: &Arc<Geometry<f32>>, seed: u64| {
        let rows = graph.levels()[0].vertex_count();
        let mut labels = labels(rows);
        // Another number of unknown rows in each batch: the mean is over the others.
        labels.rotate_left(seed as usize);
        labels[..seed as usize].fill(IGNORE);
        let objective = Objective::classes(CLASSES);
        let (kind, features) = (FeatureType::scalars(3), random(rows * 3, seed));
        let target = Target::Classes(labels);
        TrainingBatch::new(Arc::clone(graph), kind, features, objective, target).unwrap()
    };
    let large: Vec<Arc<Geometry<f32>>> = (0..2)
        .map(|seed| {
            // The same numbers of vertices and edges, but other angles and lengths.
            let graph = rough_sphere(2, 7 + seed);
            Arc::new(GraphBatch::new([&graph, &graph]).unwrap().into())
        })
        .collect();
    let small = Arc::new(GraphBatch::new([&rough_sphere(1, 9)]).unwrap().into());
    let steps = 24;
    // Batches come from another thread, as in training.
    let (sender, batches) = std::sync::mpsc::sync_channel(2);
    let mut losses = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for step in 0..steps {
                let graph = match step % 6 {
                    5 => &small,
                    other => &large[(other / 2 % 2) as usize],
                };
                let batch = training_batch(graph, step);
                batch.send_ahead(device).unwrap();
                sender.send(batch).unwrap();
            }
        });
        for (step, batch) in (0..steps).zip(batches) {
            let settings = StepSettings {
                rate: 3e-3 / (1.0 + step as f64),
                randomness: Stream { seed: 5, step },
                clip: Some(0.5),
            };
            let loss =
                stepper.step(&network, &mut parameters, &mut optimiser, &mut workspace, &batch, settings).unwrap();
            losses.push(loss);
        }
    });
    assert_eq!(optimiser.steps(), steps);
    let losses = losses.iter().map(|loss| loss.value().unwrap()).collect();
    parameters.move_to_host().unwrap();
    (losses, bits(&parameters), stepper.is_recorded())
}

/// Training of a U-net on spheres whose coarser graphs have other numbers of edges: losses, bits of the
/// parameters, and whether steps were replayed.
fn stepped_unet(device: &Device, mut stepper: Stepper<f32>) -> (Vec<f64>, Vec<u32>, bool) {
    let act: Arc<dyn Nonlinearity<f32>> = Arc::new(Regular::relu(3));
    let (module, mut parameters) = common::UNet::new(&act, 4);
    let mut optimiser = Optimiser::new(Method::adam(), &parameters).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let options = HierarchyOptions { ratios: vec![0.25, 0.25], radii: vec![0.55, 1.1], ..Default::default() };
    let batches: Vec<TrainingBatch<f32>> = (0..4)
        .map(|seed| {
            let sphere = shapes::icosphere(2).unwrap();
            let mut noise = random::<f64>(sphere.vertex_count(), 20 + seed).into_iter();
            let rough = |p: DVec3| p * (1.0 + 0.2 * noise.next().unwrap_or(0.0));
            let mesh = sphere.map_vertices(rough).unwrap();
            let hierarchy = Hierarchy::new(&mesh, &options).unwrap();
            let graphs = Geometry::new([&hierarchy]).unwrap();
            let rows = mesh.vertex_count();
            let objective = Objective::Values { kind: module.output().clone(), penalty: Penalty::MeanSquare };
            let features = random(rows * module.input().dimension(), seed);
            let target = Target::Values(random(rows * module.output().dimension(), 50 + seed));
            let kind = module.input().clone();
            TrainingBatch::new(graphs, kind, features, objective, target).unwrap()
        })
        .collect();
    let edges = |batch: &TrainingBatch<f32>| batch.graphs().levels()[2].edge_count();
    assert!(batches.iter().any(|batch| edges(batch) != edges(&batches[0])));
    let mut losses = Vec::new();
    for step in 0..12 {
        let settings = StepSettings { rate: 1e-2, randomness: Stream { seed: 5, step }, clip: None };
        let batch = &batches[step as usize % batches.len()];
        let loss = stepper.step(&module, &mut parameters, &mut optimiser, &mut workspace, batch, settings);
        losses.push(loss.unwrap());
    }
    let losses = losses.iter().map(|loss| loss.value().unwrap()).collect();
    parameters.move_to_host().unwrap();
    (losses, bits(&parameters), stepper.is_recorded())
}

#[test]
fn replayed_steps_of_a_unet_are_plain_steps_to_the_bit() {
    let (expected, ..) = stepped_unet(&Device::Cpu, Stepper::default());
    let Some(device) = gpu("replayed steps of a U-net") else { return };
    let plain = stepped_unet(&device, Stepper::plain());
    let replayed = stepped_unet(&device, Stepper::default());
    assert!(!plain.2 && replayed.2);
    assert_eq!(plain.0, replayed.0);
    assert_eq!(plain.1, replayed.1);
    for (found, expected) in replayed.0.iter().zip(&expected) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }
}

#[test]
fn replayed_steps_are_plain_steps_to_the_bit() {
    let (expected, ..) = stepped(&Device::Cpu, Stepper::default());
    let Some(device) = gpu("replayed steps") else { return };
    let plain = stepped(&device, Stepper::plain());
    let replayed = stepped(&device, Stepper::default());
    assert!(!plain.2 && replayed.2);
    assert_eq!(plain.0, replayed.0);
    assert_eq!(plain.1, replayed.1);
    for (found, expected) in plain.0.iter().zip(&expected) {
        assert!((found - expected).abs() < 2e-2 * expected, "{found} {expected}");
    }
}

#[test]
fn a_captured_graph_keeps_its_memory_and_refuses_the_host() {
    let Some(Device::Cuda(device)) = gpu("captured graphs") else { return };
    let x = device.upload(&[1.0f32; 1000]).unwrap();
    let mut sum = device.zeros::<f32>(1000).unwrap();
    let captured = device
        .capture(|| {
            // Given back at once, and yet nobody else's until the graph is dropped.
            let copy = x.duplicate(&device)?;
            let twice = copy.duplicate(&device)?;
            drop(copy);
            Accumulate { a: twice.view(), y: sum.view_mut() }.launch(&device)
        })
        .unwrap();
    let others: Vec<_> = (0..4).map(|_| device.upload(&[7.0f32; 1000]).unwrap()).collect();
    captured.replay().unwrap();
    captured.replay().unwrap();
    assert_eq!(sum.to_vec(&device).unwrap(), [2.0; 1000]);
    for other in &others {
        assert_eq!(other.to_vec(&device).unwrap(), [7.0; 1000]);
    }
    let refused = device.capture(|| device.upload(&[1.0f32]));
    assert!(matches!(refused, Err(CudaError::Capture { .. })));
    let refused = device.capture(|| device.synchronise());
    assert!(matches!(refused, Err(CudaError::Capture { .. })));
    // The device is as before.
    assert_eq!(x.to_vec(&device).unwrap(), [1.0; 1000]);
}
