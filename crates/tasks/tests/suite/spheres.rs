//! Small runs on spheres, for the tests of training.

use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{Aggregation, Archive, Device, Extras, FeatureType, IGNORE, Network, NetworkConfig, Target};
use gemcnn_tasks::data::Classes;
use gemcnn_tasks::train::{
    Event, Observer, Outcome, Problem, Record, RunDirectory, Silent, StopFlag, Trainer, TrainingConfig,
};
use gemcnn_tasks::{Element, Sample, SampleSource, TaskError};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Spheres of two sizes with positions as features.
pub struct Spheres {
    pub samples: Vec<Sample>,
}

impl Spheres {
    pub fn new(count: usize, target: impl Fn(&[f32]) -> Target) -> Self {
        let sample = |index: usize| {
            let mesh = shapes::icosphere(1 + index as u32 % 2).unwrap();
            let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
            let shift = 0.02 * index as f64;
            let features: Vec<f32> =
                (mesh.vertices().iter()).flat_map(|p| [p.x + shift, p.y, p.z - shift].map(|v| v as f32)).collect();
            Sample {
                name: format!("sphere {index}"),
                hierarchy: Arc::new(graph.into()),
                extras: Extras::default(),
                areas: Vec::new(),
                kind: FeatureType::scalars(3),
                target: target(&features),
                features,
            }
        };
        Self { samples: (0..count).map(sample).collect() }
    }

    /// Upper and lower half; the first vertex is not known.
    pub fn halves(count: usize) -> Self {
        Self::new(count, |features| {
            let half = |row: &[f32]| u32::from(row[2] > 0.0);
            let mut labels: Vec<u32> = features.chunks(3).map(half).collect();
            labels[0] = IGNORE;
            Target::Classes(labels)
        })
    }
}

impl SampleSource for Spheres {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, index: usize) -> String {
        self.samples[index].name.clone()
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        Ok(self.samples[index].clone())
    }
}

pub fn hidden_layers() -> NetworkConfig<f32> {
    let hidden = FeatureType::uniform(4, 1);
    Network::builder(FeatureType::scalars(3))
        .aggregation(Aggregation::Mean)
        .residual(&hidden, Regular::relu(3).with_batch_norm())
        .residual(&FeatureType::scalars(8), Regular::relu(3))
        .dropout(0.2)
}

/// A small run on halves of spheres.
pub struct Run {
    pub training: Spheres,
    pub held_out: Spheres,
    pub validates: bool,
    pub network: NetworkConfig<f32>,
    pub learned: Target<Classes, FeatureType>,
    pub config: TrainingConfig,
    pub settings: Value,
}

impl Run {
    pub fn new() -> Self {
        Self {
            training: Spheres::halves(6),
            held_out: Spheres::halves(3),
            validates: false,
            network: hidden_layers().head(8, 2),
            learned: Target::Classes(Classes::numbered(2)),
            config: TrainingConfig { epochs: 5, ..TrainingConfig::default() },
            settings: json!({"what": "halves"}),
        }
    }

    pub fn train(&self, path: &Path, observer: &mut dyn Observer, stop: &StopFlag) -> Result<Outcome, TaskError> {
        let directory = if path.exists() { RunDirectory::open(path)? } else { RunDirectory::create(path)? };
        std::fs::write(directory.config(), "").unwrap();
        self.with_trainer(&directory, observer, |trainer, observer| trainer.run(observer, stop))
    }

    /// The final model of a finished run.
    pub fn final_model(&self, path: &Path) -> Archive {
        let directory = RunDirectory::open(path).unwrap();
        let bytes = self.with_trainer(&directory, &mut Silent, |trainer, _| trainer.final_model());
        Archive::from_bytes(&bytes.unwrap()).unwrap()
    }

    fn with_trainer<R>(
        &self,
        directory: &RunDirectory,
        observer: &mut dyn Observer,
        go: impl FnOnce(&mut Trainer<'_>, &mut dyn Observer) -> Result<R, TaskError>,
    ) -> Result<R, TaskError> {
        let config = self.config.clone().checked()?;
        let problem = Problem {
            training: &self.training,
            held_out: &self.held_out,
            robust: None,
            validates: self.validates,
            objective: &config.objective(self.learned.as_ref().map(|classes| classes, FeatureType::clone))?,
            per: Element::Vertex,
            classes: None,
            config: &config,
            settings: &self.settings,
        };
        let (network, parameters) = self.network.init(config.seed)?;
        let model = (Box::new(network) as _, parameters);
        let mut trainer = Trainer::new(problem, model, directory, &Device::Cpu, observer)?;
        go(&mut trainer, observer)
    }

    pub fn whole(&self, path: &Path) -> Record {
        match self.train(path, &mut Silent, &StopFlag::new()).unwrap() {
            Outcome::Finished { last, .. } => last,
            stopped => panic!("{stopped:?}"),
        }
    }

    pub fn refused(&self, path: &Path) -> TaskError {
        let outcome = self.train(path, &mut Silent, &StopFlag::new());
        outcome.unwrap_err()
    }
}

/// What of a checkpoint does not depend on the clock: the bits of its tensors, and its progress without
/// times.
pub fn timeless(path: &Path) -> (Vec<(String, Vec<u32>)>, Value) {
    let archive = Archive::read(path.join("checkpoint.safetensors")).unwrap();
    let tensors = tensors(&archive, "");
    let mut progress: Value = archive.json("progress").unwrap();
    remove_times(&mut progress);
    (tensors, progress)
}

/// Names after a prefix, and bits of the tensors.
pub fn tensors(archive: &Archive, prefix: &str) -> Vec<(String, Vec<u32>)> {
    let named = archive.tensor_names();
    let named = named.filter_map(|name| Some((name, name.strip_prefix(prefix)?)));
    let bits = |(name, rest): (&str, &str)| {
        let values = archive.tensor::<f32>(name).unwrap();
        let bits = values.iter().map(|v| v.to_bits()).collect();
        (rest.to_string(), bits)
    };
    named.map(bits).collect()
}

fn remove_times(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            let is_time = |key: &str| key.starts_with("seconds") || key == "meshes_per_second";
            entries.retain(|key, _| !is_time(key));
            entries.values_mut().for_each(remove_times);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_times),
        _ => {}
    }
}

/// Requests a stop after so many steps.
pub struct StopAfter {
    pub steps: u64,
    pub stop: StopFlag,
}

impl Observer for StopAfter {
    fn observe(&mut self, event: Event<'_>) {
        if let Event::StepDone(_) = event {
            self.steps -= 1;
            if self.steps == 0 {
                self.stop.request();
            }
        }
    }
}
