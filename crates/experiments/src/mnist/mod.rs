//! Embedded MNIST: digits on grids whose geometry varies, and how networks carry over from one geometry
//! to another.
//!
//! An [`Experiment`] is a list of runs: a network trained on one setting of grids from one seed, and
//! then tested on all settings. Each run has a folder of its own with a checkpoint after every epoch and
//! its result; finished runs are skipped and interrupted ones go on where they were.

mod evaluation;
mod model;
mod report;
mod score;
mod slots;
mod surface;
mod training;

pub use evaluation::{Isometry, Test};
pub use model::Model;
pub use report::{Estimate, Report};
pub use surface::{GridOptions, Part, Surface};
pub use training::{EpochRecord, RateRule, RunSettings};

use crate::digits::Mnist;
use evaluation::Evaluator;
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use training::{Run, check_same};

/// Files of a run.
const CHECKPOINT: &str = "checkpoint.safetensors";
const METRICS: &str = "metrics.csv";
const RESULT: &str = "result.json";

/// What is to be run. The defaults are the paper's, where it says them.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Settings to train on.
    pub train: Vec<Surface>,
    /// Settings to test on.
    pub test: Vec<Surface>,
    /// Networks to train.
    pub models: Vec<Model>,
    /// Seeds to train each from.
    pub seeds: Vec<u64>,
    /// How grids are made.
    pub grids: GridOptions,
    /// Passes over the training digits.
    pub epochs: usize,
    /// Digits in a step.
    pub batch: usize,
    /// The learning rate at its highest.
    pub rate: f64,
    /// How the learning rate changes.
    pub schedule: RateRule,
    /// Pull of all weights towards zero.
    pub weight_decay: f64,
    /// Digits to learn from, the first ones; all but those for validation if not given.
    pub training_digits: Option<usize>,
    /// Digits for validation, those that follow.
    pub validation_digits: usize,
    /// Digits to test with, the first ones; all of the data set if not given.
    pub test_digits: Option<usize>,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            train: Surface::TRAIN.into(),
            test: Surface::TEST.into(),
            models: vec![Model::PaperTypes],
            seeds: vec![1, 2, 3],
            grids: GridOptions::default(),
            epochs: 20,
            batch: 128,
            rate: 0.01,
            schedule: RateRule::OneCycle,
            weight_decay: 1e-5,
            training_digits: None,
            validation_digits: 5000,
            test_digits: None,
        }
    }
}

impl Experiment {
    /// A short trial on the few digits of [`Mnist::few`]: trained on the flat grid, tested on all.
    pub fn quick() -> Self {
        Self {
            train: vec![Surface::Flat],
            seeds: vec![1],
            epochs: 3,
            batch: 25,
            // With so few steps there is no time to rise and fall.
            schedule: RateRule::Plateau,
            validation_digits: 100,
            ..Self::default()
        }
    }
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// What was run.
    pub settings: RunSettings,
    /// How many numbers were trained.
    pub parameters: usize,
    /// Where it was tested, and mostly trained.
    pub device: String,
    /// Its epochs.
    pub history: Vec<EpochRecord>,
    /// Its tests.
    pub tests: Vec<Test>,
    /// Flat and bent grids compared, if it was tested on both.
    pub isometry: Option<Isometry>,
}

/// What happens in an experiment, for whoever watches.
#[derive(Debug)]
pub enum Event<'e> {
    /// A run begins, or goes on after the epochs it has.
    Started {
        /// The run.
        settings: &'e RunSettings,
        /// Epochs that its checkpoint has.
        epochs: usize,
    },
    /// A run was finished before.
    Skipped {
        /// The run.
        settings: &'e RunSettings,
    },
    /// A step was queued.
    Step {
        /// The run.
        settings: &'e RunSettings,
        /// From 1.
        epoch: usize,
        /// From 1.
        step: usize,
        /// Steps of the epoch.
        steps: usize,
    },
    /// An epoch is done.
    Epoch {
        /// The run.
        settings: &'e RunSettings,
        /// What it came to.
        record: &'e EpochRecord,
    },
    /// A trained network was tested on one setting.
    Test {
        /// The run.
        settings: &'e RunSettings,
        /// What came out.
        test: &'e Test,
    },
    /// A run is done.
    Finished {
        /// What came out.
        result: &'e RunResult,
    },
}

/// Watches an experiment.
pub type Observer<'o> = dyn FnMut(Event<'_>) + 'o;

