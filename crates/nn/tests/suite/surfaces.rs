//! Layers on surfaces: gradients, equivariance, and training on a GPU.

use crate::common::{apply, bumpy_grid, bumpy_sphere, graph, init, kind, random};
use crate::cuda_training::{gpu, relative_error};
use crate::gradients::check;
use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{DVec3, Frame, GaugeGraph, Mesh, shapes};
use gemcnn_nn::equivariance::assert_surface_equivariant;
use gemcnn_nn::layers::{DiffusionBlockConfig, DiffusionConfig};
use gemcnn_nn::{
    Builder, CellPoints, Device, Extra, FeatureType, Geometry, GraphBatch, Levels, Method, Module, Network, NnError,
    Objective, Optimiser, Parameters, ProductMode, Real, SpectraBatch, StepSettings, Stepper, Stream, Tape, Target,
    TrainingBatch, Workspace,
};
use glam::DQuat;
use std::sync::Arc;

const COLUMNS: [usize; 3] = [12, 6, 5];
const FEATURES: &str = "4x0 + 3x1 + 2x2";

fn spectra<T: Real>(mesh: &Mesh) -> SpectraBatch<T> {
    padded_spectra(mesh, &COLUMNS)
}

/// The same eigenvectors, with `columns` of each order: missing ones are zero.
fn padded_spectra<T: Real>(mesh: &Mesh, columns: &[usize]) -> SpectraBatch<T> {
    let options = OperatorOptions { eigenpairs: COLUMNS, ..Default::default() };
    let operators = SurfaceOperators::new(mesh, &graph(mesh), &options).unwrap();
    SpectraBatch::new(&operators, columns).unwrap()
}

/// The meshes of `common::batch` with their eigenvectors.
fn surfaces<T: Real>() -> Geometry<T> {
    let meshes = [bumpy_sphere(), bumpy_grid()];
    let singles = meshes.map(|mesh| {
        let batch = Geometry::from(GraphBatch::new([&graph(&mesh)]).unwrap());
        batch.with(spectra(&mesh)).unwrap()
    });
    Geometry::join(&[&singles[0], &singles[1]]).unwrap()
}

/// A block with all kinds of dropout.
fn regularised(features: &str) -> DiffusionBlockConfig {
    DiffusionBlockConfig {
        dropout: 0.3,
        irrep_dropout: 0.4,
        stochastic_depth: 0.3,
        ..DiffusionBlockConfig::new(kind(features))
    }
}

#[test]
fn whole_updates_of_meshes_and_whole_irreps_are_dropped() {
    let batch = surfaces::<f64>();
    let graph = batch.levels()[0].vertices_of(0).end;
    let run = |config: &DiffusionBlockConfig, step: Option<u64>| {
        let mut parameters = Parameters::new();
        let block = config.init("block", &mut Builder::new(&mut parameters, 1));
        let x = random(batch.levels()[0].vertex_count() * 14, 1);
        let mut workspace = Workspace::default();
        let mut copy = parameters.clone();
        let mut tape = match step {
            Some(step) => Tape::training(&mut workspace, &mut copy, Stream { seed: 1, step }),
            None => Tape::inference(&mut workspace, &parameters),
        };
        let input = tape.input(kind(FEATURES), &x).unwrap();
        let y = block.unwrap().forward(&mut tape, (&batch).into(), input);
        let y = y.unwrap().values().unwrap().into_owned();
        let update: Vec<f64> = y.iter().zip(&x).map(|(y, x)| y - x).collect();
        update
    };
    let plain = DiffusionBlockConfig::new(kind(FEATURES));
    let whole = run(&plain, None);
    let deep = DiffusionBlockConfig { stochastic_depth: 0.25, ..plain.clone() };
    assert_eq!(run(&deep, None), whole, "not in inference");
    let mut met = [[false; 2]; 2];
    for step in 0..20 {
        let update = run(&deep, Some(step));
        for (mesh, range) in [0..graph * 14, graph * 14..whole.len()].into_iter().enumerate() {
            let kept = update[range.start] != 0.0;
            let factor = if kept { 1.0 / 0.75 } else { 0.0 };
            met[mesh][usize::from(kept)] = true;
            for (found, update) in update[range.clone()].iter().zip(&whole[range]) {
                assert!((found - factor * update).abs() < 1e-13);
            }
        }
    }
    assert_eq!(met, [[true; 2]; 2], "each mesh is dropped in some steps");
    let irreps = DiffusionBlockConfig { irrep_dropout: 0.5, ..plain };
    // Both components of an irrep of order 1 are dropped in about half of the rows.
    let update = run(&irreps, Some(3));
    let dropped = update.chunks(14).filter(|row| row[4] == 0.0).count();
    let rows = update.len() / 14;
    assert!(dropped > rows / 3 && dropped < 2 * rows / 3, "{dropped} of {rows}");
    assert!(update.chunks(14).all(|row| (row[4] == 0.0) == (row[7] == 0.0)));
    assert_eq!(run(&irreps, None), whole);
}

