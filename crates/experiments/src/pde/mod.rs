//! Networks as solvers of equations on surfaces: trained on single time steps, tested on later times, other initial
//! states and other meshes, step by step and with predictions fed back.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so the
//! experiment can be stopped at any time and started again.

mod data;
mod equation;
mod evaluation;
mod picture;
mod report;
mod row;
mod samples;
mod shape;
#[cfg(test)]
mod tests;

pub use data::{DataSettings, make};
pub use equation::Equation;
pub use evaluation::{PartErrors, TestPart};
pub use report::{Report, RunReport};
pub use row::Row;

use crate::runs::{LOCK, Seeds, read_json, write_json, write_text};
use data::Data;
use evaluation::evaluate;
use gemcnn_nn::{Device, Target};
use gemcnn_tasks::data::{Augmentation, DataConfig, GeometrySettings};
use gemcnn_tasks::run::opened;
use gemcnn_tasks::train::{
    BatchSize, Checked, Event, Observer, Outcome, Precision, Problem, RunConfig, StopFlag, TrainedModel, Trainer,
    TrainingConfig, read_metrics,
};
use gemcnn_tasks::{Element, Task, TaskError};
use samples::{Nothing, PreparedData};
use std::path::{Path, PathBuf};

/// Results of a run, which are written last.
const RESULT: &str = "result.json";

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// A folder with a data set for each equation, in the layout of [`make`] (default: they are made).
    pub folder: Option<PathBuf>,
    /// Settings of the data that are made.
    pub data: DataSettings,
    /// Equations (default: all).
    pub equations: Vec<Equation>,
    /// Rows of each table (default: all).
    pub rows: Vec<Row>,
    /// Runs of each row.
    pub seeds: Seeds,
    /// Number of epochs (default 20).
    pub epochs: u64,
    /// Precision of matrix products on a GPU (default: tf32).
    pub precision: Precision,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            folder: None,
            data: DataSettings::default(),
            equations: Equation::ALL.to_vec(),
            rows: Row::all(),
            seeds: Seeds::default(),
            epochs: 20,
            precision: TrainingConfig::default().precision,
        }
    }
}

impl Settings {
    /// The configuration of a run on a data set.
    fn config(&self, folder: &Path, equation: Equation, row: Row, seed: u64) -> Result<Checked<RunConfig>, TaskError> {
        let order = equation.dynamics().order();
        let config = RunConfig {
            task: Task::Regression,
            data: DataConfig::Folder(folder.into()),
            features: row.coordinates(order).features(),
            geometry: GeometrySettings::default(),
            augmentation: Augmentation::default(),
            model: row.model(order)?,
            training: TrainingConfig {
                epochs: self.epochs,
                batch: BatchSize::Meshes(1),
                rate: row.rate(order),
                weight_decay: 1e-5,
                clip: 1.0,
                calibrate: true,
                seed,
                precision: self.precision,
                evaluate_every: self.epochs,
                ..TrainingConfig::default()
            },
        };
        config.checked()
    }

    /// The folder with the data set of an equation, which is made if there is none.
    fn folder(&self, equation: Equation, directory: &Path) -> Result<PathBuf, TaskError> {
        if let Some(folder) = &self.folder {
            return Ok(folder.join(equation.word()));
        }
        let DataSettings { vertices, trajectories, steps, seed } = self.data;
        let name = format!("data-{vertices}-{trajectories}-{steps}-{seed}");
        let folder = directory.join(name).join(equation.word());
        std::fs::create_dir_all(directory).map_err(TaskError::file(directory))?;
        make(equation, &self.data, &folder, &directory.join(LOCK))?;
        Ok(folder)
    }
}

