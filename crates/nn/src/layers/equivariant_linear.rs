//! The equivariant linear layer, which acts on each row.

use crate::operators::LinearWeights;
use crate::{Builder, Levels, Module, Result, Role, Tape, Var, initialisation, signature};
use gemcnn_kernels::self_map::SelfMap;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`EquivariantLinear`] layer.
#[derive(Debug, Clone, PartialEq)]
pub struct EquivariantLinearConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Adds a bias to scalars (default true). It is initialised to zero.
    pub bias: bool,
}

impl EquivariantLinearConfig {
    /// Default settings.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        Self { input, output, bias: true }
    }

    /// Adds the parameters `weight` and `bias`.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<EquivariantLinear> {
        builder.within(name, |builder| {
            let operator = SelfMap { input: self.input.clone(), output: self.output.clone(), bias: self.bias };
            let fans = initialisation::Fans::new(&self.input, &self.output);
            let count = operator.parameter_count();
            let weight = builder.random("weight", &[count], Role::Weight, |place| 1.0 / fans.of(place).1)?;
            let bias = match operator.bias_count() {
                0 => None,
                count => Some(builder.constant("bias", &[count], Role::Offset, 0.0)?),
            };
            Ok(EquivariantLinear {
                name: builder.scope().into(),
                operator: Arc::new(operator),
                weights: LinearWeights { weight, bias },
            })
        })
    }
}

/// A linear map of each row that commutes with gauge transformations. It mixes channels of the same order, with
/// a real factor for scalars and a scaled rotation for higher orders. Orders that only the output has are zero.
#[derive(Debug, Clone)]
pub struct EquivariantLinear {
    name: String,
    operator: Arc<SelfMap>,
    weights: LinearWeights,
}

impl EquivariantLinear {
    /// Ids of its parameters.
    pub fn weights(&self) -> LinearWeights {
        self.weights
    }
}

impl<T: Real> Module<T> for EquivariantLinear {
    signature!(this: this.operator.input => this.operator.output, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.self_map(&self.operator, self.weights, x).map_err(|error| error.in_layer(&self.name))
    }
}
