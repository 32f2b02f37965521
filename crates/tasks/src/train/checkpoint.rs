//! Checkpoints: the complete state of a run.

use super::config::RunConfig;
use super::identity::{Identity, setting_differences};
use super::metrics::{Record, Tally};
use super::ranges::TrainingRanges;
use super::run_directory::RunDirectory;
use super::seal::{not_finite, read_sealed, sealed};
use crate::{FeatureScaling, Result, TaskError};
use gemcnn_nn::{Archive, NnError, Optimiser, Parameters, Plateau};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Group of the weights in checkpoints and model files.
pub(super) const WEIGHTS: &str = "weights";
const OPTIMISER: &str = "optimiser";
const PROGRESS: &str = "progress";
const IDENTITY: &str = "run";

/// State of a run besides weights and optimiser. Random numbers need no state: they follow from the seed, the
/// epoch and the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Completed epochs.
    pub epoch: u64,
    /// Completed steps of the current epoch.
    pub step: u64,
    /// Sums of scores over these steps.
    pub tally: Tally,
    /// State of the plateau schedule.
    pub plateau: Option<Plateau>,
    /// Scaling of features.
    pub scaling: FeatureScaling,
    /// Scaling of regression targets.
    pub target_scaling: Option<FeatureScaling>,
    /// Ranges of the training meshes.
    #[serde(default, rename = "seen")]
    pub ranges: Option<TrainingRanges>,
    /// Weight of each class in the loss.
    pub class_weights: Option<Vec<f32>>,
    /// Records of `metrics.jsonl`.
    pub history: Vec<Record>,
    /// Seconds of training.
    pub seconds: f64,
    /// Seconds of training before the current epoch.
    pub seconds_before_epoch: f64,
}

/// A checkpoint read from a file.
pub(super) struct Checkpoint {
    archive: Archive,
    pub identity: Identity,
    pub progress: Progress,
}

impl Checkpoint {
    /// Writes the state of a run to disk. The old checkpoint stays until the new one is complete.
    pub fn write(
        run: &RunDirectory,
        identity: &Identity,
        progress: &Progress,
        parameters: &Parameters<f32>,
        optimiser: &Optimiser<f32>,
    ) -> Result<Written> {
        let mut archive = Archive::new();
        parameters.store(&mut archive, WEIGHTS)?;
        optimiser.store(&mut archive, OPTIMISER, parameters)?;
        archive.set_json(IDENTITY, identity)?;
        archive.set_json(PROGRESS, progress)?;
        if let Some(name) = not_finite(&archive)? {
            return Ok(Written::NotFinite { name });
        }
        run.write_durably(&run.checkpoint(), &sealed(archive)?)?;
        Ok(Written::Whole)
    }

    /// Reads a checkpoint; `None` if there is no file.
    ///
    /// # Errors
    /// A damaged file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.try_exists().map_err(TaskError::file(path))? {
            return Ok(None);
        }
        let read = || -> Result<Self, NnError> {
            let archive = read_sealed(path)?;
            let (identity, progress) = (archive.json(IDENTITY)?, archive.json(PROGRESS)?);
            Ok(Self { archive, identity, progress })
        };
        read().map(Some).map_err(|source| TaskError::Checkpoint { path: path.into(), source: Box::new(source) })
    }

    /// Loads weights and optimiser.
    pub fn load(&self, path: &Path, parameters: &mut Parameters<f32>) -> Result<Optimiser<f32>> {
        parameters
            .load(&self.archive, WEIGHTS)
            .and_then(|()| Optimiser::load(&self.archive, OPTIMISER, parameters))
            .map_err(|source| TaskError::Checkpoint { path: path.into(), source: Box::new(source) })
    }
}

/// Result of writing a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It was written.
    Whole,
    /// Nothing was written, because this tensor has values that are NaN or infinite.
    NotFinite { name: String },
}

/// Completed epochs, and completed steps of the current epoch, of a run. Compares its settings with those of the
/// checkpoint, or of the configuration file if there is no checkpoint.
pub(crate) fn begun_with(run: &RunDirectory, settings: &Value) -> Result<(u64, u64)> {
    let (path, stored, done) = match Checkpoint::read(&run.checkpoint())? {
        Some(Checkpoint { identity, progress, .. }) => {
            (run.checkpoint(), identity.settings, (progress.epoch, progress.step))
        }
        None if run.config().exists() => {
            let config = RunConfig::read(&run.config())?.anchored()?;
            (run.config(), config.to_json()?, (0, 0))
        }
        None => return Ok((0, 0)),
    };
    let differences = setting_differences(settings, &stored);
    if differences.is_empty() { Ok(done) } else { Err(TaskError::OtherRun { path, differences }) }
}
