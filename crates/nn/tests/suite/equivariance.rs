//! Every layer against the equivariance tester.

use crate::common::{self, bumpy_grid, bumpy_sphere, init, kind};
use crate::gradients::Run;
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh, Neighbourhood};
use gemcnn_nn::equivariance::{Symmetry, Trial, assert_gauge_equivariant, assert_symmetry, equivariance_error};
use gemcnn_nn::layers::{
    EquivariantDropoutConfig, EquivariantLinearConfig, EquivariantNormConfig, Gates, GemConvConfig, GlobalPool,
    Nonlinearity, Norms, Regular, ResidualBlockConfig,
};
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, GraphBatch, Grouping, Levels, Module, NnError, Parameters, Real,
    Stream, Tape, Workspace,
};
use std::sync::Arc;

/// Runs a forward pass on a graph. Training mode: statistics of the batch, and dropout.
fn apply<T: Real>(
    parameters: &Parameters<T>,
    input: &FeatureType,
    run: &Run<'_, T>,
    graph: &GaugeGraph,
    x: &[T],
) -> Result<Vec<T>, NnError> {
    let batch = GraphBatch::new([graph])?;
    let mut workspace = Workspace::default();
    let mut copy = parameters.clone();
    let mut tape = Tape::training(&mut workspace, &mut copy, Stream { seed: 4, step: 0 });
    let x = tape.input(input.clone(), x)?;
    Ok(run(&mut tape, (&batch).into(), x)?.values()?.to_vec())
}

fn meshes() -> Vec<(Mesh, GeometryOptions)> {
    let radius =
        GeometryOptions { neighbourhood: Neighbourhood::Radius { radius: 0.9, limit: 8 }, ..Default::default() };
    vec![
        (bumpy_sphere(), GeometryOptions::default()),
        (bumpy_grid(), GeometryOptions::default()),
        (bumpy_sphere(), radius),
    ]
}

pub fn check<T: Real>(input: &str, output: &str, parameters: &Parameters<T>, run: &Run<'_, T>) {
    let (input, output) = (kind(input), kind(output));
    for (mesh, options) in meshes() {
        let trial = Trial { mesh: &mesh, options: &options, input: &input, output: &output, seed: 1 };
        assert_gauge_equivariant(&trial, |graph, x: &[T]| apply(parameters, &input, run, graph, x));
    }
}

fn convolutions<T: Real>() {
    for (aggregation, rings) in [(Aggregation::Sum, 1), (Aggregation::Mean, 1), (Aggregation::MeanWithSelf, 3)] {
        let (input, output) = ("2x0 + 1x1 + 1x2", "1x0 + 2x1 + 1x3");
        let config =
            GemConvConfig { aggregation, rings, max_radius: 0.8, ..GemConvConfig::new(kind(input), kind(output)) };
        let (conv, parameters) = init::<T, _>(|builder| config.init("conv", builder));
        check(input, output, &parameters, &|tape, levels, x| conv.forward(tape, levels, x));
    }
    let (conv, parameters) = init::<T, _>(|builder| GemConvConfig::new(kind("3x0"), kind("2x0")).init("conv", builder));
    check("3x0", "2x0", &parameters, &|tape, levels, x| conv.forward(tape, levels, x));
}

fn layers_of_one_vertex<T: Real>() {
    let hidden = "3x0 + 3x1 + 3x2";
    let mut parameters = Parameters::<T>::new();
    let mut builder = Builder::new(&mut parameters, 1);
    let map = EquivariantLinearConfig::new(kind(hidden), kind("1x0 + 2x2")).init("map", &mut builder).unwrap();
    let norm = EquivariantNormConfig::new(kind(hidden)).init("norm", &mut builder).unwrap();
    let norms =
        Norms { activation: Activation::Gelu, ..Norms::relu() }.init("norms", &kind(hidden), &mut builder).unwrap();
    let gated = Gates::relu().init("gated", &kind(hidden), &mut builder).unwrap();
    let pool = GlobalPool::Mean.init(2);
    let dropout = EquivariantDropoutConfig::new(kind(hidden)).init("dropout").unwrap();
    let with_gates = gated.input().to_string();
    check(hidden, "1x0 + 2x2", &parameters, &|tape, levels, x| map.forward(tape, levels, x));
    check(hidden, hidden, &parameters, &|tape, levels, x| norm.forward(tape, levels, x));
    for (grouping, invariants) in [(Grouping::Irreps, "9x0"), (Grouping::Heads(3), "3x0")] {
        let (square, mut parameters) =
            (EquivariantLinearConfig::new(kind(hidden), kind(hidden)), Parameters::<T>::new());
        let square = square.init("square", &mut Builder::new(&mut parameters, 1));
        let square = square.unwrap();
        check(hidden, invariants, &parameters, &|tape, levels, x| {
            let mapped = square.forward(tape, levels, x.clone())?;
            tape.irrep_dot(grouping, x, mapped)
        });
    }
    check(hidden, hidden, &parameters, &|tape, levels, x| norms.forward(tape, levels, x));
    check(&with_gates, hidden, &parameters, &|tape, levels, x| gated.forward(tape, levels, x));
    check(hidden, hidden, &parameters, &|tape, levels, x| dropout.forward(tape, levels, x));
    check("2x0", "2x0", &parameters, &|tape, levels, x| pool.forward(tape, levels, x));
}

