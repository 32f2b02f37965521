//! The networks. All map 16 scalars per vertex to 16 scalars per vertex.

use super::transform::Frames;
use super::{Draws, WEIGHT_STREAM};
use gemcnn_nn::layers::{Angular, Attention, Gates, MessageBlockConfig, Nonlinearity, Norms, Regular};
use gemcnn_nn::{
    Activation, Aggregation, FeatureType, GraphBatch, Module, Network, NetworkConfig, NnError, Parameter, Parameters,
    Real, Stream, Tape, Workspace,
};
use serde::{Deserialize, Serialize};
use std::f64::consts::SQRT_2;
use std::sync::Arc;

/// Channels of input and output, and of each order in between.
pub(super) const CHANNELS: usize = 16;
/// Highest order of hidden features, and highest harmonic of the angular kernel.
const BAND_LIMIT: usize = 2;
/// Samples for which `x + x^2 / 4` is exact: twice the band limit, plus the band limit of the output, plus 1.
const SQUARE_SAMPLES: usize = 3 * BAND_LIMIT + 1;
/// Neighbours of a vertex of the icosahedron.
const DEGREE: f64 = 5.0;

/// A kind of network: convolutions with batch normalisation and a nonlinearity between them, or blocks of messages. The
/// depth is their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Gauge equivariant convolutions, hidden features `16x0 + 16x1 + 16x2`, the regular nonlinearity
    /// with ReLU.
    Gem,
    /// As [`Gem`](Self::Gem), without batch normalisation.
    GemWithoutBatchNorm,
    /// Without batch normalisation, with the layers and the initialisation of the method's published code:
    /// mean over neighbours, no self term, all weights of a layer with one distribution.
    GemPublished,
    /// The regular nonlinearity with `x + x^2 / 4` and 7 samples, which is exactly equivariant.
    GemPolynomial,
    /// The norm nonlinearity, which is exactly equivariant.
    GemNorm,
    /// The gated nonlinearity, which is exactly equivariant.
    GemGated,
    /// Attention over neighbours and the gated nonlinearity, which are exactly equivariant.
    Attention,
    /// Nonlinear messages and the gated nonlinearity, which are exactly equivariant.
    Hermes,
    /// Angular kernels in SHOT frames, which are not gauge equivariant, and ReLU.
    Shot,
}

impl Model {
    pub(super) const ALL: [Self; 9] = [
        Self::Gem,
        Self::GemWithoutBatchNorm,
        Self::GemPublished,
        Self::GemPolynomial,
        Self::GemNorm,
        Self::GemGated,
        Self::Attention,
        Self::Hermes,
        Self::Shot,
    ];

    /// True for gauge equivariant networks.
    pub fn is_equivariant(self) -> bool {
        self != Self::Shot
    }

    pub(super) fn frames(self) -> Frames {
        match self {
            Self::Shot => Frames::Shot,
            _ => Frames::Neighbour,
        }
    }

    /// True if it is measured only over the number of samples.
    pub(super) fn is_for_samples_only(self) -> bool {
        matches!(self, Self::GemWithoutBatchNorm | Self::GemPublished)
    }

    /// True if the number of samples varies.
    pub(super) fn has_choice_of_samples(self) -> bool {
        self == Self::Gem || self.is_for_samples_only()
    }

    /// The fixed number of samples, if there is one.
    pub(super) fn own_samples(self) -> Option<usize> {
        match self {
            Self::GemPolynomial => Some(SQUARE_SAMPLES),
            _ => None,
        }
    }
}

/// A network with random weights.
pub(super) struct RandomNetwork<T: Real> {
    network: Network<T>,
    parameters: Parameters<T>,
}

impl<T: Real> RandomNetwork<T> {
    /// Initialises the network of a plan from a seed.
    pub fn new(plan: Plan, seed: u64) -> Result<Self, NnError> {
        let (network, mut parameters) = plan.config().init(seed)?;
        if plan.model == Model::GemPublished {
            let mut draws = Draws::new(seed, WEIGHT_STREAM);
            for parameter in parameters.iter_mut() {
                draw_as_published(parameter, &mut draws);
            }
        }
        Ok(Self { network, parameters })
    }

