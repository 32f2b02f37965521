//! Every operator of the tape against finite differences, through the tape.

use crate::common::{self, UNet, batch, init, kind, random};
use gemcnn_nn::layers::{
    Angular, AngularConvConfig, EquivariantDropoutConfig, EquivariantLinearConfig, EquivariantNormConfig, Gates, Gauge,
    GemConvConfig, GlobalPool, Identity, Isotropic, Kernel, LinearConfig, Nonlinearity, Norms, Regular,
};
use gemcnn_nn::{
    Activation, Aggregation, ClusterBatch, ClusterParts, FeatureType, Geometry, GraphBatch, IGNORE, Levels, Module,
    Network, NnError, Parameters, Penalty, Rows, Slice, Stream, Tape, Targets, Var, Workspace,
};
use std::sync::Arc;

const STREAM: Stream = Stream { seed: 9, step: 3 };
const STEP: f64 = 1e-5;

/// A forward pass to check: features in, features out.
pub type Run<'f, T = f64> = dyn for<'a> Fn(&mut Tape<'a, T>, Levels<'a, T>, Var<T>) -> Result<Var<T>, NnError> + 'f;

/// Checks gradients by the input and by all parameters along random directions, of the mean squared
/// distance of the output from fixed random numbers.
pub fn check(what: &str, input: &str, parameters: &mut Parameters<f64>, run: &Run<'_>) {
    let batch = batch::<f64>();
    let rows = batch.vertex_count();
    check_rows(what, input, rows, &batch, parameters, run);
}

pub fn check_rows(
    what: &str,
    input: &str,
    rows: usize,
    batch: &GraphBatch<f64>,
    parameters: &mut Parameters<f64>,
    run: &Run<'_>,
) {
    let input = kind(input);
    let x = random::<f64>(rows * input.dimension(), 1);
    // Biases and statistics start at special values: move everything away from them.
    for (index, entry) in parameters.iter_mut().enumerate() {
        if entry.is_trained() {
            let noise = random::<f64>(entry.value().len(), 50 + index as u64);
            for (value, noise) in entry.value_mut().iter_mut().zip(noise) {
                *value += 0.3 * noise;
            }
        }
    }
    let mut workspace = Workspace::default();
    let target = {
        let mut copy = parameters.clone();
        let mut tape = Tape::training(&mut workspace, &mut copy, STREAM);
        let x = tape.input(input.clone(), &x).unwrap();
        let y = run(&mut tape, batch.into(), x).unwrap();
        random::<f64>(y.values().unwrap().len(), 2)
    };
    let mut value = |parameters: &Parameters<f64>, x: &[f64]| {
        let mut copy = parameters.clone();
        let mut tape = Tape::training(&mut workspace, &mut copy, STREAM);
        let x = tape.input(input.clone(), x).unwrap();
        let y = run(&mut tape, batch.into(), x).unwrap();
        tape.mean_square(y, &target).unwrap().value().unwrap()
    };
    let mut trained = parameters.clone();
    trained.clear_gradients();
    let mut own = Workspace::default();
    let mut tape = Tape::training(&mut own, &mut trained, STREAM);
    let tracked = tape.tracked_input(input.clone(), &x).unwrap();
    let y = run(&mut tape, batch.into(), tracked.clone()).unwrap();
    let loss = tape.mean_square(y, &target).unwrap();
    let gradient = tape.backward_to(&loss, &[&tracked]).unwrap();
    drop(tracked);

    let compare = |name: &str, found: f64, up: f64, down: f64| {
        let expected = (up - down) / (2.0 * STEP);
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{what}, {name}: the gradient says {found}, differences say {expected}"
        );
    };
    let inner = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for seed in 0..3 {
        let direction = random::<f64>(x.len(), 100 + seed);
        let moved = |by: f64| -> Vec<f64> { x.iter().zip(&direction).map(|(x, d)| x + by * d).collect() };
        let (up, down) = (value(parameters, &moved(STEP)), value(parameters, &moved(-STEP)));
        compare("input", inner(&gradient[0], &direction), up, down);
    }
    for entry in trained.iter().filter(|entry| entry.is_trained()) {
        let direction = random::<f64>(entry.value().len(), 7);
        let mut moved = |by: f64| {
            let mut copy = parameters.clone();
            let id = copy.find(entry.name()).unwrap();
            for (v, d) in copy.get_mut(id).value_mut().iter_mut().zip(&direction) {
                *v += by * d;
            }
            value(&copy, &x)
        };
        let (up, down) = (moved(STEP), moved(-STEP));
        compare(entry.name(), inner(entry.gradient(), &direction), up, down);
    }
}

