//! Diffusion by implicit solves: values, gradients, equivariance, and training on a GPU.

use crate::common::{apply, bumpy_grid, bumpy_sphere, graph, init, kind, random, trial};
use crate::cuda_training::gpu;
use crate::gradients::check;
use gemcnn_mesh::surface::{HeatArrays, HeatSolver, Jets, SurfaceLaplacian};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::equivariance::{Symmetry, equivariance_error};
use gemcnn_nn::layers::{DiffusionBlockConfig, ImplicitDiffusionConfig};
use gemcnn_nn::{
    Builder, Device, FeatureType, Geometry, GraphBatch, HeatBatch, Method, Module, Network, NnError, Objective,
    Optimiser, Parameters, Real, StepSettings, Stepper, Stream, Tape, Target, TrainingBatch, Workspace,
};
use std::sync::Arc;

const FEATURES: &str = "3x0 + 2x1 + 1x2";
const TIMES: [f64; 3] = [1e-3, 1e-2, 0.1];

fn surface<T: Real>(mesh: &Mesh, graph: &GaugeGraph) -> Geometry<T> {
    let arrays = HeatArrays::new(mesh, graph).unwrap();
    let heat = HeatBatch::new([Arc::new(arrays)]).unwrap();
    let batch = Geometry::from(GraphBatch::new([graph]).unwrap());
    batch.with(heat).unwrap()
}

/// The meshes of `common::batch` with their operators.
fn surfaces<T: Real>() -> Geometry<T> {
    let meshes = [bumpy_sphere(), bumpy_grid()];
    let singles = meshes.map(|mesh| surface(&mesh, &graph(&mesh)));
    Geometry::join(&[&singles[0], &singles[1]]).unwrap()
}

#[test]
fn gradients_equal_finite_differences() {
    let batch: &'static Geometry<f64> = Box::leak(Box::new(surfaces()));
    for features in [FEATURES, "3x0"] {
        let layer = ImplicitDiffusionConfig { gradients: true, ..ImplicitDiffusionConfig::new(kind(features)) };
        let (layer, mut parameters) = init(|builder| layer.init("diffusion", builder));
        check("implicit", features, &mut parameters, &|tape, _, x| layer.forward(tape, batch.into(), x));
        let block = DiffusionBlockConfig { implicit: TIMES.to_vec(), ..DiffusionBlockConfig::new(kind(features)) };
        let (block, mut parameters) = init(|builder| block.init("block", builder));
        check("implicit block", features, &mut parameters, &|tape, _, x| block.forward(tape, batch.into(), x));
    }
}

fn equivariance<T: Real>(most: f64) {
    for mesh in [bumpy_sphere(), bumpy_grid()] {
        let mut parameters = Parameters::<T>::new();
        let block = DiffusionBlockConfig { implicit: TIMES.to_vec(), ..DiffusionBlockConfig::new(kind(FEATURES)) };
        let mut builder = Builder::new(&mut parameters, 1);
        let block = block.init("block", &mut builder).unwrap();
        let layer = ImplicitDiffusionConfig { gradients: true, ..ImplicitDiffusionConfig::new(kind(FEATURES)) };
        let layer = layer.init("layer", &mut builder).unwrap();
        for (name, module) in [("block", &block as &dyn Module<T>), ("layer", &layer)] {
            let options = GeometryOptions::default();
            let trial = trial(&mesh, &options, module);
            let error = equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[T]| {
                apply(module, &parameters, &surface(&mesh, graph), x)
            });
            let error = error.unwrap();
            assert!(error <= most, "{name}, {}: {error:e}", T::NAME);
        }
    }
}

#[test]
fn implicit_layers_are_equivariant_in_both_precisions() {
    equivariance::<f64>(1e-12);
    equivariance::<f32>(1e-5);
}

/// A sphere that is cut open around one vertex: every face there has its own copy of it.
fn cut_open() -> Mesh {
    let (mut vertices, faces) = bumpy_sphere().into_parts();
    let mut triangles: Vec<Vec<u32>> = faces.iter().map(<[u32]>::to_vec).collect();
    let mut first = true;
    for corner in triangles.iter_mut().flatten().filter(|corner| **corner == 0) {
        if !std::mem::take(&mut first) {
            *corner = vertices.len() as u32;
            vertices.push(vertices[0]);
        }
    }
    Mesh::new(vertices, triangles.iter().map(Vec::as_slice).collect()).unwrap()
}

