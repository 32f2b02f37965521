//! Predictions of single meshes of a data set, beside their targets.

use super::{Relabelled, check_elements, class_map};
use crate::data::{Cache, Dataset, PreparedSplit, Split, SurfaceFile};
use crate::predict::{MAX_PROBABILITIES, Prediction};
use crate::train::TrainedModel;
use crate::{Result, Sample, SampleSource, Task};
use gemcnn_mesh::{Frame, Mesh};
use gemcnn_nn::{FeatureType, Target, Workspace};

/// A mesh of a data set with its target and the prediction of a model.
#[derive(Debug, Clone)]
pub struct Assessment {
    /// Name of the mesh.
    pub name: String,
    /// The mesh.
    pub mesh: Mesh,
    /// Frames of its vertices.
    pub frames: Vec<Frame>,
    /// Type of the input features.
    pub kind: FeatureType,
    /// Input features of the vertices before scaling, row after row.
    pub features: Vec<f32>,
    /// The target, in classes of the model.
    pub target: Target,
    /// The prediction.
    pub prediction: Prediction,
    /// Segmentation with at most 64 classes: the probability of each class, row after row.
    pub probabilities: Option<Vec<f32>>,
}

impl Assessment {
    /// The prediction for a mesh file, without a target. Facts that the user should know are added to `notes`.
    ///
    /// # Errors
    /// A mesh that does not fit the model, or an output that is not finite.
    pub fn of_file(
        model: &TrainedModel,
        workspace: &mut Workspace<f32>,
        name: &str,
        file: SurfaceFile,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let sample = model.sample_with(name, &file.mesh, &file.fields)?;
        notes.extend(file.notes);
        notes.extend(model.ranges.iter().flat_map(|ranges| ranges.notes(&sample)));
        let mut features = sample.features.clone();
        model.scaling.undo(&mut features);
        Self::new(model, workspace, sample, features, file.mesh)
    }

    /// The prediction for a sample with scaled features; `features` are those before scaling.
    fn new(
        model: &TrainedModel,
        workspace: &mut Workspace<f32>,
        sample: Sample,
        features: Vec<f32>,
        mesh: Mesh,
    ) -> Result<Self> {
        let count = model.classes.as_ref().map_or(0, |classes| classes.count());
        let has_probabilities = model.config.task == Task::Segmentation && count <= MAX_PROBABILITIES;
        let (prediction, probabilities) = match has_probabilities {
            true => {
                let (classes, rows) = model.predict_probabilities(workspace, &sample)?;
                let per = model.per;
                (Prediction::Classes { per, classes }, Some(rows))
            }
            false => (model.predict(workspace, &sample)?, None),
        };
        Ok(Self {
            name: sample.name,
            mesh,
            frames: sample.hierarchy.graph().frames().to_vec(),
            kind: sample.kind,
            features,
            target: sample.target,
            prediction,
            probabilities,
        })
    }
}

/// Assesses the meshes of a split one by one.
#[derive(Debug)]
pub struct Assessor<'a> {
    dataset: &'a Dataset,
    split: Split,
    samples: PreparedSplit,
    classes: Option<Vec<u32>>,
}

impl<'a> Assessor<'a> {
    /// An assessor of a model with the classes of `model`.
    ///
    /// # Errors
    /// Data for another task or with unknown classes.
    pub fn new(model: &TrainedModel, dataset: &'a Dataset, split: Split, cache: &Cache) -> Result<Self> {
        check_elements(model, dataset)?;
        let preparation = model.preparation();
        Ok(Self {
            dataset,
            split,
            samples: dataset.split(split, &preparation, cache)?.with_memory(0),
            classes: class_map(model, dataset)?,
        })
    }

    /// Number of meshes.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// True if there are no meshes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Assesses a mesh.
    ///
    /// # Errors
    /// A mesh that cannot be loaded, or an output that is not finite.
    pub fn assess(&self, model: &TrainedModel, workspace: &mut Workspace<f32>, index: usize) -> Result<Assessment> {
        let source = Relabelled { source: &self.samples, classes: self.classes.clone(), geometry: None };
        let mut sample = source.load(index)?;
        let features = sample.features.clone();
        model.scaling.apply_limited(&sample.kind, &mut sample.features);
        sample.name = self.dataset.mesh_name(self.split, index).into();
        let mesh = self.dataset.mesh(self.split, index)?;
        Assessment::new(model, workspace, sample, features, mesh)
    }
}
