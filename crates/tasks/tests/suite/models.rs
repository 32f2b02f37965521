//! Models for every task: layers, types, parameters, equivariance.

use gemcnn_mesh::{GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh, shapes};
use gemcnn_nn::equivariance::{
    Symmetry, Trial, assert_gauge_equivariant, assert_gauge_equivariant_within, equivariance_error,
    hierarchy_error, tolerance,
};
use gemcnn_nn::layers::GlobalPool;
use gemcnn_nn::{
    FeatureType, GraphBatch, HierarchyBatch, LayerConfig, Levels, Network, NetworkConfig, NnError,
    Parameters, Tape, WeightDecay, Workspace,
};
use gemcnn_tasks::data::GaugeChoice;
use gemcnn_tasks::models::{AngularModel, GemModel, GraphModel, NonlinearityChoice, UNetModel};
use gemcnn_tasks::{Batch, ModelConfig, Sample, Target, Task};

const TASKS: [Task; 4] = [
    Task::Segmentation,
    Task::Correspondence,
    Task::Classification,
    Task::Regression,
];

fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

fn every_model() -> [ModelConfig; 4] {
    [
        ModelConfig::Gem(GemModel::default()),
        ModelConfig::Graph(GraphModel::default()),
        ModelConfig::Angular(AngularModel::default()),
        ModelConfig::UNet(UNetModel::default()),
    ]
}

fn count(model: &ModelConfig, input: &str) -> usize {
    let classes = FeatureType::scalars(6890);
    let config = model.network(&kind(input), Task::Correspondence, &classes);
    config.unwrap().parameter_count().unwrap()
}

/// A closed surface without any symmetry, so that no two distances are equal but for rounding.
fn bumpy_sphere() -> Mesh {
    let bump = |p: gemcnn_mesh::DVec3| {
        1.0 + 0.2 * (5.0 * p.x + 3.0 * p.y * p.z + 2.0 * p.y + 1.3 * p.z).sin()
    };
    let sphere = shapes::icosphere(2).unwrap();
    sphere.map_vertices(|p| p * bump(p)).unwrap()
}

/// Outputs of a network in use.
fn outputs<'a>(
    network: &Network<f64>,
    parameters: &Parameters<f64>,
    levels: impl Into<Levels<'a, f64>>,
    x: &[f64],
) -> Result<Vec<f64>, NnError> {
    let levels = levels.into();
    let mut workspace = Workspace::default();
    let mut tape = Tape::inference(&mut workspace, parameters);
    let x = tape.input(network.input().clone(), x)?;
    Ok(network.forward(&mut tape, levels, x)?.values()?.to_vec())
}

fn on_graph(
    network: &Network<f64>,
    parameters: &Parameters<f64>,
    graph: &GaugeGraph,
    x: &[f64],
) -> Result<Vec<f64>, NnError> {
    outputs(network, parameters, &GraphBatch::new([graph])?, x)
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
    assert_eq!(
        count(&ModelConfig::default(), "3x0"),
        first + second + third + head
    );
    assert_eq!(first + second + third, 38_656);

    let broken = GemModel {
        broken_symmetry: true,
        ..GemModel::default()
    };
    let head = (80 * 256 + 256) + (256 * 6890 + 6890);
    assert_eq!(
        count(&ModelConfig::Gem(broken), "3x0"),
        first + 2 * second + head
    );
}

#[test]
fn parameters_of_the_angular_network() {
    let layers = (6 * 3 * 128) + 6 * (6 * 128 * 128) + 7 * 2 * 128;
    let head = (128 * 256 + 256) + (256 * 6890 + 6890);
    let model = ModelConfig::Angular(AngularModel::default());
    assert_eq!(count(&model, "3x0"), layers + head);
}

#[test]
fn the_graph_baseline_matches_in_parameters() {
    let head = (64 * 256 + 256) + (256 * 6890 + 6890);
    for input in ["3x0", "352x0"] {
        let gem = count(&ModelConfig::default(), input) - head;
        let graph = count(&ModelConfig::Graph(GraphModel::default()), input) - head;
        // Of the convolutions alone, without the head that both share.
        let difference = graph.abs_diff(gem) as f64 / gem as f64;
        assert!(difference < 0.01, "{input}: {graph} {gem}");
    }
    let gem = GemModel {
        blocks: 5,
        channels: 8,
        broken_symmetry: true,
        ..GemModel::default()
    };
    let graph = GraphModel::matching(&gem, &kind("3x0")).unwrap();
    assert_eq!(graph.blocks, 5);
    let gem = count(&ModelConfig::Gem(gem), "3x0") as f64;
    let graph = count(&ModelConfig::Graph(graph), "3x0") as f64;
    assert!((graph / gem - 1.0).abs() < 0.01, "{graph} {gem}");
}