#[test]
fn convolutions() {
    for (aggregation, rings, input, output) in [
        (Aggregation::Sum, 1, "2x0 + 1x1", "1x0 + 2x1 + 1x2"),
        (Aggregation::Mean, 3, "1x0 + 2x2", "2x0 + 1x1"),
        (Aggregation::MeanWithSelf, 2, "2x1", "1x0 + 1x1"),
    ] {
        let config =
            GemConvConfig { aggregation, rings, max_radius: 0.7, ..GemConvConfig::new(kind(input), kind(output)) };
        let (conv, mut parameters) = init(|builder| config.init("conv", builder));
        check("gauge convolution", input, &mut parameters, &|tape, levels, x| conv.forward(tape, levels, x));
    }
    let (conv, mut parameters) = init(|builder| AngularConvConfig::new(3, 2, 2).init("angular", builder));
    assert_eq!(parameters.trained_count(), (2 * 2 + 2) * 3 * 2);
    check("angular convolution", "3x0", &mut parameters, &|tape, levels, x| conv.forward(tape, levels, x));
}

#[test]
fn linear_maps() {
    let (map, mut parameters) =
        init(|builder| EquivariantLinearConfig::new(kind("2x0 + 2x1"), kind("1x0 + 3x1 + 1x2")).init("map", builder));
    check("equivariant map", "2x0 + 2x1", &mut parameters, &|tape, levels, x| map.forward(tape, levels, x));
    let (map, mut parameters) = init(|builder| LinearConfig::new(3, 4).init("map", builder));
    check("linear map", "3x0", &mut parameters, &|tape, levels, x| map.forward(tape, levels, x));
}

#[test]
fn nonlinearities_and_normalisation() {
    let hidden = kind("2x0 + 2x1 + 2x2");
    let text = hidden.to_string();
    // Smooth, so that differences are exact enough; with batch normalisation below.
    let regular = Regular { activation: Activation::Gelu, ..Regular::relu(7) };
    let (layer, mut parameters) = init(|builder| regular.init("act", &hidden, builder));
    check("regular nonlinearity", &text, &mut parameters, &|tape, levels, x| layer.forward(tape, levels, x));
    let (norm, mut parameters) = init(|builder| EquivariantNormConfig::new(hidden.clone()).init("norm", builder));
    check("batch norm", &text, &mut parameters, &|tape, levels, x| norm.forward(tape, levels, x));
    check("activation", "4x0", &mut Parameters::new(), &|tape, _, x| tape.activation(&Activation::Tanh, x));
    let dropout = EquivariantDropoutConfig::new(hidden).init("drop").unwrap();
    check("dropout", &text, &mut Parameters::new(), &|tape, levels, x| {
        let once = dropout.forward(tape, levels, x.clone())?;
        let twice = dropout.forward(tape, levels, x)?;
        tape.add(once, twice)
    });
}

#[test]
fn sums_joins_and_slices() {
    // `x` is used three times, once in place: its gradients must add up.
    check("sums", "2x0 + 1x1", &mut Parameters::new(), &|tape, _, x| {
        let doubled = tape.add(x.clone(), x.clone())?;
        let scaled = tape.scale(-0.7, x.clone())?;
        let sum = tape.add(scaled, doubled)?;
        let joined = tape.concatenate(sum, x)?;
        let slice = Arc::new(Slice { kind: joined.kind().clone(), channels: vec![1..4, 1..2] });
        tape.slice(&slice, joined)
    });
}

