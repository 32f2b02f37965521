//! The configuration of a run.

use super::batch_size::BatchSize;
use super::checked::Checked;
use super::settings::TrainingConfig;
use crate::data::{Augmentation, DataConfig, Dataset, GeometrySettings, Preparation, SplitConfig};
use crate::models::Preset;
use crate::registry::is_default;
use crate::{Element, FeatureConfig, ModelConfig, Result, Task, TaskError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Configuration of a run, as a TOML file. Only `task` is required.
///
/// ```
/// use gemcnn_tasks::Task;
/// use gemcnn_tasks::train::RunConfig;
/// let config = RunConfig::parse("task = 'segmentation'\n[training]\nepochs = 20")?;
/// assert_eq!(config.task, Task::Segmentation);
/// assert_eq!(RunConfig::parse(&config.to_toml()?)?, config);
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The task.
    pub task: Task,
    /// Source of the meshes (default: synthetic bodies).
    #[serde(default)]
    pub data: DataConfig,
    /// How it is divided (default: as the data set says).
    #[serde(default, skip_serializing_if = "is_default")]
    pub split: SplitConfig,
    /// Input features (default: those of the recipe of the model).
    pub features: FeatureConfig,
    /// Normals, neighbourhoods and normalisation (default: the recipe).
    pub geometry: GeometrySettings,
    /// Augmentation of the training meshes (default: the recipe).
    pub augmentation: Augmentation,
    /// The model (default: [`ModelConfig::for_task`]).
    pub model: ModelConfig,
    /// Settings of the training loop (default: the recipe).
    pub training: TrainingConfig,
}

/// What a TOML file may contain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    task: Task,
    /// Not with a model of its own.
    preset: Option<Preset>,
    #[serde(default)]
    data: DataConfig,
    #[serde(default)]
    split: SplitConfig,
    features: Option<FeatureConfig>,
    model: Option<ModelConfig>,
    // These are read again over the defaults of the model.
    #[serde(default, rename = "geometry")]
    _geometry: GeometrySettings,
    #[serde(default, rename = "augmentation")]
    _augmentation: Augmentation,
    #[serde(default, rename = "training")]
    _training: TrainingConfig,
}

/// The defaults of a table, with the given settings in their place.
fn over<S: Serialize + DeserializeOwned>(defaults: S, given: Option<&toml::Value>) -> Result<S> {
    let Some(toml::Value::Table(given)) = given else { return Ok(defaults) };
    let refuse = |error: String| TaskError::setting("configuration", error);
    let mut all = toml::Table::try_from(defaults).map_err(|error| refuse(error.to_string()))?;
    all.extend(given.clone());
    all.try_into().map_err(|error| refuse(error.to_string()))
}

impl RunConfig {
    /// Defaults for a task.
    pub fn new(task: Task) -> Self {
        Self::for_preset(task, Preset::Default)
    }

    /// Defaults for a task in one of three sizes.
    pub fn for_preset(task: Task, preset: Preset) -> Self {
        let mut config = Self::for_model(task, ModelConfig::for_task(task, preset));
        config.training.epochs = preset.scaled(config.training.epochs);
        let versions = config.augmentation.versions as u64;
        config.augmentation.versions = preset.scaled(versions) as usize;
        // Now and then the gradient of a single mesh is so large that a wide network on surfaces hardly recovers from
        // it.
        if preset == Preset::Large && task != Task::Correspondence {
            config.training.clip = 1.0;
        }
        config
    }

    /// Defaults for a task and a model.
    pub fn for_model(task: Task, model: ModelConfig) -> Self {
        let recipe = model.recipe(task);
        Self {
            task,
            data: DataConfig::default(),
            split: SplitConfig::default(),
            features: recipe.features,
            geometry: recipe.geometry,
            augmentation: recipe.augmentation,
            training: TrainingConfig {
                batch: BatchSize::Meshes(recipe.batch),
                rate: recipe.rate,
                validation: recipe.validation,
                keep_best: recipe.validation > 0.0,
                ..TrainingConfig::default()
            },
            model,
        }
    }

