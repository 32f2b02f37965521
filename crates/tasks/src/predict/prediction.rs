//! Predictions of a model.

use crate::data::connected;
use crate::features::Fields;
use crate::train::TrainedModel;
use crate::{Sample, Task, TaskError};
use gemcnn_mesh::Mesh;
use gemcnn_nn::{FeatureType, Tape, Target, Workspace};

/// Largest number of classes whose probabilities are shown or stored for each vertex of a mesh.
pub(crate) const MOST_PROBABILITIES: usize = 64;

/// Prediction of a model for a mesh.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// A class for each vertex.
    VertexClasses(Vec<u32>),
    /// A class for the whole mesh.
    MeshClass {
        /// The most probable class.
        class: u32,
        /// Probabilities of all classes; their sum is 1.
        probabilities: Vec<f32>,
    },
    /// Values for each vertex, as features in the frames of the vertices.
    VertexValues {
        /// Type of each row.
        kind: FeatureType,
        /// Row after row.
        values: Vec<f32>,
    },
}

impl TrainedModel {
    /// Prepares a mesh without fields for the model: geometry and scaled features. The name is for messages.
    ///
    /// # Errors
    /// Geometry or features that cannot be computed.
    pub fn sample(&self, name: &str, mesh: &Mesh) -> Result<Sample, TaskError> {
        self.sample_with(name, mesh, &Fields::default())
    }

    /// Prepares a mesh with the fields that the features of the model read from files. The points of a cloud are connected to a
    /// surface.
    ///
    /// # Errors
    /// Geometry or features that cannot be computed, or a field that is not there.
    pub fn sample_with(
        &self,
        name: &str,
        mesh: &Mesh,
        fields: &Fields,
    ) -> Result<Sample, TaskError> {
        let surface = connected(mesh)?;
        let mesh = surface.as_ref().unwrap_or(mesh);
        let preparation = self.config.preparation();
        let mut prepared = preparation.prepare_with(name, mesh, fields)?;
        self.scaling.apply(&mut prepared.features);
        let kind = preparation.features.kind();
        if let Some(at) = prepared.features.iter().position(|v| !v.is_finite()) {
            let vertex = at / kind.dimension().max(1);
            let problem = format!(
                "the features of vertex {vertex} are too large for single precision; scale the mesh to the size \
                 of the training meshes"
            );
            return Err(TaskError::setting(name, problem));
        }
        Ok(Sample {
            name: name.into(),
            graph: prepared.graph,
            hierarchy: prepared.hierarchy,
            spectra: prepared.spectra,
            heat: prepared.heat,
            patches: prepared.patches,
            areas: prepared.areas,
            kind,
            features: prepared.features,
            target: Target::Unknown,
        })
    }

    /// Prediction of the model for a sample with scaled features.
    ///
    /// # Errors
    /// A sample that does not fit the model, outputs that are not finite, or a failed GPU operation.
    pub fn predict(
        &self,
        workspace: &mut Workspace<f32>,
        sample: &Sample,
    ) -> Result<Prediction, TaskError> {
        let graphs = sample.graphs()?;
        let levels = (&graphs).into();
        let mut tape = Tape::inference(workspace, &self.parameters);
        let x = tape.input(self.network.input().clone(), &sample.features)?;
        if let Task::Segmentation | Task::Correspondence = self.config.task {
            let classes = self.network.predict_classes(&mut tape, levels, x)?;
            return Ok(Prediction::VertexClasses(classes));
        }
        let outputs = self.network.forward(&mut tape, levels, x)?;
        let mut values = outputs.values()?.into_owned();
        if let Some(scaling) = &self.target_scaling {
            scaling.undo(&mut values);
        }
        check_finite(&sample.name, &values)?;
        Ok(match self.config.task {
            Task::Classification => {
                let probabilities = softmax(&values);
                Prediction::MeshClass {
                    class: first_largest(&probabilities),
                    probabilities,
                }
            }
            _ => Prediction::VertexValues {
                kind: self.network.output().clone(),
                values,
            },
        })
    }

    /// The class of each vertex and the probability of each class, vertex after vertex, of a model for segmentation.
    ///
    /// # Errors
    /// As [`predict`](Self::predict), or a model for another task.
    pub fn predict_probabilities(
        &self,
        workspace: &mut Workspace<f32>,
        sample: &Sample,
    ) -> Result<(Vec<u32>, Vec<f32>), TaskError> {
        if self.config.task != Task::Segmentation {
            let problem = format!(
                "a model for {} has no probabilities of vertices",
                self.config.task
            );
            return Err(TaskError::setting("probabilities", problem));
        }
        let graphs = sample.graphs()?;
        let mut tape = Tape::inference(workspace, &self.parameters);
        let x = tape.input(self.network.input().clone(), &sample.features)?;
        let outputs = self.network.forward(&mut tape, (&graphs).into(), x)?;
        let values = outputs.values()?;
        check_finite(&sample.name, &values)?;
        let rows = values.chunks_exact(self.network.output().dimension().max(1));
        let classes = rows.clone().map(first_largest).collect();
        Ok((classes, rows.flat_map(softmax).collect()))
    }
}

fn check_finite(name: &str, values: &[f32]) -> Result<(), TaskError> {
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(()),
        false => Err(TaskError::setting(
            name,
            "the output of the model is not finite",
        )),
    }
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|logit| (logit - peak).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn first_largest(values: &[f32]) -> u32 {
    let mut best = 0;
    for (place, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = place;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_for_any_logits() {
        let probabilities = softmax(&[1000.0, 999.0, -1000.0]);
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((probabilities[0] / probabilities[1] - 1f32.exp()).abs() < 1e-4);
        assert_eq!(first_largest(&[0.2, 0.5, 0.5]), 1);
    }
}