    /// Runs the network on scalars of a mesh. Batch normalisation uses the statistics of this input.
    pub fn apply(
        &mut self,
        workspace: &mut Workspace<T>,
        graph: &GraphBatch<T>,
        scalars: &[T],
    ) -> Result<Vec<T>, NnError> {
        let randomness = Stream { seed: 0, step: 0 };
        let mut tape = Tape::training(workspace, &mut self.parameters, randomness);
        let x = tape.input(FeatureType::scalars(CHANNELS), scalars)?;
        let y = self.network.forward(&mut tape, graph.into(), x)?;
        Ok(y.values()?.into_owned())
    }
}

/// Initialises neighbour weights `[rings, outputs, inputs]` as the published code: uniform within
/// `sqrt(6 / (inputs + outputs))` for coefficients of orthonormal samples. Coefficients of order above 0 are
/// `sqrt 2` times larger here, so weights between them and scalars change by that factor. Self weights are
/// zero.
fn draw_as_published<T: Real>(parameter: &mut Parameter<T>, draws: &mut Draws) {
    let (outputs, inputs) = match (parameter.name().rsplit_once('.'), parameter.shape()) {
        (Some((_, "weight")), &[1, outputs, inputs]) => (outputs, inputs),
        (Some((_, "self_weight")), _) => return parameter.value_mut().fill(T::zero()),
        _ => return,
    };
    let bound = (6.0 / (inputs + outputs) as f64).sqrt();
    let scale = |component: usize| if component < CHANNELS { 1.0 } else { SQRT_2 };
    for (place, weight) in parameter.value_mut().iter_mut().enumerate() {
        let factor = scale(place / inputs) / scale(place % inputs);
        *weight = T::of(factor * draws.uniform(-bound, bound));
    }
}

/// The description of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plan {
    pub model: Model,
    pub depth: usize,
    pub samples: Option<usize>,
}

impl Plan {
    fn config<T: Real>(self) -> NetworkConfig<T> {
        let relu = Regular::relu(self.samples.unwrap_or(1));
        match self.model {
            Model::GemWithoutBatchNorm | Model::GemPublished => self.layers(relu),
            Model::Gem | Model::Shot => self.layers(relu.with_batch_norm()),
            Model::GemPolynomial => {
                let activation = Activation::Polynomial(vec![0.0, 1.0, 0.25]);
                let square = Regular { activation, ..relu };
                self.layers(square.with_batch_norm())
            }
            Model::GemNorm => self.layers(Norms::relu().with_batch_norm()),
            Model::GemGated | Model::Attention => self.layers(Gates::relu().with_batch_norm()),
            Model::Hermes => self.message_blocks(),
        }
    }

    fn message_blocks<T: Real>(self) -> NetworkConfig<T> {
        let scalars = FeatureType::scalars(CHANNELS);
        let hidden = FeatureType::uniform(CHANNELS, BAND_LIMIT);
        let block = |output: &FeatureType| MessageBlockConfig {
            nonlinearity: Arc::new(Gates::relu().with_batch_norm()),
            ..MessageBlockConfig::new(hidden.clone(), output.clone())
        };
        let start = Network::builder(scalars.clone());
        let hidden_blocks = (1..self.depth).fold(start, |config, _| config.message_block(block(&hidden)));
        hidden_blocks.message_block(block(&scalars))
    }

    fn layers<T: Real>(self, nonlinearity: impl Nonlinearity<T> + Clone + 'static) -> NetworkConfig<T> {
        let scalars = FeatureType::scalars(CHANNELS);
        let aggregation = match self.model {
            Model::GemPublished => Aggregation::Mean,
            _ => Aggregation::default(),
        };
        let start = Network::builder(scalars.clone()).aggregation(aggregation).degree(DEGREE);
        let (start, hidden) = match self.model {
            Model::Shot => {
                let band_limit = BAND_LIMIT;
                (start.kernel(Angular { band_limit }), scalars.clone())
            }
            Model::Attention => {
                let hidden = FeatureType::uniform(CHANNELS, BAND_LIMIT);
                (start.kernel(Attention { heads: 2 }), hidden)
            }
            _ => (start, FeatureType::uniform(CHANNELS, BAND_LIMIT)),
        };
        let hidden_layers = (1..self.depth)
            .fold(start, |config, _| config.conv(&nonlinearity.input(&hidden)).nonlinearity(nonlinearity.clone()));
        hidden_layers.conv(&scalars)
    }
}