    /// Reads a TOML file. A relative data folder is relative to the file.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, or an invalid value, with its line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = gemcnn_mesh::read_text(path).map_err(TaskError::file(path))?;
        let mut config = Self::parse(&text).map_err(|error| match error {
            TaskError::Setting { problem, .. } => TaskError::at(path, problem),
            other => other,
        })?;
        if let Some(folder) = config.folder_mut() {
            *folder = path.parent().unwrap_or(Path::new("")).join(&*folder);
        }
        Ok(config)
    }

    /// Reads TOML. What is not there has the defaults of the task and the model.
    ///
    /// # Errors
    /// An unknown key or an invalid value, with its line.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |error: toml::de::Error| TaskError::setting("configuration", error.to_string());
        let given: RawConfig = toml::from_str(text).map_err(refuse)?;
        let tables: toml::Table = toml::from_str(text).map_err(refuse)?;
        let defaults = match (given.model, given.preset) {
            (Some(_), Some(_)) => {
                let problem = "a preset chooses the model; remove it, or the table [model]";
                return Err(TaskError::setting("preset", problem));
            }
            (Some(model), None) => Self::for_model(given.task, model),
            (None, preset) => Self::for_preset(given.task, preset.unwrap_or_default()),
        };
        Ok(Self {
            data: given.data,
            split: given.split,
            features: given.features.unwrap_or(defaults.features),
            geometry: over(defaults.geometry, tables.get("geometry"))?,
            augmentation: over(defaults.augmentation, tables.get("augmentation"))?,
            training: over(defaults.training, tables.get("training"))?,
            ..defaults
        })
    }

    /// The configuration as TOML, with all defaults filled in.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| TaskError::setting("configuration", error.to_string()))
    }

    /// The configuration as a JSON object, with all defaults filled in.
    pub fn to_json(&self) -> Result<Value> {
        serde_json::to_value(self).map_err(|error| TaskError::setting("configuration", error.to_string()))
    }

    /// The configuration with checked settings and absolute paths of the data folder and of a model to start from.
    ///
    /// # Errors
    /// The first invalid setting, with what is allowed, or an unknown current directory.
    pub fn checked(self) -> Result<Checked<Self>> {
        // A forgotten folder should not train on parts of bodies: they have to be asked for.
        let is_for_bodies = match self.task {
            Task::Correspondence => true,
            Task::Segmentation => self.data != DataConfig::default(),
            Task::Classification | Task::Regression => false,
        };
        if let DataConfig::Bodies(_) = self.data
            && !is_for_bodies
        {
            return Err(TaskError::setting(
                "data",
                format!(
                    "{} needs a folder of meshes (`--data DIR`, or `[data]` with `folder`); synthetic \
                     bodies are for correspondence, and in a configuration file for segmentation",
                    self.task
                ),
            ));
        }
        self.augmentation.check()?;
        self.training.check()?;
        self.anchored().map(Checked)
    }

    /// The same configuration with absolute paths of the data folder and of a model to start from.
    ///
    /// # Errors
    /// An unknown current directory.
    pub fn anchored(mut self) -> Result<Self> {
        let absolute = |path: &mut PathBuf| {
            *path = std::path::absolute(&*path).map_err(TaskError::file(&*path))?;
            Ok::<_, TaskError>(())
        };
        self.folder_mut().map(absolute).transpose()?;
        // Others are the names of bundled models.
        self.training.start.as_mut().filter(|path| path.exists()).map(absolute).transpose()?;
        Ok(self)
    }

    fn folder_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.data {
            DataConfig::Folder(folder) | DataConfig::Faust(folder) => Some(folder),
            DataConfig::Bodies(_) => None,
        }
    }

    /// Name for run directories: the data folder, or the task.
    pub fn name(&self) -> String {
        let folder = match &self.data {
            DataConfig::Folder(folder) | DataConfig::Faust(folder) => folder.file_name(),
            DataConfig::Bodies(_) => None,
        };
        match folder.and_then(|name| name.to_str()) {
            Some(name) => name.to_owned(),
            None => self.task.to_string(),
        }
    }

    /// The data set, divided as the settings say.
    ///
    /// # Errors
    /// As [`Dataset::open_split`] and [`Dataset::with_validation`].
    pub fn dataset(&self) -> Result<Dataset> {
        let dataset = Dataset::open_split(&self.data, &self.split, Some(self.task), self.training.strict)?;
        dataset.with_validation(self.training.validation)
    }

    /// Settings of the preparation of meshes for the model, with outputs at vertices.
    pub fn preparation(&self) -> Preparation {
        Preparation {
            features: self.features.clone(),
            geometry: self.geometry,
            gauge: self.model.gauge(),
            weights: self.model.weights(),
            hierarchy: self.model.hierarchy(),
            extras: self.model.extras(),
            per: Element::Vertex,
            rotation: None,
        }
    }
}

impl Checked<RunConfig> {
    /// The settings of the training loop.
    pub fn training(&self) -> Checked<TrainingConfig> {
        Checked(self.training.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fuzz::survivors;

    #[test]
    fn a_wrong_setting_of_a_model_is_named() {
        for (name, value) in [("dropout", "'much'"), ("blocks", "0.5"), ("channels", "[4]")] {
            let text = format!("task = 'segmentation'\n[model]\nkind = 'gem'\nscalars = 4\n{name} = {value}\n");
            let said = RunConfig::parse(&text).unwrap_err().to_string();
            assert!(said.contains(&format!("`gem`: {name}: ")) && !said.contains("usize"), "{said}");
        }
    }

    #[test]
    fn no_text_of_a_configuration_panics() {
        let seeds: Vec<String> = Task::ALL.iter().map(|&task| RunConfig::new(task).to_toml().unwrap()).collect();
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        let read = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            // Messages of TOML have several lines: only panics count here.
            let _ = RunConfig::parse(text).and_then(RunConfig::checked);
            Ok::<(), String>(())
        };
        survivors(&seeds, read);
    }

    #[test]
    fn presets_scale_the_defaults() {
        let numbers = |task: &str, preset: &str| {
            let text = format!("task = '{task}'\npreset = '{preset}'");
            let config = RunConfig::parse(&text).unwrap();
            let model = serde_json::to_value(&config.model).unwrap();
            let training = config.training;
            let versions = config.augmentation.versions as u64;
            let counts = [training.epochs, versions];
            (counts, model["channels"].clone(), training.clip)
        };
        for task in ["segmentation", "correspondence"] {
            let [small, default, large] = ["small", "default", "large"].map(|preset| numbers(task, preset));
            let of = |text: &str| RunConfig::parse(text).unwrap();
            let plain = of(&format!("task = '{task}'"));
            assert_eq!(default.0[0], plain.training.epochs);
            assert_eq!(small.0, default.0.map(|count| count / 2));
            assert_eq!(large.0, default.0.map(|count| 2 * count));
            assert_ne!(small.1, default.1);
            assert_ne!(large.1, default.1);
            let clips = if task == "segmentation" { 1.0 } else { 0.0 };
            assert_eq!([small.2, default.2, large.2], [0.0, 0.0, clips]);
        }
    }
}
