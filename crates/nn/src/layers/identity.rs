//! No nonlinearity.

use super::Nonlinearity;
use crate::{Builder, Levels, Module, Result, Tape, Var, signature};
use gemcnn_kernels::{FeatureType, Real};

/// No nonlinearity: the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity;

/// The identity on features of a type.
#[derive(Debug, Clone)]
struct IdentityLayer(FeatureType);

impl<T: Real> Nonlinearity<T> for Identity {
    fn word(&self) -> &'static str {
        "identity"
    }

    fn init(&self, _: &str, output: &FeatureType, _: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        Ok(Box::new(IdentityLayer(output.clone())))
    }
}

impl<T: Real> Module<T> for IdentityLayer {
    signature!(this: this.0 => this.0, reach 0);

    fn forward<'a>(&self, _: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        Ok(x)
    }
}
