//! The configuration of a run.

use super::settings::TrainingConfig;
use crate::data::{Augmentation, DataConfig, GeometrySettings, Preparation};
use crate::{FeatureConfig, ModelConfig, Task, TaskError};
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
    /// Input features (default: positions).
    #[serde(default)]
    pub features: FeatureConfig,
    /// Normals and neighbourhoods.
    #[serde(default)]
    pub geometry: GeometrySettings,
    /// Augmentation of the training meshes (default: none).
    #[serde(default)]
    pub augmentation: Augmentation,
    /// The model (default: the paper's network).
    #[serde(default)]
    pub model: ModelConfig,
    /// Settings of the training loop.
    #[serde(default)]
    pub training: TrainingConfig,
}

impl RunConfig {
    /// Defaults for a task.
    pub fn new(task: Task) -> Self {
        Self {
            task,
            data: DataConfig::default(),
            features: FeatureConfig::default(),
            geometry: GeometrySettings::default(),
            augmentation: Augmentation::default(),
            model: ModelConfig::default(),
            training: TrainingConfig::default(),
        }
    }

    /// Reads a TOML file. A relative data folder is relative to the file.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, or an invalid value, with its line.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let text = std::fs::read_to_string(path).map_err(TaskError::file(path))?;
        let mut config = Self::parse(&text).map_err(|error| match error {
            TaskError::Setting { problem, .. } => {
                TaskError::setting(path.display().to_string(), problem)
            }
            other => other,
        })?;
        if let Some(folder) = config.folder_mut() {
            *folder = path.parent().unwrap_or(Path::new("")).join(&*folder);
        }
        Ok(config)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// An unknown key or an invalid value, with its line.
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        toml::from_str(text).map_err(|error| TaskError::setting("configuration", error.to_string()))
    }

    /// The configuration as TOML, with all defaults filled in.
    ///
    /// # Errors
    /// Settings that cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, TaskError> {
        toml::to_string(self)
            .map_err(|error| TaskError::setting("configuration", error.to_string()))
    }

    /// The configuration as a JSON object, with all defaults filled in.
    ///
    /// # Errors
    /// Settings that cannot be written as JSON.
    pub fn to_json(&self) -> Result<Value, TaskError> {
        serde_json::to_value(self)
            .map_err(|error| TaskError::setting("configuration", error.to_string()))
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first invalid setting, with what is allowed.
    pub fn check(&self) -> Result<(), TaskError> {
        if let DataConfig::Bodies(_) = self.data
            && self.task != Task::Correspondence
        {
            return Err(TaskError::setting(
                "data",
                format!(
                    "{} needs a folder of meshes (`--data DIR`, or `[data]` with `folder`); synthetic \
                     bodies are for correspondence only",
                    self.task
                ),
            ));
        }
        self.training.check()
    }

    /// The same configuration with an absolute path of the data folder.
    ///
    /// # Errors
    /// An unknown current directory.
    pub fn anchored(mut self) -> Result<Self, TaskError> {
        if let Some(folder) = self.folder_mut() {
            *folder = std::path::absolute(&*folder).map_err(TaskError::file(&*folder))?;
        }
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

    /// Settings of the preparation of meshes for the model.
    pub fn preparation(&self) -> Preparation {
        Preparation {
            features: self.features.clone(),
            geometry: self.geometry,
            gauge: self.model.gauge(),
            weights: self.model.weights(),
            hierarchy: self.model.hierarchy(),
            eigenvectors: self.model.eigenvectors(),
            implicit: self.model.implicit(),
            rotation: None,
        }
    }
}
