//! Settings chosen on the validation split: short runs that each change one thing.

use crate::data::{Augmentation, Cache, Split};
use crate::models::Preset;
use crate::run::trained;
use crate::train::{Checked, Event, Observer, RunConfig, StopFlag};
use crate::{FeatureConfig, Result, Task, TaskError};
use gemcnn_mesh::write_atomically;
use gemcnn_nn::Device;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A trial trains for the epochs of the run divided by this number.
const EPOCH_DIVISOR: u64 = 10;
/// Smallest number of epochs of a trial.
const MIN_EPOCHS: u64 = 3;

/// File with the trials.
const FILE: &str = "tuning.json";

/// A short run with one changed setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What was changed from the best settings so far.
    pub change: String,
    /// Fraction of wrong predictions, or regression error, of the best epoch on the validation split; `None` if the
    /// run diverged or the settings do not fit the data.
    pub error: Option<f64>,
    /// Seconds of training.
    pub seconds: f64,
    /// True if the change was kept.
    pub kept: bool,
}

/// Settings that were chosen, and the trials that led to them.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The chosen configuration, with all its epochs.
    pub config: RunConfig,
    /// Trials in their order. The first is of the settings as given.
    pub trials: Vec<Trial>,
}

/// Tries features, widths, learning rates and augmentations one after the other, in short runs of a tenth of the epochs
/// (3 at least). A change is kept if it is better on the validation split; the test split is never read. The runs are in
/// directories `trial-N` of `directory`; finished ones are not repeated. Writes `tuning.json`. Returns `None` if `stop`
/// is requested.
///
/// # Errors
/// Data without a validation split, and the errors of [`train`](crate::run::train).
pub fn tune(
    base: &Checked<RunConfig>,
    directory: &Path,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<Tuned>> {
    if base.dataset()?.is_empty(Split::Validation) {
        let problem =
            "settings are chosen on a validation split; set `validation` in [training], or name the split in the data";
        return Err(TaskError::setting("tuning", problem));
    }
    let mut tuner = Tuner { base, directory, cache, device, stop, trials: Vec::new() };
    let mut best = RunConfig::clone(base);
    let Some(mut least) = tuner.run("as given".into(), &best, observer)? else { return Ok(None) };
    for variations in VARIATIONS {
        let mut winner = None;
        for (change, config) in variations(&best) {
            let Some(error) = tuner.run(change, &config, observer)? else { return Ok(None) };
            if error < least {
                (least, winner) = (error, Some((config, tuner.trials.len() - 1)));
            }
        }
        if let Some((config, trial)) = winner {
            best = config;
            tuner.trials[trial].kept = true;
        }
    }
    let Tuner { trials, .. } = tuner;
    let path = directory.join(FILE);
    let json =
        serde_json::to_string_pretty(&trials).map_err(|error| TaskError::setting("trials", error.to_string()))?;
    write_atomically(&path, |file| file.write_all(json.as_bytes())).map_err(TaskError::file(&path))?;
    Ok(Some(Tuned { config: best, trials }))
}

struct Tuner<'a> {
    base: &'a RunConfig,
    directory: &'a Path,
    cache: &'a Cache,
    device: &'a Device,
    stop: &'a StopFlag,
    trials: Vec<Trial>,
}

impl Tuner<'_> {
    /// Runs a trial. Returns its error, infinite if it failed; `None` if `stop` is requested.
    fn run(&mut self, change: String, config: &RunConfig, observer: &mut dyn Observer) -> Result<Option<f64>> {
        let number = self.trials.len() + 1;
        let path = self.directory.join(format!("trial-{number}"));
        let mut short = config.clone();
        let epochs = self.base.training.epochs;
        short.training.epochs = (epochs / EPOCH_DIVISOR).max(MIN_EPOCHS).min(epochs);
        observer.observe(Event::Note(&format!("trial {number}: {change}")));
        let result = trained(&short, &path, self.cache, self.device, observer, self.stop);
        let (error, seconds) = match result {
            Ok(None) => return Ok(None),
            Ok(Some((_, records))) => {
                let seconds = records.last().map_or(0.0, |record| record.seconds);
                let errors = records.iter().filter_map(|record| record.selection_error());
                (errors.reduce(f64::min), seconds)
            }
            Err(TaskError::Diverged { .. }) => (None, 0.0),
            Err(error) => return Err(error),
        };
        self.trials.push(Trial { change, error, seconds, kept: number == 1 });
        Ok(Some(error.unwrap_or(f64::INFINITY)))
    }
}

