//! The paper's network: gauge equivariant residual blocks and a head.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, ORDERS, WIDTHS, within};
use crate::{Settings, TaskError};
use gemcnn_mesh::NeighbourWeights;
use gemcnn_nn::layers::{Gates, GlobalPool, Identity, Nonlinearity, Norms, Regular};
use gemcnn_nn::{Activation, Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Settings of the model `gem`. The defaults are the paper's correspondence network with batch
/// normalisation: `3x0 -> 16x(0,1,2) -> 16x(0,1,2) -> 64x0`, each arrow a residual block of two
/// convolutions with `16x(0,1,2)` between them, then `64 -> 256 -> classes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GemModel {
    /// Residual blocks of two convolutions (default 3).
    pub blocks: usize,
    /// Channels of each order, between and inside blocks (default 16).
    pub channels: usize,
    /// Highest order (default 2).
    pub band_limit: usize,
    /// Weights of the neighbours in convolutions (default: all count the same).
    pub weights: NeighbourWeights,
    /// Scalar channels of the last block (default 64). Unused with broken symmetry.
    pub scalars: usize,
    /// Nonlinearity after each convolution (default: regular).
    pub nonlinearity: NonlinearityChoice,
    /// Samples of the regular nonlinearity (default `2 band_limit + 1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Batch normalisation inside nonlinearities (default true).
    pub batch_norm: bool,
    /// Keeps all orders in the last block and treats all components as scalars in the head (default false).
    /// This helps if all meshes have the same connectivity, but the output then depends on the frames.
    pub broken_symmetry: bool,
    /// Hidden channels of the head (default 256). `0` makes the head a single linear layer.
    pub head: usize,
    /// Dropout probability in the head (default 0.5).
    pub dropout: f64,
    /// Pooling for whole-mesh tasks (default: mean).
    pub pool: GlobalPool,
    /// Weights that weight decay acts on (default: those of the head).
    pub decay: WeightDecay,
}

/// The nonlinearities of the equivariant models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonlinearityChoice {
    /// ReLU of samples around the circle, as in the paper. Approximately equivariant.
    #[default]
    Regular,
    /// ReLU of norms. Exactly equivariant.
    Norm,
    /// Gates. Exactly equivariant.
    Gated,
    /// No nonlinearity, for measurements.
    None,
}

impl NonlinearityChoice {
    /// The nonlinearity with the given settings. `samples` is used by `Regular` only.
    pub fn with<T: Real>(
        self,
        band_limit: usize,
        samples: Option<usize>,
        batch_norm: bool,
    ) -> Arc<dyn Nonlinearity<T>> {
        let activation = Activation::Relu;
        match self {
            Self::Regular => {
                Arc::new(Regular { samples: samples.unwrap_or(2 * band_limit + 1), activation, batch_norm })
            }
            Self::Norm => Arc::new(Norms { activation, batch_norm }),
            Self::Gated => Arc::new(Gates { activation, batch_norm }),
            Self::None => Arc::new(Identity),
        }
    }
}

impl Default for GemModel {
    fn default() -> Self {
        Self {
            blocks: 3,
            channels: 16,
            band_limit: 2,
            weights: NeighbourWeights::Count,
            scalars: 64,
            nonlinearity: NonlinearityChoice::Regular,
            samples: None,
            batch_norm: true,
            broken_symmetry: false,
            head: 256,
            dropout: 0.5,
            pool: GlobalPool::Mean,
            decay: WeightDecay::Linear,
        }
    }
}

impl GemModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        let ModelSpec { input, outputs, .. } = spec;
        within("blocks", self.blocks, DEPTHS)?;
        within("channels", self.channels, WIDTHS)?;
        within("scalars", self.scalars, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        within("samples", self.samples.unwrap_or(1), WIDTHS)?;
        let rotates = rotates_with_frames(spec)?;
        if rotates && self.broken_symmetry {
            return Err(TaskError::setting(
                "model: broken_symmetry",
                format!("outputs of type {outputs} rotate with the frames; set it to false"),
            ));
        }
        let hidden = FeatureType::uniform(self.channels, self.band_limit);
        let act = (self.nonlinearity).with(self.band_limit, self.samples, self.batch_norm);
        let mut network = Network::builder(input.clone()).weight_decay(self.decay).aggregation(Aggregation::Mean);
        for _ in 1..self.blocks {
            network = network.block(Some(hidden.clone()), &hidden, act.clone());
        }
        let last = match rotates || self.broken_symmetry {
            true => hidden.clone(),
            false => FeatureType::scalars(self.scalars),
        };
        network = network.block(Some(hidden.clone()), &last, act);
        if rotates {
            return Ok(network.conv(outputs));
        }
        if self.broken_symmetry {
            network = network.break_symmetry();
        }
        let head = Head { width: self.head, dropout: self.dropout, pool: self.pool };
        head.add(network, spec)
    }
}

impl Settings for GemModel {
    const KIND: &'static str = "gem";
}

impl Model for GemModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn weights(&self) -> NeighbourWeights {
        self.weights
    }
}