#[test]
fn every_model_gives_what_every_task_asks_for() {
    for model in every_model() {
        for task in TASKS {
            let config = model.network(&kind("3x0"), task, &kind("5x0")).unwrap();
            let pools = |layer: &LayerConfig| matches!(layer, LayerConfig::GlobalPool(_));
            assert_eq!(
                config.layers().iter().any(pools),
                task == Task::Classification,
                "{model:?}, {task}"
            );
            let deepest = model
                .hierarchy()
                .map_or(0, |settings| settings.ratios.len());
            assert_eq!(config.levels(), 1 + deepest);
            let (network, parameters) = config.init::<f32>(1).unwrap();
            assert_eq!(network.output(), &kind("5x0"));
            let decaying = parameters.iter().filter(|entry| entry.decays());
            assert_eq!(decaying.count(), 2, "the two maps of the head");
        }
    }
    let shot = |model: &ModelConfig| model.gauge() == GaugeChoice::Shot;
    assert_eq!(
        every_model().each_ref().map(shot),
        [false, false, true, false]
    );
}

#[test]
fn vectors_come_from_a_convolution() {
    for model in [
        ModelConfig::default(),
        ModelConfig::UNet(UNetModel::default()),
    ] {
        let config = model
            .network(&kind("7x(0,1,2)"), Task::Regression, &kind("1x0 + 2x1"))
            .unwrap();
        let last = config.layers().last().unwrap();
        assert!(matches!(last, LayerConfig::Conv { .. }), "{last:?}");
        let (network, _) = config.init::<f32>(1).unwrap();
        assert_eq!(network.output(), &kind("1x0 + 2x1"));
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_advice() {
    let broken = ModelConfig::Gem(GemModel {
        broken_symmetry: true,
        ..GemModel::default()
    });
    let [gem, graph, angular, unet] = every_model();
    let flat = ModelConfig::UNet(UNetModel {
        radii: vec![3.0],
        ..UNetModel::default()
    });
    let empty = ModelConfig::Gem(GemModel {
        blocks: 0,
        ..GemModel::default()
    });
    let sharp = ModelConfig::Gem(GemModel {
        band_limit: usize::MAX,
        ..GemModel::default()
    });
    let deep = ModelConfig::Graph(GraphModel {
        blocks: 1_000_000_000_000,
        ..GraphModel::default()
    });
    let wide = ModelConfig::UNet(UNetModel {
        head: usize::MAX,
        ..UNetModel::default()
    });
    let wet = ModelConfig::Graph(GraphModel {
        dropout: 1.0,
        ..GraphModel::default()
    });
    let (xyz, vectors) = ("3x0", "1x1");
    for (model, input, task, output, advice) in [
        (&broken, xyz, Task::Regression, vectors, "set it to false"),
        (
            &gem,
            xyz,
            Task::Segmentation,
            vectors,
            "classes are scalars",
        ),
        (
            &unet,
            xyz,
            Task::Classification,
            vectors,
            "classes are scalars",
        ),
        (&gem, xyz, Task::Segmentation, "0x0", "there are no outputs"),
        (
            &gem,
            "0x0",
            Task::Segmentation,
            "2x0",
            "there are none to learn from",
        ),
        (
            &graph,
            xyz,
            Task::Regression,
            vectors,
            "use the model `gem` or `unet`",
        ),
        (
            &angular,
            xyz,
            Task::Regression,
            vectors,
            "use the model `gem` or `unet`",
        ),
        (
            &graph,
            "7x(0,1,2)",
            Task::Segmentation,
            "2x0",
            "`xyz` or `shot`",
        ),
        (
            &flat,
            xyz,
            Task::Segmentation,
            "2x0",
            "each but the finest needs one",
        ),
        (&empty, xyz, Task::Segmentation, "2x0", "from 1 to 1000"),
        (&sharp, xyz, Task::Segmentation, "2x0", "from 0 to 64"),
        (&deep, xyz, Task::Segmentation, "2x0", "from 1 to 1000"),
        (&wide, xyz, Task::Segmentation, "2x0", "from 0 to 65536"),
        (&wet, xyz, Task::Segmentation, "2x0", "below 1"),
    ] {
        let refused = model.network(&kind(input), task, &kind(output));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(advice), "{message}");
    }
}

#[test]
fn configurations_survive_toml_and_have_defaults() {
    for model in every_model() {
        let text = toml::to_string(&model).unwrap();
        assert_eq!(
            toml::from_str::<ModelConfig>(&text).unwrap(),
            model,
            "{text}"
        );
    }
    for (name, model) in ["gem", "graph", "angular", "unet"]
        .iter()
        .zip(every_model())
    {
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
    assert_eq!(found, ModelConfig::Gem(expected));
    let message = toml::from_str::<ModelConfig>("kind = 'gem'\nchanels = 8").unwrap_err();
    assert!(message.to_string().contains("chanels"), "{message}");
}

/// Small, and exactly equivariant unless said otherwise.
fn small() -> GemModel {
    GemModel {
        channels: 4,
        scalars: 6,
        head: 8,
        nonlinearity: NonlinearityChoice::Gated,
        ..GemModel::default()
    }
}

/// A network in f64, for positions or tangential features and a task.
fn in_double(
    model: ModelConfig,
    input: &str,
    task: Task,
    output: &str,
) -> (Network<f64>, Parameters<f64>) {
    let config: NetworkConfig = model.network(&kind(input), task, &kind(output)).unwrap();
    config.init(1).unwrap()
}

#[test]
fn equivariant_models_are_equivariant() {
    let mesh = bumpy_sphere();
    let options = GeometryOptions::default();
    let gated = || ModelConfig::Gem(small());
    let norms = ModelConfig::Gem(GemModel {
        nonlinearity: NonlinearityChoice::Norm,
        ..small()
    });
    let graph = ModelConfig::Graph(GraphModel {
        width: Some(7),
        ..GraphModel::default()
    });
    for (model, input, task, output) in [
        (gated(), "3x0", Task::Segmentation, "5x0"),
        (gated(), "2x(0,1,2)", Task::Classification, "5x0"),
        (gated(), "2x(0,1)", Task::Regression, "1x0 + 1x1"),
        (norms, "2x(0,1,2)", Task::Regression, "1x1"),
        (graph, "3x0", Task::Segmentation, "5x0"),
    ] {
        let (network, parameters) = in_double(model, input, task, output);
        let trial = Trial {
            mesh: &mesh,
            options: &options,
            input: network.input(),
            output: network.output(),
            seed: 1,
        };
        assert_gauge_equivariant(&trial, |graph, x: &[f64]| {
            on_graph(&network, &parameters, graph, x)
        });
    }
    // ReLU of samples is equivariant in the limit.
    let regular = ModelConfig::Gem(GemModel {
        nonlinearity: NonlinearityChoice::Regular,
        samples: Some(101),
        ..small()
    });
    let (network, parameters) = in_double(regular, "3x0", Task::Segmentation, "5x0");
    let trial = Trial {
        mesh: &mesh,
        options: &options,
        input: network.input(),
        output: network.output(),
        seed: 1,
    };
    assert_gauge_equivariant_within(&trial, 5e-3, |graph, x: &[f64]| {
        on_graph(&network, &parameters, graph, x)
    });
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
    let options: HierarchyOptions = model.hierarchy().options(geometry.clone(), edge_length);
    for (task, output) in [
        (Task::Segmentation, "5x0"),
        (Task::Classification, "5x0"),
        (Task::Regression, "1x0 + 1x1"),
    ] {
        let model = ModelConfig::UNet(model.clone());
        let (network, parameters) = in_double(model, "1x0 + 1x1", task, output);
        let trial = Trial {
            mesh: &mesh,
            options: &geometry,
            input: network.input(),
            output: network.output(),
            seed: 1,
        };
        for symmetry in [Symmetry::Gauge, Symmetry::Motion] {
            let error = hierarchy_error(&trial, &options, &symmetry, |hierarchy, x: &[f64]| {
                outputs(&network, &parameters, &HierarchyBatch::new([hierarchy])?, x)
            });
            let (error, most) = (error.unwrap(), tolerance::<f64>(&symmetry));
            assert!(error <= most, "{task}, {symmetry:?}: {error:e}");
        }
    }
}

#[test]
fn broken_symmetry_and_the_angular_model_depend_on_frames() {
    let mesh = bumpy_sphere();
    let broken = ModelConfig::Gem(GemModel {
        broken_symmetry: true,
        ..small()
    });
    let angular = ModelConfig::Angular(AngularModel {
        channels: 6,
        head: 8,
        ..AngularModel::default()
    });
    for (model, input) in [
        (broken, "3x0"),
        (angular.clone(), "3x0"),
        (angular, "1x0 + 1x1"),
    ] {
        let (network, parameters) = in_double(model, input, Task::Segmentation, "5x0");
        let trial = Trial {
            mesh: &mesh,
            options: &GeometryOptions::default(),
            input: network.input(),
            output: network.output(),
            seed: 1,
        };
        let error = equivariance_error(&trial, &Symmetry::Gauge, |graph, x: &[f64]| {
            on_graph(&network, &parameters, graph, x)
        });
        assert!(error.unwrap() > 0.01, "{network}");
    }
}

#[test]
fn batches_of_samples_are_levels() {
    let model = UNetModel {
        channels: vec![2, 2],
        ratios: vec![0.25],
        radii: vec![3.0],
        ..UNetModel::default()
    };
    let options = model.hierarchy().options(GeometryOptions::default(), 0.3);
    let hierarchy = Hierarchy::new(&bumpy_sphere(), &options).unwrap();
    let graph = hierarchy.levels()[0].graph.clone();
    let mut sample = Sample {
        name: "sphere".into(),
        features: vec![0.5; 3 * graph.vertex_count()],
        graph: graph.into(),
        hierarchy: Some(hierarchy.into()),
        kind: kind("3x0"),
        target: Target::Unknown,
    };
    let batch = Batch::new(&[&sample]).unwrap();
    assert_eq!(Levels::from(&batch).count(), 2);
    sample.hierarchy = None;
    let batch = Batch::new(&[&sample]).unwrap();
    assert_eq!(Levels::from(&batch).count(), 1);
}
