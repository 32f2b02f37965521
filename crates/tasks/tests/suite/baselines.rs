//! The published baselines as whole models: parameters, rotations of the mesh, settings, training.

use gemcnn_mesh::{DVec3, shapes};
use gemcnn_nn::{Device, FeatureType, Tape, Workspace};
use gemcnn_tasks::data::{Augmentation, BodiesConfig, Cache, DataConfig};
use gemcnn_tasks::models::ModelSpec;
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{BatchSize, Event, Observer, Outcome, RunConfig, RunDirectory, Scores, StopFlag};
use gemcnn_tasks::{Element, FeatureConfig, ModelConfig, Task};
use std::path::Path;

const KINDS: [&str; 7] = ["spiral", "feast", "edge", "monet", "geodesic", "acnn", "zernike"];

fn spec(input: usize) -> ModelSpec {
    ModelSpec {
        input: FeatureType::scalars(input),
        task: Task::Correspondence,
        per: Element::Vertex,
        outputs: FeatureType::scalars(6890),
    }
}

/// The counts of the page on baselines.
#[test]
fn parameters_are_those_of_the_formulas() {
    let head = 128 * 256 + 256 + 256 * 6890 + 6890;
    let widths = [(16, 32), (32, 64), (64, 128)];
    let patches = |bins: usize| widths.map(|(i, o)| i * bins * o + o).iter().sum::<usize>();
    // Without the bias of each convolution.
    let rotated = |bins: usize| patches(bins) - (32 + 64 + 128);
    // Scales and shifts of a batch normalisation are two numbers for each channel.
    let norms = 2 * (16 + 32 + 64 + 128);
    let assignments: usize = widths.map(|(i, _)| 32 * i + 2 * 32).iter().sum();
    let edges: usize = widths.map(|(i, o)| 2 * i * o + 2 * o).iter().sum();
    // Nine radial and angular functions, six of which have a cosine and a sine.
    let coefficients: usize = widths.map(|(i, _)| 2 * 9 * i).iter().sum();
    for (kind, inputs, convolutions) in [
        ("spiral", 3, patches(10)),
        ("feast", 3, patches(32) + assignments),
        ("edge", 3, edges + norms),
        ("monet", 352, patches(8) + 3 * 3 * 16 + norms),
        ("geodesic", 352, rotated(5 * 16) + norms),
        ("acnn", 352, patches(8 * 3) + norms),
        ("zernike", 3, rotated(15) + coefficients + norms),
    ] {
        let model = ModelConfig::of_kind(kind).unwrap();
        let features = model.recipe(Task::Correspondence).features;
        assert_eq!(features.kind().dimension(), inputs, "{kind}");
        let (_, parameters) = model.init(&spec(inputs), 1).unwrap();
        let expected = (inputs * 16 + 16) + convolutions + head;
        assert_eq!(parameters.trained_count(), expected, "{kind}");
        println!("{kind}: {} in layers before the head", expected - head);
    }
}

