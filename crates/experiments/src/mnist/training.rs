//! One training run: from first values to the last epoch, with a checkpoint after each.

use super::model::Model;
use super::slots::Slots;
use super::surface::{GridOptions, Part, Surface};
use super::{CHECKPOINT, Event, METRICS, Observer, score, write_text};
use crate::digits::Mnist;
use gemcnn_nn::{
    Archive, Device, Loss, Method, Network, NnError, Optimiser, Parameters, Plateau, Schedule,
    StepSettings, Stepper, Stream, Workspace,
};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::shuffled;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// Steps whose losses are read at once: reading waits for the GPU, so it is done rarely.
const STEPS_BETWEEN_READS: usize = 64;
/// Keys in the checkpoint.
const SETTINGS: &str = "settings";
const HISTORY: &str = "history";
const PLATEAU: &str = "plateau";
const OPTIMISER: &str = "optimiser";

/// How the learning rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateRule {
    /// The paper's: halved when the loss on the validation digits has not improved for 3 epochs.
    Plateau,
    /// Half a cosine up from a tenth of the rate over the first quarter of the steps, then half a cosine
    /// down to zero.
    OneCycle,
    /// Half a cosine down to zero.
    Cosine,
}

impl RateRule {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plateau, Self::OneCycle, Self::Cosine];

    fn schedule(self, steps: u64) -> Schedule {
        match self {
            Self::Plateau => Schedule::Constant,
            Self::OneCycle => Schedule::OneCycle {
                steps,
                rise: 0.25,
                first: 0.1,
                last: 0.0,
            },
            Self::Cosine => Schedule::Cosine { steps, last: 0.0 },
        }
    }
}

impl fmt::Display for RateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plateau => "plateau",
            Self::OneCycle => "one-cycle",
            Self::Cosine => "cosine",
        })
    }
}

impl FromStr for RateRule {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        let named = Self::ALL.into_iter().find(|rule| rule.to_string() == text);
        named.ok_or_else(|| {
            TaskError::setting(
                "schedule",
                format!("`{text}` is none of plateau, one-cycle and cosine"),
            )
        })
    }
}

/// Everything that decides what a run learns, besides the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// What it is trained on.
    pub train: Surface,
    /// The network.
    pub model: Model,
    /// First values, order of the digits and dropout.
    pub seed: u64,
    /// How the grids are made.
    pub grids: GridOptions,
    /// Passes over the training digits.
    pub epochs: usize,
    /// Digits in a step; the rest of an epoch that does not fill a step is left out.
    pub batch: usize,
    /// The learning rate at its highest.
    pub rate: f64,
    /// How the learning rate changes.
    pub schedule: RateRule,
    /// Pull of all weights towards zero.
    pub weight_decay: f64,
    /// Digits to learn from, the first ones of the data set.
    pub training_digits: usize,
    /// Digits for validation, those that follow.
    pub validation_digits: usize,
}

impl RunSettings {
    /// Name of the run's folder.
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.train, self.model, self.seed)
    }

    /// Fails where a number makes no sense.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let refuse = |what: &str, problem: &str| Err(TaskError::setting(what, problem));
        if self.epochs == 0 {
            return refuse("epochs", "at least 1 is needed");
        }
        if self.batch == 0 || self.batch > self.training_digits {
            return Err(TaskError::setting(
                "batch",
                format!(
                    "{} digits, but it must have at least 1 and at most as many as there are to learn from ({})",
                    self.batch, self.training_digits
                ),
            ));
        }
        if self.validation_digits == 0 {
            return refuse("validation digits", "at least 1 is needed");
        }
        if !(self.rate > 0.0 && self.rate.is_finite()) {
            return refuse("rate", "it must be above 0");
        }
        Ok(())
    }

    fn steps_per_epoch(&self) -> usize {
        self.training_digits / self.batch
    }
}

