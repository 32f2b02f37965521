//! Attention over neighbours with gauge equivariant kernels, in the blocks of the paper's network.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, NonlinearityChoice, ORDERS, WIDTHS, within};
use crate::registry::settings;
use crate::{Result, TaskError};
use gemcnn_nn::layers::{Attention, Gauge, GlobalPool};
use gemcnn_nn::{Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};

settings! {
    /// Settings of the model `attention`: the blocks of [`GemModel`](super::GemModel) with attention in the place of
    /// convolutions.
    AttentionModel = "attention" {
        /// Residual blocks of two layers of attention (default 3).
        blocks: usize = 3,
        /// Channels of each order, between and inside blocks (default 16).
        channels: usize = 16,
        /// Highest order (default 2).
        band_limit: usize = 2,
        /// Heads of each layer (default 2). They divide `channels` and `scalars`.
        heads: usize = 2,
        /// Scalar channels of the last block (default 64).
        scalars: usize = 64,
        /// Nonlinearity after each layer of attention (default: regular).
        nonlinearity: NonlinearityChoice = NonlinearityChoice::Regular,
        /// Samples of the regular nonlinearity (default `2 band_limit + 1`).
        #[serde(skip_serializing_if = "Option::is_none")]
        samples: Option<usize> = None,
        /// Batch normalisation inside nonlinearities (default true).
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

impl AttentionModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("blocks", self.blocks, DEPTHS)?;
        within("channels", self.channels, WIDTHS)?;
        within("scalars", self.scalars, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        within("samples", self.samples.unwrap_or(1), WIDTHS)?;
        within("heads", self.heads, WIDTHS)?;
        for (name, count) in [("channels", self.channels), ("scalars", self.scalars)] {
            if !count.is_multiple_of(self.heads) {
                return Err(TaskError::setting(
                    "model: heads",
                    format!("{} heads do not divide `{name} = {count}`", self.heads),
                ));
            }
        }
        let rotates = rotates_with_frames(spec)?;
        let hidden = FeatureType::uniform(self.channels, self.band_limit);
        let act = (self.nonlinearity).with(self.band_limit, self.samples, self.batch_norm);
        let mut network =
            Network::builder(spec.input.clone()).weight_decay(self.decay).kernel(Attention { heads: self.heads });
        for _ in 1..self.blocks {
            network = network.block(Some(hidden.clone()), &hidden, act.clone());
        }
        let last = if rotates { hidden.clone() } else { FeatureType::scalars(self.scalars) };
        network = network.block(Some(hidden), &last, act);
        if rotates {
            return Ok(network.kernel(Gauge).conv(&spec.outputs));
        }
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

impl Model for AttentionModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }
}
