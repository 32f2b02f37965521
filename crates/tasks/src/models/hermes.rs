//! Nonlinear gauge equivariant messages.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, NonlinearityChoice, ORDERS, WIDTHS, within};
use crate::{Settings, TaskError};
use gemcnn_nn::layers::{GlobalPool, MessageBlockConfig};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};
use serde::{Deserialize, Serialize};

/// Settings of the model `hermes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HermesModel {
    /// Blocks of messages and updates (default 3).
    pub blocks: usize,
    /// Channels of each order, of messages and between blocks (default 16).
    pub channels: usize,
    /// Highest order (default 2).
    pub band_limit: usize,
    /// Layers of the message function of each block (default 2).
    pub edge_layers: usize,
    /// Layers of the update function of each block (default 2).
    pub node_layers: usize,
    /// Scalar channels of the last block (default 64).
    pub scalars: usize,
    /// Nonlinearity between the layers of the update function (default: regular). That of messages is always regular.
    pub nonlinearity: NonlinearityChoice,
    /// Samples of regular nonlinearities (default `2 band_limit + 1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Batch normalisation inside the nonlinearities of the update function (default true).
    pub batch_norm: bool,
    /// Hidden channels of the head (default 256). `0` makes the head a single linear layer.
    pub head: usize,
    /// Dropout probability in the head (default 0.5).
    pub dropout: f64,
    /// Pooling for whole-mesh tasks (default: mean).
    pub pool: GlobalPool,
    /// Weights that weight decay acts on (default: those of the head).
    pub decay: WeightDecay,
}

impl Default for HermesModel {
    fn default() -> Self {
        Self {
            blocks: 3,
            channels: 16,
            band_limit: 2,
            edge_layers: 2,
            node_layers: 2,
            scalars: 64,
            nonlinearity: NonlinearityChoice::Regular,
            samples: None,
            batch_norm: true,
            head: 256,
            dropout: 0.5,
            pool: GlobalPool::Mean,
            decay: WeightDecay::Linear,
        }
    }
}

impl HermesModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
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
        let last = match rotates {
            true => hidden.clone(),
            false => FeatureType::scalars(self.scalars),
        };
        network = network.message_block(block(last));
        if rotates {
            return Ok(network.conv(&spec.outputs));
        }
        let head = Head { width: self.head, dropout: self.dropout, pool: self.pool };
        head.add(network, spec)
    }
}

impl Settings for HermesModel {
    const KIND: &'static str = "hermes";
}

impl Model for HermesModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }
}
