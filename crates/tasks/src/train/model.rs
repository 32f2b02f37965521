//! The model file: everything needed to use a trained model on other meshes.

use super::checkpoint::WEIGHTS;
use super::config::RunConfig;
use super::run_directory::{MODEL, TEMPLATE};
use crate::data::Classes;
use crate::models::ModelSpec;
use crate::{FeatureScaling, Task, TaskError};
use gemcnn_mesh::Mesh;
use gemcnn_nn::{Archive, FeatureType, Module, Parameters};
use std::path::Path;

/// Key of the output type.
pub(super) const OUTPUT: &str = "output";
pub(super) const CONFIG: &str = "config";
pub(super) const CLASSES: &str = "classes";
pub(super) const SCALING: &str = "scaling";
pub(super) const TARGET_SCALING: &str = "target_scaling";

/// A trained model with its configuration and scaling.
#[derive(Debug)]
pub struct TrainedModel {
    /// Configuration of its run.
    pub config: RunConfig,
    /// Its classes; `None` in regression.
    pub classes: Option<Classes>,
    /// Scaling of input features.
    pub scaling: FeatureScaling,
    /// Scaling of target values; `None` if they are not scaled.
    pub target_scaling: Option<FeatureScaling>,
    /// The network.
    pub network: Box<dyn Module<f32>>,
    /// Its weights.
    pub parameters: Parameters<f32>,
    /// Correspondence: the mesh whose vertices are the classes, if its file is next to the model.
    pub template: Option<Mesh>,
}

impl TrainedModel {
    /// Reads a model from a run directory, or from a file such as `best.safetensors`.
    ///
    /// # Errors
    /// A run that is not finished, or a file that is not a model.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let file = match path.is_dir() {
            true => path.join(MODEL),
            false => path.into(),
        };
        if path.is_dir() && !file.exists() {
            return Err(TaskError::setting(
                path.display().to_string(),
                format!(
                    "no trained model: there is no file {MODEL}; if training was stopped, \
                     continue with `gemcnn train --resume`"
                ),
            ));
        }
        Self::from_archive(&Archive::read(&file)?, &file)
    }

    /// The model of an archive. `file` is where it is stored, or would be: the template of a correspondence is beside
    /// it.
    ///
    /// # Errors
    /// An archive that is not a model, or a template that cannot be read.
    pub fn from_archive(archive: &Archive, file: &Path) -> Result<Self, TaskError> {
        let template = file.with_file_name(TEMPLATE);
        let config: RunConfig = archive.json(CONFIG)?;
        let output: String = archive.json(OUTPUT)?;
        let output: FeatureType = output
            .parse()
            .map_err(|error| TaskError::setting(file.display().to_string(), format!("{error}")))?;
        let spec = ModelSpec {
            input: config.features.kind(),
            task: config.task,
            outputs: output,
        };
        let (network, mut parameters) = config.model.init(&spec, config.training.seed)?;
        parameters.load(archive, WEIGHTS)?;
        let classes: Option<Classes> = archive.json(CLASSES)?;
        let outputs = network.output().dimension();
        if let Some(classes) = &classes
            && classes.count() != outputs
        {
            let problem = format!("{outputs} outputs for {} classes", classes.count());
            return Err(TaskError::setting(file.display().to_string(), problem));
        }
        let has_template = config.task == Task::Correspondence && template.exists();
        Ok(Self {
            config,
            classes,
            scaling: archive.json(SCALING)?,
            target_scaling: archive.json(TARGET_SCALING)?,
            network,
            parameters,
            template: match has_template {
                true => Some(Mesh::read(&template)?),
                false => None,
            },
        })
    }
}
