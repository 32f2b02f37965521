//! Networks of the measured work: a list of layers, from which this library, the counts of [`Cost`](super::Cost) and the
//! PyTorch side of `bench/compare` make the same network.

use gemcnn_nn::layers::{Attention, DiffusionBlockConfig, Gauge, GlobalPool, MessageBlockConfig, Regular};
use gemcnn_nn::{Activation, Aggregation, FeatureType, Network, NetworkConfig, NnError, Parameters};
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::sync::Arc;

/// A network, layer by layer.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Layers {
    pub input: Kind,
    /// True if convolutions average over neighbours, false if they sum.
    #[serde(default = "is_mean")]
    pub mean: bool,
    /// Number of neighbours that the initialisation assumes.
    #[serde(default = "degree")]
    pub degree: f64,
    pub layers: Vec<Layer>,
}

fn is_mean() -> bool {
    true
}

fn degree() -> f64 {
    6.0
}

/// A feature type, written as `16x0 + 16x1`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Kind(pub FeatureType);

impl TryFrom<String> for Kind {
    type Error = NnError;

    fn try_from(text: String) -> Result<Self, NnError> {
        Ok(Self(text.parse()?))
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

impl Deref for Kind {
    type Target = FeatureType;

    fn deref(&self) -> &FeatureType {
        &self.0
    }
}

/// A layer.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Layer {
    /// A gauge convolution with self term and bias.
    Conv { output: Kind },
    /// Attention over neighbours.
    Attention { output: Kind, heads: usize },
    /// A block of messages with regular nonlinearities; all its features have the type of the output.
    Messages { output: Kind, edge_layers: usize, node_layers: usize, samples: usize },
    /// A residual block with regular nonlinearities and batch normalisation.
    Residual { middle: Kind, output: Kind, samples: usize },
    /// The regular nonlinearity with ReLU.
    Regular { samples: usize, batch_norm: bool },
    /// Dropout of irreps.
    Dropout { probability: f64 },
    /// A linear layer of scalars.
    Linear { outputs: usize },
    /// ReLU of scalars.
    Relu,
    /// Maximum over the vertices of each mesh.
    MaxPool,
    /// An equivariant linear layer with bias.
    Map { output: Kind },
    /// A diffusion block, with dropout in its perceptron.
    Diffusion { features: Kind, dropout: f64 },
}

impl Layers {
    /// The network with initial weights, with or without dropout.
    pub fn init(&self, dropout: bool) -> Result<(Network<f32>, Parameters<f32>), NnError> {
        let aggregation = if self.mean { Aggregation::Mean } else { Aggregation::Sum };
        let start = Network::builder(self.input.0.clone()).aggregation(aggregation).degree(self.degree);
        self.layers.iter().fold(start, |network, layer| layer.add_to(network, dropout)).init(1)
    }
}

impl Layer {
    fn add_to(&self, network: NetworkConfig<f32>, dropout: bool) -> NetworkConfig<f32> {
        let dropped = |probability: f64| if dropout { probability } else { 0.0 };
        match self {
            Self::Conv { output } => network.conv(output),
            Self::Attention { output, heads } => network.kernel(Attention { heads: *heads }).conv(output).kernel(Gauge),
            Self::Messages { output, edge_layers, node_layers, samples } => network.message_block(MessageBlockConfig {
                edge_layers: *edge_layers,
                node_layers: *node_layers,
                samples: *samples,
                nonlinearity: Arc::new(Regular::relu(*samples)),
                ..MessageBlockConfig::new(output.0.clone(), output.0.clone())
            }),
            Self::Residual { middle, output, samples } => {
                network.residual_through(middle, output, Regular::relu(*samples).with_batch_norm())
            }
            &Self::Regular { samples, batch_norm } => {
                network.nonlinearity(Regular { batch_norm, ..Regular::relu(samples) })
            }
            Self::Dropout { probability } => network.dropout(dropped(*probability)),
            Self::Linear { outputs } => network.linear(*outputs),
            Self::Relu => network.activation(Activation::Relu),
            Self::MaxPool => network.global_pool(GlobalPool::Max),
            Self::Map { output } => network.equivariant_linear(output),
            Self::Diffusion { features, dropout } => network.diffusion_block(DiffusionBlockConfig {
                dropout: dropped(*dropout),
                ..DiffusionBlockConfig::new(features.0.clone())
            }),
        }
    }
}
