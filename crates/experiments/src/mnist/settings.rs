//! Settings of one run.

use super::model::Model;
use super::surface::{GridOptions, Surface};
use crate::names::names;
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::{BatchSize, Interval, ScheduleConfig, TrainingConfig};
use serde::{Deserialize, Serialize};

/// Schedule of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateRule {
    /// The paper's: halved when the validation loss has not improved for 3 epochs.
    Plateau,
    /// Half a cosine up from a tenth of the base rate over the first quarter of the steps, then half a
    /// cosine down to zero.
    OneCycle,
    /// Half a cosine down to zero.
    Cosine,
}

names!(RateRule, "schedule", { Plateau: "plateau", OneCycle: "one-cycle", Cosine: "cosine" });

impl RateRule {
    fn schedule(self) -> ScheduleConfig {
        match self {
            Self::Plateau => ScheduleConfig::Plateau {
                factor: 0.5,
                // The third epoch without progress halves the rate.
                patience: 2,
                threshold: 0.0,
                held_out: true,
            },
            Self::OneCycle => ScheduleConfig::OneCycle { rise: 0.25, first: 0.1, last: 0.0 },
            Self::Cosine => ScheduleConfig::default(),
        }
    }
}

/// Everything that decides the result of a run, except the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Training geometry.
    pub train: Surface,
    /// The network.
    pub model: Model,
    /// Seed of initialisation, order of the digits and dropout.
    pub seed: u64,
    /// Construction of the grids.
    pub grids: GridOptions,
    /// Number of epochs.
    pub epochs: usize,
    /// Digits in a batch. Digits of an epoch that do not fill a batch are left out.
    pub batch: usize,
    /// Base learning rate.
    pub rate: f64,
    /// Schedule of the learning rate.
    pub schedule: RateRule,
    /// Weight decay of all weights.
    pub weight_decay: f64,
    /// Number of training digits: the first ones of the data set.
    pub training_digits: usize,
    /// Number of validation digits: those that follow the training digits.
    pub validation_digits: usize,
}

impl RunSettings {
    /// Name of the run's directory.
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.train, self.model, self.seed)
    }

    /// Rejects numbers out of range.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        if self.batch > self.training_digits {
            return Err(TaskError::setting(
                "training.batch",
                format!("{} digits, but there are only {} training digits", self.batch, self.training_digits),
            ));
        }
        if self.validation_digits == 0 {
            return Err(TaskError::setting("validation digits", "at least 1 is needed"));
        }
        self.training(&Device::Cpu).checked().map(drop)
    }

    /// The configuration of the trainer. Products on a GPU stay in the mode of the device.
    pub(super) fn training(&self, device: &Device) -> TrainingConfig {
        let standard = TrainingConfig::default();
        TrainingConfig {
            epochs: self.epochs as u64,
            batch: BatchSize::Meshes(self.batch),
            drop_last: true,
            rate: self.rate,
            weight_decay: self.weight_decay,
            seed: self.seed,
            scale_features: false,
            schedule: self.schedule.schedule(),
            checkpoint: Interval::Epochs(1),
            precision: match device {
                Device::Cpu => standard.precision,
                Device::Cuda(cuda) => cuda.product_mode().into(),
            },
            ..standard
        }
    }
}
