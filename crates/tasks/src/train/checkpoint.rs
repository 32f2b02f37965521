//! Checkpoints: the complete state of a run.

use super::config::RunConfig;
use super::metrics::{Record, Tally};
use super::run_directory::RunDirectory;
use super::settings::TrainingConfig;
use crate::{FeatureScaling, TaskError};
use gemcnn_nn::{Archive, NnError, Optimiser, Parameters, Plateau};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Group of the weights in checkpoints and model files.
pub(super) const WEIGHTS: &str = "weights";
const OPTIMISER: &str = "optimiser";
const PROGRESS: &str = "progress";
const IDENTITY: &str = "run";
const SEAL: &str = "seal";

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
    /// Weight of each class in the loss.
    pub class_weights: Option<Vec<f32>>,
    /// Records of `metrics.jsonl`.
    pub history: Vec<Record>,
    /// Smallest error of an evaluation since `keep_best` was set.
    pub best: Option<f64>,
    /// Seconds of training.
    pub seconds: f64,
    /// Seconds of training before the current epoch.
    pub seconds_before_epoch: f64,
}

/// Settings and data of a run, to compare on resumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Configuration of the run.
    pub settings: Value,
    /// Checksums of training samples, held-out samples and classes.
    pub training: String,
    pub held_out: String,
    pub classes: String,
    /// Name of the device.
    pub device: String,
}

/// A checkpoint read from a file.
pub(super) struct Checkpoint {
    archive: Archive,
    pub identity: Identity,
    pub progress: Progress,
}

impl Checkpoint {
    /// Writes the state of a run to disk. The old checkpoint stays until the new one is complete.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(
        run: &RunDirectory,
        identity: &Identity,
        progress: &Progress,
        parameters: &Parameters<f32>,
        optimiser: &Optimiser<f32>,
    ) -> Result<Written, TaskError> {
        let mut archive = Archive::new();
        parameters.store(&mut archive, WEIGHTS)?;
        optimiser.store(&mut archive, OPTIMISER, parameters)?;
        archive.set_json(IDENTITY, identity)?;
        archive.set_json(PROGRESS, progress)?;
        for name in archive.tensor_names() {
            if !archive.tensor::<f32>(name)?.iter().all(|v| v.is_finite()) {
                return Ok(Written::NotFinite { name: name.into() });
            }
        }
        let seal = seal(&mut archive)?;
        archive.set_json(SEAL, &seal)?;
        run.write_durably(&run.checkpoint(), &archive.to_bytes()?)?;
        Ok(Written::Whole)
    }

    /// Reads a checkpoint; `None` if there is no file.
    ///
    /// # Errors
    /// A damaged file.
    pub fn read(path: &Path) -> Result<Option<Self>, TaskError> {
        if !path.try_exists().map_err(TaskError::file(path))? {
            return Ok(None);
        }
        let read = || {
            let mut archive = Archive::read(path)?;
            if archive.json::<String>(SEAL)? != seal(&mut archive)? {
                return Err(NnError::Archive {
                    path: path.into(),
                    problem: "the checksum does not match the content".into(),
                });
            }
            let (identity, progress) = (archive.json(IDENTITY)?, archive.json(PROGRESS)?);
            Ok(Self {
                archive,
                identity,
                progress,
            })
        };
        read().map(Some).map_err(|source| TaskError::Checkpoint {
            path: path.into(),
            source: Box::new(source),
        })
    }

    /// Loads weights and optimiser.
    pub fn load(
        &self,
        path: &Path,
        parameters: &mut Parameters<f32>,
    ) -> Result<Optimiser<f32>, TaskError> {
        parameters
            .load(&self.archive, WEIGHTS)
            .and_then(|()| Optimiser::load(&self.archive, OPTIMISER, parameters))
            .map_err(|source| TaskError::Checkpoint {
                path: path.into(),
                source: Box::new(source),
            })
    }
}

/// Checksum of everything else in an archive.
fn seal(archive: &mut Archive) -> Result<String, NnError> {
    archive.set_json(SEAL, &"")?;
    Ok(blake3::hash(&archive.to_bytes()?).to_hex().to_string())
}

/// Result of writing a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It was written.
    Whole,
    /// Nothing was written, because this tensor has values that are NaN or infinite.
    NotFinite { name: String },
}