#[test]
fn pooling() {
    let batch = batch::<f64>();
    for pool in [GlobalPool::Mean, GlobalPool::Max] {
        let pool = pool.init(3);
        check("global pooling", "3x0", &mut Parameters::new(), &|tape, levels, x| pool.forward(tape, levels, x));
    }
    let rows = batch.vertex_count();
    let members: Vec<u32> = (0..rows as u32).collect();
    let cluster_of: Vec<u32> = members.iter().map(|v| v / 4).collect();
    let clusters = cluster_of[rows - 1] + 1;
    let offsets: Vec<u32> = (0..=clusters).map(|c| (4 * c).min(rows as u32)).collect();
    let parts =
        ClusterParts { offsets: &offsets, members: &members, cluster_of: &cluster_of, transport: &random(rows, 8) };
    let clusters: &'static ClusterBatch<f64> = Box::leak(Box::new(ClusterBatch::new(&[parts]).unwrap()));
    check("pool and unpool", "1x0 + 2x1 + 1x2", &mut Parameters::new(), &|tape, _, x| {
        let coarse = tape.transport_pool(clusters, x)?;
        let coarse = tape.scale(2.0, coarse)?;
        tape.transport_unpool(clusters, coarse)
    });
}

/// Smooth nonlinearities, so that differences are exact enough.
fn smooth() -> [Arc<dyn Nonlinearity<f64>>; 4] {
    let (activation, batch_norm) = (Activation::Tanh, true);
    let regular = Regular { samples: 5, activation: Activation::Gelu, batch_norm };
    let norms = Norms { activation: activation.clone(), batch_norm };
    let gates = Gates { activation, batch_norm };
    [Arc::new(Identity), Arc::new(regular), Arc::new(norms), Arc::new(gates)]
}

#[test]
fn blocks_of_every_kernel_and_nonlinearity() {
    let gauge: Arc<dyn Kernel<f64>> = Arc::new(Gauge);
    let isotropic: Arc<dyn Kernel<f64>> = Arc::new(Isotropic);
    let angular: Arc<dyn Kernel<f64>> = Arc::new(Angular { band_limit: 2 });
    for (kernel, input, output) in [
        (&gauge, "1x0 + 1x1", "2x0 + 2x1"),
        (&gauge, "2x0 + 2x1", "2x0 + 2x1"),
        (&isotropic, "3x0", "2x0"),
        (&angular, "3x0", "2x0"),
        (&angular, "2x0", "2x0"),
    ] {
        for nonlinearity in smooth() {
            let what = format!("{kernel:?}, {nonlinearity:?}");
            let (network, mut parameters) = Network::builder(kind(input))
                .kernel(Arc::clone(kernel))
                .aggregation(Aggregation::Mean)
                .residual(&kind(output), nonlinearity)
                .init(1)
                .unwrap();
            check(&what, input, &mut parameters, &|tape, levels, x| network.forward(tape, levels, x));
        }
    }
}

#[test]
fn down_and_up_again() {
    let (module, mut parameters) = UNet::new(&smooth()[3], 1);
    let hierarchy: &'static Geometry<f64> = Box::leak(Box::new(common::hierarchy()));
    let input = module.input().to_string();
    check("down and up", &input, &mut parameters, &|tape, _, x| module.forward(tape, hierarchy.into(), x));
}

