//! The loss of a batch.

use super::batches::PreparedBatch;
use super::metrics::BatchScores;
use super::regression::RegressionSums;
use crate::FeatureScaling;
use gemcnn_nn::{Loss, Module, NnError, Parameters, Tape, Target, TrainingBatch, Workspace};

/// Evaluates a module on a batch. Regression errors are in units of the targets; `scaling` is the scaling of
/// target values in training.
pub(super) fn evaluate_batch(
    module: &dyn Module<f32>,
    parameters: &Parameters<f32>,
    workspace: &mut Workspace<f32>,
    scaling: Option<&FeatureScaling>,
    prepared: &PreparedBatch,
) -> Result<BatchLoss, NnError> {
    let device = workspace.device().clone();
    device.run(|| {
        let batch = &prepared.batch;
        let mut tape = Tape::inference(workspace, parameters);
        let Target::Values(target) = batch.target() else {
            return Ok(BatchLoss::new(module.loss(&mut tape, batch)?, batch));
        };
        let x = tape.input(batch.kind().clone(), batch.features())?;
        let found = module.forward(&mut tape, batch.levels(), x)?;
        let mut sums = RegressionSums::new(found.kind());
        let mean_square =
            sums.add(&unscaled(scaling, &found.values()?), &unscaled(scaling, target.values), target.known);
        let loss = tape.regression(target.penalty, found, target.values, target.known)?;
        Ok(BatchLoss { mean_square: Some(mean_square), ..BatchLoss::new(loss, batch) })
    })
}

/// Values in units of the targets.
pub(crate) fn unscaled(scaling: Option<&FeatureScaling>, values: &[f32]) -> Vec<f32> {
    let mut values = values.to_vec();
    if let Some(scaling) = scaling {
        scaling.undo(&mut values);
    }
    values
}

/// The loss of a batch with its weight and count. A GPU may still be computing it.
#[derive(Debug)]
pub(super) struct BatchLoss {
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
