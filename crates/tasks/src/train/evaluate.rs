//! How well a network does on samples it is not trained on.

use super::batches::{BatchPlan, Prefetch};
use super::metrics::{Scores, Tally};
use super::objective::Objective;
use crate::{SampleSource, TaskError};
use gemcnn_nn::{Network, Parameters, Workspace};

/// Runs a network over all samples, `batch` at a time, and compares with their targets. None if no target
/// is known.
///
/// # Errors
/// A sample that cannot be loaded or does not fit, or a loss that is not finite: its batch is named.
pub fn evaluate(
    network: &Network<f32>,
    parameters: &Parameters<f32>,
    workspace: &mut Workspace<f32>,
    source: &dyn SampleSource,
    objective: &Objective,
    batch: usize,
) -> Result<Option<Scores>, TaskError> {
    let plan = BatchPlan {
        samples: source.len(),
        batch: batch.max(1),
        shuffle: None,
    };
    let device = workspace.device().clone();
    std::thread::scope(|scope| {
        let all = (0, plan.steps());
        let batches = Prefetch::start(scope, source, objective, plan, all, &device);
        let mut losses = Vec::new();
        let mut tally = Tally::default();
        for prepared in batches {
            let prepared = prepared?;
            let loss = objective.evaluate(network, parameters, workspace, &prepared)?;
            // A loss on a GPU is read when all batches are on their way.
            losses.push((prepared.samples, loss));
        }
        for (samples, loss) in losses {
            let scores = loss.read()?;
            if !scores.loss.is_finite() {
                return Err(TaskError::setting(
                    "evaluation",
                    format!(
                        "the loss is {} on the batch {}",
                        scores.loss,
                        names(source, &samples)
                    ),
                ));
            }
            tally.add(scores);
        }
        Ok(tally.scores())
    })
}

/// Names of samples, for messages.
pub(crate) fn names(source: &dyn SampleSource, samples: &[usize]) -> String {
    let names: Vec<String> = samples.iter().map(|&index| source.name(index)).collect();
    names.join(", ")
}