#[test]
fn gradients_equal_finite_differences() {
    let batch: &'static Geometry<f64> = Box::leak(Box::new(surfaces()));
    for features in [FEATURES, "5x0"] {
        let mut parameters = Parameters::new();
        let diffusion = DiffusionConfig { gradients: true, ..DiffusionConfig::new(kind(features)) };
        let mut builder = Builder::new(&mut parameters, 1);
        let diffusion = diffusion.init("diffusion", &mut builder).unwrap();
        check("diffusion", features, &mut parameters, &|tape, _, x| diffusion.forward(tape, batch.into(), x));
        let block = regularised(features);
        let (block, mut parameters) = init(|builder| block.init("block", builder));
        check("block", features, &mut parameters, &|tape, _, x| block.forward(tape, batch.into(), x));
    }
    let (block, mut parameters) = init(|builder| mirrored_block().init("block", builder));
    check("mirrored block", "5x0", &mut parameters, &|tape, _, x| block.forward(tape, batch.into(), x));
}

/// A block that is blind to the orientation of the surface.
fn mirrored_block() -> DiffusionBlockConfig {
    DiffusionBlockConfig { oriented: false, ..DiffusionBlockConfig::new(kind("5x0")) }
}

#[test]
fn only_oriented_blocks_tell_a_surface_from_its_mirror_image() {
    let mesh = bumpy_sphere();
    let mirrored = mesh.map_vertices(|p| DVec3::new(-p.x, p.y, p.z)).unwrap().with_reversed_faces();
    let change = |config: DiffusionBlockConfig| {
        let (block, parameters) = init::<f64, _>(|builder| config.init("block", builder));
        let x = random(mesh.vertex_count() * 5, 1);
        let run = |mesh: &Mesh| {
            let geometry = Geometry::from(GraphBatch::new([&graph(mesh)]).unwrap()).with(spectra(mesh)).unwrap();
            apply(&block, &parameters, &geometry, &x).unwrap()
        };
        let pairs = run(&mesh).into_iter().zip(run(&mirrored));
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(change(mirrored_block()) < 1e-6);
    assert!(change(DiffusionBlockConfig::new(kind("5x0"))) > 1e-2);
    assert!(
        DiffusionBlockConfig { features: kind(FEATURES), ..mirrored_block() }
            .init::<f64>("block", &mut Builder::new(&mut Parameters::new(), 1))
            .is_err()
    );
}

fn equivariance<T: Real>() {
    for mesh in [bumpy_sphere(), bumpy_grid()] {
        let spectra = spectra::<T>(&mesh);
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, 1);
        let diffusion = DiffusionConfig { gradients: true, ..DiffusionConfig::new(kind(FEATURES)) };
        let diffusion = diffusion.init("diffusion", &mut builder).unwrap();
        assert_surface_equivariant(&diffusion, &parameters, &mesh, &spectra);
        for features in [FEATURES, "5x0"] {
            let mut parameters = Parameters::new();
            let block = regularised(features);
            let block = block.init("block", &mut Builder::new(&mut parameters, 1));
            assert_surface_equivariant(&block.unwrap(), &parameters, &mesh, &spectra);
        }
        let mut parameters = Parameters::new();
        let block = mirrored_block().init("block", &mut Builder::new(&mut parameters, 1));
        assert_surface_equivariant(&block.unwrap(), &parameters, &mesh, &spectra);
    }
}

#[test]
fn layers_are_equivariant_in_both_precisions() {
    equivariance::<f32>();
    equivariance::<f64>();
}

