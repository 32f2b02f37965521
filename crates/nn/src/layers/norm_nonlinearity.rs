//! The norm nonlinearity.

use super::nonlinearity::one_channel_each;
use super::{EquivariantNorm, EquivariantNormConfig, Nonlinearity};
use crate::initialisation::{DRAWS, drawn_moments};
use crate::{Builder, Levels, Module, ParameterId, Result, Role, Tape, Var, signature};
use gemcnn_kernels::norm_gate::{NormForward, NormNonlinearity as Operator, rotating_irreps};
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// `y = x f(|x| + bias) / |x|` for each irrep of order above 0, `y = f(x)` for scalars: exactly
/// equivariant for every angle.
#[derive(Debug, Clone, PartialEq)]
pub struct Norms {
    /// Function of norms and of scalars.
    pub activation: Activation,
    /// Batch-normalises irreps first (default false).
    pub batch_norm: bool,
}

impl Norms {
    /// ReLU of scalars and of the norms of other irreps.
    pub fn relu() -> Self {
        Self { activation: Activation::Relu, batch_norm: false }
    }

    /// The same with batch normalisation.
    pub fn with_batch_norm(self) -> Self {
        Self { batch_norm: true, ..self }
    }
}

impl<T: Real> Nonlinearity<T> for Norms {
    fn word(&self) -> &'static str {
        "norms"
    }

    fn moments(&self, output: &FeatureType) -> Vec<f64> {
        let one_channel = one_channel_each(output);
        drawn_moments([&one_channel, &one_channel], 1.0, |x, y| {
            let config = Operator::new(one_channel.clone(), self.activation.clone());
            let bias = vec![0.0; rotating_irreps(&one_channel)];
            NormForward { op: &config, rows: DRAWS, x, bias: &bias[..], y }.on_host()
        })
    }

    /// Adds the parameter `threshold.bias`, zeros, and those of the normalisation `norm`.
    fn init(&self, name: &str, output: &FeatureType, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        builder.within(name, |builder| {
            let norm = match self.batch_norm {
                true => Some(EquivariantNormConfig::new(output.clone()).init("norm", builder)?),
                false => None,
            };
            builder.within("threshold", |builder| {
                let irreps = rotating_irreps(output);
                Ok(Box::new(NormNonlinearity {
                    name: builder.scope().into(),
                    norm,
                    operator: Arc::new(Operator::new(output.clone(), self.activation.clone())),
                    bias: builder.constant("bias", &[irreps], Role::Offset, 0.0)?,
                }) as Box<dyn Module<T>>)
            })
        })
    }
}

/// The layer of [`Norms`].
#[derive(Debug, Clone)]
struct NormNonlinearity {
    name: String,
    norm: Option<EquivariantNorm>,
    operator: Arc<Operator>,
    bias: ParameterId,
}

impl<T: Real> Module<T> for NormNonlinearity {
    signature!(this: this.operator.kind => this.operator.kind, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let x = match &self.norm {
            None => x,
            Some(norm) => norm.forward(tape, levels, x)?,
        };
        tape.norm_nonlinearity(&self.operator, self.bias, x).map_err(|error| error.in_layer(&self.name))
    }
}
