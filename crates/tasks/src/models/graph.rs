//! The isotropic baseline: the architecture of the paper's network with graph convolutions.

use super::{DEPTHS, GemModel, Head, Model, ModelSpec, WIDTHS, within};
use crate::registry::settings;
use crate::{Element, Result, Task, TaskError};
use gemcnn_nn::layers::{GlobalPool, Isotropic, Regular};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};

settings! {
    /// Settings of the model `graph`.
    GraphModel = "graph" {
        /// Residual blocks of two convolutions (default 3).
        blocks: usize = 3,
        /// Scalar channels between and inside blocks. By default it is chosen so that the number of parameters is
        /// closest to that of the [`GemModel`] with the same blocks, scalars and head, and otherwise default settings.
        #[serde(skip_serializing_if = "Option::is_none")]
        width: Option<usize> = None,
        /// Scalar channels of the last block (default 64).
        scalars: usize = 64,
        /// Batch normalisation before each ReLU (default true).
        batch_norm: bool = true,
        /// Hidden channels of the head (default 256). `0` makes the head a single linear layer.
        head: usize = 256,
        /// Dropout probability in the head (default 0.5).
        dropout: f64 = 0.5,
        /// Pooling for whole-mesh tasks (default: mean).
        pool: GlobalPool = GlobalPool::Mean,
        /// Weights that weight decay acts on (default: those of the head).
        decay: WeightDecay = WeightDecay::Linear,
    }
}

impl GraphModel {
    /// The model with the architecture of a [`GemModel`] and the width for which the number of parameters is
    /// closest to it, for an input type.
    pub fn matching(gem: &GemModel, input: &FeatureType) -> Result<Self> {
        // Both have the same last layer, so the difference does not depend on the number of outputs.
        let spec = ModelSpec {
            input: input.clone(),
            task: Task::Segmentation,
            per: Element::Vertex,
            outputs: FeatureType::scalars(1),
        };
        let trained = |network: NetworkConfig<f32>| -> Result<usize> { Ok(network.init(0)?.1.trained_count()) };
        let target = trained(gem.network(&spec)?)?;
        let with = |width: usize| Self {
            blocks: gem.blocks,
            width: Some(width),
            scalars: gem.scalars,
            batch_norm: gem.batch_norm,
            head: gem.head,
            dropout: gem.dropout,
            pool: gem.pool,
            decay: gem.decay,
        };
        let count = |width: usize| -> Result<usize> { trained(with(width).network(&spec)?) };
        let (mut low, mut high) = (1, 1);
        while count(high)? < target {
            (low, high) = (high, 2 * high);
        }
        while low < high {
            let middle = (low + high) / 2;
            if count(middle)? < target { low = middle + 1 } else { high = middle }
        }
        let mut nearest = (usize::MAX, low);
        // The count is not monotonic: a width equal to that of the input needs no linear map in the skip connection.
        for width in low.saturating_sub(2).max(1)..=low + 1 {
            let distance = count(width)?.abs_diff(target);
            nearest = nearest.min((distance, width));
        }
        Ok(with(nearest.1))
    }

    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        let input = &spec.input;
        if !input.is_scalar() {
            return Err(TaskError::setting(
                format!("model: graph on features of type {input}"),
                "graph convolutions take scalars only; use the features `xyz` or `shot`, or another model",
            ));
        }
        let Some(width) = self.width else {
            let gem = GemModel { blocks: self.blocks, scalars: self.scalars, head: self.head, ..GemModel::default() };
            let width = Self::matching(&gem, input)?.width;
            let matched = Self { width, ..self.clone() };
            return matched.network(spec);
        };
        within("blocks", self.blocks, DEPTHS)?;
        within("width", width, WIDTHS)?;
        within("scalars", self.scalars, WIDTHS)?;
        let hidden = FeatureType::scalars(width);
        let act = scalar_relu(self.batch_norm);
        let mut network =
            Network::builder(input.clone()).weight_decay(self.decay).aggregation(Aggregation::Mean).kernel(Isotropic);
        for _ in 1..self.blocks {
            network = network.residual_through(&hidden, &hidden, act.clone());
        }
        let last = FeatureType::scalars(self.scalars);
        network = network.residual_through(&hidden, &last, act);
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

/// ReLU of scalars, after an optional batch normalisation. Scalars need only one sample.
pub(super) fn scalar_relu(batch_norm: bool) -> Regular {
    Regular { batch_norm, ..Regular::relu(1) }
}

impl Model for GraphModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }
}
