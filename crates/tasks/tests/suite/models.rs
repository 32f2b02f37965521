//! Models for every task: layers, types, parameters, equivariance.

use gemcnn_mesh::{GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh, shapes};
use gemcnn_nn::equivariance::{
    Symmetry, Trial, assert_gauge_equivariant, assert_gauge_equivariant_within, equivariance_error, hierarchy_error,
    tolerance,
};
use gemcnn_nn::layers::GlobalPool;
use gemcnn_nn::{
    Builder, Extras, FeatureType, Geometry, GraphBatch, Levels, Module, NetworkConfig, NnError, Parameters, Tape,
    Target, WeightDecay, Workspace,
};
use gemcnn_tasks::data::GaugeChoice;
use gemcnn_tasks::models::{
    AngularModel, AttentionModel, GemModel, GraphModel, HermesModel, Model, ModelSpec, NonlinearityChoice,
    SurfaceModel, UNetModel,
};
use gemcnn_tasks::{Element, ModelConfig, Sample, Task, TaskError};

const TASKS: [Task; 4] = [Task::Segmentation, Task::Correspondence, Task::Classification, Task::Regression];

fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

fn spec(input: &str, task: Task, outputs: &str) -> ModelSpec {
    ModelSpec {
        input: kind(input),
        task,
        per: match task {
            Task::Classification => Element::Mesh,
            _ => Element::Vertex,
        },
        outputs: kind(outputs),
    }
}

fn every_model() -> [ModelConfig; 6] {
    [
        GemModel::default().into(),
        GraphModel::default().into(),
        AngularModel::default().into(),
        UNetModel::default().into(),
        AttentionModel::default().into(),
        HermesModel::default().into(),
    ]
}

fn count(model: &ModelConfig, input: &str) -> usize {
    let spec = spec(input, Task::Correspondence, "6890x0");
    model.init(&spec, 1).unwrap().1.trained_count()
}

/// A closed surface without any symmetry, so that no two distances are equal but for rounding.
fn bumpy_sphere() -> Mesh {
    let bump = |p: gemcnn_mesh::DVec3| 1.0 + 0.2 * (5.0 * p.x + 3.0 * p.y * p.z + 2.0 * p.y + 1.3 * p.z).sin();
    let sphere = shapes::icosphere(2).unwrap();
    sphere.map_vertices(|p| p * bump(p)).unwrap()
}

/// The paper's network by hand: `16x(0,1,2)` has 80 numbers and 1,280 self weights; each nonlinearity
/// normalises 16 channels, the last one 64.
#[test]
fn parameters_of_the_paper_s_network() {
    let norm = 2 * 16;
    let conv = 80 * 80 + 1280 + 16;
    let first = (80 * 3 + 16 * 3 + 16) + norm + conv + 3 * 16 + norm;
    let second = conv + norm + conv + norm;
    let third = conv + norm + (64 * 80 + 64 * 16 + 64) + 16 * 64 + 2 * 64;
    let head = (64 * 256 + 256) + (256 * 6890 + 6890);
    assert_eq!(count(&ModelConfig::from(GemModel::default()), "3x0"), first + second + third + head);
    assert_eq!(first + second + third, 38_656);

    let broken = GemModel { broken_symmetry: true, ..GemModel::default() };
    let head = (80 * 256 + 256) + (256 * 6890 + 6890);
    assert_eq!(count(&broken.into(), "3x0"), first + 2 * second + head);
}

#[test]
fn parameters_of_the_angular_network() {
    let layers = (6 * 3 * 128) + 6 * (6 * 128 * 128) + 7 * 2 * 128;
    let head = (128 * 256 + 256) + (256 * 6890 + 6890);
    let model = AngularModel::default().into();
    assert_eq!(count(&model, "3x0"), layers + head);
}

/// The counts that docs/models.md lists.
#[test]
fn parameters_of_the_u_net() {
    let blocks = 8_112 + 48_832 + 194_944 + 138_432 + 32_496;
    let head = (64 * 256 + 256) + (256 * 6890 + 6890);
    assert_eq!(count(&UNetModel::default().into(), "3x0"), blocks + head);
}

#[test]
fn the_graph_baseline_matches_in_parameters() {
    let head = (64 * 256 + 256) + (256 * 6890 + 6890);
    for input in ["3x0", "352x0"] {
        let gem = count(&ModelConfig::from(GemModel::default()), input) - head;
        let graph = count(&GraphModel::default().into(), input) - head;
        // Of the convolutions alone, without the head that both share.
        let difference = graph.abs_diff(gem) as f64 / gem as f64;
        assert!(difference < 0.01, "{input}: {graph} {gem}");
    }
    let gem = GemModel { blocks: 5, channels: 8, broken_symmetry: true, ..GemModel::default() };
    let graph = GraphModel::matching(&gem, &kind("3x0")).unwrap();
    assert_eq!(graph.blocks, 5);
    let gem = count(&gem.into(), "3x0") as f64;
    let graph = count(&graph.into(), "3x0") as f64;
    assert!((graph / gem - 1.0).abs() < 0.01, "{graph} {gem}");
}

