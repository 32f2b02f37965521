//! The paper's table of shape correspondence: several networks, each with a few seeds, trained on registered
//! bodies and tested on other bodies: in their original pose, randomly rotated, and remeshed.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so the
//! experiment can be stopped at any time and started again.

mod report;
mod row;

pub use report::{Report, RowReport, RunReport};
pub use row::{PaperResult, Row};

use crate::remeshed::Meshing;
use crate::runs::{Place, Seeds, Table, TestSet, Tested, fill};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::EvaluationOptions;
use gemcnn_tasks::train::{Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig};
use gemcnn_tasks::{Task, TaskError};
use std::fmt;
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
    /// Runs of each row.
    pub seeds: Seeds,
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
            seeds: Seeds::default(),
            epochs: training.epochs,
            precision: training.precision,
        }
    }
}

impl Settings {
    /// A single run of the paper's network.
    pub fn quick() -> Self {
        Self { rows: vec![Row::Gem], seeds: Seeds { first: 1, count: 1 }, ..Self::default() }
    }

    /// The configuration of a run.
    pub fn config(&self, row: Row, seed: u64) -> RunConfig {
        let recipe = RunConfig::for_model(Task::Correspondence, row.model());
        RunConfig {
            data: self.data.clone(),
            features: row.features(),
            training: TrainingConfig {
                epochs: self.epochs,
                seed,
                precision: self.precision,
                // Ten points are enough for a learning curve.
                evaluate_every: self.epochs.div_ceil(10),
                ..recipe.training
            },
            ..recipe
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
    let dataset = Dataset::open_for(&settings.data, Task::Correspondence)?;
    let mut table =
        Rows { settings, tests: Condition::tests(&dataset), report: Report::new(settings, device), directory };
    let place = Place { directory, cache, device, stop };
    let is_full = fill(&mut table, &settings.rows, settings.seeds, place, observer)?;
    Ok(is_full.then_some(table.report))
}

/// How test bodies lie, and their meshing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// In their original pose.
    Original,
    /// Randomly rotated.
    Rotated,
    /// In their original pose, with the even triangles of another experiment ([`Meshing::Iso`]).
    Remeshed,
}

impl Condition {
    fn tests(dataset: &Dataset) -> [TestSet<Self>; 3] {
        let vertices = dataset.template().map_or(0, |mesh| mesh.vertex_count());
        [Self::Original, Self::Rotated, Self::Remeshed].map(|condition| TestSet {
            condition,
            dataset: dataset.clone(),
            options: EvaluationOptions {
                rotation: (condition == Self::Rotated).then_some(ROTATION),
                meshing: match condition {
                    Self::Remeshed => Meshing::Iso.test_meshing(vertices),
                    _ => None,
                },
                ..Default::default()
            },
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Original => f.write_str("test"),
            Self::Rotated => write!(f, "test-rotated-{ROTATION}"),
            Self::Remeshed => f.write_str("test-remeshed"),
        }
    }
}

/// The table while it is filled.
struct Rows<'a> {
    settings: &'a Settings,
    tests: [TestSet<Condition>; 3],
    report: Report,
    directory: &'a Path,
}

impl Table for Rows<'_> {
    type Row = Row;
    type Condition = Condition;

    fn config(&self, row: Row, seed: u64) -> RunConfig {
        self.settings.config(row, seed)
    }

    fn tests(&self) -> &[TestSet<Condition>] {
        &self.tests
    }

    fn add(
        &mut self,
        row: Row,
        seed: u64,
        outcome: Result<(&TrainedModel, f64, Tested<Condition>), String>,
    ) -> Result<Option<String>, TaskError> {
        let outcome = outcome.map(|(model, seconds, scores)| RunReport {
            parameters: model.parameters.trained_count(),
            ..RunReport::new(seed, seconds, &scores)
        });
        let line = outcome.as_ref().ok().map(RunReport::to_string);
        self.report.add(row, seed, outcome);
        self.report.write(self.directory)?;
        Ok(line)
    }
}
