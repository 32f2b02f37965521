//! The loss of a batch.

use super::metrics::BatchScores;
use super::regression::RegressionSums;
use crate::FeatureScaling;
use gemcnn_nn::{Loss, Module, NnError, Parameters, Rows, Tape, Target, TrainingBatch, Workspace};

/// What an evaluation has beside the loss of a batch.
#[derive(Default)]
pub(crate) struct Outputs {
    /// The class of each row, if it is asked for.
    pub classes: Option<Vec<u32>>,
    /// Errors of regression, in units of the targets, over all batches so far.
    pub regression: Option<RegressionSums>,
}

/// Evaluates a module on a batch. `scaling` is the scaling of target values in training.
pub(crate) fn evaluate_batch(
    module: &dyn Module<f32>,
    parameters: &Parameters<f32>,
    workspace: &mut Workspace<f32>,
    scaling: Option<&FeatureScaling>,
    batch: &TrainingBatch<f32>,
    outputs: &mut Outputs,
) -> Result<BatchLoss, NnError> {
    let device = workspace.device().clone();
    device.run(|| {
        let mut tape = Tape::inference(workspace, parameters);
        match (batch.target(), &mut outputs.classes) {
            (Target::Values(target), _) => {
                let x = tape.input(batch.kind().clone(), batch.features())?;
                let found = module.forward(&mut tape, batch.levels(), x)?;
                let sums = outputs.regression.get_or_insert_with(|| RegressionSums::new(found.kind()));
                let (values, targets) = (unscaled(scaling, &found.values()?), unscaled(scaling, target.values));
                let mean_square = sums.add(&values, &targets, target.known);
                let loss = tape.regression(target.penalty, found, target.values, target.known)?;
                Ok(BatchLoss { mean_square: Some(mean_square), ..BatchLoss::new(loss, batch) })
            }
            (Target::Classes(targets), Some(classes)) => {
                let x = tape.input(batch.kind().clone(), batch.features())?;
                classes.resize(targets.labels.len(), 0);
                let rows = Rows { predictions: Some(classes), ranks: None };
                Ok(BatchLoss::new(module.classify(&mut tape, batch.levels(), x, targets, rows)?, batch))
            }
            _ => Ok(BatchLoss::new(module.loss(&mut tape, batch)?, batch)),
        }
    })
}

/// Values in units of the targets.
fn unscaled(scaling: Option<&FeatureScaling>, values: &[f32]) -> Vec<f32> {
    let mut values = values.to_vec();
    if let Some(scaling) = scaling {
        scaling.undo(&mut values);
    }
    values
}

/// The loss of a batch with its weight and count. A GPU may still be computing it.
#[derive(Debug)]
pub(crate) struct BatchLoss {
    loss: Loss,
    weight: f64,
    mean_square: Option<f64>,
    counted: u64,
}

impl BatchLoss {
    pub fn new(loss: Loss, batch: &TrainingBatch<f32>) -> Self {
        Self { loss, weight: batch.weight(), mean_square: None, counted: batch.counted() as u64 }
    }

    /// Reads the scores. On a GPU this waits for all queued work.
    pub fn read(&self) -> Result<BatchScores, NnError> {
        let score = self.loss.score()?;
        Ok(BatchScores {
            loss: match score {
                Some(score) => score.loss,
                None => self.loss.value()?,
            },
            weight: self.weight,
            mean_square: self.mean_square,
            correct: score.map(|score| score.correct as u64),
            counted: self.counted,
        })
    }
}
