//! The training loop.
//!
//! A run is a sequence of steps, numbered over all epochs. The result of a step follows from its number, the
//! seed and the previous weights, so a run that is stopped anywhere and resumed from a checkpoint ends with
//! bit-identical weights. Threads prepare batches ahead. On a GPU, steps are queued; only reading losses waits
//! for them, from time to time and before every checkpoint.

mod model;

use super::batch_plan::{BatchPlan, Division};
use super::batches::{BatchSource, GeometryCache, Prefetch, PreparedBatch};
use super::checkpoint::{Checkpoint, Progress, Written};
use super::chosen::Chosen;
use super::clock::Clock;
use super::evaluate::{evaluate, names};
use super::identity::Identity;
use super::metrics::{MetricsLog, Record, Scores, Tally, evaluations_since_best};
use super::objective::BatchLoss;
use super::observer::{Event, Observer, StepReport};
use super::problem::Problem;
use super::ranges::TrainingRanges;
use super::run_directory::RunDirectory;
use super::scaled::Scaled;
use super::stop::StopFlag;
use crate::models::ModelWithParameters;
use crate::{FeatureScaling, Result, SampleSource, TaskError};
use gemcnn_nn::{
    Device, Module, NnError, Objective, Optimiser, Parameters, Schedule, StepSettings, Stepper, Stream, Workspace,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Losses on a GPU are read as soon as there are this many, or after this time.
const MAX_UNREAD: usize = 64;
const MAX_UNREAD_TIME: Duration = Duration::from_millis(500);

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All epochs are done, or training ended early ([`TrainingConfig::patience`](super::TrainingConfig)).
    Finished {
        /// Record of the last epoch.
        last: Record,
        /// Epoch of the final model.
        model: u64,
    },
    /// It was stopped on request, and can be resumed.
    Stopped {
        /// Completed epochs.
        epoch: u64,
        /// Completed steps of the current epoch.
        step: u64,
    },
}

/// A run: the network in training and its progress.
pub struct Trainer<'a> {
    problem: Problem<'a>,
    run: &'a RunDirectory,
    objective: Arc<Objective<f32>>,
    identity: Identity,
    plan: BatchPlan,
    schedule: Schedule,
    state: State,
    progress: Progress,
    /// True if the latest checkpoint already holds the current state.
    is_saved: bool,
    unread: Unread,
    clock: Clock,
    cache: GeometryCache,
}

/// Network, parameters and optimiser.
struct State {
    network: Box<dyn Module<f32>>,
    parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    workspace: Workspace<f32>,
    stepper: Stepper<f32>,
}

/// Losses that are not read yet, with their steps and samples.
struct Unread {
    losses: Vec<(u64, Vec<usize>, BatchLoss)>,
    since: Instant,
    /// Samples of the last step.
    last: Vec<usize>,
}

impl<'a> Trainer<'a> {
    /// Prepares a run of an initialised model, from the checkpoint in its directory if there is one.
    pub fn new(
        problem: Problem<'a>,
        (network, parameters): ModelWithParameters,
        run: &'a RunDirectory,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let config = problem.config;
        if problem.training.is_empty() {
            return Err(TaskError::setting("data", "the training split has no meshes"));
        }
        let mut workspace = Workspace::new(device.clone());
        workspace.set_product_mode(config.precision.into());
        let output = problem.objective.output();
        if *network.output() != output {
            let found = network.output();
            let problem = format!("its output has type {found}, but the objective needs {output}");
            return Err(TaskError::setting("network", problem));
        }
        let plan = BatchPlan {
            samples: problem.training.len() / problem.training.versions(),
            versions: problem.training.versions(),
            division: Division::new(problem.training, config.batch)?,
            shuffle: Some(config.seed),
            drop_last: config.drop_last,
        };
        let mut trainer = Self {
            objective: Arc::new(problem.objective.clone()),
            identity: Identity::new(problem, device)?,
            schedule: config.schedule.factors(config.epochs * plan.steps()),
            plan,
            progress: Progress {
                epoch: 0,
                step: 0,
                tally: Tally::default(),
                plateau: config.schedule.plateau()?,
                scaling: FeatureScaling::identity(network.input()),
                target_scaling: None,
                ranges: None,
                class_weights: None,
                history: Vec::new(),
                seconds: 0.0,
                seconds_before_epoch: 0.0,
            },
            state: State {
                optimiser: Optimiser::with_average(config.method(), config.average, &parameters)?,
                network,
                parameters,
                workspace,
                stepper: Stepper::default(),
            },
            is_saved: false,
            unread: Unread { losses: Vec::new(), since: Instant::now(), last: Vec::new() },
            clock: Clock::new(),
            cache: GeometryCache::new(device),
            problem,
            run,
        };
        match Checkpoint::read(&run.checkpoint())? {
            Some(checkpoint) => trainer.resume(checkpoint, observer)?,
            None => trainer.begin()?,
        }
        if let Objective::Classes { count, .. } = problem.objective {
            trainer.objective = Arc::new(Objective::Classes {
                count: *count,
                weights: trainer.progress.class_weights.clone(),
                smoothing: config.smoothing,
            });
        }
        Ok(trainer)
    }

