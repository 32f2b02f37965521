//! The networks: all take and give 16 scalars for each vertex.

use super::Row;
use super::transform::Frames;
use crate::TaskError;
use gemcnn_nn::layers::{
    AngularConv, AngularConvConfig, EquivariantNorm, EquivariantNormConfig, GatedNonlinearity,
    GatedNonlinearityConfig, GemConv, GemConvConfig, NormNonlinearity, NormNonlinearityConfig,
    Regular, RegularNonlinearity,
};
use gemcnn_nn::{
    Activation, Builder, FeatureType, GraphBatch, NnError, Parameters, Real, Stream, Tape, Var,
    Workspace,
};
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Gauge equivariant convolutions, hidden features `16x0 + 16x1 + 16x2`, the regular nonlinearity
    /// with ReLU.
    Gem,
    /// The same without batch normalisation.
    GemWithoutBatchNorm,
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
    pub(super) const ALL: [Self; 6] = [
        Self::Gem,
        Self::GemWithoutBatchNorm,
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

    /// The number of samples of a model that has no choice.
    pub(super) fn own_samples(self) -> Option<usize> {
        match self {
            Self::GemPolynomial => Some(SQUARE_SAMPLES),
            _ => None,
        }
    }

    /// The name in figures.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Gem => "GEM-CNN",
            Self::GemWithoutBatchNorm => "GEM-CNN without batch normalisation",
            Self::GemPolynomial => "polynomial",
            Self::GemNorm => "norm",
            Self::GemGated => "gated",
            Self::Shot => "SHOT",
        }
    }

    fn hidden(self) -> FeatureType {
        match self {
            Self::Shot => FeatureType::scalars(CHANNELS),
            _ => FeatureType::uniform(CHANNELS, BAND_LIMIT),
        }
    }
}

/// A network with random weights.
pub(super) struct RandomModel<T: Real> {
    convolutions: Vec<Convolution>,
    /// Between one convolution and the next.
    nonlinearities: Vec<Nonlinearity<T>>,
    parameters: Parameters<T>,
}

enum Convolution {
    Gem(GemConv),
    Angular(AngularConv),
}

enum Nonlinearity<T: Real> {
    Regular(RegularNonlinearity<T>),
    Norm(EquivariantNorm, NormNonlinearity),
    Gated(EquivariantNorm, GatedNonlinearity),
    Relu(EquivariantNorm),
}

impl<T: Real> Nonlinearity<T> {
    fn new(
        model: Model,
        samples: usize,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<Self, NnError> {
        let kind = model.hidden();
        builder.within(name, |builder| {
            let regular = |activation, batch_norm, builder: &mut Builder<'_, T>| {
                let regular = Regular {
                    samples,
                    activation,
                    batch_norm,
                };
                Ok(Self::Regular(regular.init("regular", &kind, builder)?))
            };
            let mut norm = |kind| EquivariantNormConfig::new(kind).init("norm", builder);
            match model {
                Model::Gem => regular(Activation::Relu, true, builder),
                Model::GemWithoutBatchNorm => regular(Activation::Relu, false, builder),
                Model::GemPolynomial => {
                    let square = Activation::Polynomial(vec![0.0, 1.0, 0.25]);
                    regular(square, true, builder)
                }
                Model::GemNorm => Ok(Self::Norm(
                    norm(kind.clone())?,
                    NormNonlinearityConfig::new(kind).init("act", builder)?,
                )),
                Model::GemGated => {
                    let gated = GatedNonlinearityConfig::new(kind).init("act");
                    Ok(Self::Gated(norm(gated.input())?, gated))
                }
                Model::Shot => Ok(Self::Relu(norm(kind)?)),
            }
        })
    }

    /// Type of what goes in.
    fn input(&self, hidden: &FeatureType) -> FeatureType {
        match self {
            Self::Gated(_, gated) => gated.input(),
            _ => hidden.clone(),
        }
    }

    fn apply(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        match self {
            Self::Regular(regular) => regular.forward(tape, x),
            Self::Norm(norm, nonlinearity) => {
                let x = norm.forward(tape, x)?;
                nonlinearity.forward(tape, x)
            }
            Self::Gated(norm, nonlinearity) => {
                let x = norm.forward(tape, x)?;
                nonlinearity.forward(tape, x)
            }
            Self::Relu(norm) => {
                let x = norm.forward(tape, x)?;
                tape.activation(&Activation::Relu, x)
            }
        }
    }
}

impl<T: Real> RandomModel<T> {
    /// The network of a measurement, with weights drawn from the seed.
    pub fn new(row: &Row, seed: u64) -> Result<Self, TaskError> {
        let model = row.model;
        let samples = row.samples.unwrap_or(1);
        let hidden = model.hidden();
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, seed);
        let mut convolutions = Vec::with_capacity(row.depth);
        let mut nonlinearities: Vec<Nonlinearity<T>> = Vec::new();
        let mut input = FeatureType::scalars(CHANNELS);
        for layer in 1..=row.depth {
            let output = if layer < row.depth {
                let name = format!("nonlinearity{layer}");
                let nonlinearity = Nonlinearity::new(model, samples, &name, &mut builder)?;
                let output = nonlinearity.input(&hidden);
                nonlinearities.push(nonlinearity);
                output
            } else {
                FeatureType::scalars(CHANNELS)
            };
            let name = format!("conv{layer}");
            convolutions.push(match model {
                Model::Shot => {
                    let config = AngularConvConfig {
                        degree: DEGREE,
                        ..AngularConvConfig::new(CHANNELS, CHANNELS, BAND_LIMIT)
                    };
                    Convolution::Angular(config.init(&name, &mut builder)?)
                }
                _ => {
                    let config = GemConvConfig {
                        degree: DEGREE,
                        ..GemConvConfig::new(input, output)
                    };
                    Convolution::Gem(config.init(&name, &mut builder)?)
                }
            });
            input = hidden.clone();
        }
        Ok(Self {
            convolutions,
            nonlinearities,
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
    ) -> Result<Vec<T>, TaskError> {
        let randomness = Stream { seed: 0, step: 0 };
        let mut tape = Tape::training(workspace, &mut self.parameters, randomness);
        let mut x = tape.input(FeatureType::scalars(CHANNELS), scalars)?;
        for (layer, convolution) in self.convolutions.iter().enumerate() {
            x = match convolution {
                Convolution::Gem(conv) => conv.forward(&mut tape, graph, x)?,
                Convolution::Angular(conv) => conv.forward(&mut tape, graph, x)?,
            };
            if let Some(nonlinearity) = self.nonlinearities.get(layer) {
                x = nonlinearity.apply(&mut tape, x)?;
            }
        }
        Ok(x.values()?.into_owned())
    }
}
