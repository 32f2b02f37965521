//! How to train: the `[training]` table of a run's configuration.

use super::class_weights::ClassWeights;
use crate::TaskError;
use gemcnn_nn::{Method, Penalty, Plateau, ProductMode, Schedule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How to train. Every setting has a default; docs/training.md lists them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Passes over the training part (default 100).
    pub epochs: u64,
    /// Meshes in a step (default 4).
    pub batch: usize,
    /// Leaves out the meshes of an epoch that do not fill a batch (default false).
    pub drop_last: bool,
    /// Base learning rate, which the schedule multiplies; 0.01.
    pub rate: f64,
    /// Strength of the pull towards zero of the weights that the network lets decay; 1e-4. In the models
    /// of this crate these are the weights of plain linear maps.
    pub weight_decay: f64,
    /// Largest norm of all gradients together, beyond which they are scaled down; 0, which is never.
    pub clip: f64,
    /// Where all randomness comes from: first weights, order of the data, dropout; 1.
    pub seed: u64,
    /// Whether features are scaled so that each channel has mean 0, where it is a scalar, and size 1 over
    /// the training part; on.
    pub scale_features: bool,
    /// Whether targets of regression are scaled in the same way before the network learns them; on. Errors and
    /// predictions are in the units of the targets all the same.
    pub scale_targets: bool,
    /// Whether convolutions are rescaled on the first batch so that features have unit scale; off. It is for
    /// networks without batch normalisation, which does the same and more.
    pub calibrate: bool,
    /// How a difference counts in regression; `mean_square`.
    pub penalty: PenaltyChoice,
    /// Epochs from one evaluation on held-out meshes to the next; 1. The last epoch is always followed
    /// by one.
    pub evaluate_every: u64,
    /// Whether the model of the best evaluation so far is kept as `best.safetensors`; off.
    pub keep_best: bool,
    /// Matrix products on a GPU; `tf32`.
    pub precision: Precision,
    /// Weight of each class in the loss; none.
    pub class_weights: ClassWeights,
    /// The rule by which weights change; Adam.
    pub optimiser: OptimiserConfig,
    /// How the learning rate changes; half a cosine down to 0.
    pub schedule: ScheduleConfig,
    /// When a checkpoint is due; after 2 minutes.
    pub checkpoint: Interval,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            epochs: 100,
            batch: 4,
            drop_last: false,
            rate: 0.01,
            weight_decay: 1e-4,
            clip: 0.0,
            seed: 1,
            scale_features: true,
            scale_targets: true,
            calibrate: false,
            penalty: PenaltyChoice::MeanSquare,
            evaluate_every: 1,
            keep_best: false,
            precision: Precision::Tf32,
            class_weights: ClassWeights::default(),
            optimiser: OptimiserConfig::default(),
            schedule: ScheduleConfig::default(),
            checkpoint: Interval::default(),
        }
    }
}

impl TrainingConfig {
    /// Settings that change what is written when, and not what is learned: they may change when a run
    /// is resumed.
    pub(super) const FREE_TO_CHANGE: [&str; 2] = ["training.checkpoint", "training.keep_best"];

    /// Looks for settings that make no sense.
    ///
    /// # Errors
    /// The first of them, with what is allowed.
    pub fn check(&self) -> Result<(), TaskError> {
        let refuse = |what: &str, problem: String| {
            Err(TaskError::setting(format!("training.{what}"), problem))
        };
        let at_least_zero = |value: f64| value >= 0.0 && value.is_finite();
        if !(1..=1_000_000_000).contains(&self.epochs) {
            return refuse("epochs", "must be from 1 to a billion".into());
        }
        if i64::try_from(self.seed).is_err() {
            return refuse("seed", format!("must be at most {}", i64::MAX));
        }
        if self.batch == 0 {
            return refuse("batch", "must be at least 1".into());
        }
        if self.evaluate_every == 0 {
            return refuse("evaluate_every", "must be at least 1".into());
        }
        if !(self.rate > 0.0 && self.rate.is_finite()) {
            return refuse("rate", format!("{} must be finite and above 0", self.rate));
        }
        for (what, value) in [("weight_decay", self.weight_decay), ("clip", self.clip)] {
            if !at_least_zero(value) {
                return refuse(what, format!("{value} must be finite and at least 0"));
            }
        }
        if let ClassWeights::Given { weights } = &self.class_weights
            && !(weights.iter().all(|&w| at_least_zero(w)) && weights.iter().any(|&w| w > 0.0))
        {
            let problem = "weights must be finite and at least 0, and not all 0";
            return refuse("class_weights", problem.into());
        }
        self.method().check()?;
        self.schedule.check()?;
        self.checkpoint.check()
    }

