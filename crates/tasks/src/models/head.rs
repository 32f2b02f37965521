//! The last layers of a model: from scalars of vertices to the output of the task.

use super::{ModelSpec, WIDTHS, within};
use crate::{Element, Result, Task, TaskError};
use gemcnn_nn::layers::GlobalPool;
use gemcnn_nn::{Activation, NetworkConfig, Real};

/// Two linear layers with ReLU and dropout between them, for each vertex, face, edge or mesh. Faces and edges have the
/// mean of the features of their vertices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// Hidden channels. `0` makes the head a single linear layer.
    pub width: usize,
    /// Dropout probability of the hidden channels.
    pub dropout: f64,
    /// Pooling over the vertices of a mesh, for outputs of whole meshes.
    pub pool: GlobalPool,
}

impl Head {
    /// Adds the layers to a network with scalar output for each vertex.
    ///
    /// # Errors
    /// Outputs that are not scalars, no outputs, or a setting out of range.
    pub fn add<T: Real>(&self, mut network: NetworkConfig<T>, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        let ModelSpec { task, outputs, .. } = spec;
        if !outputs.is_scalar() {
            return Err(TaskError::setting(
                format!("{task} of {outputs}"),
                "outputs of order above 0 cannot be computed from scalars; use the model `gem`, `unet`, `attention` \
                 or `hermes`, without broken symmetry",
            ));
        }
        if outputs.dimension() == 0 {
            return Err(TaskError::setting(task.to_string(), "the output type has no components"));
        }
        within("head", self.width, 0..=*WIDTHS.end())?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(TaskError::setting(
                "model: dropout",
                format!("{} is out of range: must be at least 0 and below 1", self.dropout),
            ));
        }
        network = match spec.per {
            Element::Vertex => network,
            Element::Face | Element::Edge => network.element_mean(),
            Element::Mesh => network.global_pool(self.pool),
        };
        if self.width > 0 {
            network = network.linear(self.width).activation(Activation::Relu);
        }
        if self.dropout > 0.0 {
            network = network.dropout(self.dropout);
        }
        Ok(network.linear(outputs.dimension()))
    }
}

/// True if the outputs have orders above 0 and rotate with the frames, so that a convolution has to compute
/// them.
pub(super) fn rotates_with_frames(spec: &ModelSpec) -> Result<bool> {
    let ModelSpec { task, outputs, .. } = spec;
    match task {
        _ if outputs.is_scalar() => Ok(false),
        Task::Regression if spec.per == Element::Vertex => Ok(true),
        Task::Regression => {
            Err(TaskError::setting(format!("{task} of {outputs}"), "outputs of order above 0 are those of vertices"))
        }
        Task::Segmentation | Task::Correspondence | Task::Classification => Err(TaskError::setting(
            format!("{task} into {outputs}"),
            "classes are scalars; outputs of order above 0 are for regression",
        )),
    }
}
