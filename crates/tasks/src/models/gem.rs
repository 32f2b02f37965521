//! The paper's network: gauge equivariant residual blocks and a head.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, ORDERS, WIDTHS, within};
use crate::registry::settings;
use crate::{Result, TaskError};
use gemcnn_mesh::NeighbourWeights;
use gemcnn_nn::layers::{Gates, GlobalPool, Identity, Nonlinearity, Norms, Regular};
use gemcnn_nn::{Activation, Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

settings! {
    /// Settings of the model `gem`. The defaults are the paper's correspondence network with batch
    /// normalisation: `3x0 -> 16x(0,1,2) -> 16x(0,1,2) -> 64x0`, each arrow a residual block of two
    /// convolutions with `16x(0,1,2)` between them, then `64 -> 256 -> classes`.
    GemModel = "gem" {
        /// Residual blocks of two convolutions (default 3).
        blocks: usize = 3,
        /// Channels of each order, between and inside blocks (default 16).
        channels: usize = 16,
        /// Highest order (default 2).
        band_limit: usize = 2,
        /// Weights of the neighbours in convolutions (default: all count the same).
        weights: NeighbourWeights = NeighbourWeights::Count,
        /// Scalar channels of the last block (default 64). Unused with broken symmetry.
        scalars: usize = 64,
        /// Nonlinearity after each convolution (default: regular).
        nonlinearity: NonlinearityChoice = NonlinearityChoice::Regular,
        /// Samples of the regular nonlinearity (default `2 band_limit + 1`).
        #[serde(skip_serializing_if = "Option::is_none")]
        samples: Option<usize> = None,
        /// Batch normalisation inside nonlinearities (default true).
        batch_norm: bool = true,
        /// Keeps all orders in the last block and treats all components as scalars in the head (default false).
        /// This helps if all meshes have the same connectivity, but the output then depends on the frames.
        broken_symmetry: bool = false,
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

impl GemModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
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
        let last = if rotates || self.broken_symmetry { hidden.clone() } else { FeatureType::scalars(self.scalars) };
        network = network.block(Some(hidden.clone()), &last, act);
        if rotates {
            return Ok(network.conv(outputs));
        }
        if self.broken_symmetry {
            network = network.break_symmetry();
        }
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

impl Model for GemModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn weights(&self) -> NeighbourWeights {
        self.weights
    }
}
