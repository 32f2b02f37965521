//! The residual block: two convolutions with a way around them.

use super::{
    ConvConfig, Convolution, EquivariantLinear, EquivariantLinearConfig, Nonlinearity,
    NonlinearityLayer,
};
use crate::{Builder, GraphBatch, NnError, Tape, Var};
use gemcnn_kernels::{FeatureType, Real};

/// Settings of a [`ResidualBlock`].
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualBlockConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Type between the convolutions. By default as many channels as the output has most, for all
    /// orders up to the highest of input and output.
    pub middle: FeatureType,
    /// Both convolutions.
    pub conv: ConvConfig,
    /// Both nonlinearities.
    pub nonlinearity: Nonlinearity,
    /// As [`GemConvConfig::input_moments`](super::GemConvConfig::input_moments).
    pub input_moments: Vec<f64>,
}

impl ResidualBlockConfig {
    /// The defaults.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        let highest = input.highest_order().max(output.highest_order());
        let channels = output.multiplicities().iter().copied().max();
        Self {
            middle: FeatureType::uniform(channels.unwrap_or(0), highest),
            input,
            output,
            conv: ConvConfig::default(),
            nonlinearity: Nonlinearity::default(),
            input_moments: Vec::new(),
        }
    }

    /// Adds the parameters of `conv1`, `conv2`, of the nonlinearities `act1` and `act2` if they have
    /// any, and, if the types at the two ends of the way around differ, of the map `skip`.
    ///
    /// # Errors
    /// A name that is taken, or types that the kernel or the nonlinearity cannot handle.
    pub fn init<T: Real>(
        &self,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<ResidualBlock<T>, NnError> {
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
                            // The second convolution or the normalisation has one already.
                            bias: false,
                            ..EquivariantLinearConfig::new(self.input.clone(), sum)
                        };
                        Some(map.init("skip", builder)?)
                    }
                },
                act2: act.init("act2", &self.output, builder)?,
            })
        })
    }
}

/// `y = act2(conv2(act1(conv1(x))) + skip(x))`; `skip` is the identity, or an equivariant linear map
/// if the types differ. Kept for the backward pass: `x`, and the features after `conv1`, `act1` and
/// the sum.
#[derive(Debug, Clone)]
pub struct ResidualBlock<T: Real> {
    conv1: Convolution,
    act1: NonlinearityLayer<T>,
    conv2: Convolution,
    skip: Option<EquivariantLinear>,
    act2: NonlinearityLayer<T>,
}

impl<T: Real> ResidualBlock<T> {
    /// Runs the block.
    ///
    /// # Shapes
    /// `x`: one row of the input type for each vertex; result: one row of the output type.
    ///
    /// # Errors
    /// Features of another type or number of rows.
    pub fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let inner = self.conv1.forward(tape, batch, x.clone())?;
        let inner = self.act1.forward(tape, inner)?;
        let inner = self.conv2.forward(tape, batch, inner)?;
        let skipped = match &self.skip {
            None => x,
            Some(skip) => skip.forward(tape, x)?,
        };
        let sum = tape.add(inner, skipped)?;
        self.act2.forward(tape, sum)
    }
}
