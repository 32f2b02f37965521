//! Networks as solvers of equations on surfaces: trained on single time steps, tested on later times, other initial
//! states and other meshes, step by step and with predictions fed back.
//!
//! It is a [`Sweep`] whose worlds are equations. Trajectories take the place of data sets, and errors of predictions
//! that of evaluations.

mod data;
mod equation;
mod evaluation;
mod picture;
mod samples;
mod shape;
#[cfg(test)]
mod tests;

pub use data::{DataSettings, make};
pub use equation::Equation;
pub use evaluation::{PartErrors, TestPart};

use crate::output::{LOCK, invalid, read_json, write_json, write_text};
use crate::sweep::{Engine, Run, RunContext, RunReport, Sweep, SweepReport, Training};
use data::Data;
use evaluation::{Errors, evaluate};
use gemcnn_nn::Target;
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::models::ModelSpec;
use gemcnn_tasks::run::opened;
use gemcnn_tasks::train::{Observer, Outcome, Problem, RunConfig, TrainedModel, Trainer, read_metrics};
use gemcnn_tasks::{Element, Task, TaskError};
use samples::{Coordinates, NoSamples, PreparedData};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Results of a run, which are written last.
const RESULT: &str = "result.json";

/// The sweep of the experiment.
///
/// # Errors
/// Only if the program was built from a wrong file.
pub fn sweep() -> Result<Sweep, TaskError> {
    Sweep::parse("pde.toml", include_str!("../../sweeps/pde.toml"))
}

/// Trains and tests all rows on all equations, as [`Sweep::run`]. `given` is a folder with a data set for each equation in
/// the layout of [`make`]; without one they are made.
///
/// # Errors
/// Invalid settings or data, or a directory with runs of other settings.
pub fn run(
    mut sweep: Sweep,
    given: Option<PathBuf>,
    settings: &DataSettings,
    context: RunContext<'_>,
    observer: &mut dyn Observer,
) -> Result<Option<SweepReport>, TaskError> {
    let made = given.is_none().then_some(settings);
    let folder = given.unwrap_or_else(|| {
        let DataSettings { vertices, trajectories, steps, seed } = settings;
        context.directory.join(format!("data-{vertices}-{trajectories}-{steps}-{seed}"))
    });
    for world in sweep.worlds.names().iter().map(ToString::to_string).collect::<Vec<_>>() {
        sweep.set_data(&world, DataConfig::Folder(folder.join(&world)));
    }
    let mut solver = Solver { made, context, data: BTreeMap::new() };
    sweep.run_with(&mut solver, context, observer)
}

/// Trains networks on single steps.
struct Solver<'a> {
    /// Settings of data that are made.
    made: Option<&'a DataSettings>,
    context: RunContext<'a>,
    data: BTreeMap<String, Data>,
}

/// The result of a run in its directory.
#[derive(Serialize, Deserialize)]
struct Finished {
    #[serde(flatten)]
    training: Training,
    parts: Errors,
}

/// Errors as results of tests.
fn results(errors: &Errors) -> Result<Map<String, Value>, TaskError> {
    let results = errors.iter().map(|(part, errors)| {
        let mut result = serde_json::to_value(errors).map_err(invalid("errors"))?;
        result["steps"] = (1..=errors.rolled_out.len()).collect();
        result["after_20"] = errors.after_20().into();
        Ok((part.name().to_owned(), result))
    });
    results.collect()
}

/// Input and output of a model.
fn spec(coordinates: Coordinates) -> ModelSpec {
    let (input, outputs) = (coordinates.input(), coordinates.output());
    ModelSpec { input, task: Task::Regression, per: Element::Vertex, outputs }
}

impl Engine for Solver<'_> {
    fn open(&mut self, world: &str, config: &RunConfig) -> Result<Vec<RunReport>, TaskError> {
        let equation: Equation = world.parse()?;
        let DataConfig::Folder(folder) = &config.data else {
            return Err(TaskError::setting("data", "must be a folder"));
        };
        if let Some(settings) = self.made {
            let directory = self.context.directory;
            std::fs::create_dir_all(directory).map_err(TaskError::file(directory))?;
            make(equation, settings, folder, &directory.join(LOCK))?;
        }
        let data = Data::read(equation, folder)?;
        let prepared = PreparedData::new(&data, Coordinates::of(&config.features)?, config)?;
        let (errors, _) = evaluate(&prepared, None, self.context.device)?;
        self.data.insert(world.into(), data);
        let tests = results(&errors)?;
        Ok(vec![RunReport { world: world.into(), row: "no change".into(), training: None, tests }])
    }

    fn run(
        &mut self,
        run: &Run<'_>,
        path: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Option<(Training, Map<String, Value>)>, TaskError> {
        let RunContext { device, stop, .. } = self.context;
        let config = &run.config;
        let directory = opened(config, path)?;
        let result = path.join(RESULT);
        if let Some(Finished { training, parts }) = read_json(&result)? {
            return Ok(Some((training, results(&parts)?)));
        }
        let (data, coordinates) = (&self.data[run.world], Coordinates::of(&config.features)?);
        let prepared = PreparedData::new(data, coordinates, config)?;
        let (spec, settings) = (spec(coordinates), config.to_json()?);
        let problem = Problem {
            training: &prepared.training(),
            held_out: &NoSamples,
            robust: None,
            validates: false,
            objective: &config.training.objective(Target::Values(spec.outputs.clone()))?,
            classes: None,
            per: Element::Vertex,
            config: &config.training(),
            settings: &settings,
        };
        let model = config.model.init(&spec, config.training.seed)?;
        let mut trainer = Trainer::new(problem, model, &directory, device, observer)?;
        write_text(&directory.config(), &config.to_toml()?)?;
        if let Outcome::Stopped { .. } = trainer.run(observer, stop)? {
            return Ok(None);
        }
        let model = TrainedModel::read(path)?;
        let (parts, states) = evaluate(&prepared, Some(&model), device)?;
        if run.seed == 1 {
            let mesh = &data.meshes[states.surface].1;
            let frames = prepared.surfaces[states.surface].sample.graph().frames();
            picture::Drawn { mesh, frames, coordinates, states: &states }.write(&path.join("rollout.png"))?;
        }
        let training = Training {
            seed: run.seed,
            parameters: model.parameters.trained_count(),
            training_seconds: read_metrics(&directory.metrics())?.last().map_or(0.0, |record| record.seconds),
            held_out: None,
            robust: None,
        };
        let tests = results(&parts)?;
        write_json(&result, &Finished { training, parts })?;
        Ok(Some((training, tests)))
    }
}
