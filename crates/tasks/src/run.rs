//! From a configuration to a trained model.

use crate::data::{Cache, Dataset, PreparedSplit, Split, size_in_memory};
use crate::models::{ModelSpec, ModelWithParameters};
use crate::predict::{template_attributes, write_examples};
use crate::train::{
    Checked, Event, Observer, Outcome, Problem, Record, RunConfig, RunDirectory, StopFlag, TrainedModel, Trainer,
    TrainingConfig, begun_with, device_name, draw_curve, read_metrics,
};
use crate::{ModelConfig, Sample, SampleSource, TaskError};
use gemcnn_mesh::{WriteOptions, write_mesh};
use gemcnn_nn::{Device, Objective};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Trains the model of a configuration in a run directory, from the checkpoint if there is one. After each evaluation,
/// and when it is stopped, the directory holds the model so far; when all epochs are done, also the learning curve, and
/// predictions for a few held-out meshes. Then the run is [finished](RunDirectory::is_finished).
pub fn train(
    config: &Checked<RunConfig>,
    run: &RunDirectory,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Outcome, TaskError> {
    let mut data = Data::open(config)?;
    data.dataset.notes().iter().for_each(|note| observer.observe(Event::Note(note)));
    let settings = config.to_json()?;
    let (epoch, step) = begun_with(run, &settings)?;
    let (objective, model) = data.model(config)?;
    data.notes_on_selection(&config.training).into_iter().for_each(|note| observer.observe(Event::Note(note)));
    let mut splits = data.splits(config, cache)?;
    let begins = !run.checkpoint().exists();
    if begins {
        write_beginning(config, &data.dataset, run, device)?;
    }
    let unusable = prepare(&mut splits, observer, stop)?;
    if stop.is_requested() {
        return Ok(Outcome::Stopped { epoch, step });
    }
    let [training, held_out] = splits;
    data.dataset.leave_out(&unusable);
    for line in data.dataset.skipped() {
        observer.observe(Event::Note(&format!("skipped: {line}")));
    }
    if let Some(note) = note_on_registration(&config.model, &training)? {
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
        validates: data.held_out == Split::Validation,
        objective: &objective,
        per: data.dataset.per(),
        classes: data.dataset.classes(),
        config: &config.training(),
        settings: &settings,
    };
    let mut trainer = Trainer::new(problem, model, run, device, observer)?;
    if !begins {
        // The number of epochs and the place of the data may be new.
        write_config(config, run)?;
    }
    if !trainer.is_finished() {
        run.reopen()?;
    }
    let outcome = trainer.run(observer, stop)?;
    if !trainer.history().is_empty() {
        draw_curve(&config.name(), trainer.history(), &run.curve())?;
    }
    notes_at_end(&outcome, data.dataset.skipped()).iter().for_each(|note| observer.observe(Event::Note(note)));
    if let Outcome::Finished { .. } = outcome {
        let model = TrainedModel::read(run.path())?;
        write_examples(&model, &data.dataset, data.tested(), device, &run.predictions())?;
        run.finish()?;
    }
    Ok(outcome)
}

/// Opens a directory for the run of a configuration, new or begun before.
///
/// # Errors
/// A directory with a run of other settings, or in which another process trains.
pub fn opened(config: &Checked<RunConfig>, path: &Path) -> Result<RunDirectory, TaskError> {
    let run = RunDirectory::open_or_create(path)?;
    if run.config().exists() && RunConfig::read(&run.config())? != **config {
        let problem = "the directory holds a run with other settings; choose another directory or remove this one";
        return Err(TaskError::at(path, problem));
    }
    Ok(run)
}

/// Trains the model of a configuration in a directory, unless that is done, and returns it with the records of its
/// epochs; `None` if `stop` is requested.
///
/// # Errors
/// As [`train`], an invalid setting, and a directory with a run of other settings.
pub fn trained(
    config: &RunConfig,
    path: &Path,
    cache: &Cache,
    device: &Device,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Option<(TrainedModel, Vec<Record>)>, TaskError> {
    let config = config.clone().checked()?;
    let run = opened(&config, path)?;
    if !run.is_finished()
        && let Outcome::Stopped { .. } = train(&config, &run, cache, device, observer, stop)?
    {
        return Ok(None);
    }
    let model = TrainedModel::read(path)?;
    Ok(Some((model, read_metrics(&run.metrics())?)))
}

/// The data set of a run.
struct Data {
    dataset: Dataset,
    /// The split to evaluate on in training: validation, or test if there is no validation split.
    held_out: Split,
}

impl Data {
    fn open(config: &RunConfig) -> Result<Self, TaskError> {
        let dataset = config.dataset()?;
        let held_out = if dataset.is_empty(Split::Validation) { Split::Test } else { Split::Validation };
        Ok(Self { dataset, held_out })
    }

    /// The objective and the initialised model. Both are made before any mesh is prepared, to detect settings that do
    /// not fit the data.
    fn model(&self, config: &RunConfig) -> Result<(Objective<f32>, ModelWithParameters), TaskError> {
        if self.dataset.is_empty(Split::Train) {
            return Err(TaskError::setting(self.dataset.name(), "the training split has no meshes"));
        }
        let objective = config.training.objective(self.dataset.learned())?;
        let spec = ModelSpec {
            input: config.features.kind(),
            task: config.task,
            per: self.dataset.per(),
            outputs: objective.output(),
        };
        Ok((objective, config.model.init(&spec, config.training.seed)?))
    }

    /// The training split and the held-out split.
    fn splits(&self, config: &RunConfig, cache: &Cache) -> Result<[PreparedSplit; 2], TaskError> {
        let preparation = config.preparation();
        let training = self.dataset.split(Split::Train, &preparation, cache)?;
        Ok([training.augmented(&config.augmentation)?, self.dataset.split(self.held_out, &preparation, cache)?])
    }

    /// The split of the example predictions.
    fn tested(&self) -> Split {
        if self.dataset.is_empty(Split::Test) { self.held_out } else { Split::Test }
    }

    /// Notes if there is no validation split to select on.
    fn notes_on_selection(&self, training: &TrainingConfig) -> Vec<&'static str> {
        if self.held_out == Split::Validation {
            return Vec::new();
        }
        let [best, patience] = match self.dataset.is_empty(Split::Test) {
            true => [
                "no mesh is held out: best.safetensors will not be written",
                "no mesh is held out: training will not end early",
            ],
            false => [
                "there is no validation split: best.safetensors is selected on the test split, so its test score is \
                 too optimistic, and the final model is that of the last epoch",
                "there is no validation split: the test split decides when training ends, so test scores are too \
                 optimistic",
            ],
        };
        let notes = [(training.keep_best, best), (training.patience > 0, patience)];
        notes.into_iter().filter_map(|(applies, note)| applies.then_some(note)).collect()
    }
}

/// A note if a model that compares meshes by the numbers of their vertices is trained on meshes of several
/// connectivities.
fn note_on_registration(model: &ModelConfig, split: &PreparedSplit) -> Result<Option<String>, TaskError> {
    if !model.needs_registration() {
        return Ok(None);
    }
    let mut first = None;
    // All meshes, and the versions of the first: others change like these.
    let versions = split.versions().min(split.len());
    for index in (0..split.len()).step_by(versions.max(1)).chain(1..versions) {
        let hierarchy = split.load(index)?.hierarchy;
        let first = first.get_or_insert_with(|| Arc::clone(&hierarchy));
        if first.graph().adjacency() != hierarchy.graph().adjacency() {
            return Ok(Some(format!(
                "{} has another connectivity than {}. The model `{}` compares meshes by the numbers of their vertices, \
                 which means nothing between them; use registered meshes, or a model such as `gem` or `surface`",
                split.name(index),
                split.name(0),
                model.name()
            )));
        }
    }
    Ok(None)
}

/// Notes on a run that has ended: the epoch of the model if it is not the last one, and the meshes that were skipped.
fn notes_at_end(outcome: &Outcome, skipped: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Outcome::Finished { last, model } = outcome
        && *model < last.epoch
    {
        notes.push(format!("the model is that of epoch {model}, the best on the validation split"));
    }
    if !skipped.is_empty() {
        let (count, list) = (skipped.len(), skipped.join("\n  "));
        notes.push(format!("meshes that were skipped, because they cannot be used: {count}\n  {list}"));
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
/// be used, and returns them. Versions of the training meshes are prepared while others train the model.
fn prepare(
    splits: &mut [PreparedSplit],
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Vec<(usize, TaskError)>, TaskError> {
    let total: usize = splits.iter().map(|split| split.len() / split.versions()).sum();
    let since = Instant::now();
    let progress = Mutex::new((0, 0, observer));
    let loaded = |sample: &Sample| {
        // The lock is poisoned after a panic of the observer, which is then not called again.
        if let Ok(mut progress) = progress.lock() {
            let (done, bytes, observer) = &mut *progress;
            *done += 1;
            *bytes += size_in_memory(sample);
            let left = (total - *done) as f64 / *done as f64;
            observer.observe(Event::Preparing {
                done: *done,
                total,
                bytes: *bytes / *done * total,
                time_left: since.elapsed().mul_f64(left),
            });
        }
    };
    let go_on = || !stop.is_requested();
    let mut unusable = Vec::new();
    for split in splits {
        unusable.extend(split.load_usable(&go_on, &loaded)?);
    }
    Ok(unusable)
}