#[test]
#[should_panic(expected = "relative error")]
fn eigenvectors_in_other_frames_are_caught() {
    let mesh = bumpy_sphere();
    let wrong = spectra::<f64>(&mesh);
    let angles = random::<f64>(mesh.vertex_count(), 3);
    // A field that mixes components without regard to the frames.
    let mixed = wrong.gauge_transform(&angles).unwrap();
    let (columns, arrays) = (wrong.columns().to_vec(), wrong.arrays());
    let mut bases = mixed.arrays().bases.to_vec();
    bases.iter_mut().step_by(3).for_each(|value| *value = 0.0);
    let (mass, eigenvalues) = (arrays.mass.to_vec(), arrays.eigenvalues.to_vec());
    let broken = SpectraBatch::from_parts(columns, mass, bases, eigenvalues).unwrap();
    // The same broken basis in all frames: nothing rotates with them.
    #[derive(Debug)]
    struct Fixed(gemcnn_nn::layers::Diffusion, &'static SpectraBatch<f64>, FeatureType);
    impl Module<f64> for Fixed {
        fn input(&self) -> &FeatureType {
            &self.2
        }
        fn output(&self) -> &FeatureType {
            &self.2
        }
        fn forward<'a>(
            &self,
            tape: &mut Tape<'a, f64>,
            levels: Levels<'a, f64>,
            x: gemcnn_nn::Var<f64>,
        ) -> Result<gemcnn_nn::Var<f64>, NnError> {
            let graph = Geometry::from(levels.graph()?.clone());
            let batch = Box::leak(Box::new(graph.with(self.1.clone())?));
            self.0.forward(tape, (&*batch).into(), x)
        }
    }
    let config = DiffusionConfig::new(kind("2x1"));
    let (layer, parameters) = init(|builder| config.init("d", builder));
    let fixed = Fixed(layer, Box::leak(Box::new(broken)), kind("2x1"));
    assert_surface_equivariant(&fixed, &parameters, &mesh, &wrong);
}

#[test]
fn models_without_eigenvectors_say_so() {
    let batch = GraphBatch::<f32>::new([&graph(&bumpy_sphere())]).unwrap();
    let layer = DiffusionConfig::new(kind("1x0"));
    let (layer, parameters) = init(|builder| layer.init("d", builder));
    let error = apply(&layer, &parameters, &batch, &[0.0; 42]).unwrap_err();
    let NnError::Layer { source, .. } = error else { panic!("{error}") };
    assert!(matches!(*source, NnError::Missing { what: "eigenvectors" }));
    let other = Geometry::from(batch.clone());
    assert!(other.with(spectra(&bumpy_grid())).is_err());
}

#[test]
fn meshes_with_few_vertices_have_columns_of_zeros() {
    let mesh = shapes::icosahedron();
    let options = OperatorOptions { eigenpairs: [20, 0, 3], ..Default::default() };
    let operators = SurfaceOperators::new(&mesh, &graph(&mesh), &options).unwrap();
    let batch = SpectraBatch::<f64>::new(&operators, &[20, 0, 3]).unwrap();
    let arrays = batch.arrays();
    assert_eq!(arrays.eigenvalues.len(), 23);
    assert!(arrays.eigenvalues[12..20].iter().all(|&value| value == 0.0));
    for row in arrays.bases[..12 * 20].chunks_exact(20) {
        assert!(row[12..].iter().all(|&value| value == 0.0));
        assert!(row[..12].iter().any(|&value| value != 0.0));
    }
}

