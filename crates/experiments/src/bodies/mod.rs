//! The paper's table of shape correspondence: several networks, each with a few seeds, trained on registered
//! bodies and tested on other bodies in their original pose and randomly rotated.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so the
//! experiment can be stopped at any time and started again.

mod report;
mod row;

pub use report::{Report, RowReport, RunReport};
pub use row::{PaperResult, Row};

use crate::runs::{evaluated, trained};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions};
use gemcnn_tasks::train::{
    Event, Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig,
};
use gemcnn_tasks::{Task, TaskError};
use std::path::Path;

/// Seed of the rotations of test bodies.
pub const ROTATION: u64 = 1;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Registered bodies (default: 100 synthetic bodies of 6,890 vertices).
    pub data: DataConfig,
    /// Rows of the table (default: all).
    pub rows: Vec<Row>,
    /// Runs of each row, with seeds from 1 (default 3).
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
            data: DataConfig::Bodies(BodiesConfig::default()),
            rows: Row::ALL.to_vec(),
            seeds: 3,
            epochs: training.epochs,
            precision: training.precision,
        }
    }
}

impl Settings {
    /// A single run of the paper's network.
    pub fn quick() -> Self {
        Self {
            rows: vec![Row::Gem],
            seeds: 1,
            ..Self::default()
        }
    }

    /// The configuration of a run.
    pub fn config(&self, row: Row, seed: u64) -> RunConfig {
        RunConfig {
            data: self.data.clone(),
            features: row.features(),
            model: row.model(),
            training: TrainingConfig {
                epochs: self.epochs,
                seed,
                precision: self.precision,
                // Ten points are enough for a learning curve.
                evaluate_every: self.epochs.div_ceil(10),
                ..Default::default()
            },
            ..RunConfig::new(Task::Correspondence)
        }
    }
}

/// Trains and tests all rows, and writes `results.json` and `table.md` to the directory after each run.
/// Returns `None` if `stop` is requested; the same call then resumes.
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
    if settings.rows.is_empty() || settings.seeds == 0 {
        return Err(TaskError::setting(
            "experiment",
            "there are no rows or no seeds to run",
        ));
    }
    let dataset = Dataset::open_for(&settings.data, Task::Correspondence)?;
    let mut report = Report::new(settings, device);
    let total = settings.rows.len() as u64 * settings.seeds;
    let mut number = 0;
    for &row in &settings.rows {
        for seed in 1..=settings.seeds {
            number += 1;
            let name = format!("{row}-seed{seed}");
            let title = format!("run {number} of {total}: {}, seed {seed}", row.title());
            observer.observe(Event::Note(&title));
            let path = directory.join(&name);
            let config = settings.config(row, seed);
            let outcome = match trained(&config, &path, cache, device, observer, stop) {
                Ok(Some((model, seconds))) => {
                    let [original, rotated] = test(&model, &dataset, &path, cache, device)?;
                    let run = RunReport::new(seed, seconds, &original, &rotated);
                    observer.observe(Event::Note(&run.to_string()));
                    Ok(run)
                }
                Ok(None) => return Ok(None),
                Err(error @ TaskError::Diverged { .. }) => {
                    observer.observe(Event::Note(&error.to_string()));
                    Err(error.to_string())
                }
                Err(error) => return Err(error),
            };
            report.add(row, seed, outcome);
            report.write(directory)?;
        }
    }
    Ok(Some(report))
}

/// Tests a model on bodies in their original pose and randomly rotated, or reads earlier results.
fn test(
    model: &TrainedModel,
    dataset: &Dataset,
    path: &Path,
    cache: &Cache,
    device: &Device,
) -> Result<[Evaluation; 2], TaskError> {
    let tested = |rotation: Option<u64>| {
        let stem = path.join(match rotation {
            Some(seed) => format!("eval-test-rotated-{seed}"),
            None => "eval-test".into(),
        });
        let options = EvaluationOptions {
            rotation,
            ..Default::default()
        };
        evaluated(model, dataset, options, &stem, cache, device)
    };
    Ok([tested(None)?, tested(Some(ROTATION))?])
}
