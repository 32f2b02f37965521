//! Layers without parameters: pointwise functions of scalars, and components as scalars.

use crate::{Levels, Module, Result, Tape, Var, signature};
use gemcnn_kernels::{Activation, FeatureType, Real};

/// A pointwise function of scalars.
#[derive(Debug, Clone)]
pub struct ActivationLayer {
    function: Activation,
    kind: FeatureType,
}

impl ActivationLayer {
    /// The layer for rows of `channels` scalars.
    pub fn new(function: Activation, channels: usize) -> Self {
        Self { function, kind: FeatureType::scalars(channels) }
    }
}

impl<T: Real> Module<T> for ActivationLayer {
    signature!(this: this.kind => this.kind, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.activation(&self.function, x)
    }
}

/// Treats all components as scalars. The layers that follow depend on the choice of frames, so the network is no longer
/// gauge equivariant.
#[derive(Debug, Clone)]
pub struct BreakSymmetry {
    input: FeatureType,
    output: FeatureType,
}

impl BreakSymmetry {
    /// The layer for features of a type.
    pub fn new(input: FeatureType) -> Self {
        Self { output: FeatureType::scalars(input.dimension()), input }
    }
}

impl<T: Real> Module<T> for BreakSymmetry {
    signature!(this: this.input => this.output, reach 0);

    fn forward<'a>(&self, _: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input", &self.input)?;
        Ok(x.into_scalars())
    }
}
