//! Networks on meshings that training never saw: correspondence on bodies of one meshing, tested on other bodies in
//! the same meshing and in five others.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so the
//! experiment can be stopped at any time and started again.

mod meshing;
mod picture;
mod report;
mod row;

pub use meshing::Meshing;
pub use report::{MeshingReport, Report, RowReport};
pub use row::{Augmented, NetworkChoice, Row};

use crate::runs::{evaluated, trained};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions};
use gemcnn_tasks::train::{
    Event, Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig,
};
use gemcnn_tasks::{Task, TaskError};
use std::path::{Path, PathBuf};

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Registered bodies (default: 100 synthetic bodies of 6,890 vertices).
    pub data: DataConfig,
    /// Folder with the test bodies in other meshings, in the layout of the public benchmark (default: the test bodies
    /// are remeshed here).
    pub remeshed: Option<PathBuf>,
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
            remeshed: None,
            rows: Row::all(),
            seeds: 3,
            epochs: training.epochs,
            precision: training.precision,
        }
    }
}

impl Settings {
    /// The configuration of a run.
    pub fn config(&self, row: Row, seed: u64) -> RunConfig {
        RunConfig {
            data: self.data.clone(),
            features: row.features(),
            model: row.model(),
            augmentation: row.augmentation(),
            training: TrainingConfig {
                epochs: self.epochs,
                seed,
                precision: self.precision,
                // Five points are enough for a learning curve.
                evaluate_every: self.epochs.div_ceil(5),
                ..row.training()
            },
            ..RunConfig::for_model(Task::Correspondence, row.model())
        }
    }
}

/// The test bodies in one meshing.
struct TestSet {
    meshing: Meshing,
    dataset: Dataset,
    options: EvaluationOptions,
}

impl TestSet {
    fn new(
        meshing: Meshing,
        dataset: &Dataset,
        remeshed: Option<&Path>,
    ) -> Result<Option<Self>, TaskError> {
        let vertices = dataset.template().map_or(0, |mesh| mesh.vertex_count());
        let remesher = meshing.remesher(vertices);
        Ok(match (remeshed, remesher) {
            (Some(folder), Some(_)) if meshing.is_in_benchmark() => Some(Self {
                meshing,
                dataset: dataset.in_other_meshing(folder, meshing.word())?,
                options: EvaluationOptions::default(),
            }),
            (Some(_), Some(_)) => None,
            (_, remesher) => Some(Self {
                meshing,
                dataset: dataset.clone(),
                options: EvaluationOptions {
                    meshing: remesher.map(|kind| (kind, meshing::SEED)),
                    ..EvaluationOptions::default()
                },
            }),
        })
    }
}

/// Trains and tests all rows, and writes `results.json`, `table.md`, the figure of errors and pictures of one body to
/// the directory after each run. Returns `None` if `stop` is requested; the same call then resumes.
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
    let mut tests = Vec::new();
    for meshing in Meshing::ALL {
        tests.extend(TestSet::new(
            meshing,
            &dataset,
            settings.remeshed.as_deref(),
        )?);
    }
    let mut report = Report::new(settings, device);
    let total = settings.rows.len() as u64 * settings.seeds;
    let mut number = 0;
    // One seed of every row before the next: a table that is not finished compares all rows.
    for seed in 1..=settings.seeds {
        for &row in &settings.rows {
            number += 1;
            let title = format!("run {number} of {total}: {row}, seed {seed}");
            observer.observe(Event::Note(&title));
            let path = directory.join(format!("{row}-seed{seed}"));
            let config = settings.config(row, seed);
            let outcome = match trained(&config, &path, cache, device, observer, stop) {
                Ok(Some((model, seconds))) => {
                    let evaluations = test(&model, &tests, &path, cache, device, stop)?;
                    let Some(evaluations) = evaluations else {
                        return Ok(None);
                    };
                    if seed == 1 {
                        picture::draw(&model, &tests, device, &path.join("meshings.png"))?;
                    }
                    Ok((seconds, evaluations))
                }
                Ok(None) => return Ok(None),
                Err(error @ TaskError::Diverged { .. }) => {
                    observer.observe(Event::Note(&error.to_string()));
                    Err(error.to_string())
                }
                Err(error) => return Err(error),
            };
            if let Some(line) = report.add(row, seed, outcome) {
                observer.observe(Event::Note(&line));
            }
            report.write(directory)?;
        }
    }
    Ok(Some(report))
}

/// Tests a model on all meshings, or reads earlier results; `None` if `stop` is requested.
fn test(
    model: &TrainedModel,
    tests: &[TestSet],
    path: &Path,
    cache: &Cache,
    device: &Device,
    stop: &StopFlag,
) -> Result<Option<Vec<(Meshing, Evaluation)>>, TaskError> {
    let mut evaluations = Vec::new();
    for test in tests {
        if stop.is_requested() {
            return Ok(None);
        }
        let stem = path.join(format!("eval-{}", test.meshing));
        let options = test.options.clone();
        let evaluation = evaluated(model, &test.dataset, options, &stem, cache, device)?;
        evaluations.push((test.meshing, evaluation));
    }
    Ok(Some(evaluations))
}
