//! The gated nonlinearity.

use crate::{NnError, Tape, Var};
use gemcnn_kernels::norm_gate::GatedNonlinearity as Operator;
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// Settings of a [`GatedNonlinearity`].
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNonlinearityConfig {
    /// Type of the output.
    pub output: FeatureType,
    /// The function of scalars; ReLU by default.
    pub activation: Activation,
}

impl GatedNonlinearityConfig {
    /// The defaults.
    pub fn new(output: FeatureType) -> Self {
        Self {
            output,
            activation: Activation::Relu,
        }
    }

    /// The layer; it has no parameters.
    pub fn init(&self, name: &str) -> GatedNonlinearity {
        GatedNonlinearity {
            name: name.into(),
            operator: Arc::new(Operator {
                output: self.output.clone(),
                activation: self.activation.clone(),
            }),
        }
    }
}

/// `y = sigmoid(gate) x` for each irrep of order above 0, with one scalar of the input as its gate,
/// and `y = f(x)` for the other scalars: exactly equivariant for every angle.
#[derive(Debug, Clone)]
pub struct GatedNonlinearity {
    name: String,
    operator: Arc<Operator>,
}

impl GatedNonlinearity {
    /// Type of the input: the output's, and a scalar for each irrep of order above 0.
    pub fn input(&self) -> FeatureType {
        self.operator.input()
    }

    /// Applies it.
    ///
    /// # Shapes
    /// `x`: rows of [`input`](Self::input), gates after the other scalars; result: as many rows of the
    /// output type.
    ///
    /// # Errors
    /// Features of another type.
    pub fn forward<T: Real>(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        tape.gated_nonlinearity(&self.operator, x)
            .map_err(|error| error.in_layer(&self.name))
    }
}
