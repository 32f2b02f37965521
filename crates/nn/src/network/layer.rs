//! One layer of a network: as it is described, and as it runs.

use super::Place;
use crate::error::expect_scalars;
use crate::layers::{
    ConvConfig, Convolution, EquivariantDropout, EquivariantDropoutConfig, EquivariantLinear,
    EquivariantLinearConfig, EquivariantNorm, EquivariantNormConfig, GlobalPool, Linear,
    LinearConfig, Nonlinearity, NonlinearityLayer, Regular, ResidualBlock, ResidualBlockConfig,
    TransportPool, TransportUnpool,
};
use crate::{Builder, NnError, Tape, Var, text};
use gemcnn_kernels::{Activation, FeatureType, Real};
use serde::{Deserialize, Serialize};

/// One layer of a [`NetworkConfig`](super::NetworkConfig).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerConfig {
    /// A [`Convolution`].
    Conv {
        /// Type of its output.
        #[serde(with = "text")]
        output: FeatureType,
        /// Its kernel, and how it aggregates.
        #[serde(default)]
        conv: ConvConfig,
    },
    /// A [`ResidualBlock`] of two convolutions.
    Residual {
        /// Type of its output.
        #[serde(with = "text")]
        output: FeatureType,
        /// Type between its convolutions; by default that of [`ResidualBlockConfig::middle`].
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "text::optional"
        )]
        middle: Option<FeatureType>,
        /// Both nonlinearities.
        #[serde(default)]
        nonlinearity: Nonlinearity,
        /// The kernel of its convolutions, and how they aggregate.
        #[serde(default)]
        conv: ConvConfig,
    },
    /// A [`NonlinearityLayer`].
    Nonlinearity(Nonlinearity),
    /// An [`EquivariantLinear`] map of each vertex by itself.
    EquivariantLinear {
        /// Type of its output.
        #[serde(with = "text")]
        output: FeatureType,
    },
    /// An [`EquivariantNorm`].
    Norm,
    /// An [`EquivariantDropout`] of irreps; of each scalar by itself where there are only scalars.
    Dropout {
        /// Probability of being dropped.
        probability: f64,
    },
    /// A [`Linear`] map of scalars.
    Linear {
        /// Scalars of its output.
        outputs: usize,
    },
    /// A function of each scalar.
    Activation(#[serde(with = "text::activation")] Activation),
    /// All numbers seen as scalars from here on: what follows depends on the choice of frames.
    BreakSymmetry,
    /// A [`TransportPool`] to the next coarser graph; the features before it are kept for the
    /// [`Up`](Self::Up) that comes back.
    Down,
    /// A [`TransportUnpool`] to the next finer graph, with the features kept there by
    /// [`Down`](Self::Down) joined on, order by order.
    Up,
    /// One row for each mesh.
    GlobalPool(GlobalPool),
}

/// What is known of the features between two layers.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// Their type.
    pub kind: FeatureType,
    /// Mean squares of components by order that are expected; none: all 1.
    moments: Vec<f64>,
    /// Types that wait on finer graphs.
    kept: Vec<FeatureType>,
    /// Whether there is a row for each mesh, no longer for each vertex.
    pooled: bool,
}

impl Stage {
    pub fn new(input: FeatureType) -> Self {
        Self {
            kind: input,
            moments: Vec::new(),
            kept: Vec::new(),
            pooled: false,
        }
    }
}

