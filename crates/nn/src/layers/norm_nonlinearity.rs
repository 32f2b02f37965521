//! The nonlinearity of norms.

use crate::{Builder, NnError, ParameterId, Role, Tape, Var};
use gemcnn_kernels::norm_gate::{NormNonlinearity as Operator, rotating_irreps};
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// Settings of a [`NormNonlinearity`].
#[derive(Debug, Clone, PartialEq)]
pub struct NormNonlinearityConfig {
    /// Type of input and output.
    pub kind: FeatureType,
    /// The function of norms and of scalars; ReLU by default.
    pub activation: Activation,
    /// Added to the squared norm; 1e-8 by default.
    pub epsilon: f64,
}

impl NormNonlinearityConfig {
    /// The defaults.
    pub fn new(kind: FeatureType) -> Self {
        let Operator {
            kind,
            activation,
            epsilon,
        } = Operator::new(kind, Activation::Relu);
        Self {
            kind,
            activation,
            epsilon,
        }
    }

    /// Adds the parameter `bias`, zeros.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(
        &self,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<NormNonlinearity, NnError> {
        builder.within(name, |builder| {
            let irreps = rotating_irreps(&self.kind);
            Ok(NormNonlinearity {
                name: builder.scope().into(),
                operator: Arc::new(Operator {
                    kind: self.kind.clone(),
                    activation: self.activation.clone(),
                    epsilon: self.epsilon,
                }),
                bias: builder.constant("bias", &[irreps], Role::Offset, 0.0)?,
            })
        })
    }
}

/// `y = x f(|x| + bias) / |x|` for each irrep of order above 0, `y = f(x)` for scalars: exactly
/// equivariant for every angle.
#[derive(Debug, Clone)]
pub struct NormNonlinearity {
    name: String,
    operator: Arc<Operator>,
    bias: ParameterId,
}

impl NormNonlinearity {
    /// Applies it.
    ///
    /// # Shapes
    /// `x` and result: rows of the type.
    ///
    /// # Errors
    /// Features of another type.
    pub fn forward<T: Real>(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        tape.norm_nonlinearity(&self.operator, self.bias, x)
            .map_err(|error| error.in_layer(&self.name))
    }
}
