//! The gated nonlinearity.

use super::nonlinearity::one_channel_each;
use super::{EquivariantNorm, EquivariantNormConfig, Nonlinearity};
use crate::initialisation::{DRAWS, drawn_moments};
use crate::{Builder, Levels, Module, NnError, Result, Tape, Var, signature};
use gemcnn_kernels::norm_gate::{GatedForward, GatedNonlinearity as Operator, rotating_irreps};
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// `y = sigmoid(gate) x` for each irrep of order above 0, with one scalar of the input as its gate,
/// and `y = f(x)` for the other scalars: exactly equivariant for every angle. The gates come after the
/// other scalars of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Gates {
    /// Function of scalars that are not gates.
    pub activation: Activation,
    /// Batch-normalises irreps and gates first (default false).
    pub batch_norm: bool,
}

impl Gates {
    /// ReLU of scalars, and gates for other irreps.
    pub fn relu() -> Self {
        Self { activation: Activation::Relu, batch_norm: false }
    }

    /// The same with batch normalisation.
    pub fn with_batch_norm(self) -> Self {
        Self { batch_norm: true, ..self }
    }

    fn operator(&self, output: &FeatureType) -> Operator {
        Operator { output: output.clone(), activation: self.activation.clone() }
    }
}

impl<T: Real> Nonlinearity<T> for Gates {
    fn word(&self) -> &'static str {
        "gated"
    }

    fn input(&self, output: &FeatureType) -> FeatureType {
        self.operator(output).input()
    }

    fn output(&self, input: &FeatureType) -> Result<FeatureType> {
        let mut multiplicities = input.multiplicities().to_vec();
        let gates = rotating_irreps(input);
        match multiplicities.first_mut() {
            None => {}
            Some(scalars) if *scalars >= gates => *scalars -= gates,
            Some(scalars) => {
                let problem = format!(
                    "{input} has {gates} irreps of order above 0, which need one scalar each as a gate, but only \
                     {scalars} scalars; use the type that `Nonlinearity::input` returns"
                );
                return Err(NnError::setting("gated nonlinearity", problem));
            }
        }
        Ok(FeatureType::new(&multiplicities))
    }

    fn moments(&self, output: &FeatureType) -> Vec<f64> {
        let one_channel = one_channel_each(output);
        let operator = self.operator(&one_channel);
        drawn_moments([&operator.input(), &one_channel], 1.0, |x, y| {
            GatedForward { op: &operator, rows: DRAWS, x, y }.on_host()
        })
    }

    /// Adds the parameters of the normalisation `norm`, if there is one.
    fn init(&self, name: &str, output: &FeatureType, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        builder.within(name, |builder| {
            let operator = self.operator(output);
            let input = operator.input();
            let norm = match self.batch_norm {
                true => Some(EquivariantNormConfig::new(input.clone()).init("norm", builder)?),
                false => None,
            };
            Ok(Box::new(GatedNonlinearity { name: builder.scope().into(), norm, input, operator: Arc::new(operator) })
                as Box<dyn Module<T>>)
        })
    }
}

/// The layer of [`Gates`].
#[derive(Debug, Clone)]
struct GatedNonlinearity {
    name: String,
    norm: Option<EquivariantNorm>,
    input: FeatureType,
    operator: Arc<Operator>,
}

impl<T: Real> Module<T> for GatedNonlinearity {
    signature!(this: this.input => this.operator.output, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let x = match &self.norm {
            None => x,
            Some(norm) => norm.forward(tape, levels, x)?,
        };
        tape.gated_nonlinearity(&self.operator, x).map_err(|error| error.in_layer(&self.name))
    }
}
