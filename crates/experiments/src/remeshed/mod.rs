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

use crate::runs::{Place, Seeds, Table, TestSet, Tested, fill};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::EvaluationOptions;
use gemcnn_tasks::train::{Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig};
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
            remeshed: None,
            rows: Row::all(),
            seeds: Seeds::default(),
            epochs: training.epochs,
            precision: training.precision,
        }
    }
}

impl Settings {
    /// The configuration of a run.
    pub fn config(&self, row: Row, seed: u64) -> RunConfig {
        let config = row.config();
        RunConfig {
            data: self.data.clone(),
            training: TrainingConfig {
                epochs: self.epochs,
                seed,
                precision: self.precision,
                // As in the table of bodies, whose runs can be tested here.
                evaluate_every: self.epochs.div_ceil(10),
                ..config.training
            },
            ..config
        }
    }
}

/// The test bodies in one meshing; `None` if neither the benchmark nor a remesher has it.
fn test_set(
    meshing: Meshing,
    dataset: &Dataset,
    remeshed: Option<&Path>,
) -> Result<Option<TestSet<Meshing>>, TaskError> {
    let vertices = dataset.template().map_or(0, |mesh| mesh.vertex_count());
    let remesher = meshing.remesher(vertices);
    Ok(match (remeshed, remesher) {
        (Some(folder), Some(_)) if meshing.is_in_benchmark() => Some(TestSet {
            condition: meshing,
            dataset: dataset.in_other_meshing(folder, meshing.word())?,
            options: EvaluationOptions::default(),
        }),
        (Some(_), Some(_)) => None,
        _ => Some(TestSet {
            condition: meshing,
            dataset: dataset.clone(),
            options: EvaluationOptions { meshing: meshing.test_meshing(vertices), ..EvaluationOptions::default() },
        }),
    })
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
    let dataset = Dataset::open_for(&settings.data, Task::Correspondence)?;
    let mut tests = Vec::new();
    for meshing in Meshing::ALL {
        tests.extend(test_set(meshing, &dataset, settings.remeshed.as_deref())?);
    }
    let mut table = Rows { settings, tests, report: Report::new(settings, device), directory, device };
    let place = Place { directory, cache, device, stop };
    let is_full = fill(&mut table, &settings.rows, settings.seeds, place, observer)?;
    Ok(is_full.then_some(table.report))
}

/// The table while it is filled.
struct Rows<'a> {
    settings: &'a Settings,
    tests: Vec<TestSet<Meshing>>,
    report: Report,
    directory: &'a Path,
    device: &'a Device,
}

impl Table for Rows<'_> {
    type Row = Row;
    type Condition = Meshing;

    fn config(&self, row: Row, seed: u64) -> RunConfig {
        self.settings.config(row, seed)
    }

    fn tests(&self) -> &[TestSet<Meshing>] {
        &self.tests
    }

    fn add(
        &mut self,
        row: Row,
        seed: u64,
        outcome: Result<(&TrainedModel, f64, Tested<Meshing>), String>,
    ) -> Result<Option<String>, TaskError> {
        if let (1, Ok((model, ..))) = (seed, &outcome) {
            let path = self.directory.join(format!("{row}-seed1/meshings.png"));
            picture::draw(model, &self.tests, self.device, &path)?;
        }
        let outcome = outcome.map(|(_, seconds, scores)| (seconds, scores));
        let line = self.report.add(row, seed, outcome);
        self.report.write(self.directory)?;
        Ok(line)
    }
}
