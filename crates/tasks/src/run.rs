//! From a configuration to a trained model.

use crate::data::{Cache, Dataset, PreparedSplit, Split, listed, size_in_memory};
use crate::models::{ModelSpec, ModelWithParameters};
use crate::predict::{template_attributes, write_examples};
use crate::train::{
    Checked, Event, Observer, Outcome, Problem, Record, RunConfig, RunDirectory, Selection, StopFlag, TrainedModel,
    Trainer, TrainingConfig, begun_with, device_name, draw_curve, read_metrics,
};
use crate::{ModelConfig, Sample, SampleSource, Task, TaskError, summed_up};
use gemcnn_mesh::{WriteOptions, write_mesh};
use gemcnn_nn::{Device, Objective};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A validation split with fewer vertices of a class says little about it.
const FEW: usize = 20;

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
    let begins = !run.checkpoint().exists();
    let (objective, model) = data.model(config, begins)?;
    data.notes_on_selection(&config.training).into_iter().for_each(|note| observer.observe(Event::Note(note)));
    let mut splits = data.splits(config, cache)?;
    if begins {
        write_beginning(config, &data.dataset, run, device)?;
    }
    let unusable = prepare(&mut splits, observer, stop)?;
    if stop.is_requested() {
        return Ok(Outcome::Stopped { epoch, step });
    }
    let (training, held_out) = (&splits[0], &splits[1]);
    data.dataset.leave_out(&unusable);
    for line in summed_up(data.dataset.skipped()) {
        observer.observe(Event::Note(&format!("skipped: {line}")));
    }
    let known = data.dataset.in_training(data.held_out, &data.dataset);
    if let Some(first) = known.first() {
        let (count, held_out) = (known.len(), data.held_out);
        observer.observe(Event::Note(&format!(
            "{count} meshes of the {held_out} split have the content of training meshes, so its scores are too \
             optimistic; the first is {first}; `gemcnn data check` lists them"
        )));
    }
    if let Some(note) = note_on_registration(&config.model, training)? {
        observer.observe(Event::Note(&note));
    }
    if data.held_out == Split::Validation {
        notes_on_validation(held_out, &data.dataset)?.iter().for_each(|note| observer.observe(Event::Note(note)));
    }
    if let Some((_, problem)) = (unusable.into_iter()).find(|_| config.training.strict || training.is_empty()) {
        return Err(problem);
    }
    if begins {
        // Results of an earlier run whose checkpoint was removed.
        run.remove_results()?;
    }
    let problem = Problem {
        training,
        held_out,
        robust: splits.get(2).map(|copies| copies as &dyn SampleSource),
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
    /// not fit the data. A run that goes on has weights of its own.
    fn model(&self, config: &RunConfig, begins: bool) -> Result<(Objective<f32>, ModelWithParameters), TaskError> {
        if self.dataset.is_empty(Split::Train) {
            let skipped = summed_up(self.dataset.skipped());
            let problem = match skipped.first() {
                None => "the training split has no meshes".into(),
                Some(first) => format!("the training split has no meshes that can be used: {first}"),
            };
            return Err(TaskError::setting(self.dataset.name(), problem));
        }
        let objective = config.training.objective(self.dataset.learned())?;
        let spec = ModelSpec {
            input: config.features.kind(),
            task: config.task,
            per: self.dataset.per(),
            outputs: objective.output(),
        };
        let mut model = config.model.init(&spec, config.training.seed)?;
        if let Some(path) = config.training.start.as_ref().filter(|_| begins) {
            start_from(path, &mut model)?;
        }
        Ok((objective, model))
    }

    /// The training split, the held-out split and, if evaluations are compared by it, changed copies of the validation
    /// split. By default that is so for classes, which do not depend on the mesh that carries them.
    fn splits(&self, config: &RunConfig, cache: &Cache) -> Result<Vec<PreparedSplit>, TaskError> {
        let preparation = config.preparation();
        let split = |split| self.dataset.split(split, &preparation, cache);
        let is_robust = match config.training.select {
            Some(selection) => selection == Selection::Robust,
            None => matches!(config.task, Task::Segmentation | Task::Classification),
        };
        let mut splits = vec![split(Split::Train)?.augmented(&config.augmentation)?, split(self.held_out)?];
        if is_robust && self.held_out == Split::Validation {
            splits.push(split(Split::Validation)?.copies());
        }
        Ok(splits)
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

/// Takes the weights of a trained model, except those of its last layer.
fn start_from(path: &Path, (network, parameters): &mut ModelWithParameters) -> Result<(), TaskError> {
    let trained = TrainedModel::read(path)?;
    let refuse = |problem: String| TaskError::setting(format!("training.start: {}", path.display()), problem);
    let (Some((body, head)), Some((known, _))) = (network.split_head(), trained.network.split_head()) else {
        return Err(refuse("models that start from others end with a linear layer".into()));
    };
    if (body.input(), body.output()) != (known.input(), known.output()) {
        let [here, there] = [body, known].map(|part| format!("{} to {}", part.input(), part.output()));
        return Err(refuse(format!("it maps {there} before its last layer, but the network to train maps {here}")));
    }
    let of_head =
        [Some(head.weights.weight), head.weights.bias].map(|id| id.map(|id| parameters.get(id).name().to_owned()));
    for parameter in parameters.iter_mut() {
        if of_head.iter().flatten().any(|name| name == parameter.name()) {
            continue;
        }
        let same = trained.parameters.find(parameter.name()).map(|id| trained.parameters.get(id));
        let Some(same) = same.filter(|same| same.shape() == parameter.shape()) else {
            return Err(refuse(format!("it has no weight `{}` of this size; use its model", parameter.name())));
        };
        parameter.value_mut().copy_from_slice(same.value());
    }
    Ok(())
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

/// Warnings if a validation split is too small to say much: a single mesh, or few rows of a class.
fn notes_on_validation(split: &PreparedSplit, dataset: &Dataset) -> Result<Vec<String>, TaskError> {
    let mut notes = Vec::new();
    if split.len() == 1 {
        notes.push("warning: the validation split is a single mesh, and its score says little about others".into());
    }
    let Some(classes) = dataset.classes().filter(|_| dataset.task() == Task::Segmentation) else {
        return Ok(notes);
    };
    let mut counts = vec![0; classes.count()];
    for index in 0..split.len() {
        let labels = split.load(index)?.target.classes().unwrap_or_default();
        for label in labels {
            if let Some(count) = counts.get_mut(label as usize) {
                *count += 1;
            }
        }
    }
    let few = (0..classes.count()).filter(|&class| counts[class] < FEW);
    let few: Vec<String> = few.map(|class| format!("{} ({})", classes.name(class), counts[class])).collect();
    if !few.is_empty() {
        let [_, rows] = dataset.per().words();
        notes.push(format!(
            "warning: the validation split has fewer than {FEW} {rows} of {}: its score says little about these classes",
            listed(&few, 10)
        ));
    }
    Ok(notes)
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
        let (count, list) = (skipped.len(), summed_up(skipped).join("\n  "));
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
    let mut unusable: Vec<(usize, TaskError)> = Vec::new();
    for split in splits {
        for (item, problem) in split.load_usable(&go_on, &loaded)? {
            // Copies have the problems of their mesh.
            if unusable.iter().all(|(known, _)| *known != item) {
                unusable.push((item, problem));
            }
        }
    }
    Ok(unusable)
}
