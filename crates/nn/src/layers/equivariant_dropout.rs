//! Dropout of whole irreps.

use crate::{Levels, Module, NnError, Result, Tape, Var, signature};
use gemcnn_kernels::dropout::{Dropout, DropoutUnit};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`EquivariantDropout`].
#[derive(Debug, Clone, PartialEq)]
pub struct EquivariantDropoutConfig {
    /// Type of input and output.
    pub kind: FeatureType,
    /// Unit that is dropped as a whole (default: an irrep).
    pub unit: DropoutUnit,
    /// Dropout probability, in [0, 1) (default 0.5).
    pub probability: f64,
}

impl EquivariantDropoutConfig {
    /// Default settings.
    pub fn new(kind: FeatureType) -> Self {
        Self { kind, unit: DropoutUnit::Irrep, probability: 0.5 }
    }

    /// The layer; it has no parameters.
    pub fn init(&self, name: &str) -> Result<EquivariantDropout> {
        let operator = Dropout { kind: self.kind.clone(), unit: self.unit, probability: self.probability };
        operator.units().map_err(|error| NnError::from(error).in_layer(name))?;
        Ok(EquivariantDropout { name: name.into(), operator: Arc::new(operator) })
    }
}

/// Dropout of whole irreps. In training, dropped irreps are zero and the others are divided by the probability of
/// being kept. In inference it is the identity.
#[derive(Debug, Clone)]
pub struct EquivariantDropout {
    name: String,
    operator: Arc<Dropout>,
}

impl<T: Real> Module<T> for EquivariantDropout {
    signature!(this: this.operator.kind => this.operator.kind, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.dropout(&self.operator, x).map_err(|error| error.in_layer(&self.name))
    }
}
