//! Segmentation of surfaces from several sources: one step of the recipe after the other, trained on one meshing and
//! density and tested on others.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so the
//! experiment can be stopped at any time and started again.

mod bodies;
mod report;
mod step;

pub use bodies::Condition;
pub use report::{Report, StepReport};
pub use step::Step;

use crate::runs::{evaluated, trained};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Part};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions};
use gemcnn_tasks::train::{
    Event, Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig,
};
use gemcnn_tasks::{Task, TaskError};
use std::path::{Path, PathBuf};

/// Seed of rotations and remeshings of test meshes.
const SEED: u64 = 1;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// A folder of meshes with a validation part, on which runs are tested (default: synthetic bodies).
    pub folder: Option<PathBuf>,
    /// Number of synthetic bodies: 64 % for training, 16 % for validation, 20 % for testing (default 100).
    pub bodies: usize,
    /// Vertices of the training bodies (default 1,000).
    pub vertices: usize,
    /// Steps of the recipe (default: all).
    pub steps: Vec<Step>,
    /// Runs of each step, with seeds from 1 (default 3).
    pub seeds: u64,
    /// Number of epochs (default 100).
    pub epochs: u64,
    /// Precision of matrix products on a GPU (default: tf32).
    pub precision: Precision,
}

impl Default for Settings {
    fn default() -> Self {
        let training = TrainingConfig::default();
        Self {
            folder: None,
            bodies: 100,
            vertices: 1000,
            steps: Step::ALL.to_vec(),
            seeds: 3,
            epochs: training.epochs,
            precision: training.precision,
        }
    }
}

impl Settings {
    /// The configuration of a run on a data set.
    pub fn config(&self, data: DataConfig, step: Step, seed: u64) -> RunConfig {
        let config = step.config();
        RunConfig {
            data,
            training: TrainingConfig {
                epochs: self.epochs,
                seed,
                precision: self.precision,
                evaluate_every: self.epochs.div_ceil(10),
                ..config.training
            },
            ..config
        }
    }
}

/// Test meshes under one condition.
struct TestSet {
    condition: Condition,
    dataset: Dataset,
    options: EvaluationOptions,
}

/// Trains and tests all steps, and writes `results.json` and `table.md` to the directory after each run. Returns `None`
/// if `stop` is requested; the same call then resumes.
///
/// # Errors
/// Invalid settings or data, or a directory with runs of other settings. A run that diverges is noted in the
/// report and does not stop the others.
pub fn run(
    settings: &Settings,
    directory: &Path,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<Report>, TaskError> {
    if settings.steps.is_empty() || settings.seeds == 0 {
        return Err(TaskError::setting(
            "experiment",
            "there are no steps or no seeds to run",
        ));
    }
    let (data, tests) = match &settings.folder {
        Some(folder) => {
            let data = DataConfig::Folder(folder.clone());
            let dataset = Dataset::open_for(&data, Task::Segmentation)?;
            if dataset.is_empty(Part::Validation) {
                let problem = "the experiment needs a validation part, on which it tests";
                return Err(TaskError::setting(folder.display().to_string(), problem));
            }
            let conditions = [
                Condition::AsTrained,
                Condition::Rotated,
                Condition::Isotropic,
            ];
            let tests = conditions.map(|condition| TestSet {
                condition,
                dataset: dataset.clone(),
                options: condition.options(Part::Validation),
            });
            (data, tests.into_iter().collect())
        }
        None => bodies::make(settings, &directory.join("data"))?,
    };
    let mut report = Report::new(settings, device);
    let total = settings.steps.len() as u64 * settings.seeds;
    let mut number = 0;
    // One seed of every step before the next: a table that is not finished compares all steps.
    for seed in 1..=settings.seeds {
        for &step in &settings.steps {
            number += 1;
            let title = format!("run {number} of {total}: {step}, seed {seed}");
            observer.observe(Event::Note(&title));
            let path = directory.join(format!("{step}-seed{seed}"));
            let config = settings.config(data.clone(), step, seed);
            let outcome = match trained(&config, &path, cache, device, observer, stop) {
                Ok(Some((model, seconds))) => {
                    let evaluations = test(&model, &tests, &path, cache, device, stop)?;
                    let Some(evaluations) = evaluations else {
                        return Ok(None);
                    };
                    Ok((seconds, evaluations))
                }
                Ok(None) => return Ok(None),
                Err(error @ TaskError::Diverged { .. }) => {
                    observer.observe(Event::Note(&error.to_string()));
                    Err(error.to_string())
                }
                Err(error) => return Err(error),
            };
            if let Some(line) = report.add(step, seed, outcome) {
                observer.observe(Event::Note(&line));
            }
            report.write(directory)?;
        }
    }
    Ok(Some(report))
}

/// Tests a model under all conditions, or reads earlier results; `None` if `stop` is requested.
fn test(
    model: &TrainedModel,
    tests: &[TestSet],
    path: &Path,
    cache: &Cache,
    device: &Device,
    stop: &StopFlag,
) -> Result<Option<Vec<(Condition, Evaluation)>>, TaskError> {
    let mut evaluations = Vec::new();
    for test in tests {
        if stop.is_requested() {
            return Ok(None);
        }
        let stem = path.join(format!("eval-{}", test.condition.word()));
        let options = test.options.clone();
        let evaluation = evaluated(model, &test.dataset, options, &stem, cache, device)?;
        evaluations.push((test.condition, evaluation));
    }
    Ok(Some(evaluations))
}
