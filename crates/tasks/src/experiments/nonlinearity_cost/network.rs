//! The correspondence network with any number of samples in its nonlinearities, or without them.

use super::{CHANNELS, Data};
use gemcnn_nn::layers::{
    EquivariantDropout, EquivariantDropoutConfig, EquivariantLinear, EquivariantLinearConfig,
    EquivariantNorm, EquivariantNormConfig, GemConv, GemConvConfig, Linear, LinearConfig, Regular,
    RegularNonlinearity,
};
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, GraphBatch, Loss, NnError, NormGroups, Rows,
    Tape, Targets, Var,
};

/// Highest order of hidden features.
const BAND_LIMIT: usize = 2;
/// Scalars after the blocks, and after the first map of the head.
const HEAD: [usize; 2] = [64, 256];

pub(super) struct Correspondence {
    blocks: [Block; 3],
    hidden: Linear,
    dropout: EquivariantDropout,
    last: Linear,
}

impl Correspondence {
    pub fn new(
        samples: Option<usize>,
        classes: usize,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Self, NnError> {
        let input = FeatureType::scalars(3);
        let hidden = FeatureType::uniform(CHANNELS, BAND_LIMIT);
        let output = FeatureType::scalars(HEAD[0]);
        let dropout = EquivariantDropoutConfig::new(FeatureType::scalars(HEAD[1]));
        Ok(Self {
            blocks: [
                Block::new(samples, "block1", &input, &hidden, builder)?,
                Block::new(samples, "block2", &hidden, &hidden, builder)?,
                Block::new(samples, "block3", &hidden, &output, builder)?,
            ],
            hidden: LinearConfig::new(HEAD[0], HEAD[1]).init("hidden", builder)?,
            dropout: dropout.init("dropout")?,
            last: LinearConfig::new(HEAD[1], classes).init("last", builder)?,
        })
    }

    pub fn loss<'a>(
        &self,
        tape: &mut Tape<'a, f32>,
        data: &'a Data,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        let mut x = tape.input(FeatureType::scalars(3), &data.positions)?;
        for block in &self.blocks {
            x = block.forward(tape, &data.batch, x)?;
        }
        let x = self.hidden.forward(tape, x)?;
        let x = tape.activation(&Activation::Relu, x)?;
        let x = self.dropout.forward(tape, x)?;
        let targets = Targets {
            classes: data.labels.len(),
            labels: &data.labels,
            class_weights: None,
        };
        tape.classifier(self.last.weights(), x, targets, rows)
    }
}

/// A residual block as in [`ResidualBlock`](gemcnn_nn::layers::ResidualBlock), which also works without
/// nonlinearities.
struct Block {
    conv1: GemConv,
    act1: Act,
    conv2: GemConv,
    skip: Option<EquivariantLinear>,
    act2: Act,
}

impl Block {
    fn new(
        samples: Option<usize>,
        name: &str,
        input: &FeatureType,
        output: &FeatureType,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Self, NnError> {
        let highest = input.highest_order().max(output.highest_order());
        let middle = FeatureType::uniform(output.multiplicity(0), highest);
        let conv = |from: &FeatureType, to: &FeatureType| GemConvConfig {
            aggregation: Aggregation::Mean,
            ..GemConvConfig::new(from.clone(), to.clone())
        };
        builder.within(name, |builder| {
            Ok(Self {
                conv1: conv(input, &middle).init("conv1", builder)?,
                act1: Act::new(samples, "act1", &middle, builder)?,
                conv2: conv(&middle, output).init("conv2", builder)?,
                skip: match input == output {
                    true => None,
                    false => {
                        let map = EquivariantLinearConfig::new(input.clone(), output.clone());
                        Some(map.init("skip", builder)?)
                    }
                },
                act2: Act::new(samples, "act2", output, builder)?,
            })
        })
    }

    fn forward<'a>(
        &self,
        tape: &mut Tape<'a, f32>,
        batch: &'a GraphBatch<f32>,
        x: Var<f32>,
    ) -> Result<Var<f32>, NnError> {
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

/// Batch normalisation, and the regular nonlinearity if there is one.
enum Act {
    Norm(EquivariantNorm),
    Regular(RegularNonlinearity<f32>),
}

impl Act {
    fn new(
        samples: Option<usize>,
        name: &str,
        kind: &FeatureType,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Self, NnError> {
        match samples {
            Some(samples) => {
                let regular = Regular::relu(samples).with_batch_norm();
                Ok(Self::Regular(regular.init(name, kind, builder)?))
            }
            None => {
                let config = EquivariantNormConfig {
                    groups: NormGroups::PerChannel,
                    ..EquivariantNormConfig::new(kind.clone())
                };
                Ok(Self::Norm(config.init(name, builder)?))
            }
        }
    }

    fn forward(&self, tape: &mut Tape<'_, f32>, x: Var<f32>) -> Result<Var<f32>, NnError> {
        match self {
            Self::Norm(norm) => norm.forward(tape, x),
            Self::Regular(regular) => regular.forward(tape, x),
        }
    }
}