#[test]
fn every_model_gives_what_every_task_asks_for() {
    for model in every_model() {
        for task in TASKS {
            let (network, parameters) = model.init(&spec("3x0", task, "5x0"), 1).unwrap();
            let layers = network.parts();
            let is_pooling = |name: &str| name.trim_start_matches("tail.").starts_with("pool");
            assert_eq!(
                layers.iter().any(|layer| is_pooling(&layer.name)),
                task == Task::Classification,
                "{model:?}, {task}"
            );
            let listed: usize = layers.iter().map(|layer| layer.parameters).sum();
            assert_eq!(listed, parameters.trained_count());
            let deepest = model.hierarchy().map_or(0, |settings| settings.ratios.len());
            assert_eq!(network.levels(), 1 + deepest);
            assert_eq!(network.output(), &kind("5x0"));
            let decaying = parameters.iter().filter(|entry| entry.decays());
            assert_eq!(decaying.count(), 2, "the two layers of the head");
        }
    }
    let shot = |model: &ModelConfig| model.gauge() == GaugeChoice::Shot;
    assert_eq!(every_model().each_ref().map(shot), [false, false, true, false, false, false]);
}

#[test]
fn vectors_come_from_a_convolution() {
    for model in [
        ModelConfig::from(GemModel::default()),
        UNetModel::default().into(),
        AttentionModel::default().into(),
        HermesModel::default().into(),
    ] {
        let spec = spec("7x(0,1,2)", Task::Regression, "1x0 + 2x1");
        let (network, _) = model.init(&spec, 1).unwrap();
        let layers = network.parts();
        let last = layers.last().unwrap();
        let name = last.name.trim_start_matches("tail.");
        assert!(name.starts_with("conv"), "{last:?}");
        assert_eq!(network.output(), &kind("1x0 + 2x1"));
    }
}

#[test]
fn settings_that_do_not_fit_are_named() {
    let broken = ModelConfig::from(GemModel { broken_symmetry: true, ..GemModel::default() });
    let [gem, graph, angular, unet, ..] = every_model();
    let flat = ModelConfig::from(UNetModel { radii: vec![3.0], ..UNetModel::default() });
    let empty = ModelConfig::from(GemModel { blocks: 0, ..GemModel::default() });
    let sharp = ModelConfig::from(GemModel { band_limit: usize::MAX, ..GemModel::default() });
    let deep = ModelConfig::from(GraphModel { blocks: 1_000_000_000_000, ..GraphModel::default() });
    let wide = ModelConfig::from(UNetModel { head: usize::MAX, ..UNetModel::default() });
    let wet = ModelConfig::from(GraphModel { dropout: 1.0, ..GraphModel::default() });
    let headless = toml::from_str("kind = 'attention'\nheads = 3").unwrap();
    let silent = toml::from_str("kind = 'hermes'\nedge_layers = 0").unwrap();
    let (xyz, vectors) = ("3x0", "1x1");
    // The setting that the error names, and what its problem mentions.
    for (model, input, task, output, setting, mentions) in [
        (&broken, xyz, Task::Regression, vectors, "model: broken_symmetry", vec!["1x1", "false"]),
        (&gem, xyz, Task::Segmentation, vectors, "segmentation into 1x1", vec!["regression"]),
        (&unet, xyz, Task::Classification, vectors, "classification into 1x1", vec!["regression"]),
        (&gem, xyz, Task::Segmentation, "0x0", "segmentation", vec![]),
        (&gem, "0x0", Task::Segmentation, "2x0", "features", vec![]),
        (&graph, xyz, Task::Regression, vectors, "regression of 1x1", vec!["`gem`", "`unet`"]),
        (&angular, xyz, Task::Regression, vectors, "regression of 1x1", vec!["`gem`", "`unet`"]),
        (&graph, "7x(0,1,2)", Task::Segmentation, "2x0", "model: graph", vec!["`xyz`", "`shot`"]),
        (&flat, xyz, Task::Segmentation, "2x0", "model: radii", vec!["1", "3"]),
        (&empty, xyz, Task::Segmentation, "2x0", "model: blocks", vec!["1", "1000"]),
        (&sharp, xyz, Task::Segmentation, "2x0", "model: band_limit", vec!["0", "64"]),
        (&deep, xyz, Task::Segmentation, "2x0", "model: blocks", vec!["1", "1000"]),
        (&wide, xyz, Task::Segmentation, "2x0", "model: head", vec!["0", "65536"]),
        (&headless, xyz, Task::Segmentation, "2x0", "model: heads", vec!["3", "16"]),
        (&silent, xyz, Task::Segmentation, "2x0", "model: edge_layers", vec!["1", "1000"]),
        (&wet, xyz, Task::Segmentation, "2x0", "model: dropout", vec!["1"]),
    ] {
        match model.init(&spec(input, task, output), 1) {
            Err(TaskError::Setting { what, problem }) => {
                assert!(what.starts_with(setting), "{what}");
                for part in mentions {
                    assert!(problem.contains(part), "{what}: {problem}");
                }
            }
            other => panic!("{setting}: {other:?}"),
        }
    }
}

