//! Nonlinear gauge equivariant messages.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, NonlinearityChoice, ORDERS, WIDTHS, within};
use crate::Result;
use crate::registry::settings;
use gemcnn_nn::layers::{GlobalPool, MessageBlockConfig};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};

settings! {
    /// Settings of the model `hermes`.
    HermesModel = "hermes" {
        /// Blocks of messages and updates (default 3).
        blocks: usize = 3,
        /// Channels of each order, of messages and between blocks (default 16).
        channels: usize = 16,
        /// Highest order (default 2).
        band_limit: usize = 2,
        /// Layers of the message function of each block (default 2).
        edge_layers: usize = 2,
        /// Layers of the update function of each block (default 2).
        node_layers: usize = 2,
        /// Scalar channels of the last block (default 64).
        scalars: usize = 64,
        /// Nonlinearity between the layers of the update function (default: regular). That of messages is always
        /// regular.
        nonlinearity: NonlinearityChoice = NonlinearityChoice::Regular,
        /// Samples of regular nonlinearities (default `2 band_limit + 1`).
        #[serde(skip_serializing_if = "Option::is_none")]
        samples: Option<usize> = None,
        /// Batch normalisation inside the nonlinearities of the update function (default true).
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

impl HermesModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("blocks", self.blocks, DEPTHS)?;
        within("edge_layers", self.edge_layers, DEPTHS)?;
        within("node_layers", self.node_layers, DEPTHS)?;
        within("channels", self.channels, WIDTHS)?;
        within("scalars", self.scalars, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        within("samples", self.samples.unwrap_or(1), WIDTHS)?;
        let rotates = rotates_with_frames(spec)?;
        let hidden = FeatureType::uniform(self.channels, self.band_limit);
        let block = |output: FeatureType| MessageBlockConfig {
            edge_layers: self.edge_layers,
            node_layers: self.node_layers,
            samples: self.samples.unwrap_or(2 * self.band_limit + 1),
            nonlinearity: (self.nonlinearity).with(self.band_limit, self.samples, self.batch_norm),
            ..MessageBlockConfig::new(hidden.clone(), output)
        };
        let mut network = Network::builder(spec.input.clone()).weight_decay(self.decay).aggregation(Aggregation::Mean);
        for _ in 1..self.blocks {
            network = network.message_block(block(hidden.clone()));
        }
        let last = if rotates { hidden.clone() } else { FeatureType::scalars(self.scalars) };
        network = network.message_block(block(last));
        if rotates {
            return Ok(network.conv(&spec.outputs));
        }
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

impl Model for HermesModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }
}
