//! Networks and modules through the public interface.

use crate::common::{UNet, apply, batch, bumpy_grid, bumpy_sphere, hierarchy, hierarchy_options, kind, random, trial};
use gemcnn_mesh::{GeometryOptions, Hierarchy, HierarchyOptions};
use gemcnn_nn::equivariance::{Symmetry, assert_gauge_equivariant, equivariance_error, hierarchy_error, tolerance};
use gemcnn_nn::layers::{Angular, Gates, GlobalPool, Identity, Isotropic, Nonlinearity, Norms, Regular};
use gemcnn_nn::{
    Activation, Aggregation, FeatureType, Geometry, GraphBatch, IGNORE, Levels, Method, Module, Network, NetworkConfig,
    NnError, Optimiser, Parameters, Penalty, Real, Rows, Stream, Tape, Targets, WeightDecay, Workspace,
};
use std::sync::Arc;

/// Outputs in training mode: statistics of the batch, and dropout.
fn outputs<'a, T: Real>(
    network: &dyn Module<T>,
    parameters: &Parameters<T>,
    levels: impl Into<Levels<'a, T>>,
    x: &[T],
) -> Result<Vec<T>, NnError> {
    let levels = levels.into();
    let mut copy = parameters.clone();
    let mut workspace = Workspace::default();
    let mut tape = Tape::training(&mut workspace, &mut copy, Stream { seed: 4, step: 0 });
    let x = tape.input(network.input().clone(), x)?;
    Ok(network.forward(&mut tape, levels, x)?.values()?.to_vec())
}

/// Nonlinearities that are equivariant for every angle.
fn exact<T: Real>() -> Vec<Arc<dyn Nonlinearity<T>>> {
    let polynomial = Regular { samples: 7, activation: Activation::Polynomial(vec![0.1, 1.0, 0.1]), batch_norm: true };
    vec![
        Arc::new(Identity),
        Arc::new(polynomial),
        Arc::new(Norms::relu()),
        Arc::new(Norms::relu().with_batch_norm()),
        Arc::new(Gates::relu()),
        Arc::new(Gates::relu().with_batch_norm()),
    ]
}

fn assert_equivariant<T: Real>(config: &NetworkConfig<T>) {
    let (network, parameters) = config.init(1).unwrap();
    for mesh in [bumpy_sphere(), bumpy_grid()] {
        let options = GeometryOptions::default();
        let trial = trial(&mesh, &options, &network);
        assert_gauge_equivariant(&trial, |graph, x: &[T]| {
            let batch = GraphBatch::new([graph])?;
            outputs(&network, &parameters, &batch, x)
        });
    }
}

fn check_equivariance<T: Real>() {
    let input = || Network::<T>::builder(kind("2x0 + 1x1")).aggregation(Aggregation::Mean);
    let hidden = FeatureType::uniform(3, 2);
    for act in exact() {
        assert_equivariant(
            &input()
                .residual(&hidden, act.clone())
                .residual_through(&FeatureType::uniform(2, 2), &kind("2x0 + 2x1"), act.clone())
                .dropout(0.3)
                .equivariant_linear(&act.input(&kind("2x0 + 2x1")))
                .nonlinearity(act),
        );
    }
    assert_equivariant(
        &input()
            .equivariant_linear(&kind("4x0"))
            .kernel(Isotropic)
            .residual(&kind("5x0"), Regular::relu(1).with_batch_norm())
            .conv(&kind("3x0"))
            .global_pool(GlobalPool::Mean)
            .head(4, 2),
    );
}

#[test]
fn every_layer_is_equivariant_in_f64() {
    check_equivariance::<f64>();
}

#[test]
fn every_layer_is_equivariant_in_f32() {
    check_equivariance::<f32>();
}