#[test]
fn configurations_survive_toml_and_have_defaults() {
    for model in every_model() {
        let text = toml::to_string(&model).unwrap();
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), model, "{text}");
    }
    for (name, model) in ["gem", "graph", "angular", "unet", "attention", "hermes"].iter().zip(every_model()) {
        let short = format!("kind = '{name}'");
        assert_eq!(toml::from_str::<ModelConfig>(&short).unwrap(), model);
    }
    let text = "kind = 'gem'\nnonlinearity = 'gated'\npool = 'max'\ndecay = 'all'\nsamples = 9";
    let expected = GemModel {
        nonlinearity: NonlinearityChoice::Gated,
        pool: GlobalPool::Max,
        decay: WeightDecay::All,
        samples: Some(9),
        ..GemModel::default()
    };
    let found: ModelConfig = toml::from_str(text).unwrap();
    assert_eq!(found, expected.into());
    let message = toml::from_str::<ModelConfig>("kind = 'gem'\nchanels = 8").unwrap_err();
    assert!(message.to_string().contains("chanels"), "{message}");
}

/// Small, and exactly equivariant unless said otherwise.
fn small() -> GemModel {
    GemModel { channels: 4, scalars: 6, head: 8, nonlinearity: NonlinearityChoice::Gated, ..GemModel::default() }
}

/// A network in f64.
struct Double {
    network: Box<dyn Module<f64>>,
    parameters: Parameters<f64>,
}

impl Double {
    fn of(config: Result<NetworkConfig<f64>, TaskError>) -> Self {
        let (network, parameters) = config.unwrap().init(1).unwrap();
        Self { network: Box::new(network), parameters }
    }

    fn trial<'a>(&'a self, mesh: &'a Mesh, options: &'a GeometryOptions) -> Trial<'a> {
        Trial { mesh, options, input: self.network.input(), output: self.network.output(), seed: 1 }
    }

    fn on_graph(&self, graph: &GaugeGraph, x: &[f64]) -> Result<Vec<f64>, NnError> {
        self.outputs(&GraphBatch::new([graph])?, x)
    }

    /// Outputs of the network in inference.
    fn outputs<'a>(&self, levels: impl Into<Levels<'a, f64>>, x: &[f64]) -> Result<Vec<f64>, NnError> {
        let levels = levels.into();
        let mut workspace = Workspace::default();
        let mut tape = Tape::inference(&mut workspace, &self.parameters);
        let x = tape.input(self.network.input().clone(), x)?;
        let y = self.network.forward(&mut tape, levels, x)?;
        Ok(y.values()?.to_vec())
    }
}

#[test]
fn equivariant_models_are_equivariant() {
    let mesh = bumpy_sphere();
    let options = GeometryOptions::default();
    let norms = GemModel { nonlinearity: NonlinearityChoice::Norm, ..small() };
    let graph = GraphModel { width: Some(7), ..GraphModel::default() };
    let attention = AttentionModel {
        channels: 4,
        scalars: 6,
        head: 8,
        nonlinearity: NonlinearityChoice::Gated,
        ..AttentionModel::default()
    };
    let hermes = HermesModel {
        channels: 4,
        scalars: 6,
        head: 8,
        nonlinearity: NonlinearityChoice::Gated,
        ..HermesModel::default()
    };
    for config in [
        attention.network(&spec("3x0", Task::Segmentation, "5x0")),
        attention.network(&spec("2x(0,1)", Task::Regression, "1x0 + 1x1")),
        hermes.network(&spec("3x0", Task::Classification, "5x0")),
        hermes.network(&spec("2x(0,1)", Task::Regression, "1x0 + 1x1")),
        small().network(&spec("3x0", Task::Segmentation, "5x0")),
        small().network(&spec("2x(0,1,2)", Task::Classification, "5x0")),
        small().network(&spec("2x(0,1)", Task::Regression, "1x0 + 1x1")),
        norms.network(&spec("2x(0,1,2)", Task::Regression, "1x1")),
        graph.network(&spec("3x0", Task::Segmentation, "5x0")),
    ] {
        let network = Double::of(config);
        assert_gauge_equivariant(&network.trial(&mesh, &options), |graph, x: &[f64]| network.on_graph(graph, x));
    }
    // ReLU of samples is equivariant in the limit.
    let regular = GemModel { nonlinearity: NonlinearityChoice::Regular, samples: Some(101), ..small() };
    let network = Double::of(regular.network(&spec("3x0", Task::Segmentation, "5x0")));
    let trial = network.trial(&mesh, &options);
    assert_gauge_equivariant_within(&trial, 5e-3, |graph, x: &[f64]| network.on_graph(graph, x));
}

