//! The linear layer of scalars.

use crate::operators::LinearWeights;
use crate::{Builder, Head, Levels, Module, Result, Role, Tape, Var, signature};
use gemcnn_kernels::linear::Linear as Operator;
use gemcnn_kernels::{FeatureType, Real};

/// Settings of a [`Linear`] layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearConfig {
    /// Number of scalars of the input.
    pub inputs: usize,
    /// Number of scalars of the output.
    pub outputs: usize,
    /// Adds a bias (default true). It is initialised to zero.
    pub bias: bool,
    /// Mean square of an input value that the initialisation assumes (default 1).
    pub input_moment: f64,
}

impl LinearConfig {
    /// Default settings.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs, bias: true, input_moment: 1.0 }
    }

    /// Adds the parameters `weight` `[outputs, inputs]` and `bias`.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<Linear> {
        builder.within(name, |builder| {
            let variance = 1.0 / (self.inputs.max(1) as f64 * self.input_moment);
            let shape = [self.outputs, self.inputs];
            let weight = builder.random("weight", &shape, Role::Weight, |_| variance)?;
            let bias = self.bias.then(|| builder.constant("bias", &[self.outputs], Role::Offset, 0.0)).transpose()?;
            Ok(Linear {
                name: builder.scope().into(),
                operator: Operator { inputs: self.inputs, outputs: self.outputs, bias: self.bias },
                weights: LinearWeights { weight, bias },
                input: FeatureType::scalars(self.inputs),
                output: FeatureType::scalars(self.outputs),
            })
        })
    }
}

/// `y = W x + bias` for each row of scalars.
#[derive(Debug, Clone)]
pub struct Linear {
    name: String,
    operator: Operator,
    weights: LinearWeights,
    input: FeatureType,
    output: FeatureType,
}

impl Linear {
    /// Ids of its parameters, for [`Tape::classifier`].
    pub fn weights(&self) -> LinearWeights {
        self.weights
    }

    /// The layer as the head of a model.
    pub fn head(&self) -> Head<'_> {
        Head { name: &self.name, weights: self.weights }
    }
}

impl<T: Real> Module<T> for Linear {
    signature!(this: this.input => this.output, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.linear(self.operator, self.weights, x).map_err(|error| error.in_layer(&self.name))
    }
}
