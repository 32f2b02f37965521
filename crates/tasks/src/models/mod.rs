//! Models: networks for each task, chosen by name and open to kinds from outside.
//!
//! A [`ModelConfig`] is the `[model]` table of a configuration. It builds a [`Module`] for any input, task
//! and output. The built-in models have the same last layers ([`Head`]):
//!
//! | task | last layers |
//! | --- | --- |
//! | segmentation, correspondence | linear layer, ReLU, dropout, linear layer to the classes, for each vertex, or for each face or edge after the mean over its vertices |
//! | classification | the same for each mesh, after global pooling |
//! | regression of scalars | as segmentation, or as classification for values of whole meshes |
//! | regression of other types | a gauge convolution to the type |

mod head;
#[cfg(test)]
mod layer_tests;
mod preset;
mod recipe;
mod stack;

pub use gem::NonlinearityChoice;
pub use head::Head;
pub use preset::Preset;
pub use recipe::Recipe;
pub use stack::Stack;
pub use surface::DiffusionChoice;

use crate::data::{ExtraConfig, GaugeChoice, HierarchySettings};
use crate::registry::{Choice, Chosen, Registry, Settings, filled, kinds, parser};
use crate::{Element, Result, Task, TaskError};
use gemcnn_mesh::NeighbourWeights;
use gemcnn_nn::{Builder, FeatureType, Module, Parameters};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

/// Input, task and output of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Type of the features of each vertex.
    pub input: FeatureType,
    /// The task.
    pub task: Task,
    /// What a row of the output is for.
    pub per: Element,
    /// Output type: one scalar for each class, or the type of the regression targets.
    pub outputs: FeatureType,
}

/// A kind of model: builds a network for any input, task and output.
pub trait Model: fmt::Debug + Send + Sync {
    /// Adds the parameters of the network to the builder and returns the network.
    ///
    /// # Errors
    /// Incompatible settings, types and tasks; the message says what to change.
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>>;

    /// The coarser graphs that the model needs, if it pools (default: none).
    fn hierarchy(&self) -> Option<HierarchySettings> {
        None
    }

    /// What the model reads of a mesh besides its graphs, such as [`Eigenvectors`](crate::data::Eigenvectors) (default:
    /// nothing).
    fn extras(&self) -> Vec<ExtraConfig> {
        Vec::new()
    }

    /// Settings besides the model that suit it for a task: the defaults of a configuration with this model.
    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_convolutions(task)
    }

    /// True if the model compares meshes by the numbers of their vertices, so that all of them should have the same
    /// connectivity (default: false). Training notes where they have not.
    fn needs_registration(&self) -> bool {
        false
    }

    /// Weights of the neighbours in the convolutions of the model (default: all count the same).
    fn weights(&self) -> NeighbourWeights {
        NeighbourWeights::Count
    }

    /// The frames that the model needs (default: the first axis points to the first neighbour).
    fn gauge(&self) -> GaugeChoice {
        GaugeChoice::FirstNeighbour
    }
}

kinds! {
    "model": Model {
        gem: GemModel;
        graph: GraphModel;
        angular: AngularModel;
        unet: UNetModel;
        surface: SurfaceModel, DiffusionModel;
        attention: AttentionModel;
        hermes: HermesModel;
        spiral: SpiralModel;
        feast: FeastModel;
        edge: EdgeModel;
        monet: MonetModel;
        geodesic: GeodesicModel;
        acnn: AcnnModel;
        zernike: ZernikeModel;
    }
}

/// Registers a kind of model, so that configurations can name it.
pub fn register<M: Model + Settings>() {
    <dyn Model>::registry().add(M::KIND, parser!(M, dyn Model));
}

/// A kind of model with its settings: the `[model]` table of a configuration.
///
/// ```
/// use gemcnn_tasks::models::ModelSpec;
/// use gemcnn_tasks::{Element, ModelConfig, Task};
/// use gemcnn_nn::FeatureType;
/// let model: ModelConfig = toml::from_str("kind = 'gem'\nblocks = 2\nchannels = 8").unwrap();
/// let spec = ModelSpec {
///     input: FeatureType::scalars(3),
///     task: Task::Segmentation,
///     per: Element::Vertex,
///     outputs: FeatureType::scalars(10),
/// };
/// let (network, _parameters) = model.init(&spec, 1)?;
/// println!("{network}");
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
pub type ModelConfig = Choice<dyn Model>;

/// A network and its parameters.
pub type ModelWithParameters = (Box<dyn Module<f32>>, Parameters<f32>);

impl ModelConfig {
    /// Builds the network with parameters initialised from `seed`.
    pub fn init(&self, spec: &ModelSpec, seed: u64) -> Result<ModelWithParameters> {
        if spec.input.dimension() == 0 {
            let problem = "the input type has no components";
            return Err(TaskError::setting("features", problem));
        }
        let mut parameters = Parameters::new();
        let model = self.build(spec, &mut Builder::new(&mut parameters, seed))?;
        Ok((model, parameters))
    }
}

/// Allowed numbers of blocks or layers, numbers of channels, and highest orders.
const DEPTHS: RangeInclusive<usize> = 1..=1000;
const WIDTHS: RangeInclusive<usize> = 1..=65_536;
const ORDERS: RangeInclusive<usize> = 0..=64;

/// Checks that a setting is in its range.
fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Result<()> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(TaskError::setting(
            format!("model: {name}"),
            format!("{value} is out of range: must be from {} to {}", range.start(), range.end()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_models_lists_all_settings() {
        let page = include_str!("../../../../docs/models.md");
        for kind in <dyn Model>::registry().kinds() {
            let model = ModelConfig::of_kind(kind).unwrap();
            let settings = toml::Table::try_from(model).unwrap();
            for setting in settings.keys().map(String::as_str).chain([kind, "width", "samples"]) {
                assert!(page.contains(&format!("`{setting}`")), "{kind}: {setting}");
            }
        }
    }
}