/// Losses of a few training steps on batches of the same shape in turn, and the averaged weights. Two batches have
/// eigenvectors at points other than the vertices.
fn losses(
    device: &Device,
    stepper: &mut Stepper<f32>,
    blocks: &[DiffusionBlockConfig; 2],
    columns: &[usize],
) -> (Vec<f64>, Vec<f32>) {
    let (network, mut parameters) = Network::builder(kind("2x0 + 1x1"))
        .equivariant_linear(&blocks[0].features)
        .diffusion_block(blocks[0].clone())
        .diffusion_block(blocks[1].clone())
        .equivariant_linear(&FeatureType::scalars(4))
        .linear(5)
        .init(1)
        .unwrap();
    let stretched = bumpy_sphere().map_vertices(|p| gemcnn_mesh::DVec3::new(1.5 * p.x, p.y, p.z));
    let meshes = [bumpy_sphere(), stretched.unwrap()];
    let singles = [false, true].map(|is_moved| {
        meshes.each_ref().map(|mesh| {
            let graphs = Geometry::from(GraphBatch::new([&graph(mesh)]).unwrap());
            let spectra = Arc::new(padded_spectra(mesh, columns));
            let spectra = if is_moved { at_points(&spectra, &graph(mesh)) } else { SpectraBatch::clone(&spectra) };
            graphs.with(spectra).unwrap()
        })
    });
    let [plain, moved] = &singles;
    let pairs = [[&plain[0], &plain[1]], [&moved[1], &moved[0]], [&moved[0], &moved[0]]];
    let batches = pairs.map(|pair| {
        let graphs = Geometry::join(&pair).unwrap();
        let vertices = graphs.levels()[0].vertex_count();
        let objective = Objective::Classes { count: 5, weights: None, smoothing: 0.1 };
        let labels = (0..vertices as u32).map(|v| v % 5).collect();
        let input = kind("2x0 + 1x1");
        let x = random(vertices * input.dimension(), 2);
        TrainingBatch::new(graphs, input, x, objective, Target::Classes(labels)).unwrap()
    });
    let mut optimiser = Optimiser::with_average(Method::adam(), 0.9, &parameters).unwrap();
    let mut workspace = Workspace::new(device.clone());
    let losses = (0..9)
        .map(|step| {
            let settings = StepSettings { rate: 1e-2, randomness: Stream { seed: 1, step }, clip: None };
            let batch = &batches[step as usize % 3];
            batch.send_ahead(device).unwrap();
            let loss = stepper.step(&network, &mut parameters, &mut optimiser, &mut workspace, batch, settings);
            loss.unwrap().value().unwrap()
        })
        .collect();
    let averaged = optimiser.averaged(&parameters).unwrap().into_owned();
    let weights = averaged.iter().flat_map(|entry| entry.value().to_vec());
    (losses, weights.collect())
}

#[test]
fn captured_steps_on_other_surfaces_equal_plain_ones() {
    let plain = DiffusionBlockConfig::new(kind(FEATURES));
    for blocks in [[plain, regularised(FEATURES)], [scalar_block(0.0), scalar_block(0.3)]] {
        let (expected, weights) = losses(&Device::Cpu, &mut Stepper::plain(), &blocks, &COLUMNS);
        assert!((0..3).all(|first| expected[first + 6] < expected[first]));
        let Some(device) = gpu("captured steps on surfaces") else { return };
        let plain = losses(&device, &mut Stepper::plain(), &blocks, &COLUMNS);
        let mut stepper = Stepper::default();
        let captured = losses(&device, &mut stepper, &blocks, &COLUMNS);
        assert!(stepper.is_recorded());
        assert_eq!(captured, plain);
        for (found, expected) in plain.0.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-3 * expected, "{plain:?}");
        }
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let error = relative_error(&plain.1, &weights);
        assert!(error < 1e-3, "averages differ by {error}");
    }
}

/// Blocks that have kernels of their own on Hopper, which read packed eigenvectors in bf16.
#[test]
fn captured_steps_of_wide_blocks_equal_plain_ones() {
    let Some(device) = gpu("captured steps of wide blocks") else { return };
    let Device::Cuda(cuda) = &device else { return };
    let blocks = [0.0, 0.3].map(|dropout| DiffusionBlockConfig { dropout, ..DiffusionBlockConfig::new(kind("128x0")) });
    let run = |device, stepper: &mut Stepper<f32>| losses(device, stepper, &blocks, &[128]);
    let (expected, _) = run(&Device::Cpu, &mut Stepper::plain());
    for mode in [ProductMode::Tf32, ProductMode::Bf16] {
        cuda.set_product_mode(mode);
        let plain = run(&device, &mut Stepper::plain());
        let mut stepper = Stepper::default();
        assert_eq!(run(&device, &mut stepper), plain);
        assert!(stepper.is_recorded());
        // Before rounding had any part in the weights.
        let error = (plain.0[0] / expected[0] - 1.0).abs();
        assert!(error < 1e-2, "{mode:?}: {:?} {expected:?}", plain.0);
    }
}

