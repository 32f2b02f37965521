//! A nonlinearity: `y = tanh(|x|) x` for each irrep, composed of primitives.
//!
//! The norm of an irrep is invariant, and so is a function of it. An irrep times an invariant is
//! equivariant. So the composition is exactly equivariant for every angle, on the CPU and on a GPU, and its
//! gradient is known.

use gemcnn_kernels::irrep::Grouping;
use gemcnn_nn::layers::Nonlinearity;
use gemcnn_nn::{Activation, Builder, FeatureType, Levels, Module, NnError, Real, Tape, Var};

/// Keeps the gradient of the norm finite at zero.
const EPSILON: f64 = 1e-6;

/// Settings of the nonlinearity; it has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct TanhNorm;

impl<T: Real> Nonlinearity<T> for TanhNorm {
    fn word(&self) -> &'static str {
        "tanh_norm"
    }

    fn init(
        &self,
        _name: &str,
        output: &FeatureType,
        _builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>, NnError> {
        Ok(Box::new(TanhNormLayer { kind: output.clone() }))
    }
}

/// The layer for features of one type.
#[derive(Debug)]
struct TanhNormLayer {
    kind: FeatureType,
}

impl<T: Real> Module<T> for TanhNormLayer {
    fn input(&self) -> &FeatureType {
        &self.kind
    }

    fn output(&self) -> &FeatureType {
        &self.kind
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        x.expect_kind("input of tanh_norm", &self.kind)?;
        let norms = tape.irrep_norm(EPSILON, x.clone())?;
        let factors = tape.activation(&Activation::Tanh, norms)?;
        tape.irrep_scale(Grouping::Irreps, x, factors)
    }
}