#[test]
fn solves_equal_factored_ones_and_gradients_equal_jets() {
    for mesh in [bumpy_sphere(), bumpy_grid(), cut_open()] {
        let graph = graph(&mesh);
        let batch = surface::<f64>(&mesh, &graph);
        let laplacian = SurfaceLaplacian::new(&mesh).unwrap();
        let vertices = mesh.vertex_count();
        for order in 0..3 {
            let mut multiplicities = vec![0; order + 1];
            multiplicities[order] = 2;
            let features = FeatureType::new(&multiplicities);
            let x = random::<f64>(vertices * features.dimension(), 5);
            for time in [1e-3, 0.2] {
                let mut parameters = Parameters::new();
                let layer =
                    ImplicitDiffusionConfig { times: vec![time], ..ImplicitDiffusionConfig::new(features.clone()) };
                let mut builder = Builder::new(&mut parameters, 1);
                let layer = layer.init("layer", &mut builder).unwrap();
                for entry in parameters.iter_mut() {
                    entry.value_mut().fill(1.0);
                }
                let found = apply(&layer, &parameters, &batch, &x).unwrap();
                let solver = HeatSolver::new(&laplacian, order, graph.frames(), &[time]).unwrap();
                let expected = solver.solve(0, &x, 2).unwrap();
                for (found, expected) in found.iter().zip(&expected) {
                    assert!((found - expected).abs() < 1e-11, "order {order}, time {time}");
                }
            }
        }
        let x = random::<f64>(vertices * 3, 6);
        let (mut workspace, parameters) = (Workspace::default(), Parameters::new());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let input = tape.input(kind("3x0"), &x).unwrap();
        let heat = gemcnn_nn::Levels::from(&batch).get().unwrap();
        let found = tape.surface_gradient(heat, input).unwrap();
        assert_eq!(found.kind(), &kind("3x1"));
        let jets = Jets::new(&laplacian, graph.frames()).unwrap();
        let expected = jets.gradient(&x, 3).unwrap();
        let found = found.values().unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-10 * expected.abs().max(1.0));
        }
    }
}

#[test]
fn joined_meshes_equal_single_ones() {
    let layer = ImplicitDiffusionConfig::new(kind(FEATURES));
    let (layer, parameters) = init::<f64, _>(|builder| layer.init("layer", builder));
    let width = kind(FEATURES).dimension();
    let joined = surfaces::<f64>();
    let rows = joined.levels()[0].vertex_count();
    let x = random::<f64>(rows * width, 8);
    let both = apply(&layer, &parameters, &joined, &x).unwrap();
    let mesh = bumpy_sphere();
    let count = mesh.vertex_count() * width;
    let single = surface(&mesh, &graph(&mesh));
    let alone = apply(&layer, &parameters, &single, &x[..count]).unwrap();
    for (a, b) in alone.iter().zip(&both) {
        assert!((a - b).abs() < 1e-12);
    }
    let plain = Geometry::from(GraphBatch::new([&graph(&mesh)]).unwrap());
    let error = apply(&layer, &parameters, &plain, &x[..count]).unwrap_err();
    let NnError::Layer { source, .. } = error else { panic!("{error}") };
    assert!(matches!(*source, NnError::Missing { what: "Laplacians" }));
    let other = HeatArrays::new(&bumpy_grid(), &graph(&bumpy_grid())).unwrap();
    let other = HeatBatch::new([Arc::new(other)]).unwrap();
    assert!(plain.clone().with(other).is_err());
    assert!(Geometry::join(&[&plain, &single]).is_err());
    for times in [vec![], vec![0.0], vec![f64::NAN]] {
        let config = ImplicitDiffusionConfig { times, ..ImplicitDiffusionConfig::new(kind("1x0")) };
        let mut parameters = Parameters::<f32>::new();
        let refused = config.init("layer", &mut Builder::new(&mut parameters, 1));
        assert!(matches!(refused, Err(NnError::Setting { .. })));
    }
}

/// Losses of a few training steps.
fn losses(device: &Device) -> Vec<f64> {
    let features = kind(FEATURES);
    let block = DiffusionBlockConfig { implicit: TIMES.to_vec(), ..DiffusionBlockConfig::new(features.clone()) };
    let (network, mut parameters) = Network::<f32>::builder(kind("2x0 + 1x1"))
        .equivariant_linear(&features)
        .diffusion_block(block)
        .equivariant_linear(&FeatureType::scalars(4))
        .linear(5)
        .init(1)
        .unwrap();
    let mesh = bumpy_sphere();
    let objective = Objective::classes(5);
    let labels = (0..mesh.vertex_count() as u32).map(|v| v % 5).collect();
    let input = kind("2x0 + 1x1");
    let x = random(mesh.vertex_count() * input.dimension(), 2);
    let graphs = surface(&mesh, &graph(&mesh));
    let batch = TrainingBatch::new(graphs, input, x, objective, Target::Classes(labels)).unwrap();
    let mut optimiser = Optimiser::new(Method::adam(), &parameters).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let mut stepper = Stepper::default();
    let losses = (0..6).map(|step| {
        let settings = StepSettings { rate: 1e-2, randomness: Stream { seed: 1, step }, clip: None };
        let loss = stepper.step(&network, &mut parameters, &mut optimiser, &mut workspace, &batch, settings);
        loss.unwrap().value().unwrap()
    });
    losses.collect()
}

#[test]
fn training_with_implicit_diffusion() {
    let expected = losses(&Device::Cpu);
    assert!(expected[5] < expected[0]);
    let Some(device) = gpu("training with implicit diffusion") else { return };
    for (found, expected) in losses(&device).iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-3 * expected);
    }
}
