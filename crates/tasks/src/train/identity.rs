//! Identity of a run: settings and data, which must not change when it is resumed.

use super::chosen::Chosen;
use super::problem::Problem;
use super::settings::TrainingConfig;
use crate::data::Classes;
use crate::{Result, SampleSource, TaskError};
use gemcnn_nn::Device;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

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

impl Identity {
    /// The identity of a run of a problem on a device.
    ///
    /// # Errors
    /// A sample that cannot be loaded.
    pub fn new(problem: Problem<'_>, device: &Device) -> Result<Self> {
        Ok(Self {
            settings: problem.settings.clone(),
            training: checksum(&Chosen::originals(problem.training))?,
            held_out: checksum(problem.held_out)?,
            classes: checksum_of_classes(problem.classes)?,
            device: device_name(device),
        })
    }

    /// Number of epochs, if the settings are those of a configuration.
    pub fn epochs(&self) -> Option<u64> {
        self.settings.pointer("/training/epochs")?.as_u64()
    }

    /// Differences from the run of a checkpoint, one line each, except in settings that may change.
    pub fn differences(&self, stored: &Self) -> Vec<String> {
        let mut differences = setting_differences(&self.settings, &stored.settings);
        for (what, here, there) in [
            ("training split: meshes or targets have changed", &self.training, &stored.training),
            ("held-out split: meshes or targets have changed", &self.held_out, &stored.held_out),
            ("classes have changed", &self.classes, &stored.classes),
        ] {
            if here != there {
                differences.push(what.into());
            }
        }
        differences
    }
}

/// Settings that differ, one line each, except those that may change.
pub(super) fn setting_differences(here: &Value, there: &Value) -> Vec<String> {
    let (here, there) = (leaves(here), leaves(there));
    let mut keys: Vec<&String> = here.keys().chain(there.keys()).collect();
    keys.sort();
    keys.dedup();
    let show = |value: Option<&String>| value.map_or("not set".into(), String::clone);
    let is_free = |key: &str| {
        let within = |free: &str| key.strip_prefix(free).is_some_and(|k| k.is_empty() || k.starts_with('.'));
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

/// Name of a device, for messages and files.
pub fn device_name(device: &Device) -> String {
    match device {
        Device::Cpu => "CPU".into(),
        Device::Cuda(device) => device.name().into(),
    }
}

/// Checksum of all samples.
fn checksum(source: &dyn SampleSource) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for index in 0..source.len() {
        hasher.update(&source.checksum(index)?);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn checksum_of_classes(classes: Option<&Classes>) -> Result<String> {
    let text = serde_json::to_vec(&classes).map_err(|error| TaskError::setting("classes", error.to_string()))?;
    Ok(blake3::hash(&text).to_hex().to_string())
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
            &["training split"],
            &["classes"],
        ];
        assert_eq!(differences.len(), expected.len(), "{differences:?}");
        for (difference, splits) in differences.iter().zip(expected) {
            for split in splits {
                assert!(difference.contains(split), "{difference}");
            }
        }
        assert_eq!(stored.differences(&stored), Vec::<String>::new());
    }
}
