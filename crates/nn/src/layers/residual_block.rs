//! The residual block: two convolutions and a skip connection.

use super::{ConvConfig, EquivariantLinear, EquivariantLinearConfig, Nonlinearity, Regular};
use crate::{Builder, Levels, Module, Result, Tape, Var, signature};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of a [`ResidualBlock`].
#[derive(Debug, Clone)]
pub struct ResidualBlockConfig<T> {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Type between the convolutions. By default the largest multiplicity of the output, for all orders
    /// up to the highest of input and output.
    pub middle: FeatureType,
    /// Settings of both convolutions.
    pub conv: ConvConfig<T>,
    /// Both nonlinearities (default: ReLU of 5 samples).
    pub nonlinearity: Arc<dyn Nonlinearity<T>>,
    /// As [`GemConvConfig::input_moments`](super::GemConvConfig::input_moments).
    pub input_moments: Vec<f64>,
}

impl<T: Real> ResidualBlockConfig<T> {
    /// Default settings.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        let highest = input.highest_order().max(output.highest_order());
        let channels = output.multiplicities().iter().copied().max();
        Self {
            middle: FeatureType::uniform(channels.unwrap_or(0), highest),
            input,
            output,
            conv: ConvConfig::default(),
            nonlinearity: Arc::new(Regular::relu(5)),
            input_moments: Vec::new(),
        }
    }

    /// Adds the parameters of `conv1`, `conv2`, of the nonlinearities `act1` and `act2` if they have
    /// any, and of the map `skip` if the types at the ends of the skip connection differ.
    ///
    /// # Errors
    /// A name that is taken, or types that the kernel or the nonlinearity does not support.
    pub fn init(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<ResidualBlock<T>> {
        let act = &self.nonlinearity;
        let [inner, sum] = [&self.middle, &self.output].map(|after| act.input(after));
        let moments = act.moments(&self.middle);
        builder.within(name, |builder| {
            let (first, second) = ([&self.input, &inner], [&self.middle, &sum]);
            Ok(ResidualBlock {
                conv1: (self.conv).init("conv1", first, &self.input_moments, builder)?,
                act1: act.init("act1", &self.middle, builder)?,
                conv2: self.conv.init("conv2", second, &moments, builder)?,
                skip: match self.input == sum {
                    true => None,
                    false => {
                        let map = EquivariantLinearConfig {
                            // The second convolution or the normalisation has a bias already.
                            bias: false,
                            ..EquivariantLinearConfig::new(self.input.clone(), sum)
                        };
                        Some(map.init("skip", builder)?)
                    }
                },
                act2: act.init("act2", &self.output, builder)?,
                input: self.input.clone(),
                output: self.output.clone(),
            })
        })
    }
}

/// `y = act2(conv2(act1(conv1(x))) + skip(x))`; `skip` is the identity, or an equivariant linear map
/// if the types differ. Saved for the backward pass: `x`, and the features after `conv1`, `act1` and
/// the sum.
#[derive(Debug)]
pub struct ResidualBlock<T: Real> {
    conv1: Box<dyn Module<T>>,
    act1: Box<dyn Module<T>>,
    conv2: Box<dyn Module<T>>,
    skip: Option<EquivariantLinear>,
    act2: Box<dyn Module<T>>,
    input: FeatureType,
    output: FeatureType,
}

impl<T: Real> Module<T> for ResidualBlock<T> {
    signature!(this: this.input => this.output);

    fn reach(&self) -> Option<usize> {
        let parts = [&self.conv1, &self.act1, &self.conv2, &self.act2];
        parts.into_iter().map(|part| part.reach()).sum()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let inner = self.conv1.forward(tape, levels, x.clone())?;
        let inner = self.act1.forward(tape, levels, inner)?;
        let skipped = match &self.skip {
            None => x,
            Some(skip) => skip.forward(tape, levels, x)?,
        };
        let sum = self.conv2.forward_added(tape, levels, inner, skipped)?;
        self.act2.forward(tape, levels, sum)
    }
}
