//! Settings of the training loop: the `[training]` table of a configuration.

use super::batch_size::BatchSize;
use super::checked::Checked;
use super::class_weights::ClassWeights;
use super::interval::Interval;
use crate::data::Classes;
use crate::registry::settings;
use crate::{Result, TaskError};
use gemcnn_nn::{FeatureType, Method, Objective, Penalty, Plateau, ProductMode, Schedule, Target};
use gemcnn_view::render::Up;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

settings! {
    /// Settings of the training loop. Every setting has a default; docs/training.md lists them.
    TrainingConfig {
        /// Passes over the training split (default 100).
        epochs: u64 = 100,
        /// Meshes per step, or vertices (default: 4 meshes).
        batch: BatchSize = BatchSize::Meshes(4),
        /// Skips the last batch of an epoch if it is not full (default false).
        drop_last: bool = false,
        /// Base learning rate, which the schedule multiplies (default 0.01).
        rate: f64 = 0.01,
        /// Weight decay of the weights that the model marks for it (default 1e-4). The built-in models mark those of
        /// linear layers.
        weight_decay: f64 = 1e-4,
        /// Largest norm of the whole gradient; a larger one is scaled down. `0` disables clipping (default).
        clip: f64 = 0.0,
        /// Label smoothing: share of the target that is spread evenly over all classes, in training (default 0).
        smoothing: f64 = 0.0,
        /// Decay of an exponential moving average of the weights, in [0, 1) (default 0: no average). Evaluations and
        /// models use the average.
        average: f64 = 0.0,
        /// Seed of initialisation, data order and dropout (default 1).
        seed: u64 = 1,
        /// A run, a model file or a bundled model whose weights are the first ones, except those of the last layer
        /// (default: random weights).
        #[serde(skip_serializing_if = "Option::is_none")]
        start: Option<PathBuf> = None,
        /// Scales features so that each channel has size 1, and mean 0 if it is a scalar, over the training split
        /// (default true).
        scale_features: bool = true,
        /// Scales regression targets in the same way (default true). Errors and predictions keep the units of the
        /// targets.
        scale_targets: bool = true,
        /// Rescales convolutions on the first batch so that features have unit scale (default false). Useful for
        /// networks without batch normalisation.
        calibrate: bool = false,
        /// Penalty of regression (default: mean square).
        penalty: PenaltyChoice = PenaltyChoice::MeanSquare,
        /// Epochs between evaluations on held-out meshes (default 1). The last epoch is always evaluated.
        evaluate_every: u64 = 1,
        /// Keeps the model of the best evaluation as `best.safetensors` (default false). With a validation split, it
        /// is also the final model.
        keep_best: bool = false,
        /// Score that evaluations are compared by (default: `robust` with a validation split of segmentation or
        /// classification, otherwise `held_out`).
        #[serde(skip_serializing_if = "Option::is_none")]
        select: Option<Selection> = None,
        /// Ends training after this number of evaluations without improvement. `0` disables early stopping (default).
        patience: u64 = 0,
        /// Share of the training split that becomes the validation split of data without one, in [0, 1) (default 0).
        validation: f64 = 0.0,
        /// Stops with an error if a mesh cannot be used, instead of skipping it (default false).
        strict: bool = false,
        /// Axis that points up in the pictures of predictions, `y` or `z` (default: inferred from each mesh).
        #[serde(skip_serializing_if = "Option::is_none")]
        up: Option<Up> = None,
        /// Precision of matrix products on a GPU (default: TF32).
        precision: Precision = Precision::Tf32,
        /// Weight of each class in the loss (default: none).
        class_weights: ClassWeights = ClassWeights::default(),
        /// The optimiser (default: Adam).
        optimiser: OptimiserConfig = OptimiserConfig::default(),
        /// Schedule of the learning rate (default: cosine).
        schedule: ScheduleConfig = ScheduleConfig::default(),
        /// Interval of checkpoints (default: 2 minutes).
        checkpoint: Interval = Interval::default(),
    }
}