    /// The optimiser's rule.
    pub(super) fn method(&self) -> Method {
        let weight_decay = self.weight_decay;
        match self.optimiser {
            OptimiserConfig::Adam {
                beta1,
                beta2,
                epsilon,
            } => Method::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            OptimiserConfig::AdamW {
                beta1,
                beta2,
                epsilon,
            } => Method::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            OptimiserConfig::Sgd { momentum } => Method::Sgd {
                momentum,
                weight_decay,
            },
        }
    }
}

/// The rule by which weights change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimiserConfig {
    /// Adam; weight decay is part of the gradient.
    Adam {
        /// Memory of the mean gradient; 0.9.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Memory of the mean squared gradient; 0.999.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Keeps the quotient finite; 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Adam with weight decay apart from the gradient.
    AdamW {
        /// Memory of the mean gradient; 0.9.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Memory of the mean squared gradient; 0.999.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Keeps the quotient finite; 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// How much of the last step is kept; 0.9.
        #[serde(default = "momentum")]
        momentum: f64,
    },
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

fn momentum() -> f64 {
    0.9
}

impl Default for OptimiserConfig {
    fn default() -> Self {
        Self::Adam {
            beta1: beta1(),
            beta2: beta2(),
            epsilon: epsilon(),
        }
    }
}

/// How the learning rate changes from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleConfig {
    /// Half a cosine from the base rate down, over all epochs.
    Cosine {
        /// Share of the base rate at the end; 0.
        #[serde(default)]
        last: f64,
    },
    /// The base rate, multiplied by `factor` whenever the training loss has not fallen for a while.
    Plateau {
        /// What the rate is multiplied by; 0.5.
        #[serde(default = "plateau_factor")]
        factor: f64,
        /// Epochs without progress that are borne; 10.
        #[serde(default = "plateau_patience")]
        patience: u32,
        /// Relative fall of the loss that counts as progress; 1e-4.
        #[serde(default = "plateau_threshold")]
        threshold: f64,
        /// Watches the loss on held-out meshes instead of the training loss (default false).
        #[serde(default)]
        held_out: bool,
    },
    /// Always the base rate.
    Constant {},
    /// Half a cosine up to the base rate, then half a cosine down.
    OneCycle {
        /// Share of the steps that go up; 0.3.
        #[serde(default = "cycle_rise")]
        rise: f64,
        /// Share of the base rate at the beginning; 0.04.
        #[serde(default = "cycle_first")]
        first: f64,
        /// Share of the base rate at the end; 0.
        #[serde(default)]
        last: f64,
    },
}

fn plateau_factor() -> f64 {
    0.5
}

fn plateau_patience() -> u32 {
    10
}

fn plateau_threshold() -> f64 {
    1e-4
}

fn cycle_rise() -> f64 {
    0.3
}

fn cycle_first() -> f64 {
    0.04
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self::Cosine { last: 0.0 }
    }
}

impl ScheduleConfig {
    fn check(&self) -> Result<(), TaskError> {
        let shares = match *self {
            Self::Cosine { last } => vec![last],
            Self::OneCycle { rise, first, last } => vec![rise, first, last],
            Self::Plateau { .. } | Self::Constant {} => Vec::new(),
        };
        if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(TaskError::setting(
                "training.schedule",
                format!("{share} must be a share, from 0 to 1"),
            ));
        }
        self.plateau().map(drop)
    }

    /// The factor of each step of a run; constant for a plateau rule, which looks at the loss.
    pub(super) fn factors(&self, steps: u64) -> Schedule {
        match *self {
            Self::Cosine { last } => Schedule::Cosine { steps, last },
            Self::Plateau { .. } | Self::Constant {} => Schedule::Constant,
            Self::OneCycle { rise, first, last } => Schedule::OneCycle {
                steps,
                rise,
                first,
                last,
            },
        }
    }

    /// True if the rule watches the loss on held-out meshes.
    pub(super) fn watches_held_out(&self) -> bool {
        matches!(self, Self::Plateau { held_out: true, .. })
    }

    /// The rule that looks at the loss, before it has seen any.
    pub(super) fn plateau(&self) -> Result<Option<Plateau>, TaskError> {
        match *self {
            Self::Plateau {
                factor,
                patience,
                threshold,
                ..
            } => Ok(Some(Plateau::new(factor, patience, threshold)?)),
            _ => Ok(None),
        }
    }
}

/// When the next checkpoint is due after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// After so many minutes.
    Minutes(f64),
    /// At the end of every so many epochs.
    Epochs(u64),
    /// After so many steps.
    Steps(u64),
}

impl Default for Interval {
    fn default() -> Self {
        Self::Minutes(2.0)
    }
}

impl Interval {
    fn check(&self) -> Result<(), TaskError> {
        let sensible = match *self {
            Self::Minutes(minutes) => (0.0..1e6).contains(&minutes),
            Self::Epochs(count) | Self::Steps(count) => count > 0,
        };
        match sensible {
            true => Ok(()),
            false => Err(TaskError::setting(
                "training.checkpoint",
                "must be a time from 0 to a million minutes, or at least one epoch or step",
            )),
        }
    }