/// A block that is one operator on a GPU.
fn scalar_block(dropout: f64) -> DiffusionBlockConfig {
    DiffusionBlockConfig { dropout, ..DiffusionBlockConfig::new(kind("8x0")) }
}

/// Output, gradient of the input, and gradients of the parameters of a block on meshes of different sizes.
fn block_results(device: &Device, config: &DiffusionBlockConfig) -> Vec<(String, Vec<f32>)> {
    let batch = surfaces::<f32>();
    let (block, mut parameters) = init(|builder| config.init("block", builder));
    // Biases and bands of zero would hide mistakes.
    for (seed, parameter) in parameters.iter_mut().enumerate() {
        let noise: Vec<f32> = random(parameter.value().len(), 10 + seed as u64);
        let values = parameter.value_mut().iter_mut().zip(noise);
        values.for_each(|(value, noise)| *value += 0.1 * noise);
    }
    let rows = batch.levels()[0].vertex_count();
    let target = random(rows * 8, 2);
    let mut workspace = Workspace::new(device.clone());
    let stream = Stream { seed: 1, step: 3 };
    let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
    let x = tape.tracked_input(kind("8x0"), &random(rows * 8, 1)).unwrap();
    let y = block.forward(&mut tape, (&batch).into(), x.clone()).unwrap();
    let output = y.values().unwrap().into_owned();
    let loss = tape.mean_square(y, &target).unwrap();
    let dx = tape.backward_to(&loss, &[&x]).unwrap().remove(0).to_vec();
    parameters.move_to_host().unwrap();
    let gradients = parameters.iter().map(|p| (p.name().into(), p.gradient().to_vec()));
    let mut results = vec![("y".into(), output), ("dx".into(), dx)];
    results.extend(gradients);
    results
}

#[test]
fn a_block_of_scalars_on_a_gpu_equals_that_on_the_cpu() {
    let Some(device) = gpu("a block of scalars") else { return };
    let Device::Cuda(cuda) = &device else { return };
    // Rounding to tf32 flips some ReLUs, which a small gradient such as that of the times feels: where no number is
    // near the kink, in the tests of the kernels, the same gradients agree to 1.3e-3.
    for (mode, tolerance) in [(ProductMode::F32, 2e-5), (ProductMode::Tf32, 0.2)] {
        cuda.set_product_mode(mode);
        for dropout in [0.0, 0.4] {
            let expected = block_results(&Device::Cpu, &scalar_block(dropout));
            let found = block_results(&device, &scalar_block(dropout));
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                let expected: Vec<f64> = expected.iter().map(|&v| f64::from(v)).collect();
                let error = relative_error(found, &expected);
                assert!(error < tolerance, "{name}, {mode:?}, {dropout}: {error:e}");
            }
            assert_eq!(found.len(), 12);
            assert_eq!(found, block_results(&device, &scalar_block(dropout)));
        }
    }
}

/// Eigenvectors at points, with other masses, eigenvalues and gradients.
fn at_points<T: Real>(spectra: &Arc<SpectraBatch<T>>, graph: &GaugeGraph) -> SpectraBatch<T> {
    let mass = spectra.arrays().mass.iter().map(|&mass| mass * T::of(0.9));
    let mass = mass.collect();
    let factors = vec![T::of(1.1); spectra.arrays().eigenvalues.len()];
    let moved = spectra.at(points(graph), mass, &factors, T::of(0.8));
    moved.unwrap()
}