impl Experiment {
    /// The runs, all geometries and models of one seed before the next seed.
    ///
    /// # Errors
    /// Settings that make no sense with so much data.
    pub fn runs(&self, data: &Mnist) -> Result<Vec<RunSettings>, TaskError> {
        let validation_digits = self.validation_digits;
        let most = data.train.len().saturating_sub(validation_digits);
        let training_digits = self.training_digits.unwrap_or(most);
        if training_digits > most {
            return Err(TaskError::setting(
                "training digits",
                format!(
                    "{training_digits} and {validation_digits} for validation, but there are {}",
                    data.train.len()
                ),
            ));
        }
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            for &model in &self.models {
                for &train in &self.train {
                    let run = RunSettings {
                        train,
                        model,
                        seed,
                        grids: self.grids,
                        epochs: self.epochs,
                        batch: self.batch,
                        rate: self.rate,
                        schedule: self.schedule,
                        weight_decay: self.weight_decay,
                        training_digits,
                        validation_digits,
                    };
                    run.check()?;
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    /// Runs what is not yet finished in a folder, and returns the results of all its runs.
    ///
    /// # Errors
    /// Settings that make no sense or differ from those that a run was begun with, files that cannot be
    /// read or written, a loss that is no longer finite, or work on a GPU that failed.
    pub fn run(
        &self,
        data: &Mnist,
        folder: &Path,
        device: &Device,
        observer: &mut Observer<'_>,
    ) -> Result<Vec<RunResult>, TaskError> {
        let runs = self.runs(data)?;
        let digits = data.test.range(0..self.test_digits.unwrap_or(usize::MAX));
        let tested = Mnist {
            train: data.train.clone(),
            test: digits,
        };
        (runs.iter())
            .map(|settings| self.run_one(settings, &tested, folder, device, observer))
            .collect()
    }

    fn run_one(
        &self,
        settings: &RunSettings,
        data: &Mnist,
        folder: &Path,
        device: &Device,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, TaskError> {
        let folder = folder.join(settings.name());
        std::fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        let result_path = folder.join(RESULT);
        if let Some(result) = read_result(&result_path)? {
            check_same(settings, &result.settings, &result_path)?;
            if result.has_tested(&self.test, data.test.len()) {
                observer(Event::Skipped { settings });
                return Ok(result);
            }
        }
        let mut run = Run::open(settings, data, &folder.join(CHECKPOINT))?;
        observer(Event::Started {
            settings,
            epochs: run.history.len(),
        });
        run.train(&folder, device, observer)?;
        let evaluator = Evaluator {
            settings,
            network: &run.network,
            parameters: &run.parameters,
            device,
            digits: &data.test,
        };
        let (tests, isometry) = evaluator.evaluate(&self.test, observer)?;
        let result = RunResult {
            settings: settings.clone(),
            parameters: run.parameters.trained_count(),
            device: match device {
                Device::Cpu => format!("CPU, {} threads", rayon::current_num_threads()),
                Device::Cuda(cuda) => cuda.name().to_owned(),
            },
            history: run.history,
            tests,
            isometry,
        };
        write_json(&result_path, &result)?;
        observer(Event::Finished { result: &result });
        Ok(result)
    }
}

impl RunResult {
    /// Whether all these settings were tested with so many digits.
    fn has_tested(&self, surfaces: &[Surface], digits: usize) -> bool {
        surfaces.iter().all(|surface| {
            let mut tests = self.tests.iter();
            tests.any(|test| test.surface == *surface && test.digits == digits)
        })
    }

    /// The test on one setting.
    pub fn test(&self, surface: Surface) -> Option<&Test> {
        self.tests.iter().find(|test| test.surface == surface)
    }
}

/// The result in a file; none if there is no such file.
fn read_result(path: &Path) -> Result<Option<RunResult>, TaskError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TaskError::file(path)(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        TaskError::setting(
            path.display().to_string(),
            format!("not the result of a run: {error}: delete it to run again"),
        )
    })
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TaskError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| TaskError::setting(path.display().to_string(), error.to_string()))?;
    write_text(path, &format!("{text}\n"))
}

/// Writes a whole file or leaves what was there.
fn write_text(path: &Path, text: &str) -> Result<(), TaskError> {
    gemcnn_mesh::write_atomically(path, |file| file.write_all(text.as_bytes()))
        .map_err(TaskError::file(path))
}