/// What one epoch came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Learning rate of its first step.
    pub rate: f64,
    /// Mean loss over its steps.
    pub training_loss: f64,
    /// Share of wrong answers in its steps, with dropout.
    pub training_error: f64,
    /// Loss on the validation digits after it.
    pub validation_loss: f64,
    /// Share of wrong answers on the validation digits after it.
    pub validation_error: f64,
    /// How long it took, with validation.
    pub seconds: f64,
}

/// A network in training, all of it in its checkpoint.
pub(super) struct Run<'r> {
    settings: &'r RunSettings,
    data: &'r Mnist,
    pub network: Network<f32>,
    pub parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    plateau: Plateau,
    pub history: Vec<EpochRecord>,
}

impl<'r> Run<'r> {
    /// As the checkpoint has it, or new where there is none.
    pub fn open(
        settings: &'r RunSettings,
        data: &'r Mnist,
        checkpoint: &Path,
    ) -> Result<Self, TaskError> {
        let config = settings.model.network(&settings.grids);
        let (network, parameters) = config.init::<f32>(settings.seed)?;
        let method = Method::Adam {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: settings.weight_decay,
        };
        let mut run = Self {
            settings,
            data,
            optimiser: Optimiser::new(method, &parameters)?,
            network,
            parameters,
            // Shrinks at the third epoch without progress: two are borne.
            plateau: Plateau::new(0.5, 2, 0.0)?,
            history: Vec::new(),
        };
        if checkpoint.exists() {
            run.load(&Archive::read(checkpoint)?, checkpoint)?;
        }
        Ok(run)
    }

    fn load(&mut self, archive: &Archive, path: &Path) -> Result<(), TaskError> {
        check_same(self.settings, &archive.json(SETTINGS)?, path)?;
        self.network.load(archive, &mut self.parameters)?;
        self.optimiser = Optimiser::load(archive, OPTIMISER, &self.parameters)?;
        self.plateau = archive.json(PLATEAU)?;
        self.history = archive.json(HISTORY)?;
        Ok(())
    }

    /// Writes the checkpoint, whole or not at all.
    fn store(&self, checkpoint: &Path) -> Result<(), TaskError> {
        let mut archive = Archive::new();
        self.network.store(&mut archive, &self.parameters)?;
        (self.optimiser).store(&mut archive, OPTIMISER, &self.parameters)?;
        archive.set_json(SETTINGS, self.settings)?;
        archive.set_json(PLATEAU, &self.plateau)?;
        archive.set_json(HISTORY, &self.history)?;
        Ok(archive.write(checkpoint)?)
    }

    /// Trains up to the last epoch, with a checkpoint and the metrics so far in the folder after each.
    pub fn train(
        &mut self,
        folder: &Path,
        device: &Device,
        observer: &mut Observer<'_>,
    ) -> Result<(), TaskError> {
        if self.history.len() >= self.settings.epochs {
            return Ok(());
        }
        let mut workspace = Workspace::new(device.clone());
        let grids = (self.settings.grids).graphs(self.settings.train, Part::Train)?;
        let mut slots = Slots::new(&grids, self.settings.batch)?;
        let mut stepper = Stepper::default();
        while self.history.len() < self.settings.epochs {
            let record = self.epoch(&mut slots, &mut stepper, &mut workspace, observer)?;
            observer(Event::Epoch {
                settings: self.settings,
                record: &record,
            });
            self.history.push(record);
            self.store(&folder.join(CHECKPOINT))?;
            write_text(&folder.join(METRICS), &metrics(&self.history))?;
        }
        Ok(())
    }

