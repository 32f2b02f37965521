//! Batch normalisation that commutes with changes of frame.

use crate::operators::NormWeights;
use crate::{Builder, Levels, Module, NnError, Role, Tape, Var};
use gemcnn_kernels::batch_norm::{BatchNorm, NormGroups};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`EquivariantNorm`].
#[derive(Debug, Clone, PartialEq)]
pub struct EquivariantNormConfig {
    /// Type of input and output.
    pub kind: FeatureType,
    /// Which irreps share their statistics; each has its own by default.
    pub groups: NormGroups,
    /// Added to the variance; 1e-5 by default.
    pub epsilon: f64,
    /// Share of the newest batch in the running statistics; 0.1 by default.
    pub momentum: f64,
}

impl EquivariantNormConfig {
    /// The defaults.
    pub fn new(kind: FeatureType) -> Self {
        let BatchNorm {
            kind,
            groups,
            epsilon,
            momentum,
        } = BatchNorm::new(kind, NormGroups::PerIrrep);
        Self {
            kind,
            groups,
            epsilon,
            momentum,
        }
    }

    /// Adds the parameters `gamma` (ones) and `beta` (zeros) and the running statistics `mean` and
    /// `variance`.
    ///
    /// # Errors
    /// A name that is taken, or settings out of range.
    pub fn init<T: Real>(
        &self,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<EquivariantNorm, NnError> {
        builder.within(name, |builder| {
            let config = BatchNorm {
                kind: self.kind.clone(),
                groups: self.groups,
                epsilon: self.epsilon,
                momentum: self.momentum,
            };
            let slots = [config
                .slots()
                .map_err(|error| NnError::from(error).in_layer(builder.scope()))?];
            Ok(EquivariantNorm {
                name: builder.scope().into(),
                weights: NormWeights {
                    config: Arc::new(config),
                    gamma: builder.constant("gamma", &slots, Role::Offset, 1.0)?,
                    beta: builder.constant("beta", &slots, Role::Offset, 0.0)?,
                    mean: builder.constant("mean", &slots, Role::Statistic, 0.0)?,
                    variance: builder.constant("variance", &slots, Role::Statistic, 1.0)?,
                },
            })
        })
    }
}

/// Batch normalisation: only scalars are shifted, and the two components of an irrep share one
/// scale. Training uses the statistics of the batch, inference the running ones.
#[derive(Debug, Clone)]
pub struct EquivariantNorm {
    name: String,
    weights: NormWeights,
}

impl EquivariantNorm {
    /// Settings and ids of its parameters.
    pub fn weights(&self) -> &NormWeights {
        &self.weights
    }
}

impl<T: Real> Module<T> for EquivariantNorm {
    fn input(&self) -> &FeatureType {
        &self.weights.config.kind
    }

    fn output(&self) -> &FeatureType {
        &self.weights.config.kind
    }

    fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        _: Levels<'a, T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        tape.batch_norm(&self.weights, x)
            .map_err(|error| error.in_layer(&self.name))
    }
}