#[test]
fn joined_eigenvectors_at_points_are_those_of_the_meshes() {
    let meshes = [bumpy_sphere(), bumpy_grid()];
    let moved = meshes.each_ref().map(|mesh| {
        let spectra = Arc::new(spectra::<f64>(mesh));
        at_points(&spectra, &graph(mesh))
    });
    let stored = moved.each_ref().map(|moved| {
        let arrays = moved.arrays();
        let (mass, bases) = (arrays.mass.to_vec(), arrays.bases.to_vec());
        SpectraBatch::from_parts(COLUMNS.to_vec(), mass, bases, arrays.eigenvalues.to_vec()).unwrap()
    });
    let join = |[a, b]: [&SpectraBatch<f64>; 2]| SpectraBatch::join(&[a, b]).unwrap();
    let expected = join(stored.each_ref());
    for found in [join(moved.each_ref()), join([&moved[0], &stored[1]]), join(moved.each_ref()).detached().unwrap()] {
        assert_eq!(found.arrays().bases, expected.arrays().bases);
        assert_eq!(found.arrays().eigenvalues, expected.arrays().eigenvalues);
        assert_eq!(found.mesh_offsets(), expected.mesh_offsets());
    }
    // The last block are the gradients.
    let (vertices, spectra) = (meshes[0].vertex_count(), spectra::<f64>(&meshes[0]));
    let values = spectra.arrays().bases;
    let (gradients, kind) = (values.len() - 2 * vertices * COLUMNS[0], kind("12x1"));
    let plain = points::<f64>(&graph(&meshes[0])).interpolate(&kind, &values[gradients..]);
    let found = &moved[0].arrays().bases[gradients..];
    assert!(found.iter().zip(&plain.unwrap()).all(|(a, b)| *a == 0.8 * b));
    let joined = Arc::new(join(stored.each_ref()));
    let draws = points(&graph(&meshes[0]));
    assert!(joined.at(draws, vec![], &[], 1.0).is_err());
}

/// Points in cells that do not depend on the frames.
fn points<T: Real>(graph: &GaugeGraph) -> CellPoints<T> {
    let mut draws = random::<f64>(4 * graph.vertex_count(), 3).into_iter();
    CellPoints::random(graph, &mut || (draws.next().unwrap() * 0.5 + 0.5).clamp(0.0, 0.999))
}

#[test]
fn fields_at_points_in_cells_rotate_with_the_frames() {
    let mesh = bumpy_grid();
    let graph = graph(&mesh);
    let angles: Vec<f64> = random(graph.vertex_count(), 5);
    let turned = graph.clone().gauge_transform(&angles).unwrap();
    let spectra = Arc::new(spectra::<f64>(&mesh));
    let after = at_points(&spectra, &graph);
    let after = after.gauge_transform(&angles).unwrap();
    let before = Arc::new(spectra.gauge_transform(&angles).unwrap());
    let before = at_points(&before, &turned);
    let (after, before) = (after.arrays().bases, before.arrays().bases);
    let largest = |values: &[f64]| values.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let differences: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert!(largest(&differences) < 1e-12 * largest(before).max(1.0));
    assert_ne!(spectra.arrays().bases, after);
}

#[test]
fn fields_at_points_in_cells_approach_smooth_fields() {
    // The tangential part of a constant vector, and its square of order 2.
    let vector = DVec3::new(0.3, -0.5, 0.8);
    let kind = kind("1x0 + 1x1 + 1x2");
    let error = |level: u32| {
        let mesh = shapes::icosphere(level).unwrap();
        let graph = graph(&mesh);
        let field = |direction: DVec3, frame: &Frame| {
            let (a, b) = (frame.e1.dot(direction), frame.e2.dot(direction));
            [frame.normal.dot(direction), a, b, a * a - b * b, 2.0 * a * b]
        };
        let frames = graph.frames();
        let values: Vec<f64> = frames.iter().flat_map(|f| field(vector, f)).collect();
        let points = points::<f64>(&graph);
        let found = points.interpolate(&kind, &values).unwrap();
        // The same field at the points on the sphere: their positions by interpolation of positions.
        let positions = mesh.vertices().iter().flat_map(|p| p.to_array());
        let positions: Vec<f64> = positions.collect();
        let positions = points.interpolate(&FeatureType::scalars(3), &positions).unwrap();
        let mut worst: f64 = 0.0;
        for (p, frame) in frames.iter().enumerate() {
            let normal = DVec3::from_slice(&positions[3 * p..]).normalize();
            // The frame of the vertex, transported to the point.
            let turn = DQuat::from_rotation_arc(frame.normal, normal);
            let there = Frame { e1: turn * frame.e1, e2: turn * frame.e2, normal };
            let expected = field(vector, &there);
            let differences = expected.iter().zip(&found[5 * p..]).map(|(a, b)| (a - b).abs());
            worst = differences.fold(worst, f64::max);
        }
        worst
    };
    let (coarse, fine) = (error(3), error(4));
    assert!(coarse < 0.03 && fine < 0.6 * coarse, "{coarse} {fine}");
}
