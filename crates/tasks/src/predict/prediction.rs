//! Predictions of a model.

use super::tiles::Tiles;
use crate::data::{Preparation, connected};
use crate::features::Fields;
use crate::train::TrainedModel;
use crate::{Element, Result, Sample, Task, TaskError};
use gemcnn_mesh::surface::SurfaceOperators;
use gemcnn_mesh::{GaugeGraph, Mesh};
use gemcnn_nn::{FeatureType, Levels, Tape, Var, Workspace};

/// Largest number of classes whose probabilities are shown or stored for each row of a mesh.
pub(crate) const MAX_PROBABILITIES: usize = 64;

/// Vertices of a tile, without those around it.
pub(super) const TILE: usize = 1 << 15;
/// Largest number of vertices of a mesh that is not divided into tiles.
pub(super) const UNDIVIDED: usize = 4 * TILE;

/// Prediction of a model for a mesh.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// A class for each vertex, face or edge.
    Classes {
        /// What the classes are for.
        per: Element,
        /// One for each of these.
        classes: Vec<u32>,
    },
    /// A class for the whole mesh.
    MeshClass {
        /// The most probable class.
        class: u32,
        /// Probabilities of all classes; their sum is 1.
        probabilities: Vec<f32>,
    },
    /// Values for each vertex, face or edge, or for the whole mesh. Those of vertices are features in their frames.
    Values {
        /// What the values are for.
        per: Element,
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
    pub fn sample(&self, name: &str, mesh: &Mesh) -> Result<Sample> {
        self.sample_with(name, mesh, &Fields::default())
    }

    /// Prepares a mesh with the fields that the features of the model read from files. The points of a cloud are
    /// connected to a surface.
    ///
    /// # Errors
    /// Geometry or features that cannot be computed, or a field that is not there.
    pub fn sample_with(&self, name: &str, mesh: &Mesh, fields: &Fields) -> Result<Sample> {
        self.check_memory(name, mesh.vertex_count())?;
        let surface = connected(mesh)?;
        let mesh = surface.as_ref().unwrap_or(mesh);
        let sample = self.preparation().prepare_with(name, mesh, fields)?;
        self.scaled(sample)
    }

    /// Prepares a mesh whose frames and operators are known, for a model without coarser graphs. The mesh has unit area,
    /// and the operators have as many eigenvectors as [`Preparation::eigenpairs`].
    ///
    /// # Errors
    /// Features that cannot be computed.
    pub fn sample_on(
        &self,
        name: &str,
        mesh: &Mesh,
        graph: &GaugeGraph,
        operators: &SurfaceOperators,
    ) -> Result<Sample> {
        let hierarchy = graph.clone().into();
        self.scaled(self.preparation().assemble(name, mesh, hierarchy, None, Some(operators), &Fields::default())?)
    }

    /// A sample with scaled features.
    fn scaled(&self, mut sample: Sample) -> Result<Sample> {
        self.scaling.apply_limited(&sample.kind, &mut sample.features);
        if let Some(at) = sample.features.iter().position(|v| !v.is_finite()) {
            let vertex = at / sample.kind.dimension().max(1);
            let problem = format!(
                "the features of vertex {vertex} are too large for single precision; scale the mesh to the size \
                 of the training meshes"
            );
            return Err(TaskError::setting(sample.name, problem));
        }
        Ok(sample)
    }

    /// Prediction of the model for a sample with scaled features.
    ///
    /// # Errors
    /// A sample that does not fit the model, outputs that are not finite, or a failed GPU operation.
    pub fn predict(&self, workspace: &mut Workspace<f32>, sample: &Sample) -> Result<Prediction> {
        if let Task::Segmentation | Task::Correspondence = self.config.task {
            let per = self.per;
            let classes = self
                .rows(workspace, sample, 1, |tape, levels, x| Ok(self.network.predict_classes(tape, levels, x)?))?;
            return Ok(Prediction::Classes { per, classes });
        }
        let mut values = self.outputs(workspace, sample)?;
        if let Some(scaling) = &self.target_scaling {
            scaling.undo(&mut values);
        }
        check_finite(&sample.name, &values)?;
        Ok(match self.config.task {
            Task::Classification => {
                softmax(&mut values);
                Prediction::MeshClass { class: first_largest(&values), probabilities: values }
            }
            _ => Prediction::Values { per: self.per, kind: self.network.output().clone(), values },
        })
    }

    /// The class of each vertex, face or edge and the probability of each class, row after row, of a model for
    /// segmentation.
    ///
    /// # Errors
    /// As [`predict`](Self::predict), or a model for another task.
    pub fn predict_probabilities(
        &self,
        workspace: &mut Workspace<f32>,
        sample: &Sample,
    ) -> Result<(Vec<u32>, Vec<f32>)> {
        if self.config.task != Task::Segmentation {
            let problem =
                format!("a model for {} has no probabilities of classes of vertices, faces or edges", self.config.task);
            return Err(TaskError::setting("probabilities", problem));
        }
        let mut values = self.outputs(workspace, sample)?;
        check_finite(&sample.name, &values)?;
        let width = self.network.output().dimension().max(1);
        let classes = values.chunks_exact(width).map(first_largest).collect();
        values.chunks_exact_mut(width).for_each(softmax);
        Ok((classes, values))
    }

    /// What the last linear layer reads: the features of each vertex by which the model tells classes apart. Returns
    /// their number and row after row.
    ///
    /// # Errors
    /// As [`predict`](Self::predict), or a model without a last linear layer.
    pub fn embedding(&self, workspace: &mut Workspace<f32>, sample: &Sample) -> Result<(usize, Vec<f32>)> {
        let Some((body, _)) = self.network.split_head() else {
            return Err(TaskError::setting("embedding", "the model does not end with a linear layer"));
        };
        let width = body.output().dimension();
        let values = self.rows(workspace, sample, width, |tape, levels, x| {
            Ok(body.forward(tape, levels, x)?.values()?.into_owned())
        })?;
        check_finite(&sample.name, &values)?;
        Ok((width, values))
    }

    /// The outputs of the network for each row.
    fn outputs(&self, workspace: &mut Workspace<f32>, sample: &Sample) -> Result<Vec<f32>> {
        let width = self.network.output().dimension();
        self.rows(workspace, sample, width, |tape, levels, x| {
            let outputs = self.network.forward(tape, levels, x)?;
            Ok(outputs.values()?.into_owned())
        })
    }

    /// What `run` makes of the features of a sample, `width` numbers for each row of the output. A large mesh is
    /// divided into tiles if the network allows it.
    fn rows<R: Copy + Default + Send>(
        &self,
        workspace: &mut Workspace<f32>,
        sample: &Sample,
        width: usize,
        run: impl for<'t> Fn(&mut Tape<'t, f32>, Levels<'t, f32>, Var<f32>) -> Result<Vec<R>> + Sync,
    ) -> Result<Vec<R>> {
        let device = workspace.device().clone();
        let mut run = |sample: &Sample| {
            let geometry = sample.geometry()?;
            device.run(|| {
                let mut tape = Tape::inference(workspace, &self.parameters);
                let x = tape.input(self.network.input().clone(), &sample.features)?;
                run(&mut tape, (&geometry).into(), x)
            })
        };
        let is_large = sample.graph().vertex_count() > UNDIVIDED;
        let Some(reach) = self.reach().filter(|_| is_large) else { return run(sample) };
        let mut all = vec![R::default(); sample.row_count() * width];
        for tile in Tiles::new(sample, reach, TILE) {
            let tile = tile?;
            let found = run(&tile.sample)?;
            for (row, place) in tile.rows {
                let [row, place] = [row, place].map(|row| row as usize * width);
                all[row..row + width].copy_from_slice(&found[place..place + width]);
            }
        }
        Ok(all)
    }

    /// The rings that the network reaches; `None` if it needs more of a mesh than its graph.
    pub(super) fn reach(&self) -> Option<usize> {
        let Preparation { hierarchy, extras, .. } = self.config.preparation();
        self.network.reach().filter(|_| hierarchy.is_none() && extras.is_empty())
    }
}

fn check_finite(name: &str, values: &[f32]) -> Result<()> {
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(()),
        false => Err(TaskError::setting(name, "the output of the model is not finite")),
    }
}

/// Replaces logits by probabilities.
fn softmax(logits: &mut [f32]) {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter_mut().for_each(|logit| *logit = (*logit - peak).exp());
    let sum: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|power| *power /= sum);
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
        let mut probabilities = [1000.0, 999.0, -1000.0];
        softmax(&mut probabilities);
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((probabilities[0] / probabilities[1] - 1f32.exp()).abs() < 1e-4);
        assert_eq!(first_largest(&[0.2, 0.5, 0.5]), 1);
    }
}
