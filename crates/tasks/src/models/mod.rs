//! Models: networks for each task from a few settings, chosen by name and open to kinds from outside.
//!
//! A [`ModelConfig`] is the `[model]` table of a run's TOML. It builds a [`Module`] for any input, task
//! and output. The built-in models end the same way ([`Head`]):
//!
//! | task | end |
//! | --- | --- |
//! | segmentation, correspondence | linear layer, ReLU, dropout, linear layer to the classes, for each vertex |
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
use crate::registry::{Choice, Chosen, Registry, Settings, filled, parser};
use crate::{Task, TaskError};
use gemcnn_nn::{Builder, FeatureType, Module, Parameters};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

/// What a model is built for.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Type of the features of each vertex.
    pub input: FeatureType,
    /// What is learned.
    pub task: Task,
    /// The classes as scalars, or the type that regression gives.
    pub outputs: FeatureType,
}

/// A kind of model.
pub trait Model: fmt::Debug + Send + Sync {
    /// Adds the parameters of the model and returns it.
    ///
    /// # Errors
    /// Settings, types and tasks that do not go together, with what to change.
    fn build(
        &self,
        spec: &ModelSpec,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Box<dyn Module<f32>>, TaskError>;

    /// The coarser graphs that it needs, if it pools.
    fn hierarchy(&self) -> Option<HierarchySettings> {
        None
    }

    /// The frames that it needs.
    fn gauge(&self) -> GaugeChoice {
        GaugeChoice::FirstNeighbour
    }
}

impl Chosen for dyn Model {
    fn registry() -> &'static Registry<Self> {
        static MODELS: LazyLock<Registry<dyn Model>> = LazyLock::new(|| {
            Registry::new(
                "model",
                &[
                    (GemModel::KIND, parser!(GemModel, dyn Model)),
                    (GraphModel::KIND, parser!(GraphModel, dyn Model)),
                    (AngularModel::KIND, parser!(AngularModel, dyn Model)),
                    (UNetModel::KIND, parser!(UNetModel, dyn Model)),
                ],
            )
        });
        &MODELS
    }
}

/// Makes a kind of model available to configurations.
pub fn register<M: Model + Settings>() {
    <dyn Model>::registry().add(M::KIND, parser!(M, dyn Model));
}

/// A model and its settings: the `[model]` table of a configuration.
///
/// ```
/// use gemcnn_tasks::models::ModelSpec;
/// use gemcnn_tasks::{ModelConfig, Task};
/// use gemcnn_nn::FeatureType;
/// let model: ModelConfig = toml::from_str("kind = 'gem'\nblocks = 2\nchannels = 8").unwrap();
/// let spec = ModelSpec {
///     input: FeatureType::scalars(3),
///     task: Task::Segmentation,
///     outputs: FeatureType::scalars(10),
/// };
/// let (network, _parameters) = model.init(&spec, 1)?;
/// println!("{network}");
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
pub type ModelConfig = Choice<dyn Model>;

impl<M: Model + Settings> From<M> for ModelConfig {
    fn from(model: M) -> Self {
        let settings = filled(&model).unwrap_or_default();
        Self::from_parts(M::KIND, settings, Arc::new(model))
    }
}

impl Default for ModelConfig {
    /// The paper's network.
    fn default() -> Self {
        GemModel::default().into()
    }
}

/// A model and its parameters.
pub type ModelWithParameters = (Box<dyn Module<f32>>, Parameters<f32>);

impl ModelConfig {
    /// Builds the model with parameters initialised from `seed`.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn init(&self, spec: &ModelSpec, seed: u64) -> Result<ModelWithParameters, TaskError> {
        if spec.input.dimension() == 0 {
            let problem = "there are none to learn from";
            return Err(TaskError::setting("features", problem));
        }
        let mut parameters = Parameters::new();
        let model = self.build(spec, &mut Builder::new(&mut parameters, seed))?;
        Ok((model, parameters))
    }
}

/// Blocks or layers of a network, channels of a layer, and highest orders, that are sensible and fit into memory.
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
