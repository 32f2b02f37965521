//! Runs of experiments: each in a directory of its own, finished ones are not repeated.

use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{
    Observer, Outcome, RunConfig, RunDirectory, StopFlag, TrainedModel, read_metrics,
};
use std::path::Path;

/// The model of a run and its training time in seconds; `None` if `stop` is requested.
pub(crate) fn trained(
    config: &RunConfig,
    path: &Path,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<(TrainedModel, f64)>, TaskError> {
    let run = RunDirectory::open_or_create(path)?;
    if !run.model().exists()
        && let Outcome::Stopped { .. } = train(config, &run, cache, device, observer, stop)?
    {
        return Ok(None);
    }
    let model = TrainedModel::read(path)?;
    if model.config != config.clone().anchored()? {
        return Err(TaskError::setting(
            path.display().to_string(),
            "the directory holds a run with other settings; choose another directory or remove this one",
        ));
    }
    let records = read_metrics(&run.metrics())?;
    let seconds = records.last().map_or(0.0, |record| record.seconds);
    Ok(Some((model, seconds)))
}

/// Evaluates a model and writes the files `stem.*`, or reads them if they exist.
pub(crate) fn evaluated(
    model: &TrainedModel,
    dataset: &Dataset,
    options: EvaluationOptions,
    stem: &Path,
    cache: &Cache,
    device: &Device,
) -> Result<Evaluation, TaskError> {
    if let Some(evaluation) = Evaluation::read(stem)? {
        return Ok(evaluation);
    }
    let evaluation = evaluate(model, dataset, options, cache, device)?;
    evaluation.write(stem)?;
    Ok(evaluation)
}
