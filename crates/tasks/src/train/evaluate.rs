//! Evaluation of a module on held-out samples, during training.

use super::batch_plan::{BatchPlan, Division};
use super::batches::{BatchSource, GeometryCache, Prefetch};
use super::metrics::{Scores, Tally};
use super::objective::{Outputs, evaluate_batch};
use crate::{FeatureScaling, Result, SampleSource, TaskError};
use gemcnn_nn::{Module, Objective, Parameters, Workspace};
use std::sync::Arc;

/// Runs a module on all samples, `batch` at a time, and compares with the targets. `None` if no target is
/// known. `scaling` is the scaling of target values in training.
///
/// # Errors
/// A sample that cannot be loaded or does not fit, or a loss that is not finite.
pub(super) fn evaluate(
    module: &dyn Module<f32>,
    parameters: &Parameters<f32>,
    workspace: &mut Workspace<f32>,
    source: &dyn SampleSource,
    (objective, scaling): (&Arc<Objective<f32>>, Option<&FeatureScaling>),
    cache: &GeometryCache,
    batch: usize,
) -> Result<Option<Scores>> {
    let plan = BatchPlan {
        samples: source.len(),
        versions: 1,
        division: Division::Meshes(batch.max(1)),
        shuffle: None,
        drop_last: false,
    };
    let device = workspace.device().clone();
    std::thread::scope(|scope| {
        let all = (0, plan.steps());
        let batches = BatchSource { samples: source, objective, cache, device: &device };
        let mut losses = Vec::new();
        let mut tally = Tally::default();
        for prepared in Prefetch::start(scope, batches, plan, all) {
            let prepared = prepared?;
            let loss =
                evaluate_batch(module, parameters, workspace, scaling, &prepared.batch, &mut Outputs::default())?;
            // On a GPU, losses are read after all batches are queued.
            losses.push((prepared.samples, loss));
        }
        for (samples, loss) in losses {
            let scores = loss.read()?;
            if !scores.loss.is_finite() {
                let names = names(source, &samples);
                let problem = format!("the loss is {} on the batch {names}", scores.loss);
                return Err(TaskError::setting("evaluation", problem));
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
