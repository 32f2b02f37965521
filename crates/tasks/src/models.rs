//! Stand-in.
use crate::data::HierarchySettings;
use crate::{Task, TaskError};
use gemcnn_nn::layers::{GlobalPool, Regular};
use gemcnn_nn::{Aggregation, FeatureType, Network, NetworkConfig};
use serde::{Deserialize, Serialize};

/// Models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelConfig {
    /// Gem.
    Gem {
        /// Channels.
        #[serde(default = "channels")]
        channels: usize,
    },
}
fn channels() -> usize {
    16
}
impl Default for ModelConfig {
    fn default() -> Self {
        Self::Gem { channels: 16 }
    }
}
impl ModelConfig {
    /// Network.
    pub fn network(
        &self,
        input: &FeatureType,
        task: Task,
        outputs: &FeatureType,
    ) -> Result<NetworkConfig, TaskError> {
        let Self::Gem { channels } = self;
        let hidden = FeatureType::uniform(*channels, 2);
        let regular = || Regular::relu(5).with_batch_norm();
        let net = Network::builder(input.clone())
            .aggregation(Aggregation::Mean)
            .weight_decay(gemcnn_nn::WeightDecay::Linear)
            .residual(&hidden, regular())
            .residual(&hidden, regular())
            .residual(&FeatureType::scalars(4 * channels), regular());
        let net = match task {
            Task::Classification => net.global_pool(GlobalPool::Mean),
            _ => net,
        };
        Ok(net.head(16 * channels, outputs.dimension()))
    }
    /// Gauge.
    pub fn gauge(&self) -> crate::data::GaugeChoice {
        crate::data::GaugeChoice::FirstNeighbour
    }
    /// Hierarchy.
    pub fn hierarchy(&self) -> Option<HierarchySettings> {
        None
    }
}
