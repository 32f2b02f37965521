//! From a configuration to a trained model.

use crate::data::{Cache, Dataset, Part, PreparedPart};
use crate::models::ModelSpec;
use crate::predict::{template_attributes, write_examples};
use crate::train::{
    Event, Observer, Outcome, Problem, Record, RunConfig, RunDirectory, StopFlag, TrainedModel, Trainer,
    TrainingConfig, begun_with, device_name, draw_curve, read_metrics,
};
use crate::{SampleSource, TaskError};
use gemcnn_mesh::{WriteOptions, write_mesh};
use gemcnn_nn::{Device, Objective};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Trains the model of a configuration in a run directory, from the checkpoint if there is one. After each evaluation,
/// and when it is stopped, the directory holds the model so far; when all epochs are done, also the learning curve, and
/// predictions for a few held-out meshes. Then the run is [finished](RunDirectory::is_finished).
pub fn train(
    config: &RunConfig,
    run: &RunDirectory,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Outcome, TaskError> {
    config.check()?;
    let config = &config.clone().anchored()?;
    let dataset = Dataset::open_with(&config.data, Some(config.task), config.training.strict)?;
    let mut dataset = dataset.with_validation(config.training.validation)?;
    for note in dataset.notes() {
        observer.observe(Event::Note(note));
    }
    if dataset.is_empty(Part::Train) {
        let problem = "the training part has no meshes";
        return Err(TaskError::setting(dataset.name(), problem));
    }
    let objective = match dataset.classes() {
        Some(classes) => Objective::classes(classes.count()),
        None => Objective::Values { kind: dataset.outputs().clone(), penalty: config.training.penalty.into() },
    };
    config.training.check_objective(&objective)?;
    let settings = config.to_json()?;
    let (epoch, step) = begun_with(run, &settings)?;
    let spec =
        ModelSpec { input: config.features.kind(), task: config.task, per: dataset.per(), outputs: objective.output() };
    // Detects invalid settings before any mesh is prepared.
    config.model.init(&spec, config.training.seed)?;
    let preparation = config.preparation();
    let held_out_part = match dataset.is_empty(Part::Validation) {
        true => Part::Test,
        false => Part::Validation,
    };
    if held_out_part == Part::Test {
        for note in notes_on_selection(&config.training, dataset.is_empty(Part::Test)) {
            observer.observe(Event::Note(note));
        }
    }
    let training = dataset.part(Part::Train, &preparation, cache)?;
    let training = training.augmented(&config.augmentation)?;
    let held_out = dataset.part(held_out_part, &preparation, cache)?;
    let mut parts = [training, held_out];
    let begins = !run.checkpoint().exists();
    if begins {
        write_beginning(config, &dataset, run, device)?;
    }
    let unusable = prepare(&mut parts, observer, stop)?;
    if stop.is_requested() {
        return Ok(Outcome::Stopped { epoch, step });
    }
    dataset.leave_out(&unusable);
    for line in dataset.skipped() {
        observer.observe(Event::Note(&format!("skipped: {line}")));
    }
    let [training, held_out] = parts;
    if config.model.needs_registration()
        && let Some(name) = first_unregistered(&training)?
    {
        let note = format!(
            "{name} has another connectivity than {}. The model `{}` compares meshes by the numbers of their vertices, \
             which means nothing between them; use registered meshes, or a model such as `gem` or `surface`",
            training.name(0),
            config.model.name()
        );
        observer.observe(Event::Note(&note));
    }
    if let Some((_, problem)) = (unusable.into_iter()).find(|_| config.training.strict || training.is_empty()) {
        return Err(problem);
    }
    if begins {
        // Results of an earlier run whose checkpoint was removed.
        run.remove_results()?;
    }
    let problem = Problem {
        training: &training,
        held_out: &held_out,
        validates: held_out_part == Part::Validation,
        model: &|builder| config.model.build(&spec, builder),
        objective: &objective,
        per: dataset.per(),
        classes: dataset.classes(),
        config: &config.training,
        settings: &settings,
    };
    let mut trainer = Trainer::new(problem, run, device, observer)?;
    if !begins {
        // The number of epochs and the place of the data may be new.
        write_config(config, run)?;
    }
    if !trainer.is_finished() {
        run.reopen()?;
    }
    let outcome = trainer.run(observer, stop)?;
    if let Outcome::Finished { last, model } = &outcome
        && *model < last.epoch
    {
        let note = format!("the model is that of epoch {model}, the best on the validation part");
        observer.observe(Event::Note(&note));
    }
    if !trainer.history().is_empty() {
        draw_curve(&config.name(), trainer.history(), &run.curve())?;
    }
    if !dataset.skipped().is_empty() {
        observer.observe(Event::Note(&format!(
            "meshes that were skipped, because they cannot be used: {}\n  {}",
            dataset.skipped().len(),
            dataset.skipped().join("\n  ")
        )));
    }
    if let Outcome::Finished { .. } = outcome {
        let model = TrainedModel::read(run.path())?;
        let part = match dataset.is_empty(Part::Test) {
            true => held_out_part,
            false => Part::Test,
        };
        write_examples(&model, &dataset, part, device, &run.predictions())?;
        run.finish()?;
    }
    Ok(outcome)
}

/// Opens a directory for the run of a configuration, new or begun before.
///
/// # Errors
/// A directory with a run of other settings, or in which another process trains.
pub fn opened(config: &RunConfig, path: &Path) -> Result<RunDirectory, TaskError> {
    let run = RunDirectory::open_or_create(path)?;
    if run.config().exists() && RunConfig::read(&run.config())? != config.clone().anchored()? {
        return Err(TaskError::setting(
            path.display().to_string(),
            "the directory holds a run with other settings; choose another directory or remove this one",
        ));
    }
    Ok(run)
}

/// Trains the model of a configuration in a directory, unless that is done, and returns it with the records of its
/// epochs; `None` if `stop` is requested.
///
/// # Errors
/// As [`train`], and a directory with a run of other settings.
pub fn trained(
    config: &RunConfig,
    path: &Path,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<(TrainedModel, Vec<Record>)>, TaskError> {
    let run = opened(config, path)?;
    if !run.is_finished()
        && let Outcome::Stopped { .. } = train(config, &run, cache, device, observer, stop)?
    {
        return Ok(None);
    }
    let model = TrainedModel::read(path)?;
    Ok(Some((model, read_metrics(&run.metrics())?)))
}

/// Notes if there is no validation part to select on.
fn notes_on_selection(training: &TrainingConfig, none_held_out: bool) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if training.keep_best {
        notes.push(match none_held_out {
            true => "no mesh is held out: best.safetensors will not be written",
            false => {
                "there is no validation part: best.safetensors is selected on the test part, so its test score is \
                 too optimistic, and the final model is that of the last epoch"
            }
        });
    }
    if training.patience > 0 {
        notes.push(match none_held_out {
            true => "no mesh is held out: training will not end early",
            false => {
                "there is no validation part: the test part decides when training ends, so test scores are too \
                 optimistic"
            }
        });
    }
    notes
}

/// Writes versions, template and configuration to the run directory.
fn write_beginning(
    config: &RunConfig,
    dataset: &Dataset,
    run: &RunDirectory,
    device: &Device,
) -> Result<(), TaskError> {
    let versions = format!(
        "gemcnn = {:?}\ndevice = {:?}\nsystem = \"{} {}\"\n",
        env!("CARGO_PKG_VERSION"),
        device_name(device),
        std::env::consts::OS,
        std::env::consts::ARCH,
    );
    run.write_durably(&run.versions(), versions.as_bytes())?;
    if let Some(template) = dataset.template() {
        let colours = template_attributes(template);
        write_mesh(run.template(), template, &colours, &WriteOptions::default())?;
    }
    write_config(config, run)
}

fn write_config(config: &RunConfig, run: &RunDirectory) -> Result<(), TaskError> {
    run.write_durably(&run.config(), config.to_toml()?.as_bytes())
}

/// Loads every mesh once, to detect problems before training, until `stop` is requested. Leaves out meshes that cannot
/// be used, and returns them.
fn prepare(
    parts: &mut [PreparedPart],
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Vec<(usize, TaskError)>, TaskError> {
    let total = parts.iter().map(|part| part.len()).sum();
    let progress = Mutex::new((0, observer));
    let loaded = || {
        // The lock is poisoned after a panic of the observer, which is then not called again.
        if let Ok(mut progress) = progress.lock() {
            progress.0 += 1;
            let done = progress.0;
            progress.1.observe(Event::Preparing { done, total });
        }
    };
    let go_on = || !stop.is_requested();
    let mut unusable = Vec::new();
    for part in parts {
        unusable.extend(part.load_usable(&go_on, &loaded)?);
    }
    Ok(unusable)
}

/// The first mesh whose connectivity is not that of the first one.
fn first_unregistered(part: &PreparedPart) -> Result<Option<String>, TaskError> {
    let mut first = None;
    for index in 0..part.len() {
        let graph = part.load(index)?.graph;
        let first = first.get_or_insert_with(|| Arc::clone(&graph));
        if first.adjacency() != graph.adjacency() {
            return Ok(Some(part.name(index)));
        }
    }
    Ok(None)
}
