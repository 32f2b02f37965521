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

use crate::runs::{Place, Seeds, Table, TestSet, Tested, fill};
use gemcnn_nn::Device;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Split};
use gemcnn_tasks::train::{Observer, Precision, RunConfig, StopFlag, TrainedModel, TrainingConfig};
use gemcnn_tasks::{Task, TaskError};
use std::path::{Path, PathBuf};

/// Seed of rotations and remeshings of test meshes.
const SEED: u64 = 1;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// A folder of meshes with a validation split, on which runs are tested (default: synthetic bodies).
    pub folder: Option<PathBuf>,
    /// Number of synthetic bodies: 64 % for training, 16 % for validation, 20 % for testing (default 100).
    pub bodies: usize,
    /// Vertices of the training bodies (default 1,000).
    pub vertices: usize,
    /// True if the bodies of a density share one mesh and its labels (default). Otherwise each body has a mesh of its
    /// own, and all densities show the same surface with the same borders of classes.
    pub is_registered: bool,
    /// Steps of the recipe (default: all).
    pub steps: Vec<Step>,
    /// Runs of each step.
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
            folder: None,
            bodies: 100,
            vertices: 1000,
            is_registered: true,
            steps: Step::ALL.to_vec(),
            seeds: Seeds::default(),
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
    let (data, tests) = match &settings.folder {
        Some(folder) => given(folder)?,
        None => bodies::make(settings, &directory.join("data"))?,
    };
    let mut table = Steps { settings, data, tests, report: Report::new(settings, device), directory };
    let place = Place { directory, cache, device, stop };
    let is_full = fill(&mut table, &settings.steps, settings.seeds, place, observer)?;
    Ok(is_full.then_some(table.report))
}

/// The data of a folder, and the tests on its validation split.
fn given(folder: &Path) -> Result<(DataConfig, Vec<TestSet<Condition>>), TaskError> {
    let data = DataConfig::Folder(folder.into());
    let dataset = Dataset::open_for(&data, Task::Segmentation)?;
    if dataset.is_empty(Split::Validation) {
        let problem = "the experiment needs a validation split, on which it tests";
        return Err(TaskError::setting(folder.display().to_string(), problem));
    }
    let conditions = [Condition::AsTrained, Condition::Rotated, Condition::Isotropic];
    let tests = conditions.map(|condition| TestSet {
        condition,
        dataset: dataset.clone(),
        options: condition.options(Split::Validation),
    });
    Ok((data, tests.into()))
}

/// The table while it is filled.
struct Steps<'a> {
    settings: &'a Settings,
    data: DataConfig,
    tests: Vec<TestSet<Condition>>,
    report: Report,
    directory: &'a Path,
}

impl Table for Steps<'_> {
    type Row = Step;
    type Condition = Condition;

    fn config(&self, step: Step, seed: u64) -> RunConfig {
        self.settings.config(self.data.clone(), step, seed)
    }

    fn tests(&self) -> &[TestSet<Condition>] {
        &self.tests
    }

    fn add(
        &mut self,
        step: Step,
        seed: u64,
        outcome: Result<(&TrainedModel, f64, Tested<Condition>), String>,
    ) -> Result<Option<String>, TaskError> {
        let outcome = outcome.map(|(_, seconds, scores)| (seconds, scores));
        let line = self.report.add(step, seed, outcome);
        self.report.write(self.directory)?;
        Ok(line)
    }
}
