//! Checkpoints: everything that a run needs to go on as if it had never stopped.

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

/// Group of the weights in checkpoints and models.
pub(super) const WEIGHTS: &str = "weights";
const OPTIMISER: &str = "optimiser";
const PROGRESS: &str = "progress";
const IDENTITY: &str = "run";
const SEAL: &str = "seal";

/// What the weights do not tell of a run: where it is in the data, what it has seen, and what it found out
/// before the first step. Randomness needs no state: all of it follows from the seed, the epoch and the
/// number of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Epochs that are done.
    pub epoch: u64,
    /// Steps of the next epoch that are done.
    pub step: u64,
    /// Sums over these steps.
    pub tally: Tally,
    /// The state of a schedule that looks at the loss.
    pub plateau: Option<Plateau>,
    /// How features are scaled.
    pub scaling: FeatureScaling,
    /// How targets of regression are scaled.
    pub target_scaling: Option<FeatureScaling>,
    /// Weight of each class in the loss.
    pub class_weights: Option<Vec<f32>>,
    /// What `metrics.jsonl` holds.
    pub history: Vec<Record>,
    /// Error of the best evaluation since models are kept.
    pub best: Option<f64>,
    /// Seconds of training.
    pub seconds: f64,
    /// Of these, before the present epoch.
    pub seconds_before_epoch: f64,
}

/// Whose checkpoint it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The configuration of the run.
    pub settings: Value,
    /// Checksums of the training samples, the held-out ones, and the classes.
    pub training: String,
    pub held_out: String,
    pub classes: String,
    /// Where it was trained.
    pub device: String,
}

/// A checkpoint as it was read from a file.
pub(super) struct Checkpoint {
    archive: Archive,
    pub identity: Identity,
    pub progress: Progress,
}

impl Checkpoint {
    /// Puts the state of a run on the disk. The old checkpoint stays until the new one is whole.
    ///
    /// # Errors
    /// Weights that are no longer finite, with their name: the old checkpoint stays.
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

    /// Reads a checkpoint; none if none was written yet.
    ///
    /// # Errors
    /// A damaged file, and what can be done.
    pub fn read(path: &Path) -> Result<Option<Self>, TaskError> {
        if !path.try_exists().map_err(TaskError::file(path))? {
            return Ok(None);
        }
        let read = || {
            let mut archive = Archive::read(path)?;
            if archive.json::<String>(SEAL)? != seal(&mut archive)? {
                return Err(NnError::Archive {
                    path: path.into(),
                    problem: "its content does not fit its checksum".into(),
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

    /// Takes weights and optimiser from it.
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

/// A checksum over everything else in an archive, so that not even a flipped bit goes unseen.
fn seal(archive: &mut Archive) -> Result<String, NnError> {
    archive.set_json(SEAL, &"")?;
    Ok(blake3::hash(&archive.to_bytes()?).to_hex().to_string())
}

/// How the writing of a checkpoint ended, where the disk did its part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Well.
    Whole,
    /// These weights or moments are NaN or infinite; nothing was written.
    NotFinite { name: String },
}

impl Identity {
    /// Everything in which a run differs from the one that a checkpoint was made by, one line each;
    /// settings that do not change what is learned may differ.
    pub fn differences(&self, stored: &Self) -> Vec<String> {
        let mut differences = setting_differences(&self.settings, &stored.settings);
        for (what, here, there) in [
            (
                "the training part has other meshes or targets",
                &self.training,
                &stored.training,
            ),
            (
                "the held-out part has other meshes or targets",
                &self.held_out,
                &stored.held_out,
            ),
            ("there are other classes", &self.classes, &stored.classes),
        ] {
            if here != there {
                differences.push(format!("{what} now"));
            }
        }
        differences
    }
}

/// Where a run is, as (epochs, steps of the next one) that are done, if it was begun with these settings. They are
/// compared with those of its checkpoint, or of its configuration while it has none.
///
/// # Errors
/// A run that was begun with others, or a checkpoint that is damaged.
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
            format!("{key} was {was}, but is {is} now")
        })
        .collect()
}

/// The settings as `table.key` and value.
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
    fn differences_are_listed_but_those_that_do_not_matter() {
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
        assert_eq!(
            now.differences(&stored),
            [
                "task was \"segmentation\", but is \"regression\" now",
                "training.clip was 0.0, but is not set now",
                "training.rate was 0.01, but is 0.02 now",
                "training.seed was not set, but is 1 now",
                "the training part has other meshes or targets now",
                "there are other classes now",
            ]
        );
        assert_eq!(stored.differences(&stored), Vec::<String>::new());
    }
}