impl TrainingConfig {
    /// Settings that may change when a run is resumed: they do not affect the weights, or they set the number of
    /// epochs. The data may have moved; their content is compared.
    pub(super) const FREE_TO_CHANGE: [&str; 7] = [
        "training.strict",
        "training.up",
        "training.checkpoint",
        "training.keep_best",
        "training.epochs",
        "data.folder",
        "data.faust",
    ];

    /// The settings, checked.
    ///
    /// # Errors
    /// The first invalid setting, with what is allowed.
    pub fn checked(self) -> Result<Checked<Self>> {
        self.check()?;
        Ok(Checked(self))
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: &str, problem: String| Err(TaskError::setting(format!("training.{what}"), problem));
        let at_least_zero = |value: f64| value >= 0.0 && value.is_finite();
        if !(1..=1_000_000_000).contains(&self.epochs) {
            return refuse("epochs", "must be from 1 to 1,000,000,000".into());
        }
        if i64::try_from(self.seed).is_err() {
            return refuse("seed", format!("must be at most {}", i64::MAX));
        }
        if self.batch.count() == 0 {
            return refuse("batch", "must be at least 1".into());
        }
        if self.evaluate_every == 0 {
            return refuse("evaluate_every", "must be at least 1".into());
        }
        if !(self.rate > 0.0 && self.rate <= 10.0) {
            return refuse("rate", format!("{} must be above 0 and at most 10", self.rate));
        }
        if !(0.0..=10.0).contains(&self.weight_decay) {
            let problem = format!("{} must be from 0 to 10", self.weight_decay);
            return refuse("weight_decay", problem);
        }
        if !at_least_zero(self.clip) {
            return refuse("clip", format!("{} must be finite and at least 0", self.clip));
        }
        for (what, value) in [("smoothing", self.smoothing), ("average", self.average), ("validation", self.validation)]
        {
            if !(0.0..1.0).contains(&value) {
                return refuse(what, format!("{value} must be at least 0 and below 1"));
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

    /// The objective for what is learned, without class weights and smoothing.
    ///
    /// # Errors
    /// Class weights or smoothing that do not fit.
    pub fn objective(&self, learned: Target<&Classes, FeatureType>) -> Result<Objective<f32>> {
        let refuse = |what: &str, problem: String| Err(TaskError::setting(format!("training.{what}"), problem));
        match (learned, &self.class_weights) {
            (Target::Classes(classes), ClassWeights::Given { weights }) if weights.len() != classes.count() => {
                refuse("class_weights", format!("{} weights for {} classes", weights.len(), classes.count()))
            }
            (Target::Classes(classes), _) => Ok(Objective::classes(classes.count())),
            (Target::Values(_), ClassWeights::Given { .. } | ClassWeights::Balanced) => {
                refuse("class_weights", "regression has no classes".into())
            }
            (Target::Values(_), _) if self.smoothing > 0.0 => refuse("smoothing", "regression has no classes".into()),
            (Target::Values(kind), _) => Ok(Objective::Values { kind, penalty: self.penalty.into() }),
            (Target::Unknown, _) => Err(TaskError::setting("targets", "nothing is known to learn")),
        }
    }

    /// Method of the optimiser.
    pub(crate) fn method(&self) -> Method {
        let weight_decay = self.weight_decay;
        match self.optimiser {
            OptimiserConfig::Adam { beta1, beta2, epsilon } => Method::Adam { beta1, beta2, epsilon, weight_decay },
            OptimiserConfig::AdamW { beta1, beta2, epsilon } => Method::AdamW { beta1, beta2, epsilon, weight_decay },
            OptimiserConfig::Sgd { momentum } => Method::Sgd { momentum, weight_decay },
        }
    }
}

/// The score that evaluations are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// That of the held-out meshes.
    HeldOut,
    /// That of changed copies of a few meshes of the validation split.
    Robust,
}

/// The optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimiserConfig {
    /// Adam, with weight decay added to the gradient.
    Adam {
        /// Decay rate of the mean gradient (default 0.9).
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay rate of the mean squared gradient (default 0.999).
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the denominator (default 1e-8).
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay rate of the mean gradient (default 0.9).
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay rate of the mean squared gradient (default 0.999).
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the denominator (default 1e-8).
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum (default 0.9).
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
        Self::Adam { beta1: beta1(), beta2: beta2(), epsilon: epsilon() }
    }
}

/// Schedule of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleConfig {
    /// A linear rise to the base rate, then half a cosine down, over all epochs.
    Cosine {
        /// Fraction of the steps that go up (default 0).
        #[serde(default)]
        warm_up: f64,
        /// Fraction of the base rate at the end (default 0).
        #[serde(default)]
        last: f64,
    },
    /// The base rate, multiplied by `factor` when the loss stops falling.
    Plateau {
        /// Factor of each reduction (default 0.5).
        #[serde(default = "plateau_factor")]
        factor: f64,
        /// Epochs without progress before a reduction (default 10).
        #[serde(default = "plateau_patience")]
        patience: u32,
        /// Relative decrease of the loss that counts as progress (default 1e-4).
        #[serde(default = "plateau_threshold")]
        threshold: f64,
        /// Watches the loss on held-out meshes instead of the training loss (default false).
        #[serde(default)]
        held_out: bool,
    },
    /// The base rate throughout.
    Constant {},
    /// Half a cosine up to the base rate, then half a cosine down.
    OneCycle {
        /// Fraction of the steps that go up (default 0.3).
        #[serde(default = "cycle_rise")]
        rise: f64,
        /// Fraction of the base rate at the start (default 0.04).
        #[serde(default = "cycle_first")]
        first: f64,
        /// Fraction of the base rate at the end (default 0).
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
        Self::Cosine { warm_up: 0.0, last: 0.0 }
    }
}

