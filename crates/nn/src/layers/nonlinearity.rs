//! Any of the nonlinearities, with batch normalisation inside on request.

use super::{
    EquivariantNorm, EquivariantNormConfig, GatedNonlinearity, GatedNonlinearityConfig,
    NormNonlinearity, NormNonlinearityConfig, Regular, RegularNonlinearity,
};
use crate::{Builder, NnError, Tape, Var, text};
use gemcnn_kernels::norm_gate::rotating_irreps;
use gemcnn_kernels::{Activation, FeatureType, Real};
use serde::{Deserialize, Serialize};

/// Settings of a nonlinearity; the type of its output is known when it is made.
///
/// ```
/// use gemcnn_nn::layers::{Nonlinearity, Regular};
/// let hidden = "4x0 + 2x1".parse()?;
/// // A gated one needs two more scalars, the gates of its two vectors.
/// assert_eq!(Nonlinearity::gated().input(&hidden).to_string(), "6x0 + 2x1");
/// assert_eq!(Nonlinearity::from(Regular::relu(5)).input(&hidden), hidden);
/// # Ok::<(), gemcnn_nn::ParseTypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Nonlinearity {
    /// The identity.
    None,
    /// A [`RegularNonlinearity`]: nearly equivariant, the more so the more samples.
    Regular(Regular),
    /// A [`NormNonlinearity`]: exactly equivariant.
    Norm {
        /// The function of norms and scalars; ReLU by default.
        #[serde(default = "relu", with = "text::activation")]
        activation: Activation,
        /// Whether irreps are batch-normalised first; no by default.
        #[serde(default)]
        batch_norm: bool,
    },
    /// A [`GatedNonlinearity`]: exactly equivariant.
    Gated {
        /// The function of scalars that are no gates; ReLU by default.
        #[serde(default = "relu", with = "text::activation")]
        activation: Activation,
        /// Whether irreps and gates are batch-normalised first; no by default.
        #[serde(default)]
        batch_norm: bool,
    },
}

fn relu() -> Activation {
    Activation::Relu
}

impl Default for Nonlinearity {
    fn default() -> Self {
        Self::Regular(Regular::default())
    }
}

impl From<Regular> for Nonlinearity {
    fn from(regular: Regular) -> Self {
        Self::Regular(regular)
    }
}

impl Nonlinearity {
    /// ReLU of scalars and of the norms of other irreps.
    pub fn norm() -> Self {
        Self::Norm {
            activation: Activation::Relu,
            batch_norm: false,
        }
    }

    /// ReLU of scalars, and gates for other irreps.
    pub fn gated() -> Self {
        Self::Gated {
            activation: Activation::Relu,
            batch_norm: false,
        }
    }

    /// The same with batch normalisation.
    pub fn with_batch_norm(mut self) -> Self {
        match &mut self {
            Self::None => {}
            Self::Regular(Regular { batch_norm, .. })
            | Self::Norm { batch_norm, .. }
            | Self::Gated { batch_norm, .. } => *batch_norm = true,
        }
        self
    }

    /// Type of the input for features of a type to come out: with gates if it is gated.
    pub fn input(&self, output: &FeatureType) -> FeatureType {
        match self {
            Self::None | Self::Regular(_) | Self::Norm { .. } => output.clone(),
            Self::Gated { .. } => {
                output.concatenated(&FeatureType::scalars(rotating_irreps(output)))
            }
        }
    }

    /// Type of the output for features of a type: without the gates if it is gated.
    ///
    /// # Errors
    /// Fewer scalars than gates are needed.
    pub fn output(&self, input: &FeatureType) -> Result<FeatureType, NnError> {
        match self {
            Self::None | Self::Regular(_) | Self::Norm { .. } => Ok(input.clone()),
            Self::Gated { .. } => {
                let mut multiplicities = input.multiplicities().to_vec();
                let gates = rotating_irreps(input);
                match multiplicities.first_mut() {
                    None => {}
                    Some(scalars) if *scalars >= gates => *scalars -= gates,
                    Some(scalars) => {
                        let problem = format!(
                            "{input} has {gates} irreps of order above 0, each of which needs a scalar as its \
                             gate, but only {scalars} scalars; take the type that `Nonlinearity::input` gives"
                        );
                        return Err(NnError::setting("gated nonlinearity", problem));
                    }
                }
                Ok(FeatureType::new(&multiplicities))
            }
        }
    }

    /// The layer that gives features of type `output`, with its parameters.
    ///
    /// # Errors
    /// A name that is taken, or a type that it cannot handle.
    pub fn init<T: Real>(
        &self,
        name: &str,
        output: &FeatureType,
        builder: &mut Builder<'_, T>,
    ) -> Result<NonlinearityLayer<T>, NnError> {
        let norm = |batch_norm: bool, builder: &mut Builder<'_, T>| {
            let config = EquivariantNormConfig::new(self.input(output));
            batch_norm.then(|| config.init("norm", builder)).transpose()
        };
        Ok(match self {
            Self::None => NonlinearityLayer::None,
            Self::Regular(regular) => {
                NonlinearityLayer::Regular(regular.init(name, output, builder)?)
            }
            Self::Norm {
                activation,
                batch_norm,
            } => builder.within(name, |builder| {
                let config = NormNonlinearityConfig {
                    activation: activation.clone(),
                    ..NormNonlinearityConfig::new(output.clone())
                };
                let norm = norm(*batch_norm, builder)?;
                let layer = config.init("threshold", builder)?;
                Ok(NonlinearityLayer::Norm(norm, layer))
            })?,
            Self::Gated {
                activation,
                batch_norm,
            } => builder.within(name, |builder| {
                let config = GatedNonlinearityConfig {
                    output: output.clone(),
                    activation: activation.clone(),
                };
                let norm = norm(*batch_norm, builder)?;
                Ok(NonlinearityLayer::Gated(norm, config.init(builder.scope())))
            })?,
        })
    }
}

/// A nonlinearity of any kind.
#[derive(Debug, Clone)]
pub enum NonlinearityLayer<T: Real> {
    /// The identity.
    None,
    /// Of samples around the circle.
    Regular(RegularNonlinearity<T>),
    /// Of norms, after a normalisation.
    Norm(Option<EquivariantNorm>, NormNonlinearity),
    /// By gates, after a normalisation.
    Gated(Option<EquivariantNorm>, GatedNonlinearity),
}

impl<T: Real> NonlinearityLayer<T> {
    /// Applies it.
    ///
    /// # Shapes
    /// `x`: rows of [`Nonlinearity::input`]; result: as many rows of the output type.
    ///
    /// # Errors
    /// Features of another type.
    pub fn forward(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let normalised = |tape: &mut Tape<'_, T>, norm: &Option<EquivariantNorm>, x| match norm {
            None => Ok(x),
            Some(norm) => norm.forward(tape, x),
        };
        match self {
            Self::None => Ok(x),
            Self::Regular(layer) => layer.forward(tape, x),
            Self::Norm(norm, layer) => {
                let x = normalised(tape, norm, x)?;
                layer.forward(tape, x)
            }
            Self::Gated(norm, layer) => {
                let x = normalised(tape, norm, x)?;
                layer.forward(tape, x)
            }
        }
    }
}
