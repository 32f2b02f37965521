//! The walks of docs/extending.md: each extension is correct, and a network made of them learns.

use gemcnn_extending::angle_defect::AngleDefect;
use gemcnn_extending::attention::Attention;
use gemcnn_extending::cotangents::Cotangents;
use gemcnn_extending::register;
use gemcnn_extending::softsign::Softsign;
use gemcnn_extending::tanh_norm::TanhNorm;
use gemcnn_mesh::{
    AttributeValues, GaugeGraph, GeometryOptions, NormalWeighting, VertexAttribute, WriteOptions, shapes, write_mesh,
};
use gemcnn_nn::equivariance::assert_module_equivariant;
use gemcnn_nn::layers::Nonlinearity;
use gemcnn_nn::{
    Aggregation, Builder, Device, Extras, FeatureType, Network, Parameters, Real, Stream, Tape, Var, Workspace,
};
use gemcnn_tasks::data::{Cache, Dataset, Split};
use gemcnn_tasks::features::{Feature, Fields, Surface};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{Outcome, RunConfig, RunDirectory, Silent, StopFlag, TrainedModel};
use gemcnn_tasks::{Sample, SampleSource};
use std::path::Path;

/// Runs a function of features on a tape and returns its values.
fn run<T: Real>(kind: &FeatureType, x: &[T], apply: impl FnOnce(&mut Tape<'_, T>, Var<T>) -> Var<T>) -> Vec<T> {
    let (mut workspace, parameters) = (Workspace::default(), Parameters::new());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = tape.input(kind.clone(), x).unwrap();
    apply(&mut tape, x).values().unwrap().to_vec()
}

#[test]
fn the_nonlinearity_is_equivariant() {
    let kind: FeatureType = "2x0 + 3x1 + 1x2".parse().unwrap();
    let mut parameters = Parameters::<f64>::new();
    let layer = TanhNorm.init("act", &kind, &mut Builder::new(&mut parameters, 1)).unwrap();
    let mesh = shapes::icosphere(1).unwrap();
    assert_module_equivariant(&*layer, &parameters, &mesh, &GeometryOptions::default());
}

#[test]
fn the_layer_is_equivariant() {
    let kind: FeatureType = "2x0 + 4x1 + 2x2".parse().unwrap();
    let (network, parameters) = Network::<f64>::builder(kind).layer(Attention { heads: 2 }).init(1).unwrap();
    let mesh = shapes::icosphere(1).unwrap();
    assert_module_equivariant(&network, &parameters, &mesh, &GeometryOptions::default());
}

/// The value of the operator and the gradient of the mean square of its output.
fn softsign_gradient(device: Device, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let kind = FeatureType::scalars(1);
    let zeros = vec![0.0; x.len()];
    let (mut workspace, mut parameters) = (Workspace::new(device), Parameters::new());
    let mut tape = Tape::training(&mut workspace, &mut parameters, Stream { seed: 1, step: 0 });
    let x = tape.tracked_input(kind, x).unwrap();
    let y = tape.apply(Softsign, [x.clone()]).unwrap();
    let values = y.values().unwrap().to_vec();
    let loss = tape.mean_square(y, &zeros).unwrap();
    let gradients = tape.backward_to(&loss, &[&x]).unwrap();
    (values, gradients[0].to_vec())
}

#[test]
fn the_operator_has_its_gradient_on_every_device() {
    let kind = FeatureType::scalars(1);
    let y = run(&kind, &[-1.0f64, 0.0, 3.0], |tape, x| tape.apply(Softsign, [x]).unwrap());
    assert_eq!(y, [-0.5, 0.0, 0.75]);
    // d/dx of mean_i y_i^2 by central differences.
    let x = [-2.0f32, -0.3, 0.4, 1.7];
    let mean_square = |x: &[f64]| -> f64 {
        let y = run(&kind, x, |tape, x| tape.apply(Softsign, [x]).unwrap());
        y.iter().map(|y| y * y).sum::<f64>() / y.len() as f64
    };
    let (values, gradient) = softsign_gradient(Device::Cpu, &x);
    for place in 0..x.len() {
        let moved = |step: f64| {
            let mut x = x.map(f64::from);
            x[place] += step;
            mean_square(&x)
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((slope - f64::from(gradient[place])).abs() < 1e-6);
    }
    let (device, _) = Device::auto();
    if let Device::Cuda(_) = device {
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        let (on_device, device_gradient) = softsign_gradient(device, &x);
        assert!(close(&on_device, &values) && close(&device_gradient, &gradient));
    } else {
        let required = std::env::var("GEMCNN_REQUIRE_CUDA").is_ok_and(|value| value == "1");
        assert!(!required, "GEMCNN_REQUIRE_CUDA is set, but no GPU works");
    }
}

#[test]
fn the_feature_sums_to_the_euler_characteristic() {
    let mesh = shapes::icosphere(2).unwrap();
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
    let surface = Surface {
        mesh: &mesh,
        graph: &graph,
        normals: NormalWeighting::default(),
        operators: None,
        fields: &Fields::default(),
    };
    let defect = AngleDefect::default().compute(surface).unwrap();
    // Gauss-Bonnet: 2 pi times the Euler characteristic, which is 2.
    let sum: f64 = defect.iter().sum();
    assert!((sum - 4.0 * std::f64::consts::PI).abs() < 1e-9);
}

/// Spheres with a bump; the label says whether a vertex is on it.
fn write_data(folder: &Path) {
    for index in 0..4 {
        let bump = shapes::icosphere(2).unwrap().vertices()[7 * index];
        let near = |p: gemcnn_mesh::DVec3| p.distance(bump) < 0.6;
        let mesh = shapes::icosphere(2).unwrap();
        let labels = mesh.vertices().iter().map(|&p| near(p).into()).collect();
        let mesh = mesh.map_vertices(|p| if near(p) { 1.4 * p } else { p }).unwrap();
        let part = [VertexAttribute::new("part", AttributeValues::I32(labels))];
        let path = folder.join(format!("bump{index}.ply"));
        write_mesh(&path, &mesh, &part, &WriteOptions::default()).unwrap();
    }
}

/// Trains a model by its configuration in a folder, and returns its accuracy and the trained model.
fn trained(folder: &Path, model: &str, cache: &Cache) -> (f64, TrainedModel) {
    register();
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    write_data(&data);
    let text = format!(
        "task = 'segmentation'\n\
         [data]\nfolder = {:?}\n\
         [features]\nkind = 'angle_defect'\nper_area = true\n\
         [model]\n{model}\n\
         [training]\nepochs = 60\nbatch = 2",
        data.to_str().unwrap()
    );
    let config = RunConfig::parse(&text).unwrap().checked().unwrap();
    let run = RunDirectory::create(&folder.join("run")).unwrap();
    let (device, _) = Device::auto();
    let outcome = train(&config, &run, cache, &device, &mut Silent, &StopFlag::new());
    let Outcome::Finished { last, .. } = outcome.unwrap() else { panic!("stopped") };
    (last.training.unwrap().accuracy.unwrap(), TrainedModel::read(run.path()).unwrap())
}

#[test]
fn a_configuration_trains_the_model_on_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    let (accuracy, model) = trained(folder.path(), "kind = 'branches'\nchannels = 6", &Cache::none());
    assert!(accuracy > 0.9, "{accuracy}");
    assert_eq!(model.config.model.name(), "branches");
}

#[test]
fn a_model_trains_on_a_new_kind_of_geometry() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("cache"));
    let (accuracy, model) = trained(folder.path(), "kind = 'cotangent'", &cache);
    assert!(accuracy > 0.9, "{accuracy}");
    // What is read from the cache is what was computed, and weights of a row sum to 1.
    let dataset = Dataset::open(&model.config.data).unwrap();
    let load =
        |cache: &Cache| dataset.split(Split::Train, &model.config.preparation(), cache).unwrap().load(0).unwrap();
    let sample = load(&cache);
    assert_eq!(sample, load(&Cache::none()));
    let ones = vec![1.0; sample.graph().vertex_count()];
    let (mut workspace, parameters) = (Workspace::default(), Parameters::new());
    let means = {
        let cotangents: &Cotangents = sample.extras.get().unwrap();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(FeatureType::scalars(1), &ones).unwrap();
        let means = tape.apply_incidence(Aggregation::Sum, &cotangents.matrix, x).unwrap();
        means.values().unwrap().to_vec()
    };
    assert!(means.iter().all(|mean| (mean - 1.0f32).abs() < 1e-5));
    // A mesh without them says what is missing.
    let bare = Sample { extras: Extras::default(), ..sample };
    let error = model.predict(&mut Workspace::default(), &bare).unwrap_err().to_string();
    assert!(error.contains("needs the cotangent weights"), "{error}");
}
