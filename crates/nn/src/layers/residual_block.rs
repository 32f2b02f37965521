//! The residual block: two convolutions with a way around them.

use super::{
    EquivariantLinear, EquivariantLinearConfig, GemConv, GemConvConfig, Regular,
    RegularNonlinearity,
};
use crate::{Builder, GraphBatch, NnError, Tape, Var};
use gemcnn_kernels::{FeatureType, Real};

/// Settings of a [`ResidualBlock`].
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualBlockConfig {
    /// Settings of the first convolution, with the types of the whole block's input and output. The
    /// second one has the same settings between its own types.
    pub conv: GemConvConfig,
    /// Type between the convolutions. By default as many channels as the output has scalars, for all
    /// orders up to the highest of input and output.
    pub middle: FeatureType,
    /// Both nonlinearities.
    pub nonlinearity: Regular,
}

impl ResidualBlockConfig {
    /// The defaults.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        let highest = input.highest_order().max(output.highest_order());
        Self {
            middle: FeatureType::uniform(output.multiplicity(0), highest),
            conv: GemConvConfig::new(input, output),
            nonlinearity: Regular::default(),
        }
    }

    /// Adds the parameters of `conv1`, `conv2`, of the nonlinearities `act1` and `act2` if they
    /// normalise, and, if input and output type differ, of the map `skip`.
    ///
    /// # Errors
    /// A name that is taken, or types that a regular nonlinearity cannot handle.
    pub fn init<T: Real>(
        &self,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<ResidualBlock<T>, NnError> {
        let (input, output) = (&self.conv.input, &self.conv.output);
        let first = GemConvConfig {
            output: self.middle.clone(),
            ..self.conv.clone()
        };
        let second = GemConvConfig {
            input: self.middle.clone(),
            input_moments: self.nonlinearity.moments(&self.middle),
            ..self.conv.clone()
        };
        builder.within(name, |builder| {
            Ok(ResidualBlock {
                conv1: first.init("conv1", builder)?,
                act1: self.nonlinearity.init("act1", &self.middle, builder)?,
                conv2: second.init("conv2", builder)?,
                skip: match input == output {
                    true => None,
                    false => {
                        let map = EquivariantLinearConfig {
                            // The second convolution has one already.
                            bias: false,
                            ..EquivariantLinearConfig::new(input.clone(), output.clone())
                        };
                        Some(map.init("skip", builder)?)
                    }
                },
                act2: self.nonlinearity.init("act2", output, builder)?,
            })
        })
    }
}

/// `y = act2(conv2(act1(conv1(x))) + skip(x))`; `skip` is the identity, or an equivariant linear map
/// if the types differ. Kept for the backward pass: `x`, and the features after `conv1`, `act1` and
/// the sum.
#[derive(Debug, Clone)]
pub struct ResidualBlock<T: Real> {
    conv1: GemConv,
    act1: RegularNonlinearity<T>,
    conv2: GemConv,
    skip: Option<EquivariantLinear>,
    act2: RegularNonlinearity<T>,
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
