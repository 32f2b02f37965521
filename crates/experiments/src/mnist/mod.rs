//! Embedded MNIST: digits on grids of different geometry, and how networks generalise from one geometry to
//! another.
//!
//! An [`Experiment`] is a list of runs. A run trains a network on one geometry with one seed and tests it on
//! all geometries. Each run has its own directory with a checkpoint after every epoch, its model and its
//! result. Finished runs are skipped and interrupted runs resume.

mod evaluation;
mod model;
mod report;
mod samples;
mod settings;
mod surface;

pub use evaluation::{Isometry, Test};
pub use model::Model;
pub use report::Report;
pub use settings::{RateRule, RunSettings};
pub use surface::{GridOptions, Part, Surface};

use crate::digits::{CLASSES, Mnist};
use crate::output::{invalid, read_json, write_json};
use evaluation::Evaluator;
use gemcnn_nn::{Device, Objective};
use gemcnn_tasks::train::{Event, Observer, Outcome, Problem, Record, RunDirectory, StopFlag, Trainer, device_name};
use gemcnn_tasks::{Element, TaskError};
use samples::{DigitSamples, Grids};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The result in the directory of a finished run.
const RESULT: &str = "result.json";

/// The runs of an experiment. Defaults are the paper's where it gives them.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Training geometries.
    pub train: Vec<Surface>,
    /// Test geometries.
    pub test: Vec<Surface>,
    /// Networks to train.
    pub models: Vec<Model>,
    /// Seeds for each network and geometry.
    pub seeds: Vec<u64>,
    /// Construction of the grids.
    pub grids: GridOptions,
    /// Number of epochs.
    pub epochs: usize,
    /// Digits in a batch.
    pub batch: usize,
    /// Base learning rate.
    pub rate: f64,
    /// Schedule of the learning rate.
    pub schedule: RateRule,
    /// Weight decay of all weights.
    pub weight_decay: f64,
    /// Number of training digits: the first ones of the data set. `None` takes all but the validation digits.
    pub training_digits: Option<usize>,
    /// Number of validation digits: those that follow the training digits.
    pub validation_digits: usize,
    /// Number of test digits: the first ones of the test set. `None` takes all.
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
    /// A short trial with the digits of [`Mnist::sample`]: trained on the flat grid, tested on all geometries.
    pub fn quick() -> Self {
        Self {
            train: vec![Surface::Flat],
            seeds: vec![1],
            epochs: 3,
            batch: 25,
            // There are too few steps for a cycle.
            schedule: RateRule::Plateau,
            validation_digits: 100,
            ..Self::default()
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Settings of the run.
    pub settings: RunSettings,
    /// Number of trained parameters.
    pub parameters: usize,
    /// Device of the tests, and of at least the last part of the training.
    pub device: String,
    /// One record for each epoch. The held-out samples are the validation digits.
    pub history: Vec<Record>,
    /// Results on the test geometries.
    pub tests: Vec<Test>,
    /// Comparison of flat and isometric grids, if both were tested.
    pub isometry: Option<Isometry>,
}

impl Experiment {
    /// Lists the runs: all geometries and models of one seed before the next seed.
    pub fn runs(&self, data: &Mnist) -> Result<Vec<RunSettings>, TaskError> {
        let validation_digits = self.validation_digits;
        let most = data.train.len().saturating_sub(validation_digits);
        let training_digits = self.training_digits.unwrap_or(most);
        if training_digits > most {
            return Err(TaskError::setting(
                "training digits",
                format!(
                    "{training_digits} and {validation_digits} for validation, but the data set has {}",
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

    /// Runs everything that is not finished in a directory, and returns the report of all finished runs there; `None` if
    /// a stop is requested.
    ///
    /// # Errors
    /// Settings out of range, a directory with a run of other settings, files that cannot be read or written,
    /// a loss that is not finite, or work on a GPU that failed.
    pub fn run(
        &self,
        data: &Mnist,
        folder: &Path,
        device: &Device,
        observer: &mut dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<Report>, TaskError> {
        let digits = data.test.range(0..self.test_digits.unwrap_or(usize::MAX));
        let data = Mnist { train: data.train.clone(), test: digits };
        for settings in self.runs(&data)? {
            if self.run_one(&settings, &data, folder, device, observer, stop)?.is_none() {
                return Ok(None);
            }
        }
        Report::read(folder).map(Some)
    }

    fn run_one(
        &self,
        settings: &RunSettings,
        data: &Mnist,
        folder: &Path,
        device: &Device,
        observer: &mut dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<RunResult>, TaskError> {
        let run = RunDirectory::open_or_create(&folder.join(settings.name()))?;
        let result_path = run.path().join(RESULT);
        let title = format!("trained on {}, {}, seed {}", settings.train, settings.model, settings.seed);
        if let Some(result) = read_json::<RunResult>(&result_path)?
            && result.settings == *settings
            && result.has_tested(&self.test, data.test.len())
        {
            observer.observe(Event::Note(&format!("{title}: already finished")));
            return Ok(Some(result));
        }
        let RunSettings { training_digits, validation_digits, epochs, .. } = *settings;
        let grids = Grids::new(settings.grids.graphs(settings.train, Part::Train)?);
        let samples = |range| DigitSamples { digits: data.train.range(range), grids: &grids };
        let (network, parameters) = settings.model.network(&settings.grids).init(settings.seed)?;
        let problem = Problem {
            training: &samples(0..training_digits),
            held_out: &samples(training_digits..training_digits + validation_digits),
            robust: None,
            validates: true,
            objective: &Objective::classes(CLASSES),
            per: Element::Mesh,
            classes: None,
            config: &settings.training(device).checked()?,
            settings: &serde_json::to_value(settings).map_err(invalid("settings"))?,
        };
        let mut trainer = Trainer::new(problem, (Box::new(network), parameters), &run, device, observer)?;
        observer.observe(Event::Note(&match trainer.history().len() {
            0 => format!("{title}: {epochs} epochs"),
            done => format!("{title}: resuming after {done} of {epochs} epochs"),
        }));
        if let Outcome::Stopped { .. } = trainer.run(observer, stop)? {
            return Ok(None);
        }
        let history = trainer.history().to_vec();
        let (network, parameters) = trainer.into_model()?;
        let evaluator = Evaluator { settings, network: &*network, parameters: &parameters, device, digits: &data.test };
        let (tests, isometry) = evaluator.evaluate(&self.test, observer)?;
        let result = RunResult {
            settings: settings.clone(),
            parameters: parameters.trained_count(),
            device: match device {
                Device::Cpu => format!("CPU, {} threads", rayon::current_num_threads()),
                Device::Cuda(_) => device_name(device),
            },
            history,
            tests,
            isometry,
        };
        write_json(&result_path, &result)?;
        if let Some(Isometry { digits, different_answers, largest_logit, largest_difference }) = &result.isometry {
            observer.observe(Event::Note(&format!(
                "flat and isometric: {different_answers} of {digits} predictions differ; logits (up to \
                 {largest_logit:.1}) differ by at most {largest_difference:.1e}"
            )));
        }
        Ok(Some(result))
    }
}

impl RunResult {
    /// True if all these geometries were tested with so many digits.
    fn has_tested(&self, surfaces: &[Surface], digits: usize) -> bool {
        surfaces.iter().all(|surface| {
            let mut tests = self.tests.iter();
            tests.any(|test| test.surface == *surface && test.digits == digits)
        })
    }

    /// The result on one test geometry.
    pub fn test(&self, surface: Surface) -> Option<&Test> {
        self.tests.iter().find(|test| test.surface == surface)
    }
}