/// A block whose function is a polynomial with enough samples, so that it is exactly equivariant.
fn blocks<T: Real>() {
    let (input, output) = ("2x0 + 2x1", "3x0 + 3x1 + 3x2");
    let mut parameters = Parameters::<T>::new();
    let config = ResidualBlockConfig {
        nonlinearity: Arc::new(Regular {
            samples: 7,
            activation: Activation::Polynomial(vec![0.1, 1.0, 0.1]),
            batch_norm: true,
        }),
        ..ResidualBlockConfig::new(kind(input), kind(output))
    };
    let block = config.init("block", &mut Builder::new(&mut parameters, 1)).unwrap();
    check(input, output, &parameters, &|tape, levels, x| block.forward(tape, levels, x));
}

#[test]
fn layers_are_equivariant_in_f64() {
    convolutions::<f64>();
    layers_of_one_vertex::<f64>();
    blocks::<f64>();
}

#[test]
fn layers_are_equivariant_in_f32() {
    convolutions::<f32>();
    layers_of_one_vertex::<f32>();
    blocks::<f32>();
}

#[test]
fn the_icosahedron_rotates_onto_itself() {
    let mesh = gemcnn_mesh::shapes::icosahedron();
    let axis = mesh.vertices()[0].normalize();
    let (s, c) = (std::f64::consts::TAU / 5.0).sin_cos();
    let rotated = mesh.map_vertices(|p| c * p + s * axis.cross(p) + (1.0 - c) * axis.dot(p) * axis).unwrap();
    let place = |p: &gemcnn_mesh::DVec3| {
        let near = |q: &gemcnn_mesh::DVec3| (*p - *q).length() < 1e-9;
        mesh.vertices().iter().position(near).unwrap() as u32
    };
    let permutation = rotated.vertices().iter().map(place).collect();
    let (input, output) = (kind("1x0 + 1x1"), kind("1x0 + 2x1 + 1x2"));
    let (conv, parameters) =
        init::<f64, _>(|builder| GemConvConfig::new(input.clone(), output.clone()).init("conv", builder));
    let options = GeometryOptions::default();
    let trial = Trial { mesh: &mesh, options: &options, input: &input, output: &output, seed: 1 };
    let symmetry = Symmetry::Isometry(permutation);
    assert_symmetry(&trial, &symmetry, |graph, x: &[f64]| {
        let run: &Run<'_, f64> = &|tape, levels, x| conv.forward(tape, levels, x);
        apply(&parameters, &input, run, graph, x)
    });
}

#[test]
fn the_regular_nonlinearity_becomes_equivariant_with_the_number_of_samples() {
    let mesh = bumpy_sphere();
    let options = GeometryOptions::default();
    let hidden = kind("2x0 + 2x1");
    let regular = |samples: usize| {
        let (layer, parameters) = init(|builder| Regular::relu(samples).init("act", &hidden, builder));
        let trial = Trial { mesh: &mesh, options: &options, input: &hidden, output: &hidden, seed: 1 };
        let run: &Run<'_, f64> = &|tape, levels, x| layer.forward(tape, levels, x);
        let error =
            equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[f64]| apply(&parameters, &hidden, run, graph, x));
        error.unwrap()
    };
    let (few, many) = (regular(3), regular(301));
    assert!(few > 0.02 && many < 0.01, "{few} {many}");
}

#[test]
fn order_zero_alone_is_the_graph_convolution() {
    let graph = common::graph(&bumpy_sphere());
    let batch = GraphBatch::<f64>::new([&graph]).unwrap();
    let mut parameters = Parameters::<f64>::new();
    let mut builder = Builder::new(&mut parameters, 1);
    // The scalar part of a convolution of higher orders that sees scalars only.
    let whole = GemConvConfig::new(kind("2x0 + 1x1"), kind("3x0 + 2x1")).init("whole", &mut builder).unwrap();
    let scalar = GemConvConfig::new(kind("2x0"), kind("3x0")).init("scalar", &mut builder).unwrap();
    let value = |parameters: &Parameters<f64>, name: &str| parameters.value(parameters.find(name).unwrap()).to_vec();
    let weight = value(&parameters, "whole.weight");
    let self_weight = value(&parameters, "whole.self_weight");
    let set = |parameters: &mut Parameters<f64>, name: &str, values: &[f64]| {
        let id = parameters.find(name).unwrap();
        parameters.get_mut(id).value_mut().copy_from_slice(values);
    };
    // Rows of the three scalar outputs, columns of the two scalar inputs.
    let corner: Vec<f64> = (0..3).flat_map(|row| weight[4 * row..][..2].to_vec()).collect();
    set(&mut parameters, "scalar.weight", &corner);
    set(&mut parameters, "scalar.self_weight", &self_weight[..6]);
    let x = common::random::<f64>(42 * 2, 3);
    let padded: Vec<f64> = x.chunks(2).flat_map(|x| [x[0], x[1], 0.0, 0.0]).collect();
    let mut workspace = Workspace::default();
    let levels = Levels::from(&batch);
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let features = tape.input(kind("2x0 + 1x1"), &padded).unwrap();
    let whole = whole.forward(&mut tape, levels, features).unwrap();
    let features = tape.input(kind("2x0"), &x).unwrap();
    let scalar = scalar.forward(&mut tape, levels, features).unwrap();
    let (whole, scalar) = (whole.values().unwrap(), scalar.values().unwrap());
    for (a, b) in whole.chunks(7).zip(scalar.chunks(3)) {
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-13, "{a} {b}");
        }
    }
}