impl ScheduleConfig {
    fn check(&self) -> Result<()> {
        let shares = match *self {
            Self::Cosine { warm_up, last } => vec![warm_up, last],
            Self::OneCycle { rise, first, last } => vec![rise, first, last],
            Self::Plateau { .. } | Self::Constant {} => Vec::new(),
        };
        if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(TaskError::setting("training.schedule", format!("{share} must be from 0 to 1")));
        }
        self.plateau().map(drop)
    }

    /// Factors of all steps of a run; constant for the plateau schedule, which depends on the loss.
    pub(super) fn factors(&self, steps: u64) -> Schedule {
        match *self {
            Self::Cosine { warm_up, last } => {
                let rise = (warm_up * steps as f64).round() as u64;
                let fall = steps.saturating_sub(rise).max(1);
                let then = Box::new(Schedule::Cosine { steps: fall, last });
                Schedule::WarmUp { steps: rise, then }
            }
            Self::Plateau { .. } | Self::Constant {} => Schedule::Constant,
            Self::OneCycle { rise, first, last } => Schedule::OneCycle { steps, rise, first, last },
        }
    }

    /// True for a plateau schedule that watches the loss on held-out meshes.
    pub(super) fn watches_held_out(&self) -> bool {
        matches!(self, Self::Plateau { held_out: true, .. })
    }

    /// Initial state of the plateau schedule; `None` for the others.
    pub(super) fn plateau(&self) -> Result<Option<Plateau>> {
        match *self {
            Self::Plateau { factor, patience, threshold, .. } => Ok(Some(Plateau::new(factor, patience, threshold)?)),
            _ => Ok(None),
        }
    }
}

/// Penalty on the difference in regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyChoice {
    /// Squared length.
    MeanSquare,
    /// Absolute value for scalars, length for vectors.
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