#[test]
fn a_module_that_pools_is_equivariant() {
    let mesh = bumpy_sphere();
    for act in exact() {
        let (network, parameters) = UNet::<f64>::new(&act, 1);
        let options = GeometryOptions::default();
        let trial = trial(&mesh, &options, &network);
        for symmetry in [Symmetry::Gauge, Symmetry::Motion] {
            let options = hierarchy_options();
            let error = hierarchy_error(&trial, &options, &symmetry, |hierarchy, x: &[f64]| {
                let levels = Geometry::new([hierarchy])?;
                outputs(&network, &parameters, &levels, x)
            });
            let error = error.unwrap();
            let most = tolerance::<f64>(&symmetry);
            assert!(error <= most, "{act:?}, {symmetry:?}: {error:e}");
        }
    }
}

#[test]
fn hierarchies_of_a_batch_do_not_see_each_other() {
    let (network, parameters) = UNet::<f64>::new(&(Arc::new(Norms::relu()) as _), 1);
    let x = random::<f64>(batch::<f64>().vertex_count() * network.input().dimension(), 6);
    let both = apply(&network, &parameters, &hierarchy(), &x).unwrap();
    let (mut rest, mut alone) = (&x[..], Vec::new());
    for mesh in [bumpy_sphere(), bumpy_grid()] {
        let (own, later) = rest.split_at(mesh.vertex_count() * network.input().dimension());
        let levels = Geometry::new([&Hierarchy::new(&mesh, &hierarchy_options()).unwrap()]).unwrap();
        alone.extend(apply(&network, &parameters, &levels, own).unwrap());
        rest = later;
    }
    assert_eq!(both.len(), alone.len());
    assert!(both.iter().zip(&alone).all(|(both, alone)| (both - alone).abs() < 1e-13));

    let deep = Hierarchy::new(&bumpy_sphere(), &hierarchy_options()).unwrap();
    let flat = Hierarchy::new(&bumpy_grid(), &HierarchyOptions::default()).unwrap();
    let error = Geometry::<f32>::new([&deep, &flat]).unwrap_err();
    assert!(matches!(&error, NnError::Size { what, expected: 3, found: 1 } if what.contains('1')), "{error}");
}

#[test]
fn angular_kernels_and_broken_symmetry_are_caught() {
    let mesh = bumpy_sphere();
    let angular = Network::<f64>::builder(kind("2x0"))
        .kernel(Angular { band_limit: 2 })
        .residual(&kind("3x0"), Regular::relu(1).with_batch_norm());
    let broken = Network::builder(kind("2x0")).residual(&kind("2x0 + 2x1"), Gates::relu()).break_symmetry().linear(3);
    for config in [angular, broken] {
        let (network, parameters) = config.init(1).unwrap();
        let options = GeometryOptions::default();
        let trial = trial(&mesh, &options, &network);
        let error = equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[f64]| {
            let batch = GraphBatch::new([graph])?;
            outputs(&network, &parameters, &batch, x)
        });
        assert!(error.unwrap() > 0.01, "{network}");
    }
}

#[test]
fn too_few_levels_are_refused() {
    let act: Arc<dyn Nonlinearity<f64>> = Arc::new(Gates::relu());
    let (network, mut parameters) = UNet::new(&act, 1);
    assert_eq!(network.levels(), 3);
    let batch = batch::<f64>();
    let x = random::<f64>(batch.vertex_count() * 4, 1);
    let error = outputs(&network, &parameters, &batch, &x).unwrap_err();
    assert!(matches!(error, NnError::Levels { needed: 3, found: 1 }), "{error}");
    let (levels, mut workspace) = (hierarchy(), Workspace::default());
    let y = outputs(&network, &parameters, &levels, &x).unwrap();
    assert_eq!(y.len(), batch.vertex_count() * network.output().dimension());
    // A network that does not pool runs on the finest level.
    let (flat, own) = Network::<f64>::builder(kind("2x0 + 1x1")).conv(&kind("1x1")).init(1).unwrap();
    assert_eq!(outputs(&flat, &own, &levels, &x).unwrap(), outputs(&flat, &own, &batch, &x).unwrap());
    network.calibrate(&mut workspace, &mut parameters, (&levels).into(), &x).unwrap();
    assert_ne!(outputs(&network, &parameters, &levels, &x).unwrap(), y);
}

