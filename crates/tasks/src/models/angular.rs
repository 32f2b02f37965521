//! The baseline that is not equivariant: kernels of the angle in SHOT frames.

use super::graph::scalar_relu;
use super::{DEPTHS, Head, Model, ModelSpec, ORDERS, WIDTHS, within};
use crate::Result;
use crate::data::GaugeChoice;
use crate::registry::settings;
use gemcnn_nn::layers::{Angular, GlobalPool};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};

settings! {
    /// Settings of the model `angular`. Its output depends on the frames, and it needs those of
    /// [`GaugeChoice::Shot`]. Components of order above 0 are treated as scalars in these frames.
    AngularModel = "angular" {
        /// Convolutions, each followed by ReLU (default 7).
        layers: usize = 7,
        /// Scalar channels of each convolution (default 128).
        channels: usize = 128,
        /// Highest harmonic of the kernels (default 2).
        band_limit: usize = 2,
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

impl AngularModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
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
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

impl Model for AngularModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn gauge(&self) -> GaugeChoice {
        GaugeChoice::Shot
    }
}