    fn epoch(
        &mut self,
        slots: &mut Slots,
        stepper: &mut Stepper<f32>,
        workspace: &mut Workspace<f32>,
        observer: &mut Observer<'_>,
    ) -> Result<EpochRecord, TaskError> {
        let start = Instant::now();
        let settings = self.settings;
        let steps = settings.steps_per_epoch();
        let all_steps = (steps * settings.epochs) as u64;
        let schedule = settings.schedule.schedule(all_steps);
        let plateau_factor = match settings.schedule {
            RateRule::Plateau => self.plateau.factor(),
            RateRule::OneCycle | RateRule::Cosine => 1.0,
        };
        let rate = |step: u64| settings.rate * plateau_factor * schedule.factor(step);
        let first_rate = rate(self.optimiser.steps());
        let order = shuffled(
            settings.training_digits,
            settings.seed,
            self.history.len() as u64,
        );
        let mut tally = Tally::default();
        for (index, which) in order.chunks_exact(settings.batch).enumerate() {
            let step = self.optimiser.steps();
            let batch = slots.training_batch(&self.data.train, which)?;
            let step_settings = StepSettings {
                rate: rate(step),
                randomness: Stream {
                    seed: settings.seed,
                    step,
                },
                clip: None,
            };
            let loss = stepper.step(
                &self.network,
                &mut self.parameters,
                &mut self.optimiser,
                workspace,
                &batch,
                step_settings,
            )?;
            tally.push(loss)?;
            observer(Event::Step {
                settings,
                epoch: self.history.len() + 1,
                step: index + 1,
                steps,
            });
        }
        tally.read()?;
        let first = settings.training_digits;
        let digits = self
            .data
            .train
            .range(first..first + settings.validation_digits);
        let logits = slots.logits(&self.network, &self.parameters, workspace, &digits)?;
        let validation_loss = score::cross_entropy(&logits, &digits);
        self.plateau.observe(validation_loss);
        Ok(EpochRecord {
            epoch: self.history.len() + 1,
            rate: first_rate,
            training_loss: tally.loss / steps.max(1) as f64,
            training_error: tally.wrong as f64 / tally.counted.max(1) as f64,
            validation_loss,
            validation_error: score::wrong(&logits, &digits) as f64 / digits.len().max(1) as f64,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// Fails, naming the file, where a run was begun with other settings.
pub(super) fn check_same(
    asked: &RunSettings,
    found: &RunSettings,
    path: &Path,
) -> Result<(), TaskError> {
    if asked == found {
        return Ok(());
    }
    let show = |settings: &RunSettings| {
        serde_json::to_string(settings).unwrap_or_else(|error| error.to_string())
    };
    Err(TaskError::setting(
        path.display().to_string(),
        format!(
            "this run was begun with other settings: choose another --out, or delete it\n  there: {}\n  asked: {}",
            show(found),
            show(asked)
        ),
    ))
}

/// A table of all epochs as comma-separated values.
fn metrics(history: &[EpochRecord]) -> String {
    let mut table = String::from(
        "epoch,rate,training_loss,training_error,validation_loss,validation_error,seconds\n",
    );
    for record in history {
        let EpochRecord {
            epoch,
            rate,
            training_loss,
            training_error,
            validation_loss,
            validation_error,
            seconds,
        } = record;
        table += &format!(
            "{epoch},{rate},{training_loss},{training_error},{validation_loss},{validation_error},{seconds:.3}\n"
        );
    }
    table
}

/// Losses of an epoch, read in groups.
#[derive(Default)]
struct Tally {
    waiting: Vec<Loss>,
    loss: f64,
    wrong: usize,
    counted: usize,
}

impl Tally {
    fn push(&mut self, loss: Loss) -> Result<(), TaskError> {
        self.waiting.push(loss);
        match self.waiting.len() < STEPS_BETWEEN_READS {
            true => Ok(()),
            false => self.read(),
        }
    }

    fn read(&mut self) -> Result<(), TaskError> {
        for loss in self.waiting.drain(..) {
            let Some(score) = loss.score()? else {
                continue;
            };
            if !score.loss.is_finite() {
                return Err(NnError::NotFinite {
                    what: "the training loss".into(),
                }
                .into());
            }
            self.loss += score.loss;
            self.wrong += score.counted - score.correct;
            self.counted += score.counted;
        }
        Ok(())
    }
}