    /// Computes class weights, ranges and scaling, and calibrates the network, before the first step.
    fn begin(&mut self) -> Result<()> {
        let config = self.problem.config;
        let training = &Chosen::originals(self.problem.training);
        if let Objective::Classes { count, .. } = self.problem.objective {
            self.progress.class_weights = config.class_weights.of(*count, training)?;
        }
        self.progress.ranges = TrainingRanges::of(training)?;
        if config.scale_features {
            let kind = self.state.network.input();
            let typical = Chosen::typical(self.problem.training, config.seed);
            self.progress.scaling = FeatureScaling::fit_source(kind, &typical)?;
        }
        if config.scale_targets
            && let Objective::Values { kind, .. } = self.problem.objective
        {
            let scaling = FeatureScaling::fit_targets(kind, training)?;
            self.progress.target_scaling = Some(scaling);
        }
        if config.calibrate {
            let training = self.progress.scaled(self.problem.training);
            let first = self.plan.first();
            let source = BatchSource {
                samples: &training,
                objective: &self.objective,
                cache: &self.cache,
                device: &Device::Cpu,
            };
            let prepared = PreparedBatch::load(source, &first, None)?;
            let State { network, parameters, workspace, .. } = &mut self.state;
            let batch = &prepared.batch;
            network.calibrate(workspace, parameters, batch.levels(), batch.features())?;
        }
        Ok(())
    }

    /// Goes on from a checkpoint of the same run.
    fn resume(&mut self, checkpoint: Checkpoint, observer: &mut dyn Observer) -> Result<()> {
        let path = self.run.checkpoint();
        let differences = self.identity.differences(&checkpoint.identity);
        if !differences.is_empty() {
            return Err(TaskError::OtherRun { path, differences });
        }
        let epochs = self.problem.config.epochs;
        let begun = checkpoint.progress.epoch + u64::from(checkpoint.progress.step > 0);
        if epochs < begun {
            let problem = format!("the run is in epoch {begun} already; it can end there at the earliest");
            return Err(TaskError::setting("training.epochs", problem));
        }
        if let Some(before) = checkpoint.identity.epochs().filter(|&n| n != epochs) {
            observer.observe(Event::Note(&format!(
                "the run ends after epoch {epochs} instead of {before}; from here on the learning rate is that of a \
                 run of {epochs} epochs"
            )));
        }
        let State { parameters, optimiser, .. } = &mut self.state;
        *optimiser = checkpoint.load(&path, parameters)?;
        self.progress = checkpoint.progress;
        self.is_saved = true;
        // Evaluations without changed copies are not compared with others.
        if self.progress.history.iter().any(|record| record.held_out.is_some() && record.robust.is_none()) {
            self.problem.robust = None;
        }
        if self.is_finished() {
            return Ok(());
        }
        let device = &checkpoint.identity.device;
        observer.observe(Event::Resumed {
            checkpoint: &path,
            epoch: self.progress.epoch + 1,
            step: self.progress.step,
            other_device: (*device != self.identity.device).then_some(device.as_str()),
        });
        Ok(())
    }