#[test]
fn rotations_of_the_mesh_matter_for_positions_alone() {
    let bump = |p: DVec3| p * (1.0 + 0.2 * (5.0 * p.x + 3.0 * p.y * p.z).sin());
    let mesh = shapes::icosphere(2).unwrap().map_vertices(bump).unwrap();
    for kind in KINDS {
        // Discs of about 20 vertices on this mesh.
        let text = match kind {
            "monet" | "geodesic" | "acnn" | "zernike" => format!("kind = '{kind}'\nradius = 0.2"),
            _ => format!("kind = '{kind}'"),
        };
        let model: ModelConfig = toml::from_str(&text).unwrap();
        let output = |features: &str, rotation: Option<u64>| {
            let mut config = RunConfig::for_model(Task::Correspondence, model.clone());
            config.features = FeatureConfig::of_kind(features).unwrap();
            let mut preparation = config.preparation();
            preparation.rotation = rotation;
            let prepared = preparation.prepare("sphere", &mesh).unwrap();
            let batch = prepared.geometry().unwrap();
            let kind = config.features.kind();
            let spec = ModelSpec { outputs: FeatureType::scalars(5), ..spec(kind.dimension()) };
            let (network, parameters) = model.init(&spec, 1).unwrap();
            let mut workspace = Workspace::default();
            let mut tape = Tape::inference(&mut workspace, &parameters);
            let x = tape.input(kind, &prepared.features).unwrap();
            let y = network.forward(&mut tape, (&batch).into(), x).unwrap();
            y.values().unwrap().into_owned()
        };
        let error = |features: &str| {
            let (still, turned) = (output(features, None), output(features, Some(3)));
            let largest = still.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            assert!(largest > 1e-3 && largest.is_finite(), "{kind}: {largest}");
            let differences = still.iter().zip(&turned).map(|(a, b)| (a - b).abs());
            differences.fold(0.0, f32::max) / largest
        };
        let (positions, descriptors) = (error("xyz"), error("shot"));
        println!("{kind}: off by {positions:.2} on positions, {descriptors:.1e} on SHOT");
        assert!(positions > 0.1, "{kind}: {positions}");
        assert!(descriptors < 1e-3, "{kind}: {descriptors}");
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    for text in [
        "kind = 'spiral'\nlength = 0",
        "kind = 'spiral'\ndilation = 0",
        "kind = 'spiral'\nlayers = { channels = [] }",
        "kind = 'spiral'\nlayers = { channels = [16, 0] }",
        "kind = 'spiral'\nlayers = { dropout = 1.0 }",
        "kind = 'feast'\nmatrices = 0",
        "kind = 'edge'\nneighbours = 0",
        "kind = 'monet'\nkernels = 0",
        "kind = 'monet'\nradius = 0.0",
        "kind = 'geodesic'\nrings = 0",
        "kind = 'geodesic'\nangles = 1000",
        "kind = 'geodesic'\nradius = 1.5",
        "kind = 'acnn'\nsteps = []",
        "kind = 'acnn'\nsteps = [2, 1]",
        "kind = 'acnn'\nanisotropy = 0.5",
        "kind = 'zernike'\ndegree = 99",
        "kind = 'zernike'\nrotations = 0",
    ] {
        let model: ModelConfig = toml::from_str(text).unwrap();
        assert!(model.init(&spec(3), 1).is_err(), "{text}");
    }
    for kind in KINDS {
        let model = ModelConfig::of_kind(kind).unwrap();
        let vectors = ModelSpec { input: "1x0 + 1x1".parse().unwrap(), ..spec(1) };
        assert!(model.init(&vectors, 1).is_err(), "{kind}");
        for task in [Task::Classification, Task::Regression] {
            let spec = ModelSpec { task, ..spec(3) };
            assert!(model.init(&spec, 1).is_ok(), "{kind}");
        }
    }
}

#[test]
fn meshes_without_an_area_are_errors() {
    let flat = shapes::icosphere(0).unwrap();
    let flat = flat.map_vertices(|_| DVec3::X).unwrap();
    for kind in ["monet", "geodesic", "acnn", "zernike"] {
        let model = ModelConfig::of_kind(kind).unwrap();
        let mut preparation = RunConfig::for_model(Task::Correspondence, model).preparation();
        preparation.features = FeatureConfig::of_kind("xyz").unwrap();
        assert!(preparation.prepare("flat", &flat).is_err(), "{kind}");
    }
}

/// Keeps all notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn observe(&mut self, event: Event<'_>) {
        if let Event::Note(note) = event {
            self.0.push(note.into());
        }
    }
}

/// Trains on three small bodies, and returns the last scores on the training split and the notes.
fn trained(folder: &Path, model: &str, (batch, epochs): (usize, u64), versions: usize) -> (Scores, Notes) {
    let model: ModelConfig = toml::from_str(model).unwrap();
    let mut config = RunConfig::for_model(Task::Correspondence, model);
    config.data = DataConfig::Bodies(BodiesConfig { count: 3, vertices: 500, ..Default::default() });
    config.training.epochs = epochs;
    config.training.batch = BatchSize::Meshes(batch);
    config.training.rate = 5e-3;
    config.augmentation = Augmentation { versions, ..Default::default() };
    let run = RunDirectory::create(&tempfile::tempdir_in(folder).unwrap().keep().join("run"));
    let run = run.unwrap();
    let cache = Cache::new(folder.join("cache"));
    let stop = StopFlag::new();
    let mut notes = Notes::default();
    let outcome = train(&config.checked().unwrap(), &run, &cache, &Device::Cpu, &mut notes, &stop).unwrap();
    let Outcome::Finished { last, .. } = outcome else { panic!("{outcome:?}") };
    (last.training.unwrap(), notes)
}

#[test]
fn spirals_learn_registered_bodies_and_training_tells_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (scores, notes) = trained(folder.path(), "kind = 'spiral'", (1, 40), 0);
    assert!(scores.accuracy.unwrap() > 0.3, "{scores:?}");
    let tells = |notes: &Notes| notes.0.iter().filter(|n| n.contains("`spiral`")).count();
    assert_eq!(tells(&notes), 0);
    let (_, notes) = trained(folder.path(), "kind = 'spiral'", (2, 1), 1);
    assert_eq!(tells(&notes), 1, "{:?}", notes.0);
}

/// A second run reads the patches from the cache: for the two models whose maps have all kinds of arrays.
#[test]
fn every_baseline_trains_with_and_without_cache() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let model = format!("kind = '{kind}'\nlayers = {{ channels = [4, 4], head = 0 }}");
        let run = || trained(folder.path(), &model, (2, 1), 0).0.loss;
        let first = run();
        // Chance is the logarithm of the number of classes.
        assert!(first > 0.0 && first < 12.0, "{kind}: {first}");
        if matches!(kind, "monet" | "zernike") {
            assert_eq!(first, run(), "{kind}");
        }
    }
}
