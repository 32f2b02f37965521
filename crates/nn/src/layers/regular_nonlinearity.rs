//! The regular nonlinearity, with batch normalisation inside on request.

use super::{EquivariantNorm, EquivariantNormConfig};
use crate::{Builder, NnError, Tape, Var, text};
use gemcnn_kernels::batch_norm::NormGroups;
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Activation, FeatureType, Real};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Settings of a [`RegularNonlinearity`]; the type of its input is known when it is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Regular {
    /// Number of samples around the circle: at least twice the band limit plus one for the identity to
    /// stay the identity; more samples make it more nearly equivariant. 5 by default.
    pub samples: usize,
    /// The pointwise function; ReLU by default.
    #[serde(with = "text::activation")]
    pub activation: Activation,
    /// Whether samples are batch-normalised first, with one mean and variance per channel over
    /// vertices and samples; no by default.
    pub batch_norm: bool,
}

impl Default for Regular {
    fn default() -> Self {
        Self::relu(5)
    }
}

impl Regular {
    /// ReLU of the given number of samples.
    pub fn relu(samples: usize) -> Self {
        Self {
            samples,
            activation: Activation::Relu,
            batch_norm: false,
        }
    }

    /// The same with batch normalisation of the samples.
    pub fn with_batch_norm(self) -> Self {
        Self {
            batch_norm: true,
            ..self
        }
    }

    /// The layer for features of a type; with batch normalisation it adds the parameters of a
    /// normalisation named `norm`.
    ///
    /// # Errors
    /// A type whose orders have different multiplicities, or settings out of range.
    pub fn init<T: Real>(
        &self,
        name: &str,
        kind: &FeatureType,
        builder: &mut Builder<'_, T>,
    ) -> Result<RegularNonlinearity<T>, NnError> {
        builder.within(name, |builder| {
            let operator =
                regular::Regular::new(kind.clone(), self.samples, self.activation.clone());
            let plan = Plan::new(&operator)
                .map_err(|error| NnError::from(error).in_layer(builder.scope()))?;
            let norm = match self.batch_norm {
                true => {
                    let config = EquivariantNormConfig {
                        groups: NormGroups::PerChannel,
                        ..EquivariantNormConfig::new(kind.clone())
                    };
                    Some(config.init("norm", builder)?)
                }
                false => None,
            };
            Ok(RegularNonlinearity {
                name: builder.scope().into(),
                plan: Arc::new(plan),
                norm,
            })
        })
    }
}

/// Samples the signal of each channel around the circle, applies a function, projects back. Exactly
/// equivariant for angles that are multiples of `2 pi / samples`, nearly for others.
#[derive(Debug, Clone)]
pub struct RegularNonlinearity<T: Real> {
    name: String,
    plan: Arc<Plan<T>>,
    norm: Option<EquivariantNorm>,
}

impl<T: Real> RegularNonlinearity<T> {
    /// Applies it.
    ///
    /// # Shapes
    /// `x` and result: rows of the type, the same multiplicity for every order up to the highest.
    ///
    /// # Errors
    /// Features of another type.
    pub fn forward(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let norm = self.norm.as_ref().map(EquivariantNorm::weights);
        tape.regular(&self.plan, norm, x)
            .map_err(|error| error.in_layer(&self.name))
    }
}
