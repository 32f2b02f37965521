//! The baseline that is not equivariant: kernels of the angle in SHOT frames.

use super::graph::scalar_relu;
use super::{DEPTHS, Head, ORDERS, WIDTHS, within};
use crate::{Task, TaskError};
use gemcnn_nn::layers::{GlobalPool, Kernel};
use gemcnn_nn::{Aggregation, FeatureType, Network, NetworkConfig, WeightDecay};
use serde::{Deserialize, Serialize};

/// Settings of the model `angular`. It depends on the frames, and needs those of
/// [`GaugeChoice::Shot`](crate::data::GaugeChoice::Shot); features of order above 0 are read as
/// their numbers in these frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AngularModel {
    /// Convolutions, each with batch normalisation and ReLU; 7.
    pub layers: usize,
    /// Scalars after each convolution; 128.
    pub channels: usize,
    /// Highest harmonic of the kernels; 2.
    pub band_limit: usize,
    /// Batch normalisation before each ReLU; yes.
    pub batch_norm: bool,
    /// Scalars between the two linear maps of the head; 256. None and there is a single map.
    pub head: usize,
    /// Dropout in the head; 0.5.
    pub dropout: f64,
    /// Pooling for whole-mesh tasks; the mean.
    pub pool: GlobalPool,
    /// Which weights decay; those of the head.
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
    /// The network, as [`ModelConfig::network`](super::ModelConfig::network).
    ///
    /// # Errors
    /// Settings, types and tasks that do not go together, with what to change.
    pub fn network(
        &self,
        input: &FeatureType,
        task: Task,
        outputs: &FeatureType,
    ) -> Result<NetworkConfig, TaskError> {
        within("layers", self.layers, DEPTHS)?;
        within("channels", self.channels, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        let kernel = Kernel::Angular {
            band_limit: self.band_limit,
        };
        let mut network = Network::builder(input.clone())
            .weight_decay(self.decay)
            .aggregation(Aggregation::Mean)
            .kernel(kernel);
        if !input.is_scalar() {
            network = network.break_symmetry();
        }
        let hidden = FeatureType::scalars(self.channels);
        for _ in 0..self.layers {
            network = network
                .conv(&hidden)
                .nonlinearity(scalar_relu(self.batch_norm));
        }
        let head = Head {
            width: self.head,
            dropout: self.dropout,
            pool: self.pool,
        };
        head.add(network, task, outputs)
    }
}