    /// Whether a checkpoint is due, so long after the last and at this point of the data.
    pub(super) fn is_due(
        &self,
        passed: Duration,
        steps: u64,
        epoch: u64,
        ends_epoch: bool,
    ) -> bool {
        match *self {
            Self::Minutes(minutes) => passed.as_secs_f64() >= 60.0 * minutes,
            Self::Epochs(count) => ends_epoch && epoch.is_multiple_of(count),
            Self::Steps(count) => steps >= count,
        }
    }
}

/// How a difference counts in regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyChoice {
    /// Squared length.
    MeanSquare,
    /// Absolute value of scalars, length of vectors.
    L1,
}

impl From<PenaltyChoice> for Penalty {
    fn from(choice: PenaltyChoice) -> Self {
        match choice {
            PenaltyChoice::MeanSquare => Self::MeanSquare,
            PenaltyChoice::L1 => Self::L1,
        }
    }
}

/// Matrix products on a GPU. A CPU always computes in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// On tensor cores, with 10 bits of mantissa.
    Tf32,
    /// Exact to rounding.
    F32,
}

impl From<Precision> for ProductMode {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Tf32 => Self::Tf32,
            Precision::F32 => Self::F32,
        }
    }
}

impl From<ProductMode> for Precision {
    fn from(mode: ProductMode) -> Self {
        match mode {
            ProductMode::Tf32 => Self::Tf32,
            ProductMode::F32 => Self::F32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;
    use crate::train::RunConfig;

    fn read(text: &str) -> Result<TrainingConfig, String> {
        let config: TrainingConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check().map_err(|e| e.to_string())?;
        Ok(config)
    }

    #[test]
    fn what_is_written_reads_back() {
        let texts = [
            "",
            "schedule = { kind = 'plateau', patience = 3 }\noptimiser = { kind = 'adam_w' }",
            "schedule = { kind = 'constant' }\noptimiser = { kind = 'sgd', momentum = 0.5 }",
            "schedule = { kind = 'one_cycle' }\ncheckpoint = { steps = 7 }\nseed = 12",
            "class_weights = { kind = 'given', weights = [1.0, 2.5] }\nprecision = 'f32'",
            "class_weights = { kind = 'balanced' }\ncheckpoint = { epochs = 2 }\npenalty = 'l1'",
        ];
        for text in texts {
            let config = read(text).unwrap();
            let written = toml::to_string(&config).unwrap();
            assert_eq!(read(&written).unwrap(), config, "{written}");
        }
        assert_eq!(read("").unwrap(), TrainingConfig::default());
    }

    #[test]
    fn the_page_on_training_lists_all_defaults() {
        let page = include_str!("../../../../docs/training.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (listed, _) = rest.split_once("```").unwrap();
        let config = RunConfig::new(Task::Segmentation);
        assert_eq!(RunConfig::parse(listed).unwrap(), config);
        let listed: toml::Table = listed.parse().unwrap();
        let mut all = toml::Table::try_from(config).unwrap();
        // They have pages of their own.
        for page in ["data", "model"] {
            all.remove(page);
        }
        assert_eq!(listed, all);
    }

    #[test]
    fn bad_settings_are_named() {
        for (text, part) in [
            ("epoch = 3", "unknown field `epoch`"),
            ("schedule = { kind = 'cosine', steps = 3 }", "steps"),
            (
                "schedule = { kind = 'cosine', last = 2.0 }",
                "training.schedule",
            ),
            ("schedule = { kind = 'plateau', factor = 2.0 }", "plateau"),
            ("optimiser = { kind = 'adams' }", "adams"),
            ("epochs = 0", "training.epochs"),
            ("epochs = 9000000000000000000", "training.epochs"),
            ("batch = 0", "training.batch"),
            ("rate = nan", "training.rate"),
            ("clip = -1.0", "training.clip"),
            ("evaluate_every = 0", "training.evaluate_every"),
            ("checkpoint = { minutes = -1.0 }", "training.checkpoint"),
            ("checkpoint = { hours = 1.0 }", "hours"),
            (
                "class_weights = { kind = 'given', weights = [0.0] }",
                "training.class_weights",
            ),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn checkpoints_are_due_by_time_steps_or_epochs() {
        let due = |interval: Interval, seconds, steps, epoch, ends| {
            interval.is_due(Duration::from_secs(seconds), steps, epoch, ends)
        };
        assert!(due(Interval::Minutes(1.0), 60, 0, 0, false));
        assert!(!due(Interval::Minutes(1.0), 59, 900, 2, true));
        assert!(due(Interval::Steps(3), 0, 3, 0, false));
        assert!(!due(Interval::Steps(3), 99, 2, 3, true));
        assert!(due(Interval::Epochs(2), 0, 0, 4, true));
        assert!(!due(Interval::Epochs(2), 0, 0, 3, true));
        assert!(!due(Interval::Epochs(2), 0, 0, 4, false));
    }
}
