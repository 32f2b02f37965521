//! The networks: all take and give 16 scalars for each vertex.

use super::transform::Frames;
use super::{Draws, WEIGHT_STREAM};
use gemcnn_nn::layers::{Kernel, Nonlinearity, Regular};
use gemcnn_nn::{
    Activation, Aggregation, FeatureType, GraphBatch, Network, NetworkConfig, NnError, Parameter,
    Parameters, Real, Stream, Tape, Workspace,
};
use serde::{Deserialize, Serialize};
use std::f64::consts::SQRT_2;

/// Channels of input and output, and of each order in between.
pub(super) const CHANNELS: usize = 16;
/// Highest order of hidden features, and highest harmonic of the kernel that is not equivariant.
const BAND_LIMIT: usize = 2;
/// Samples for which `x + x^2 / 4` is exact: twice the band limit, plus that of the output, plus one.
const SQUARE_SAMPLES: usize = 3 * BAND_LIMIT + 1;
/// Neighbours of a vertex of the icosahedron.
const DEGREE: f64 = 5.0;

/// A network to measure: as many convolutions as its depth, with batch normalisation and a nonlinearity
/// between one and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Gauge equivariant convolutions, hidden features `16x0 + 16x1 + 16x2`, the regular nonlinearity
    /// with ReLU.
    Gem,
    /// The same without batch normalisation.
    GemWithoutBatchNorm,
    /// Without batch normalisation, and with the layers and first weights of the method's published code:
    /// mean over neighbours, no self term, all weights of a layer drawn alike.
    GemPublished,
    /// The regular nonlinearity with `x + x^2 / 4` and 7 samples, which is exact.
    GemPolynomial,
    /// The norm nonlinearity, which is exact.
    GemNorm,
    /// The gated nonlinearity, which is exact.
    GemGated,
    /// Kernels of the angle in SHOT frames, which are not gauge equivariant, and ReLU.
    Shot,
}

impl Model {
    pub(super) const ALL: [Self; 7] = [
        Self::Gem,
        Self::GemWithoutBatchNorm,
        Self::GemPublished,
        Self::GemPolynomial,
        Self::GemNorm,
        Self::GemGated,
        Self::Shot,
    ];

    /// Whether it is meant to be.
    pub fn is_equivariant(self) -> bool {
        self != Self::Shot
    }

    pub(super) fn frames(self) -> Frames {
        match self {
            Self::Shot => Frames::Shot,
            _ => Frames::Neighbour,
        }
    }

    /// Whether the only question to it is how its error falls with the samples.
    pub(super) fn is_for_samples_only(self) -> bool {
        matches!(self, Self::GemWithoutBatchNorm | Self::GemPublished)
    }

    /// Whether any number of samples makes sense.
    pub(super) fn has_choice_of_samples(self) -> bool {
        self == Self::Gem || self.is_for_samples_only()
    }

    /// The number of samples of a model that has no choice.
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
    /// The network of a plan, with weights drawn from the seed.
    pub fn new(plan: Plan, seed: u64) -> Result<Self, NnError> {
        let (network, mut parameters) = plan.config().init(seed)?;
        if plan.model == Model::GemPublished {
            let mut draws = Draws::new(seed, WEIGHT_STREAM);
            for parameter in parameters.iter_mut() {
                draw_as_published(parameter, &mut draws);
            }
        }
        Ok(Self {
            network,
            parameters,
        })
    }

    /// Runs the network on scalars of a mesh. Normalisations take the statistics of this input: fresh
    /// networks have no others.
    pub fn apply(
        &mut self,
        workspace: &mut Workspace<T>,
        graph: &GraphBatch<T>,
        scalars: &[T],
    ) -> Result<Vec<T>, NnError> {
        let randomness = Stream { seed: 0, step: 0 };
        let mut tape = Tape::training(workspace, &mut self.parameters, randomness);
        let x = tape.input(FeatureType::scalars(CHANNELS), scalars)?;
        let y = self.network.forward(&mut tape, graph, x)?;
        Ok(y.values()?.into_owned())
    }
}

/// Draws neighbour weights `[rings, outputs, inputs]` as the published code does: uniform within
/// `sqrt(6 / (inputs + outputs))`, for coefficients of orthonormal samples. Those of order above 0 are here
/// `sqrt 2` times as large, so that weights between them and scalars change by that factor. Self weights are
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

/// A network to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plan {
    pub model: Model,
    pub depth: usize,
    pub samples: Option<usize>,
}

impl Plan {
    fn config(self) -> NetworkConfig {
        let scalars = FeatureType::scalars(CHANNELS);
        let (kernel, hidden) = match self.model {
            Model::Shot => (
                Kernel::Angular {
                    band_limit: BAND_LIMIT,
                },
                scalars.clone(),
            ),
            _ => (Kernel::Gauge, FeatureType::uniform(CHANNELS, BAND_LIMIT)),
        };
        let aggregation = match self.model {
            Model::GemPublished => Aggregation::Mean,
            _ => Aggregation::default(),
        };
        let nonlinearity = self.nonlinearity();
        let start = Network::builder(scalars.clone())
            .kernel(kernel)
            .aggregation(aggregation)
            .degree(DEGREE);
        let hidden_layers = (1..self.depth).fold(start, |config, _| {
            config
                .conv(&nonlinearity.input(&hidden))
                .nonlinearity(nonlinearity.clone())
        });
        hidden_layers.conv(&scalars)
    }

    fn nonlinearity(self) -> Nonlinearity {
        let relu = |samples| Nonlinearity::from(Regular::relu(samples));
        // Scalars need a single sample.
        let samples = self.samples.unwrap_or(1);
        match self.model {
            Model::GemWithoutBatchNorm | Model::GemPublished => relu(samples),
            Model::Gem | Model::Shot => relu(samples).with_batch_norm(),
            Model::GemPolynomial => Nonlinearity::from(Regular {
                activation: Activation::Polynomial(vec![0.0, 1.0, 0.25]),
                ..Regular::relu(samples)
            })
            .with_batch_norm(),
            Model::GemNorm => Nonlinearity::norm().with_batch_norm(),
            Model::GemGated => Nonlinearity::gated().with_batch_norm(),
        }
    }
}