/// Precision of matrix products on a GPU. A CPU computes in f32, except for the last layer of a classifier with `bf16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// TF32 on tensor cores, with 10 bits of mantissa.
    Tf32,
    /// Single precision.
    F32,
    /// As `tf32`, and bf16 for the products of the last layer of a classifier with more than 32 classes: 7 bits of
    /// mantissa. Also on CPUs with AVX512-BF16. On Hopper, also for the blocks of DiffusionNet with 128 channels and
    /// 128 eigenvectors.
    Bf16,
}

impl From<Precision> for ProductMode {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Tf32 => Self::Tf32,
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
        }
    }
}

impl From<ProductMode> for Precision {
    fn from(mode: ProductMode) -> Self {
        match mode {
            ProductMode::Tf32 => Self::Tf32,
            ProductMode::F32 => Self::F32,
            ProductMode::Bf16 => Self::Bf16,
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
            "schedule = { kind = 'cosine', warm_up = 0.1 }\naverage = 0.999\npatience = 3",
            "schedule = { kind = 'constant' }\noptimiser = { kind = 'sgd', momentum = 0.5 }",
            "schedule = { kind = 'one_cycle' }\ncheckpoint = { steps = 7 }\nseed = 12",
            "class_weights = { kind = 'given', weights = [1.0, 2.5] }\nprecision = 'f32'",
            "batch = '6000 vertices'\nprecision = 'bf16'",
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
        // Data and models have their own pages.
        for page in ["data", "model"] {
            all.remove(page);
        }
        assert_eq!(listed, all);
    }

    #[test]
    fn bad_settings_are_named() {
        for (text, part) in [
            ("epoch = 3", "`epoch`"),
            ("schedule = { kind = 'cosine', steps = 3 }", "steps"),
            ("schedule = { kind = 'cosine', last = 2.0 }", "training.schedule"),
            ("schedule = { kind = 'plateau', factor = 2.0 }", "plateau"),
            ("optimiser = { kind = 'adams' }", "adams"),
            ("epochs = 0", "training.epochs"),
            ("epochs = 9000000000000000000", "training.epochs"),
            ("batch = 0", "training.batch"),
            ("batch = '0 vertices'", "training.batch"),
            ("batch = '4 triangles'", "triangles"),
            ("rate = nan", "training.rate"),
            ("rate = 10.1", "training.rate"),
            ("weight_decay = 11.0", "training.weight_decay"),
            ("clip = -1.0", "training.clip"),
            ("smoothing = 1.0", "training.smoothing"),
            ("average = 1.0", "training.average"),
            ("average = -0.1", "training.average"),
            ("validation = 1.0", "training.validation"),
            ("patience = -1", "patience"),
            ("schedule = { kind = 'cosine', warm_up = 1.5 }", "training.schedule"),
            ("evaluate_every = 0", "training.evaluate_every"),
            ("checkpoint = { minutes = -1.0 }", "training.checkpoint"),
            ("checkpoint = { hours = 1.0 }", "hours"),
            ("class_weights = { kind = 'given', weights = [0.0] }", "training.class_weights"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn the_rate_warms_up_from_0_and_falls_to_the_last_one() {
        let schedule = ScheduleConfig::Cosine { warm_up: 0.2, last: 0.1 };
        let factors = schedule.factors(20);
        let rising: Vec<f64> = (0..4).map(|step| factors.factor(step)).collect();
        assert_eq!(rising, [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(factors.factor(4), 1.0);
        assert!((factors.factor(12) - 0.55).abs() < 1e-12);
        assert!((factors.factor(20) - 0.1).abs() < 1e-12);
        let plain = ScheduleConfig::default().factors(20);
        let cosine = Schedule::Cosine { steps: 20, last: 0.0 };
        assert!((0..21).all(|step| plain.factor(step) == cosine.factor(step)));
        let only_rise = ScheduleConfig::Cosine { warm_up: 1.0, last: 0.0 };
        assert_eq!(only_rise.factors(10).factor(9), 1.0);
    }
}