/// Losses of a linear map, by its weights.
#[test]
fn losses() {
    let batch = batch::<f64>();
    let rows = 20;
    let (map, mut parameters) = init::<f64, _>(|builder| LinearConfig::new(3, 4).init("map", builder));
    let x = random::<f64>(rows * 3, 1);
    let labels: Vec<u32> = (0..rows as u32).map(|i| if i == 3 { IGNORE } else { i % 4 }).collect();
    let weights = [1.0, 0.5, 2.0, 1.5];
    let targets = Targets { classes: 4, labels: &labels, smoothing: 0.1, class_weights: Some(&weights) };
    let target = random::<f64>(rows * 4, 2);
    let mask: Vec<bool> = (0..rows).map(|i| i % 3 != 0).collect();
    let run = |parameters: &mut Parameters<f64>, backward: bool| {
        let mut workspace = Workspace::default();
        let mut tape = Tape::training(&mut workspace, parameters, STREAM);
        let x = tape.input(FeatureType::scalars(3), &x).unwrap();
        let y = map.forward(&mut tape, Levels::from(&batch), x.clone()).unwrap();
        let plain = tape.cross_entropy(y.clone(), targets).unwrap();
        let fused = tape.classifier(map.weights(), x, targets, Rows::default()).unwrap();
        assert!((plain.value().unwrap() - fused.value().unwrap()).abs() < 1e-12);
        assert_eq!(plain.score().unwrap().unwrap().correct, fused.score().unwrap().unwrap().correct);
        let l1 = tape.regression(Penalty::L1, y, &target, Some(&mask)).unwrap();
        let sum = [(&plain, 0.3), (&fused, 0.4), (&l1, 2.0)];
        let value: f64 = sum.iter().map(|(loss, weight)| weight * loss.value().unwrap()).sum();
        if backward {
            tape.backward_sum(&sum).unwrap();
        }
        value
    };
    run(&mut parameters, true);
    for name in ["map.weight", "map.bias"] {
        let id = parameters.find(name).unwrap();
        let gradient = parameters.get(id).gradient().to_vec();
        for (place, found) in gradient.iter().enumerate() {
            let mut moved = |by: f64| {
                parameters.get_mut(id).value_mut()[place] += by;
                let value = run(&mut parameters, false);
                parameters.get_mut(id).value_mut()[place] -= by;
                value
            };
            let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            assert!((found - expected).abs() < 1e-6, "{name} {place}: {found} {expected}");
        }
    }
}

#[test]
fn wrong_types_sizes_and_tapes_are_errors() {
    let batch = batch::<f32>();
    let levels = Levels::from(&batch);
    let (conv, mut parameters) =
        init::<f32, _>(|builder| GemConvConfig::new(kind("1x0"), kind("1x1")).init("first.conv", builder));
    let rows = batch.vertex_count();
    let target = vec![0.0; 2 * rows];
    let (mut a, mut b) = (Workspace::default(), Workspace::default());
    let mut other = parameters.clone();
    let mut tape = Tape::training(&mut a, &mut parameters, STREAM);
    let mut second = Tape::training(&mut b, &mut other, STREAM);
    assert!(tape.input(kind("2x1"), &[0.0; 5]).is_err());
    let wrong_kind = tape.input(kind("1x1"), &vec![0.0; 2 * rows]).unwrap();
    let error = conv.forward(&mut tape, levels, wrong_kind).unwrap_err();
    let NnError::Layer { layer, source } = error else {
        panic!("{error}");
    };
    assert_eq!(layer, "first.conv");
    assert!(
        matches!(&*source, NnError::Type { expected, found, .. }
            if *expected == kind("1x0") && *found == kind("1x1")),
        "{source}"
    );
    let short = tape.input(kind("1x0"), &vec![0.0; rows - 1]).unwrap();
    let error = conv.forward(&mut tape, levels, short).unwrap_err();
    let NnError::Layer { source, .. } = error else {
        panic!("{error}");
    };
    assert!(
        matches!(*source, NnError::Size { expected, found, .. }
            if expected == rows && found == rows - 1),
        "{source}"
    );
    let x = tape.input(kind("1x0"), &vec![0.0; rows]).unwrap();
    let y = conv.forward(&mut tape, levels, x).unwrap();
    assert!(second.activation(&Activation::Relu, y.clone()).is_err());
    assert!(tape.activation(&Activation::Relu, y.clone()).is_err());
    let loss = tape.mean_square(y, &target).unwrap();
    assert!(second.backward(&loss).is_err());
    let mut c = Workspace::default();
    let foreign = Parameters::<f32>::new();
    let mut inference = Tape::inference(&mut c, &foreign);
    let x = inference.input(kind("1x0"), &vec![0.0; rows]).unwrap();
    assert!(conv.forward(&mut inference, levels, x).is_err());
    assert!(matches!(inference.backward(&loss), Err(NnError::NotTraining { .. })));
}
