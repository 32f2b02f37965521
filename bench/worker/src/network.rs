//! Networks as both sides read them: a list of layers in the case file.

use crate::Failure;
use gemcnn_nn::layers::{Attention, DiffusionBlockConfig, Gauge, GlobalPool, MessageBlockConfig, Regular};
use gemcnn_nn::{Activation, Aggregation, Archive, FeatureType, Network, NetworkConfig, Parameters};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Name of the description in a case file, and group of the weights.
const NETWORK: &str = "network";
const WEIGHTS: &str = "weights";

/// A network, layer by layer. Types are written as `16x0 + 16x1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Type of the input.
    pub input: String,
    /// True if convolutions average over neighbours, false if they sum.
    pub mean: bool,
    /// Number of neighbours that the initialisation assumes.
    pub degree: f64,
    /// The layers.
    pub layers: Vec<Layer>,
}

/// A layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// A gauge convolution with self term and bias.
    Conv { output: String },
    /// Attention over neighbours.
    Attention { output: String, heads: usize },
    /// A block of messages with regular nonlinearities; all its features have the type of the output.
    Messages { output: String, edge_layers: usize, node_layers: usize, samples: usize },
    /// A residual block with regular nonlinearities and batch normalisation.
    Residual { middle: String, output: String, samples: usize },
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
    Map { output: String },
    /// A diffusion block, with dropout in its perceptron.
    Diffusion { features: String, dropout: f64 },
}

impl Description {
    /// Reads the description and the weights of a case.
    pub fn read(archive: &Archive) -> Result<(Self, Parameters<f32>), Failure> {
        let description: Self = archive.json(NETWORK)?;
        let (_, mut parameters) = description.config(true)?.init(1)?;
        parameters.load(archive, WEIGHTS)?;
        Ok((description, parameters))
    }

    /// Stores the description and initial weights in a case.
    pub fn store(&self, archive: &mut Archive) -> Result<(), Failure> {
        archive.set_json(NETWORK, self)?;
        let (_, parameters) = self.config(true)?.init(1)?;
        Ok(parameters.store(archive, WEIGHTS)?)
    }

    /// The network, with or without dropout. Names of parameters are the same.
    pub fn network(&self, dropout: bool) -> Result<Network<f32>, Failure> {
        Ok(self.config(dropout)?.init(1)?.0)
    }

    fn config(&self, dropout: bool) -> Result<NetworkConfig<f32>, Failure> {
        let aggregation = match self.mean {
            true => Aggregation::Mean,
            false => Aggregation::Sum,
        };
        let start = Network::builder(kind(&self.input)?).aggregation(aggregation).degree(self.degree);
        let dropped = |probability: f64| if dropout { probability } else { 0.0 };
        self.layers.iter().try_fold(start, |network, layer| {
            Ok(match layer {
                Layer::Conv { output } => network.conv(&kind(output)?),
                Layer::Attention { output, heads } => {
                    let attention = network.kernel(Attention { heads: *heads });
                    attention.conv(&kind(output)?).kernel(Gauge)
                }
                Layer::Messages { output, edge_layers, node_layers, samples } => {
                    network.message_block(MessageBlockConfig {
                        edge_layers: *edge_layers,
                        node_layers: *node_layers,
                        samples: *samples,
                        nonlinearity: Arc::new(Regular::relu(*samples)),
                        ..MessageBlockConfig::new(kind(output)?, kind(output)?)
                    })
                }
                Layer::Residual { middle, output, samples } => {
                    let act = Regular::relu(*samples).with_batch_norm();
                    network.residual_through(&kind(middle)?, &kind(output)?, act)
                }
                &Layer::Regular { samples, batch_norm } => {
                    network.nonlinearity(Regular { batch_norm, ..Regular::relu(samples) })
                }
                Layer::Dropout { probability } => network.dropout(dropped(*probability)),
                Layer::Linear { outputs } => network.linear(*outputs),
                Layer::Relu => network.activation(Activation::Relu),
                Layer::MaxPool => network.global_pool(GlobalPool::Max),
                Layer::Map { output } => network.equivariant_linear(&kind(output)?),
                Layer::Diffusion { features, dropout } => network.diffusion_block(DiffusionBlockConfig {
                    dropout: dropped(*dropout),
                    ..DiffusionBlockConfig::new(kind(features)?)
                }),
            })
        })
    }
}

fn kind(text: &str) -> Result<FeatureType, Failure> {
    text.parse().map_err(|error| Failure::Case(format!("{error}")))
}
