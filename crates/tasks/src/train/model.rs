//! The model file: everything needed to use a trained model on other meshes.

use super::bundled::BundledModel;
use super::checkpoint::WEIGHTS;
use super::config::RunConfig;
use super::ranges::TrainingRanges;
use super::run_directory::{MODEL, TEMPLATE};
use super::seal::{not_finite, read_sealed, sealed, unsealed};
use crate::data::{Classes, Preparation};
use crate::layout;
use crate::models::ModelSpec;
use crate::{Element, FeatureScaling, Result, Task, TaskError};
use gemcnn_mesh::{Mesh, write_atomically};
use gemcnn_nn::{Archive, FeatureType, Module, NnError, Parameters, Target};
use std::path::{Path, PathBuf};

/// Key of the output type.
pub(super) const OUTPUT: &str = "output";
/// Key of the number of completed epochs.
pub(super) const EPOCH: &str = "epoch";
/// Key of what a row of the output is for. Models of earlier versions do not have it.
pub(super) const PER: &str = "per";
pub(super) const CONFIG: &str = "config";
pub(super) const CLASSES: &str = "classes";
pub(super) const SCALING: &str = "scaling";
pub(super) const TARGET_SCALING: &str = "target_scaling";
pub(super) const RANGES: &str = "seen";

/// A trained model with its configuration and scaling.
#[derive(Debug)]
pub struct TrainedModel {
    /// Configuration of its run.
    pub config: RunConfig,
    /// What a row of its output is for.
    pub per: Element,
    /// Its classes; `None` in regression.
    pub classes: Option<Classes>,
    /// Scaling of input features.
    pub scaling: FeatureScaling,
    /// Scaling of target values; `None` if they are not scaled.
    pub target_scaling: Option<FeatureScaling>,
    /// Ranges of the training meshes, if they are known.
    pub ranges: Option<TrainingRanges>,
    /// The network.
    pub network: Box<dyn Module<f32>>,
    /// Its weights.
    pub parameters: Parameters<f32>,
    /// Correspondence: the mesh whose vertices are the classes, if its file is next to the model.
    pub template: Option<Mesh>,
}

impl TrainedModel {
    /// Reads a model from a run directory, or from a file such as `best.safetensors`. Where there is neither, the path
    /// may be the name of a [`BundledModel`].
    ///
    /// # Errors
    /// A run without a model, or a file that is not a whole model: damaged, with weights that are not finite, or with
    /// settings that do not fit its weights.
    pub fn read(path: &Path) -> Result<Self> {
        if let Some(bundled) = path.to_str().and_then(BundledModel::named)
            && !path.exists()
        {
            return bundled.open();
        }
        let file = Self::file_of(path);
        if path.is_dir() && !file.exists() {
            let problem = match path.join(layout::CONFIG).exists() {
                true => format!(
                    "no trained model: there is no file {MODEL} before the first evaluation; if training was killed, \
                     continue with `gemcnn train --resume`"
                ),
                false => format!(
                    "not a run directory: there is neither {MODEL} nor {}; give the directory that `gemcnn \
                     train` made, such as runs/NAME-1",
                    layout::CONFIG
                ),
            };
            return Err(TaskError::at(path, problem));
        }
        let model = read_sealed(&file).map_err(TaskError::from);
        let model = model.and_then(|archive| Self::from_archive(&archive, &file));
        model.map_err(|error| match error {
            // It is not the content that is bad.
            TaskError::Network(NnError::File { path, source }) => TaskError::File { path, source },
            other => TaskError::Model { path: file.clone(), source: Box::new(other) },
        })
    }

    /// The model file of a run directory, or the path itself if it is none.
    pub fn file_of(path: &Path) -> PathBuf {
        if path.is_dir() { path.join(MODEL) } else { path.into() }
    }

    /// The model in the bytes of a model file, without the template of a correspondence.
    ///
    /// # Errors
    /// Bytes that are not a whole model, as in [`read`](Self::read).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::without_template(&unsealed(Archive::from_bytes(bytes)?, Path::new(MODEL))?)
    }

    /// Writes the model of a run directory or file to another file, with other weights by name. All else stays:
    /// settings, classes, scaling, and the weights that are not given.
    ///
    /// # Errors
    /// A model that cannot be read, weights that it does not have, of another size or not finite, or a file that cannot
    /// be written.
    pub fn rewrite(path: &Path, file: &Path, weights: &[(&str, &[f32])]) -> Result<()> {
        let mut archive = read_sealed(&Self::file_of(path))?;
        for &(name, values) in weights {
            let stored = format!("{WEIGHTS}/{name}");
            let Some(shape) = archive.shape(&stored).map(<[usize]>::to_vec) else {
                return Err(TaskError::setting(name, "is no weight of the model"));
            };
            archive.set_tensor(stored, &shape, values)?;
        }
        if let Some(name) = not_finite(&archive)? {
            return Err(TaskError::setting(name, "has values that are not finite"));
        }
        let bytes = sealed(archive)?;
        write_atomically(file, |out| out.write_all(&bytes)).map_err(TaskError::file(file))
    }

    /// What it has learned.
    pub(crate) fn learned(&self) -> Target<&Classes, FeatureType> {
        match &self.classes {
            Some(classes) => Target::Classes(classes),
            None => Target::Values(self.network.output().clone()),
        }
    }

    /// Settings of the preparation of meshes for the model.
    pub fn preparation(&self) -> Preparation {
        Preparation { per: self.per, ..self.config.preparation() }
    }

    /// The model of an archive. `file` is where it is stored, or would be: the template of a correspondence is beside
    /// it.
    ///
    /// # Errors
    /// An archive that is not a model, or a template that cannot be read.
    pub fn from_archive(archive: &Archive, file: &Path) -> Result<Self> {
        let mut model = Self::without_template(archive)?;
        let template = file.with_file_name(TEMPLATE);
        if model.config.task == Task::Correspondence && template.exists() {
            model.template = Some(Mesh::read(&template)?);
        }
        Ok(model)
    }

    fn without_template(archive: &Archive) -> Result<Self> {
        let config: RunConfig = archive.json(CONFIG)?;
        let output: String = archive.json(OUTPUT)?;
        let per: Option<Element> = archive.json(PER)?;
        let per = per.unwrap_or(match config.task {
            Task::Classification => Element::Mesh,
            _ => Element::Vertex,
        });
        let spec = ModelSpec {
            input: config.features.kind(),
            task: config.task,
            per,
            outputs: output.parse::<FeatureType>().map_err(NnError::from)?,
        };
        let (network, parameters) = Parameters::stored(archive, WEIGHTS, |builder| config.model.build(&spec, builder))?;
        let classes: Option<Classes> = archive.json(CLASSES)?;
        let outputs = network.output().dimension();
        let fits = match &classes {
            Some(classes) => classes.count() == outputs,
            None => config.task == Task::Regression,
        };
        if !fits {
            let count = classes.map_or(0, |classes| classes.count());
            let problem = format!("{outputs} outputs for {count} classes");
            return Err(TaskError::setting(CLASSES, problem));
        }
        let scaling: FeatureScaling = archive.json(SCALING)?;
        let target_scaling: Option<FeatureScaling> = archive.json(TARGET_SCALING)?;
        scaling.check(SCALING, network.input())?;
        if let Some(scaling) = &target_scaling {
            scaling.check(TARGET_SCALING, network.output())?;
        }
        Ok(Self {
            config,
            per,
            classes,
            scaling,
            target_scaling,
            ranges: archive.json(RANGES)?,
            network,
            parameters,
            template: None,
        })
    }
}