    /// Trains until all epochs are done, evaluations stop improving, or `stop` is requested. Writes checkpoints,
    /// metrics and, after each evaluation and at the end, the model to the run directory.
    ///
    /// # Errors
    /// A sample that cannot be loaded, a loss that is not finite, or a full disk. The latest checkpoint stays.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &StopFlag) -> Result<Outcome> {
        let config = self.problem.config;
        let (epochs, steps) = (config.epochs, self.plan.steps());
        observer.observe(Event::Started {
            run: self.run.path(),
            network: &*self.state.network,
            epochs,
            steps,
            training: self.problem.training.len() / self.problem.training.versions(),
            held_out: self.problem.held_out.len(),
        });
        self.clock = Clock::new();
        let mut log = MetricsLog::rewrite(&self.run.metrics(), &self.progress.history)?;
        self.checkpoint()?;
        let checkpoint = std::fs::metadata(self.run.checkpoint()).map_or(0, |file| file.len() as usize);
        // A checkpoint is written beside the one before; models are smaller.
        self.run.reserve(2 * checkpoint)?;
        let objective = self.objective.clone();
        let device = self.state.workspace.device().clone();
        let cache = std::mem::replace(&mut self.cache, GeometryCache::new(&device));
        let progress = self.progress.clone();
        let training = progress.scaled(self.problem.training);
        let first = self.progress.epoch * steps + self.progress.step;
        let (plan, range) = (self.plan.clone(), (first, epochs * steps));
        std::thread::scope(|scope| {
            let source = BatchSource { samples: &training, objective: &objective, cache: &cache, device: &device };
            let mut batches = Prefetch::start(scope, source, plan, range);
            while !self.is_finished() {
                if stop.is_requested() {
                    self.checkpoint()?;
                    self.write_model()?;
                    let Progress { epoch, step, .. } = self.progress;
                    return Ok(Outcome::Stopped { epoch, step });
                }
                if self.progress.step < steps {
                    let prepared = batches.next().ok_or_else(no_batch)??;
                    self.step(&prepared)?;
                    observer.observe(Event::StepDone(&self.report()));
                } else {
                    let record = self.finish_epoch()?;
                    log.append(self.run, &record)?;
                    observer.observe(Event::EpochDone(&record));
                    if observer.wants_model() {
                        let model = self.archive(self.progress.epoch)?;
                        observer.observe(Event::Model(&model));
                    }
                }
                if self.is_checkpoint_due() {
                    self.checkpoint()?;
                }
            }
            let last = self.progress.history.last().cloned();
            let last = last.ok_or_else(|| TaskError::setting("training", "no epoch was trained"))?;
            self.checkpoint()?;
            if last.epoch < epochs {
                observer.observe(Event::Note(&format!(
                    "training ended after epoch {} of {epochs}: the last {} evaluations were not better than \
                     the one before",
                    last.epoch, config.patience
                )));
            }
            self.write_model()?;
            let model = self.best()?.map_or(last.epoch, |(epoch, _)| epoch);
            Ok(Outcome::Finished { last, model })
        })
    }

    /// True if all epochs are done, or the last evaluations were not better.
    pub(crate) fn is_finished(&self) -> bool {
        let config = self.problem.config;
        let ends_early = || evaluations_since_best(&self.progress.history) >= config.patience;
        self.progress.epoch >= config.epochs || (config.patience > 0 && ends_early())
    }

    /// Makes one optimisation step.
    fn step(&mut self, prepared: &PreparedBatch) -> Result<()> {
        let config = self.problem.config;
        let rate = self.rate(self.progress.epoch * self.plan.steps() + self.progress.step);
        let State { network, parameters, optimiser, workspace, stepper } = &mut self.state;
        let settings = StepSettings {
            rate,
            randomness: Stream { seed: config.seed, step: optimiser.steps() },
            clip: (config.clip > 0.0).then_some(config.clip),
        };
        let batch = &prepared.batch;
        let loss =
            stepper.step(&**network, parameters, optimiser, workspace, batch, settings).map_err(
                |error| match error {
                    NnError::NotFinite { what } => self.diverged(self.progress.step, &prepared.samples, what),
                    other => other.into(),
                },
            )?;
        let loss = BatchLoss::new(loss, batch);
        let samples = &prepared.samples;
        self.clock.meshes += samples.len() as u64;
        self.clock.steps += 1;
        self.clock.steps_since_checkpoint += 1;
        self.unread.last.clone_from(samples);
        (self.unread.losses).push((self.progress.step, samples.clone(), loss));
        self.progress.step += 1;
        self.is_saved = false;
        let is_host = matches!(self.state.workspace.device(), Device::Cpu);
        if is_host || self.unread.losses.len() >= MAX_UNREAD || self.unread.since.elapsed() >= MAX_UNREAD_TIME {
            self.read_losses()?;
        }
        Ok(())
    }

    /// Learning rate of a step, counted from the start of the run, in the current epoch.
    fn rate(&self, step: u64) -> f64 {
        let plateau = self.progress.plateau.as_ref();
        let factor = plateau.map_or(1.0, |plateau| plateau.factor());
        self.problem.config.rate * self.schedule.factor(step) * factor
    }

    /// Reads all queued losses. On a GPU this waits for their steps.
    fn read_losses(&mut self) -> Result<()> {
        for (step, samples, loss) in std::mem::take(&mut self.unread.losses) {
            let scores = loss.read()?;
            if !scores.loss.is_finite() {
                let what = format!("the loss ({})", scores.loss);
                return Err(self.diverged(step, &samples, what));
            }
            self.progress.tally.add(scores);
        }
        self.unread.since = Instant::now();
        Ok(())
    }

    fn diverged(&self, step: u64, samples: &[usize], what: String) -> TaskError {
        TaskError::Diverged {
            what,
            epoch: self.progress.epoch + 1,
            step: step + 1,
            samples: names(self.problem.training, samples),
        }
    }

    /// Finishes an epoch: computes its scores and evaluates if that is due.
    fn finish_epoch(&mut self) -> Result<Record> {
        let config = self.problem.config;
        self.read_losses()?;
        self.progress.seconds += self.clock.lap();
        let epoch = self.progress.epoch + 1;
        let seconds = self.progress.seconds - self.progress.seconds_before_epoch;
        let last_step = (epoch * self.plan.steps()).saturating_sub(1);
        let training = self.progress.tally.scores();
        let is_due = epoch.is_multiple_of(config.evaluate_every) || epoch == config.epochs;
        let [held_out, robust] = if is_due { [Some(self.problem.held_out), self.problem.robust] } else { [None, None] };
        let mut scores = |samples: Option<&dyn SampleSource>| match samples {
            Some(samples) => self.evaluate(samples),
            None => Ok(None),
        };
        let (held_out, robust) = (scores(held_out)?, scores(robust)?);
        let mut record = Record {
            epoch,
            step: self.state.optimiser.steps(),
            rate: self.rate(last_step),
            training,
            held_out,
            robust,
            best: false,
            seconds: self.progress.seconds,
            meshes_per_second: self.plan.samples as f64 / seconds.max(f64::MIN_POSITIVE),
        };
        record.best = self.keep_best(&record)?;
        let watched = if config.schedule.watches_held_out() { record.held_out } else { training };
        if let (Some(plateau), Some(scores)) = (&mut self.progress.plateau, watched) {
            plateau.observe(scores.loss);
        }
        self.progress.history.push(record.clone());
        self.progress.epoch = epoch;
        self.progress.step = 0;
        self.progress.tally = Tally::default();
        self.progress.seconds_before_epoch = self.progress.seconds;
        self.is_saved = false;
        if is_due && (record.best || !self.selects()) {
            self.write_model()?;
        }
        self.clock.lap();
        Ok(record)
    }

    fn evaluate(&mut self, samples: &dyn SampleSource) -> Result<Option<Scores>> {
        let State { network, parameters, optimiser, workspace, .. } = &mut self.state;
        let averaged = optimiser.averaged(parameters)?;
        let batch = self.plan.meshes_per_step();
        let samples = self.progress.scaled(samples);
        let objective = Arc::new(self.objective.as_ref().clone().without_smoothing());
        let objective = (&objective, self.progress.target_scaling.as_ref());
        let cache = &self.cache;
        evaluate(&**network, &averaged, workspace, &samples, objective, cache, batch)
    }

    /// Records of all completed epochs.
    pub fn history(&self) -> &[Record] {
        &self.progress.history
    }

    fn is_checkpoint_due(&self) -> bool {
        let clock = &self.clock;
        self.problem.config.checkpoint.is_due(
            clock.checkpoint.elapsed(),
            clock.steps_since_checkpoint,
            self.progress.epoch,
            self.progress.step == 0,
        )
    }

    /// Writes a checkpoint, unless the latest one holds the current state.
    fn checkpoint(&mut self) -> Result<()> {
        if self.is_saved {
            return Ok(());
        }
        self.read_losses()?;
        self.progress.seconds += self.clock.lap();
        let State { parameters, optimiser, .. } = &self.state;
        let written = Checkpoint::write(self.run, &self.identity, &self.progress, parameters, optimiser)?;
        if let Written::NotFinite { name } = written {
            return Err(TaskError::Diverged {
                what: format!("`{name}`"),
                epoch: self.progress.epoch + 1,
                step: self.progress.step,
                samples: names(self.problem.training, &self.unread.last),
            });
        }
        self.is_saved = true;
        self.clock.checkpoint = Instant::now();
        self.clock.steps_since_checkpoint = 0;
        self.clock.lap();
        Ok(())
    }

    fn report(&self) -> StepReport {
        let scores = self.progress.tally.scores();
        let elapsed = self.clock.started.elapsed().as_secs_f64();
        let steps = self.plan.steps();
        let done = self.progress.epoch * steps + self.progress.step;
        let left = self.problem.config.epochs * steps - done;
        StepReport {
            epoch: self.progress.epoch + 1,
            step: self.progress.step,
            steps,
            loss: scores.map(|scores| scores.loss),
            accuracy: scores.and_then(|scores| scores.accuracy),
            meshes_per_second: self.clock.meshes as f64 / elapsed.max(f64::MIN_POSITIVE),
            time_left: Duration::try_from_secs_f64(elapsed / self.clock.steps.max(1) as f64 * left as f64)
                .unwrap_or(Duration::MAX),
        }
    }
}

impl Progress {
    /// The samples with the scaling of the run.
    fn scaled<'s>(&'s self, source: &'s dyn SampleSource) -> Scaled<'s> {
        Scaled { source, features: &self.scaling, targets: self.target_scaling.as_ref() }
    }
}

/// Error if the loading threads ended too early.
fn no_batch() -> TaskError {
    TaskError::setting("training", "a thread that prepares batches ended early")
}
