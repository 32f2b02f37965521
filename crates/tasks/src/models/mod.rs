//! Models: networks for each task from a few settings.
//!
//! A [`ModelConfig`] stands in the `[model]` table of a run's TOML and gives the layers of a network for
//! any input, task and output. All end the same way ([`Head`]):
//!
//! | task | end |
//! | --- | --- |
//! | segmentation, correspondence | linear map, ReLU, dropout, linear map to the classes, for each vertex |
//! | classification | the same for each mesh, after a pooling over its vertices |
//! | regression of scalars | as segmentation |
//! | regression of other types | a gauge convolution to the type, on features that are not yet scalars |

mod angular;
mod gem;
mod graph;
mod head;
mod unet;

pub use angular::AngularModel;
pub use gem::{GemModel, NonlinearityChoice};
pub use graph::GraphModel;
pub use head::Head;
pub use unet::UNetModel;

use crate::data::{GaugeChoice, HierarchySettings};
use crate::{Task, TaskError};
use gemcnn_nn::{FeatureType, NetworkConfig};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A model and its settings.
///
/// ```
/// use gemcnn_tasks::{ModelConfig, Task};
/// use gemcnn_nn::FeatureType;
/// let model: ModelConfig = toml::from_str("kind = 'gem'\nblocks = 2\nchannels = 8").unwrap();
/// let (input, classes) = (FeatureType::scalars(3), FeatureType::scalars(10));
/// let network = model.network(&input, Task::Segmentation, &classes)?;
/// let (network, _parameters) = network.init::<f32>(1)?;
/// println!("{network}");
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ModelConfig {
    /// The paper's network of gauge equivariant residual blocks.
    Gem(GemModel),
    /// The isotropic baseline: the same blocks of graph convolutions.
    Graph(GraphModel),
    /// The baseline that is not equivariant: convolutions in SHOT frames.
    Angular(AngularModel),
    /// Gauge equivariant residual blocks over coarser and coarser graphs, and back.
    #[serde(rename = "unet")]
    UNet(UNetModel),
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self::Gem(GemModel::default())
    }
}

impl ModelConfig {
    /// The network for features of type `input`; `outputs` are the classes as scalars, or the type that
    /// regression should give.
    ///
    /// # Errors
    /// Settings, types and tasks that do not go together, with what to change.
    pub fn network(
        &self,
        input: &FeatureType,
        task: Task,
        outputs: &FeatureType,
    ) -> Result<NetworkConfig, TaskError> {
        if input.dimension() == 0 {
            return Err(TaskError::setting(
                "features",
                "there are none to learn from",
            ));
        }
        match self {
            Self::Gem(model) => model.network(input, task, outputs),
            Self::Graph(model) => model.network(input, task, outputs),
            Self::Angular(model) => model.network(input, task, outputs),
            Self::UNet(model) => model.network(input, task, outputs),
        }
    }

    /// The coarser graphs that it needs, if it pools.
    pub fn hierarchy(&self) -> Option<HierarchySettings> {
        match self {
            Self::Gem(_) | Self::Graph(_) | Self::Angular(_) => None,
            Self::UNet(model) => Some(model.hierarchy()),
        }
    }

    /// The frames that it needs.
    pub fn gauge(&self) -> GaugeChoice {
        match self {
            Self::Gem(_) | Self::Graph(_) | Self::UNet(_) => GaugeChoice::FirstNeighbour,
            Self::Angular(_) => GaugeChoice::Shot,
        }
    }
}

/// Blocks or layers of a network, channels of a layer, and highest orders, that make sense and fit into memory.
const DEPTHS: RangeInclusive<usize> = 1..=1000;
const WIDTHS: RangeInclusive<usize> = 1..=65_536;
const ORDERS: RangeInclusive<usize> = 0..=64;

/// Fails for a setting out of its range.
fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Result<(), TaskError> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(TaskError::setting(
            format!("model: {name}"),
            format!(
                "it is {value}, but must be from {} to {}",
                range.start(),
                range.end()
            ),
        )),
    }
}
