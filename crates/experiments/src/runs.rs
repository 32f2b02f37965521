//! Runs of experiments: each in a directory of its own, finished ones are not repeated.

use gemcnn_mesh::write_atomically;
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{
    Observer, Outcome, RunConfig, RunDirectory, StopFlag, TrainedModel, read_metrics,
};
use serde::Serialize;
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

/// The bodies of an experiment, for its table.
pub(crate) fn described(data: &DataConfig) -> String {
    match data {
        DataConfig::Bodies(bodies) => format!(
            "{} synthetic bodies of {} vertices, the first {} for training",
            bodies.count,
            bodies.vertices,
            bodies.training()
        ),
        DataConfig::Folder(folder) | DataConfig::Faust(folder) => folder.display().to_string(),
    }
}

/// Writes a report as `results.json`, and its table as `table.md`.
pub(crate) fn write_results(
    report: &impl Serialize,
    table: &str,
    directory: &Path,
) -> Result<(), TaskError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| TaskError::setting("results", error.to_string()))?;
    for (name, text) in [("results.json", json + "\n"), ("table.md", table.into())] {
        let path = directory.join(name);
        write_atomically(&path, |file| file.write_all(text.as_bytes()))
            .map_err(TaskError::file(&path))?;
    }
    Ok(())
}
