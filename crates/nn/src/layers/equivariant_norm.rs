//! Batch normalisation that commutes with gauge transformations.

use crate::operators::NormWeights;
use crate::{Builder, Levels, Module, NnError, Result, Role, Tape, Var, signature};
use gemcnn_kernels::batch_norm::{BatchNorm, NormGroups};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`EquivariantNorm`].
#[derive(Debug, Clone, PartialEq)]
pub struct EquivariantNormConfig {
    /// Type of input and output.
    pub kind: FeatureType,
    /// Irreps that share statistics (default: each irrep has its own).
    pub groups: NormGroups,
    /// Added to the variance (default 1e-5).
    pub epsilon: f64,
    /// Weight of the current batch in the running statistics (default 0.1).
    pub momentum: f64,
}

impl EquivariantNormConfig {
    /// Default settings.
    pub fn new(kind: FeatureType) -> Self {
        let BatchNorm { kind, groups, epsilon, momentum } = BatchNorm::new(kind, NormGroups::PerIrrep);
        Self { kind, groups, epsilon, momentum }
    }

    /// Adds the parameters `gamma` (ones) and `beta` (zeros) and the running statistics `mean` and
    /// `variance`.
    ///
    /// # Errors
    /// A name that is taken, or settings out of range.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<EquivariantNorm> {
        builder.within(name, |builder| {
            let config = BatchNorm {
                kind: self.kind.clone(),
                groups: self.groups,
                epsilon: self.epsilon,
                momentum: self.momentum,
            };
            let slots = [config.slots().map_err(|error| NnError::from(error).in_layer(builder.scope()))?];
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

/// Batch normalisation of irreps. Only scalars are shifted, and the two components of an irrep share one scale.
/// Training uses the statistics of the batch, inference the running statistics.
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
    signature!(this: this.weights.config.kind => this.weights.config.kind, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.batch_norm(&self.weights, x).map_err(|error| error.in_layer(&self.name))
    }
}