#[test]
fn the_u_shaped_model_is_equivariant() {
    let mesh = bumpy_sphere();
    let geometry = GeometryOptions::default();
    let model = UNetModel {
        channels: vec![3, 4, 5],
        scalars: 6,
        head: 8,
        nonlinearity: NonlinearityChoice::Gated,
        ..UNetModel::default()
    };
    let edge_length = 0.3;
    let settings = model.hierarchy().unwrap();
    let options: HierarchyOptions = settings.options(geometry.clone(), edge_length);
    for (task, output) in [(Task::Segmentation, "5x0"), (Task::Classification, "5x0"), (Task::Regression, "1x0 + 1x1")]
    {
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, 1);
        let module = model.module(&spec("1x0 + 1x1", task, output), &mut builder);
        let network = Double { network: module.unwrap(), parameters };
        let trial = network.trial(&mesh, &geometry);
        for symmetry in [Symmetry::Gauge, Symmetry::Motion] {
            let error = hierarchy_error(&trial, &options, &symmetry, |hierarchy, x: &[f64]| {
                network.outputs(&Geometry::new([hierarchy])?, x)
            });
            let (error, most) = (error.unwrap(), tolerance::<f64>(&symmetry));
            assert!(error <= most, "{task}, {symmetry:?}: {error:e}");
        }
    }
}

#[test]
fn broken_symmetry_and_the_angular_model_depend_on_frames() {
    let mesh = bumpy_sphere();
    let broken = GemModel { broken_symmetry: true, ..small() };
    let angular = AngularModel { channels: 6, head: 8, ..AngularModel::default() };
    for config in [
        broken.network(&spec("3x0", Task::Segmentation, "5x0")),
        angular.network(&spec("3x0", Task::Segmentation, "5x0")),
        angular.network(&spec("1x0 + 1x1", Task::Segmentation, "5x0")),
    ] {
        let network = Double::of(config);
        let options = GeometryOptions::default();
        let trial = network.trial(&mesh, &options);
        let error = equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[f64]| network.on_graph(graph, x));
        assert!(error.unwrap() > 0.01, "{}", network.network);
    }
}

#[test]
fn batches_of_samples_are_levels() {
    let model = UNetModel { channels: vec![2, 2], ratios: vec![0.25], radii: vec![3.0], ..UNetModel::default() };
    let settings = model.hierarchy().unwrap();
    let options = settings.options(GeometryOptions::default(), 0.3);
    let hierarchy = Hierarchy::new(&bumpy_sphere(), &options).unwrap();
    let graph = hierarchy.graph().clone();
    let mut sample = Sample {
        name: "sphere".into(),
        features: vec![0.5; 3 * graph.vertex_count()],
        hierarchy: hierarchy.into(),
        extras: Extras::default(),
        areas: Vec::new(),
        kind: kind("3x0"),
        target: Target::Unknown,
    };
    let batch = sample.geometry().unwrap();
    assert_eq!(Levels::from(&batch).count(), 2);
    sample.hierarchy = std::sync::Arc::new(graph.into());
    let batch = sample.geometry().unwrap();
    assert_eq!(Levels::from(&batch).count(), 1);
}

#[test]
fn updates_are_dropped_more_often_in_later_blocks() {
    let model = SurfaceModel { blocks: 2, channels: [4, 3, 2], stochastic_depth: 0.5, ..SurfaceModel::default() };
    let spec = spec("3x0", Task::Segmentation, "5x0");
    let (network, _) = model.network::<f32>(&spec).unwrap().init(1).unwrap();
    let text = format!("{network:?}");
    let mut depths = text.split("stochastic_depth: ").skip(1);
    assert!(depths.next().unwrap().starts_with("0.25,"));
    assert!(depths.next().unwrap().starts_with("0.5,"));
    assert!(depths.next().is_none());
    for text in [
        "kind = 'surface'\nstochastic_depth = 1.0",
        "kind = 'surface'\nirrep_dropout = 1.0",
        "kind = 'diffusion'\nirrep_dropout = -0.1",
        "kind = 'diffusion'\nstochastic_depth = 2.0",
    ] {
        let model: ModelConfig = toml::from_str(text).unwrap();
        assert!(model.init(&spec, 1).is_err(), "{text}");
    }
}