/// Trains and tests all rows on all equations, and writes `results.json`, `table.md`, and the figure of errors to the
/// directory after each run. Returns `None` if `stop` is requested; the same call then resumes.
///
/// # Errors
/// Invalid settings or data, or a directory with runs of other settings. A run that diverges is noted in the
/// report and does not stop the others.
pub fn run(
    settings: &Settings,
    directory: &Path,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<Report>, TaskError> {
    let runs = settings.equations.len() * settings.rows.len();
    let total = runs as u64 * settings.seeds.count;
    if total == 0 {
        let problem = "there are no equations, no rows or no seeds to run";
        return Err(TaskError::setting("experiment", problem));
    }
    let mut report = Report::new(settings, device);
    let mut problems = Vec::new();
    for &equation in &settings.equations {
        observer.observe(Event::Note(&format!("{equation}: data")));
        let folder = settings.folder(equation, directory)?;
        let data = Data::read(equation, &folder)?;
        let first = Row::all()[0];
        let config = settings.config(&folder, equation, first, 1)?;
        let coordinates = first.coordinates(equation.dynamics().order());
        let prepared = PreparedData::new(&data, coordinates, &config)?;
        let (errors, _) = evaluate(&prepared, None, device)?;
        report.still.insert(equation, errors);
        problems.push((equation, folder, data));
        if stop.is_requested() {
            return Ok(None);
        }
    }
    let mut number = 0;
    for seed in settings.seeds.iter() {
        for (equation, folder, data) in &problems {
            for &row in &settings.rows {
                number += 1;
                let title = format!("run {number} of {total}: {equation}, {row}, seed {seed}");
                observer.observe(Event::Note(&title));
                let config = settings.config(folder, *equation, row, seed)?;
                let path = directory.join(format!("{equation}-{row}-seed{seed}"));
                let run = Run { equation: *equation, row, seed, config: &config };
                match run.finish(data, &path, device, observer, stop) {
                    Ok(Some(result)) => {
                        observer.observe(Event::Note(&result.line()));
                        report.runs.push(result);
                    }
                    Ok(None) => return Ok(None),
                    Err(error @ TaskError::Diverged { .. }) => {
                        let failure = format!("{equation}, {row}, seed {seed}: {error}");
                        observer.observe(Event::Note(&failure));
                        report.failures.push(failure);
                    }
                    Err(error) => return Err(error),
                }
                report.write(directory)?;
            }
        }
    }
    Ok(Some(report))
}

/// A run of the experiment.
struct Run<'a> {
    equation: Equation,
    row: Row,
    seed: u64,
    config: &'a Checked<RunConfig>,
}

impl Run<'_> {
    /// Trains and tests in a directory what is not finished there; `None` if `stop` is requested.
    fn finish(
        &self,
        data: &Data,
        path: &Path,
        device: &Device,
        observer: &mut dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<RunReport>, TaskError> {
        let config = self.config;
        let run = opened(config, path)?;
        let result = path.join(RESULT);
        if let Some(report) = read_json(&result)? {
            return Ok(Some(report));
        }
        let order = self.equation.dynamics().order();
        let prepared = PreparedData::new(data, self.row.coordinates(order), config)?;
        let (spec, settings) = (self.row.spec(order), config.to_json()?);
        let training = prepared.training();
        let problem = Problem {
            training: &training,
            held_out: &Nothing,
            validates: false,
            objective: &config.training.objective(Target::Values(spec.outputs.clone()))?,
            classes: None,
            per: Element::Vertex,
            config: &config.training(),
            settings: &settings,
        };
        let mut trainer =
            Trainer::new(problem, config.model.init(&spec, config.training.seed)?, &run, device, observer)?;
        write_text(&run.config(), &config.to_toml()?)?;
        if let Outcome::Stopped { .. } = trainer.run(observer, stop)? {
            return Ok(None);
        }
        let model = TrainedModel::read(path)?;
        let (errors, drawn) = evaluate(&prepared, Some(&model), device)?;
        if self.seed == 1 {
            let mesh = &data.meshes[drawn.surface].1;
            let frames = prepared.surfaces[drawn.surface].sample.graph().frames();
            let drawn = picture::Drawn { mesh, frames, coordinates: prepared.coordinates, states: &drawn };
            drawn.write(&path.join("rollout.png"))?;
        }
        let records = read_metrics(&run.metrics())?;
        let report = RunReport {
            equation: self.equation,
            row: self.row.to_string(),
            seed: self.seed,
            parameters: model.parameters.trained_count(),
            training_seconds: records.last().map_or(0.0, |record| record.seconds),
            parts: errors,
        };
        write_json(&result, &report)?;
        Ok(Some(report))
    }
}