#[test]
fn classes_are_the_largest_outputs() {
    let batch = batch::<f32>();
    let rows = batch.vertex_count();
    let x = random::<f32>(rows * 3, 1);
    let labels = vec![IGNORE; rows];
    let body = || Network::<f32>::builder(kind("3x0")).residual(&kind("6x0"), Regular::relu(1));
    // The last map is fused with the choice of the class, and is not.
    for config in [body().linear(7), body().linear(7).activation(Activation::Tanh)] {
        let (network, parameters) = config.init(1).unwrap();
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let input = tape.input(kind("3x0"), &x).unwrap();
        let found = network.predict_classes(&mut tape, (&batch).into(), input.clone()).unwrap();
        let output = network.forward(&mut tape, (&batch).into(), input.clone()).unwrap();
        let largest = |row: &[f32]| {
            let order = |&a: &usize, &b: &usize| row[a].total_cmp(&row[b]);
            (0..row.len()).max_by(order).unwrap() as u32
        };
        let expected: Vec<u32> = output.values().unwrap().chunks(7).map(largest).collect();
        assert_eq!(found, expected);
        let targets = Targets::new(7, &labels);
        let mut written = vec![0; rows];
        let rows = Rows { predictions: Some(&mut written), ..Rows::default() };
        let loss = network.classify(&mut tape, (&batch).into(), input, targets, rows).unwrap();
        assert_eq!(loss.score().unwrap().unwrap().counted, 0);
        assert_eq!(written, expected);
    }
}

#[test]
fn vectors_are_regressed_where_the_mask_counts() {
    let batch = batch::<f64>();
    let rows = batch.vertex_count();
    let (network, parameters) = Network::<f64>::builder(kind("1x0")).conv(&kind("1x1")).init(1).unwrap();
    let (x, target) = (random::<f64>(rows, 1), random::<f64>(2 * rows, 2));
    let mask: Vec<bool> = (0..rows).map(|row| row % 3 == 0).collect();
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let input = tape.input(kind("1x0"), &x).unwrap();
    let output = network.forward(&mut tape, (&batch).into(), input).unwrap();
    let numbers = output.values().unwrap();
    let squares = (numbers.chunks(2))
        .zip(target.chunks(2))
        .zip(&mask)
        .filter(|(_, counted)| **counted)
        .map(|((y, t), _)| (y[0] - t[0]).powi(2) + (y[1] - t[1]).powi(2));
    let squares: Vec<f64> = squares.collect();
    let expected = squares.iter().sum::<f64>() / squares.len() as f64;
    let (penalty, mask) = (Penalty::MeanSquare, Some(&mask[..]));
    let loss = tape.regression(penalty, output.clone(), &target, mask).unwrap();
    assert!((loss.value().unwrap() - expected).abs() < 1e-12);
}

#[test]
fn decay_on_linear_maps_leaves_convolutions_alone() {
    let (_, mut parameters) = Network::<f64>::builder(kind("3x0"))
        .weight_decay(WeightDecay::Linear)
        .residual(&kind("4x0 + 4x1"), Regular::relu(3).with_batch_norm())
        .conv(&kind("2x0"))
        .head(4, 3)
        .init(1)
        .unwrap();
    let before = parameters.clone();
    let method = Method::Sgd { momentum: 0.0, weight_decay: 0.5 };
    let mut optimiser = Optimiser::new(method, &parameters).unwrap();
    // Without gradients only the decay moves anything.
    optimiser.step(&mut parameters, 0.1).unwrap();
    for (before, after) in before.iter().zip(parameters.iter()) {
        let shrunk = match before.name() {
            "linear3.weight" | "linear5.weight" => 0.95,
            _ => 1.0,
        };
        for (b, a) in before.value().iter().zip(after.value()) {
            assert!((a - shrunk * b).abs() < 1e-15, "{}", before.name());
        }
    }
}