impl Identity {
    /// Differences from the run of a checkpoint, one line each. Settings that do not affect the weights may
    /// differ.
    pub fn differences(&self, stored: &Self) -> Vec<String> {
        let mut differences = setting_differences(&self.settings, &stored.settings);
        for (what, here, there) in [
            (
                "training part: meshes or targets have changed",
                &self.training,
                &stored.training,
            ),
            (
                "held-out part: meshes or targets have changed",
                &self.held_out,
                &stored.held_out,
            ),
            ("classes have changed", &self.classes, &stored.classes),
        ] {
            if here != there {
                differences.push(what.into());
            }
        }
        differences
    }
}

/// Completed epochs, and completed steps of the current epoch, of a run. Compares its settings with those of the
/// checkpoint, or of the configuration file if there is no checkpoint.
///
/// # Errors
/// Settings that differ, or a damaged checkpoint.
pub(crate) fn begun_with(run: &RunDirectory, settings: &Value) -> Result<(u64, u64), TaskError> {
    let (path, stored, done) = match Checkpoint::read(&run.checkpoint())? {
        Some(Checkpoint {
            identity, progress, ..
        }) => (
            run.checkpoint(),
            identity.settings,
            (progress.epoch, progress.step),
        ),
        None if run.config().exists() => {
            let config = RunConfig::read(&run.config())?.anchored()?;
            (run.config(), config.to_json()?, (0, 0))
        }
        None => return Ok((0, 0)),
    };
    let differences = setting_differences(settings, &stored);
    match differences.is_empty() {
        true => Ok(done),
        false => Err(TaskError::OtherRun { path, differences }),
    }
}

fn setting_differences(here: &Value, there: &Value) -> Vec<String> {
    let (here, there) = (leaves(here), leaves(there));
    let mut keys: Vec<&String> = here.keys().chain(there.keys()).collect();
    keys.sort();
    keys.dedup();
    let show = |value: Option<&String>| value.map_or("not set".into(), String::clone);
    let is_free = |key: &str| {
        let within = |free: &str| {
            key.strip_prefix(free)
                .is_some_and(|k| k.is_empty() || k.starts_with('.'))
        };
        TrainingConfig::FREE_TO_CHANGE.into_iter().any(within)
    };
    keys.into_iter()
        .filter(|key| here.get(*key) != there.get(*key) && !is_free(key))
        .map(|key| {
            let (was, is) = (show(there.get(key)), show(here.get(key)));
            format!("{key} = {is}, but the run has {was}")
        })
        .collect()
}

/// All settings as `table.key` and value.
fn leaves(settings: &Value) -> BTreeMap<String, String> {
    fn walk(prefix: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    let name = match prefix {
                        "" => key.clone(),
                        _ => format!("{prefix}.{key}"),
                    };
                    walk(&name, value, leaves);
                }
            }
            leaf => {
                leaves.insert(prefix.into(), leaf.to_string());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk("", settings, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_that_affect_the_weights_are_listed() {
        let identity = |settings, training: &str| Identity {
            settings,
            training: training.into(),
            held_out: String::new(),
            classes: training.into(),
            device: "CPU".into(),
        };
        let stored = identity(
            json!({"task": "segmentation", "training": {
                "rate": 0.01, "checkpoint": {"steps": 3}, "keep_best": false, "clip": 0.0}}),
            "a",
        );
        let now = identity(
            json!({"task": "regression", "training": {
                "rate": 0.02, "checkpoint": {"minutes": 3.0}, "keep_best": true, "seed": 1}}),
            "b",
        );
        let differences = now.differences(&stored);
        let expected = [
            &["task", "\"segmentation\"", "\"regression\""][..],
            &["training.clip", "0.0", "not set"],
            &["training.rate", "0.01", "0.02"],
            &["training.seed", "not set", "1"],
            &["training part"],
            &["classes"],
        ];
        assert_eq!(differences.len(), expected.len(), "{differences:?}");
        for (difference, parts) in differences.iter().zip(expected) {
            for part in parts {
                assert!(difference.contains(part), "{difference}");
            }
        }
        assert_eq!(stored.differences(&stored), Vec::<String>::new());
    }
}