impl LayerConfig {
    /// First part of its name; its place in the network is the second.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::Residual { .. } => "block",
            Self::Nonlinearity(Nonlinearity::None) => "identity",
            Self::Nonlinearity(Nonlinearity::Regular(_)) => "regular",
            Self::Nonlinearity(Nonlinearity::Norm { .. }) => "norms",
            Self::Nonlinearity(Nonlinearity::Gated { .. }) => "gated",
            Self::EquivariantLinear { .. } => "map",
            Self::Norm => "norm",
            Self::Dropout { .. } => "dropout",
            Self::Linear { .. } => "linear",
            Self::Activation(_) => "activation",
            Self::BreakSymmetry => "break",
            Self::Down => "down",
            Self::Up => "up",
            Self::GlobalPool(_) => "pool",
        }
    }

    /// Steps to coarser graphs.
    pub(super) fn depth_change(&self) -> isize {
        match self {
            Self::Down => 1,
            Self::Up => -1,
            _ => 0,
        }
    }

    fn needs_vertices(&self) -> bool {
        matches!(
            self,
            Self::Conv { .. } | Self::Residual { .. } | Self::Down | Self::Up | Self::GlobalPool(_)
        )
    }

    /// Makes the layer and moves `stage` behind it.
    pub(super) fn init<T: Real>(
        &self,
        name: &str,
        stage: &mut Stage,
        builder: &mut Builder<'_, T>,
    ) -> Result<Layer<T>, NnError> {
        let bad = |problem: &str| Err(NnError::setting("layer", problem).in_layer(name));
        if stage.pooled && self.needs_vertices() {
            return bad(
                "it needs vertices, but after a global pooling there is one row for each mesh",
            );
        }
        let input = stage.kind.clone();
        let moments = std::mem::take(&mut stage.moments);
        let scalars_only = || expect_scalars("input", &input).map_err(|error| error.in_layer(name));
        Ok(match self {
            Self::Conv { output, conv } => {
                stage.kind = output.clone();
                Layer::Conv(conv.init(name, [&input, output], &moments, builder)?)
            }
            Self::Residual {
                output,
                middle,
                nonlinearity,
                conv,
            } => {
                let standard = ResidualBlockConfig::new(input, output.clone());
                let config = ResidualBlockConfig {
                    middle: middle.clone().unwrap_or(standard.middle.clone()),
                    nonlinearity: nonlinearity.clone(),
                    conv: conv.clone(),
                    input_moments: moments,
                    ..standard
                };
                stage.kind = output.clone();
                Layer::Residual(Box::new(config.init(name, builder)?))
            }
            Self::Nonlinearity(nonlinearity) => {
                let output = nonlinearity.output(&input);
                stage.kind = output.map_err(|error| error.in_layer(name))?;
                stage.moments = nonlinearity.moments(&stage.kind);
                Layer::Nonlinearity(nonlinearity.init(name, &stage.kind, builder)?)
            }
            Self::EquivariantLinear { output } => {
                stage.kind = output.clone();
                let config = EquivariantLinearConfig::new(input, output.clone());
                Layer::EquivariantLinear(config.init(name, builder)?)
            }
            Self::Norm => Layer::Norm(EquivariantNormConfig::new(input).init(name, builder)?),
            Self::Dropout { probability } => {
                stage.moments = moments;
                let config = EquivariantDropoutConfig {
                    probability: *probability,
                    ..EquivariantDropoutConfig::new(input)
                };
                Layer::Dropout(config.init(name)?)
            }
            Self::Linear { outputs } => {
                scalars_only()?;
                stage.kind = FeatureType::scalars(*outputs);
                let config = LinearConfig {
                    input_moment: moments.first().copied().unwrap_or(1.0),
                    ..LinearConfig::new(input.dimension(), *outputs)
                };
                Layer::Linear(config.init(name, builder)?)
            }
            Self::Activation(activation) => {
                scalars_only()?;
                let regular = Regular {
                    samples: 1,
                    activation: activation.clone(),
                    batch_norm: false,
                };
                stage.moments = regular.moments(&FeatureType::scalars(1));
                Layer::Activation(activation.clone())
            }
            Self::BreakSymmetry => {
                stage.kind = FeatureType::scalars(input.dimension());
                Layer::BreakSymmetry
            }
            Self::Down => {
                stage.kept.push(input);
                Layer::Down
            }
            Self::Up => {
                let Some(kept) = stage.kept.pop() else {
                    return bad("there is no `down` before it that it could come back from");
                };
                stage.kind = input.concatenated(&kept);
                Layer::Up
            }
            Self::GlobalPool(pool) => {
                scalars_only()?;
                stage.moments = moments;
                stage.pooled = true;
                Layer::GlobalPool(*pool)
            }
        })
    }
}

/// A layer with the ids of its parameters.
#[derive(Debug, Clone)]
pub(super) enum Layer<T: Real> {
    Conv(Convolution),
    Residual(Box<ResidualBlock<T>>),
    Nonlinearity(NonlinearityLayer<T>),
    EquivariantLinear(EquivariantLinear),
    Norm(EquivariantNorm),
    Dropout(EquivariantDropout),
    Linear(Linear),
    Activation(Activation),
    BreakSymmetry,
    Down,
    Up,
    GlobalPool(GlobalPool),
}

impl<T: Real> Layer<T> {
    pub(super) fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        place: &mut Place<'a, T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        match self {
            Self::Conv(conv) => conv.forward(tape, place.graph()?, x),
            Self::Residual(block) => block.forward(tape, place.graph()?, x),
            Self::Nonlinearity(layer) => layer.forward(tape, x),
            Self::EquivariantLinear(map) => map.forward(tape, x),
            Self::Norm(norm) => norm.forward(tape, x),
            Self::Dropout(dropout) => dropout.forward(tape, x),
            Self::Linear(linear) => linear.forward(tape, x),
            Self::Activation(activation) => tape.activation(activation, x),
            Self::BreakSymmetry => Ok(x.into_scalars()),
            Self::Down => {
                let clusters = place.down(x.clone())?;
                TransportPool.forward(tape, clusters, x)
            }
            Self::Up => {
                let (clusters, kept) = place.up()?;
                let x = TransportUnpool.forward(tape, clusters, x)?;
                tape.concatenate(x, kept)
            }
            Self::GlobalPool(pool) => pool.forward(tape, place.graph()?, x),
        }
    }
}
