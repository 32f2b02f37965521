//! The baseline that is not equivariant: kernels of the angle in SHOT frames.

use super::graph::scalar_relu;
use super::{DEPTHS, Head, Model, ModelSpec, ORDERS, WIDTHS, within};
use crate::data::GaugeChoice;
use crate::{Settings, TaskError};
use gemcnn_nn::layers::{Angular, GlobalPool};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};
use serde::{Deserialize, Serialize};

/// Settings of the model `angular`. Its output depends on the frames, and it needs those of
/// [`GaugeChoice::Shot`]. Components of order above 0 are treated as scalars in these frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AngularModel {
    /// Convolutions, each followed by ReLU (default 7).
    pub layers: usize,
    /// Scalar channels of each convolution (default 128).
    pub channels: usize,
    /// Highest harmonic of the kernels (default 2).
    pub band_limit: usize,
    /// Batch normalisation before each ReLU (default true).
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

impl Default for AngularModel {
    fn default() -> Self {
        Self {
            layers: 7,
            channels: 128,
            band_limit: 2,
            batch_norm: true,
            head: 256,
            dropout: 0.5,
            pool: GlobalPool::Mean,
            decay: WeightDecay::Linear,
        }
    }
}

impl AngularModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        let input = &spec.input;
        within("layers", self.layers, DEPTHS)?;
        within("channels", self.channels, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        let kernel = Angular { band_limit: self.band_limit };
        let mut network =
            Network::builder(input.clone()).weight_decay(self.decay).aggregation(Aggregation::Mean).kernel(kernel);
        if !input.is_scalar() {
            network = network.break_symmetry();
        }
        let hidden = FeatureType::scalars(self.channels);
        for _ in 0..self.layers {
            network = network.conv(&hidden).nonlinearity(scalar_relu(self.batch_norm));
        }
        let head = Head { width: self.head, dropout: self.dropout, pool: self.pool };
        head.add(network, spec)
    }
}

impl Settings for AngularModel {
    const KIND: &'static str = "angular";
}

impl Model for AngularModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn gauge(&self) -> GaugeChoice {
        GaugeChoice::Shot
    }
}
