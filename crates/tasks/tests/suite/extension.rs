//! A model and a feature from outside the crate, from a configuration to predictions.

use super::data::{labelled, sphere};
use gemcnn_nn::layers::{Linear, LinearConfig, Regular};
use gemcnn_nn::{Archive, Builder, Device, FeatureType, Levels, Module, Network, NnError, Tape, Var, Workspace};
use gemcnn_tasks::data::Cache;
use gemcnn_tasks::features::{self, Feature, FeatureError, Surface};
use gemcnn_tasks::models::{self, Model, ModelSpec};
use gemcnn_tasks::predict::Prediction;
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{Outcome, RunConfig, RunDirectory, Silent, StopFlag, TrainedModel};
use gemcnn_tasks::{Element, FeatureConfig, ModelConfig, Settings, TaskError};
use serde::{Deserialize, Serialize};

/// One coordinate of each vertex and its number of neighbours.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Height {
    axis: usize,
}

impl Settings for Height {
    const KIND: &'static str = "height";
}

impl Feature for Height {
    fn kind(&self) -> FeatureType {
        FeatureType::scalars(2)
    }

    fn compute(&self, surface: Surface<'_>) -> Result<Vec<f64>, FeatureError> {
        let vertices = surface.mesh.vertices().iter().enumerate();
        let row = |(v, point): (usize, &gemcnn_mesh::DVec3)| [point[self.axis], surface.graph.row(v).len() as f64];
        Ok(vertices.flat_map(row).collect())
    }
}

/// A convolutional network and a linear shortcut.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Shortcut {
    channels: usize,
}

impl Default for Shortcut {
    fn default() -> Self {
        Self { channels: 3 }
    }
}

impl Settings for Shortcut {
    const KIND: &'static str = "shortcut";
}

impl Model for Shortcut {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        let outputs = spec.outputs.dimension();
        let network = Network::builder(spec.input.clone())
            .residual(&FeatureType::uniform(self.channels, 1), Regular::relu(3))
            .conv(&spec.outputs);
        Ok(Box::new(WithShortcut {
            network: builder.within("network", |builder| network.build(builder))?,
            shortcut: LinearConfig::new(spec.input.dimension(), outputs).init("shortcut", builder)?,
        }))
    }
}

#[derive(Debug)]
struct WithShortcut {
    network: Network<f32>,
    shortcut: Linear,
}

impl Module<f32> for WithShortcut {
    fn input(&self) -> &FeatureType {
        self.network.input()
    }

    fn output(&self) -> &FeatureType {
        self.network.output()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, f32>, levels: Levels<'a, f32>, x: Var<f32>) -> Result<Var<f32>, NnError> {
        let deep = self.network.forward(tape, levels, x.clone())?;
        let shallow = self.shortcut.forward(tape, levels, x)?;
        tape.add(deep, shallow)
    }
}

#[test]
fn kinds_from_outside_are_trained_saved_and_loaded() {
    features::register::<Height>();
    models::register::<Shortcut>();
    let folder = labelled(4);
    let data = folder.path().display();
    let config = RunConfig::parse(&format!(
        "task = 'segmentation'\n\
         data.folder = {data:?}\n\
         features = {{ kind = 'height', axis = 2 }}\n\
         training = {{ epochs = 8, batch = 1 }}\n\
         [model]\n\
         kind = 'shortcut'\n\
         channels = 4",
        data = data.to_string()
    ))
    .unwrap();
    assert_eq!(config.model, ModelConfig::from(Shortcut { channels: 4 }));
    assert_eq!(config.features, FeatureConfig::from(Height { axis: 2 }));
    assert_eq!(RunConfig::parse(&config.to_toml().unwrap()).unwrap(), config);

    let runs = tempfile::tempdir().unwrap();
    let run = RunDirectory::create_next(runs.path(), "outside").unwrap();
    let (cache, stop) = (Cache::none(), StopFlag::new());
    let outcome = train(&config.clone().checked().unwrap(), &run, &cache, &Device::Cpu, &mut Silent, &stop).unwrap();
    let Outcome::Finished { last, .. } = outcome else { panic!("{outcome:?}") };
    let accuracy = last.held_out.unwrap().accuracy.unwrap();
    assert!(accuracy > 0.9, "{accuracy}");

    // The model file gives the predictions of the weights that training ended with.
    let loaded = TrainedModel::read(run.path()).unwrap();
    let spec = ModelSpec {
        input: loaded.network.input().clone(),
        task: config.task,
        per: Element::Vertex,
        outputs: loaded.network.output().clone(),
    };
    let (network, mut parameters) = config.model.init(&spec, 99).unwrap();
    let checkpoint = Archive::read(run.checkpoint()).unwrap();
    parameters.load(&checkpoint, "weights").unwrap();
    let trained = TrainedModel { network, parameters, ..TrainedModel::read(run.path()).unwrap() };
    let mut workspace = Workspace::new(Device::Cpu);
    let sample = loaded.sample("new", &sphere(9)).unwrap();
    let mut predict = |model: &TrainedModel| model.predict(&mut workspace, &sample).unwrap();
    let found = predict(&loaded);
    assert_eq!(found, predict(&trained));
    let Prediction::Classes { classes, .. } = found else { panic!("{found:?}") };
    assert!(classes.contains(&0) && classes.contains(&1));
}

#[test]
fn a_kind_that_is_not_registered_is_refused_with_those_that_are() {
    for (what, error) in
        [("model", ModelConfig::of_kind("gme").unwrap_err()), ("features", FeatureConfig::of_kind("xzy").unwrap_err())]
    {
        let TaskError::Setting { what: named, problem } = error else { panic!("{error}") };
        assert_eq!(named, what);
        let kinds = match what {
            "model" => ["`gme`", "angular", "gem", "graph", "unet"],
            _ => ["`xzy`", "matrix", "reltan", "shot", "xyz"],
        };
        for kind in kinds {
            assert!(problem.contains(kind), "{problem}");
        }
    }
}