/// Variations of a configuration, each with its name.
type Variation = fn(&RunConfig) -> Vec<(String, RunConfig)>;

const VARIATIONS: [Variation; 4] = [features, widths, rates, augmentations];

/// Other invariant features.
fn features(config: &RunConfig) -> Vec<(String, RunConfig)> {
    // A correspondence on registered meshes is learned from positions.
    let kinds: &[&str] = match config.task {
        Task::Correspondence => &[],
        _ => &["hks,position", "hks,position,curvature", "hks,wks,position,curvature,matrix"],
    };
    // Several kinds are left out as often as those of the configuration.
    let drop = serde_json::to_value(&config.features).ok().and_then(|now| now.get("drop").cloned());
    let found = kinds.iter().filter_map(|kinds| {
        let mut features = serde_json::to_value(FeatureConfig::of_kinds(kinds).ok()?).ok()?;
        if let (Some(drop), Some(_)) = (&drop, features.get("of")) {
            features["drop"] = drop.clone();
        }
        let features: FeatureConfig = serde_json::from_value(features).ok()?;
        let config = (features != config.features).then(|| RunConfig { features, ..config.clone() })?;
        Some((format!("features {kinds}"), config))
    });
    found.collect()
}

/// Half and twice the channels, for models with the setting `channels`.
fn widths(config: &RunConfig) -> Vec<(String, RunConfig)> {
    let changed = |word: &str, preset: Preset| {
        let config = RunConfig { model: config.model.scaled(preset)?, ..config.clone() };
        Some((format!("{word} the channels"), config))
    };
    let ways = [changed("half", Preset::Small), changed("twice", Preset::Large)];
    ways.into_iter().flatten().collect()
}

/// A third and three times the learning rate.
fn rates(config: &RunConfig) -> Vec<(String, RunConfig)> {
    let changed = |factor: f64| {
        let mut config = config.clone();
        config.training.rate *= factor;
        (format!("rate {:.1e}", config.training.rate), config)
    };
    vec![changed(1.0 / 3.0), changed(3.0)]
}

/// No augmentation, and more of it.
fn augmentations(config: &RunConfig) -> Vec<(String, RunConfig)> {
    let changed = |word: &str, augmentation: Augmentation| {
        let config = RunConfig { augmentation, ..config.clone() };
        (word.to_owned(), config)
    };
    let now = &config.augmentation;
    let mut ways = Vec::new();
    if *now != Augmentation::default() {
        ways.push(changed("no augmentation", Augmentation::default()));
    }
    if now.stretch > 0.0 || now.bend > 0.0 {
        let more =
            Augmentation { stretch: (2.0 * now.stretch).min(0.5), bend: (2.0 * now.bend).min(0.2), ..now.clone() };
        ways.push(changed("twice the deformation", more));
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn variations_differ_from_the_configuration() {
        let config = RunConfig::new(Task::Segmentation);
        for variations in VARIATIONS {
            let varied = variations(&config);
            assert_eq!(varied.len(), 2);
            for (change, variant) in varied {
                variant.training.clone().checked().unwrap();
                variant.augmentation.check().unwrap();
                assert_ne!(variant, config, "{change}");
            }
        }
        let json = |config: &RunConfig| serde_json::to_value(&config.model).unwrap();
        let channels: Vec<Value> = widths(&config).iter().map(|(_, config)| json(config)["channels"].clone()).collect();
        assert_eq!(channels, [serde_json::json!(64), serde_json::json!(256)]);
    }
}
