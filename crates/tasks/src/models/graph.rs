//! The isotropic baseline: the topology of the paper's network with graph convolutions.

use super::{DEPTHS, GemModel, Head, WIDTHS, within};
use crate::{Task, TaskError};
use gemcnn_nn::layers::{GlobalPool, Kernel, Nonlinearity, Regular};
use gemcnn_nn::{Aggregation, FeatureType, Network, NetworkConfig, WeightDecay};
use serde::{Deserialize, Serialize};

/// Settings of the model `graph`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphModel {
    /// Residual blocks of two convolutions; 3.
    pub blocks: usize,
    /// Scalars between and inside blocks. By default the number for which the network is nearest in
    /// parameters to the [`GemModel`] with the same blocks, scalars and head, and defaults else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Scalars that the last block gives; 64.
    pub scalars: usize,
    /// Batch normalisation before each ReLU; yes.
    pub batch_norm: bool,
    /// Scalars between the two linear maps of the head; 256. None and there is a single map.
    pub head: usize,
    /// Dropout in the head; 0.5.
    pub dropout: f64,
    /// Pooling for whole-mesh tasks; the mean.
    pub pool: GlobalPool,
    /// Which weights decay; those of the head.
    pub decay: WeightDecay,
}

impl Default for GraphModel {
    fn default() -> Self {
        Self::like(&GemModel::default())
    }
}

impl GraphModel {
    /// The same topology, without a width yet.
    fn like(gem: &GemModel) -> Self {
        Self {
            blocks: gem.blocks,
            width: None,
            scalars: gem.scalars,
            batch_norm: gem.batch_norm,
            head: gem.head,
            dropout: gem.dropout,
            pool: gem.pool,
            decay: gem.decay,
        }
    }

    /// The model with the topology of a [`GemModel`] and the width for which it is nearest in parameters,
    /// for input of a type.
    ///
    /// # Errors
    /// Settings of the model that make no sense, or input that is not scalar.
    pub fn matching(gem: &GemModel, input: &FeatureType) -> Result<Self, TaskError> {
        // Both end with the same last map, so that one output tells the difference for any number.
        let output = FeatureType::scalars(1);
        let target = gem.network(input, Task::Segmentation, &output)?;
        let target = target.parameter_count()?;
        let with = |width: usize| Self {
            width: Some(width),
            ..Self::like(gem)
        };
        let count = |width: usize| -> Result<usize, TaskError> {
            let network = with(width).network(input, Task::Segmentation, &output)?;
            Ok(network.parameter_count()?)
        };
        let (mut low, mut high) = (1, 1);
        while count(high)? < target {
            (low, high) = (high, 2 * high);
        }
        while low < high {
            let middle = (low + high) / 2;
            match count(middle)? < target {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let mut nearest = (usize::MAX, low);
        // One more on both sides, since a width that equals the input's saves a map.
        for width in low.saturating_sub(2).max(1)..=low + 1 {
            let distance = count(width)?.abs_diff(target);
            nearest = nearest.min((distance, width));
        }
        Ok(with(nearest.1))
    }

    /// The network, as [`ModelConfig::network`](super::ModelConfig::network).
    ///
    /// # Errors
    /// Settings, types and tasks that do not go together, with what to change.
    pub fn network(
        &self,
        input: &FeatureType,
        task: Task,
        outputs: &FeatureType,
    ) -> Result<NetworkConfig, TaskError> {
        if !input.is_scalar() {
            return Err(TaskError::setting(
                format!("model: graph on features of type {input}"),
                "graph convolutions know scalars only; use the features `xyz` or `shot`, or another model",
            ));
        }
        let Some(width) = self.width else {
            let gem = GemModel {
                blocks: self.blocks,
                scalars: self.scalars,
                head: self.head,
                ..GemModel::default()
            };
            let width = Self::matching(&gem, input)?.width;
            let matched = Self {
                width,
                ..self.clone()
            };
            return matched.network(input, task, outputs);
        };
        within("blocks", self.blocks, DEPTHS)?;
        within("width", width, WIDTHS)?;
        within("scalars", self.scalars, WIDTHS)?;
        let hidden = FeatureType::scalars(width);
        let act = scalar_relu(self.batch_norm);
        let mut network = Network::builder(input.clone())
            .weight_decay(self.decay)
            .aggregation(Aggregation::Mean)
            .kernel(Kernel::Graph);
        for _ in 1..self.blocks {
            network = network.residual_through(&hidden, &hidden, act.clone());
        }
        let last = FeatureType::scalars(self.scalars);
        network = network.residual_through(&hidden, &last, act);
        let head = Head {
            width: self.head,
            dropout: self.dropout,
            pool: self.pool,
        };
        head.add(network, task, outputs)
    }
}

/// ReLU of scalars, after a batch normalisation on request: of scalars one sample says all.
pub(super) fn scalar_relu(batch_norm: bool) -> Nonlinearity {
    Regular {
        batch_norm,
        ..Regular::relu(1)
    }
    .into()
}
