//! From a configuration to a trained model.

use crate::data::{Cache, Dataset, PreparedSplit, Split, listed};
use crate::models::{ModelSpec, ModelWithParameters};
use crate::predict::{template_attributes, write_examples};
use crate::train::{
    Checked, Event, Observer, Outcome, Preparing, Problem, Record, RunConfig, RunDirectory, Selection, StopFlag,
    TrainedModel, Trainer, TrainingConfig, begun_with, device_name, draw_curve, read_metrics,
};
use crate::{ModelConfig, Result, SampleSource, Task, TaskError, summed_up};
use gemcnn_mesh::{WriteOptions, write_mesh};
use gemcnn_nn::{Device, Objective};
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

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
) -> Result<Outcome> {
    let mut data = Data::open(config)?;
    data.dataset.notes().iter().for_each(|note| observer.observe(Event::Note(note)));
    let settings = config.to_json()?;
    let begun = begun_with(run, &settings)?;
    let begins = !run.checkpoint().exists();
    // Settings that do not fit the data are an error before anything is written.
    let mut made = Some(data.model(config, begins)?);
    data.notes_on_selection(&config.training).into_iter().for_each(|note| observer.observe(Event::Note(note)));
    let mut splits = data.splits(config, cache)?;
    let mut unprepared = if begins { Skipped::new() } else { read_skipped(run)? };
    if begins {
        write_beginning(config, &data.dataset, run, device, &unprepared)?;
    }
    let mut unusable = examine(&mut splits, config.training.strict, stop)?;
    unusable.extend(data.dataset.named(&unprepared));
    let mut told = 0;
    loop {
        splits.iter_mut().for_each(|split| split.leave_out(&unusable.keys().copied().collect()));
        data.dataset.leave_out(&unusable);
        for line in summed_up(&data.dataset.skipped()[told..]) {
            observer.observe(Event::Note(&format!("skipped: {line}")));
        }
        told = data.dataset.skipped().len();
        if stop.is_requested() {
            let (epoch, step) = begun;
            return Ok(Outcome::Stopped { epoch, step });
        }
        data.require_training_meshes()?;
        let model = match made.take() {
            Some(model) => model,
            None => data.model(config, true)?,
        };
        let outcome =
            train_prepared(config, (&data, &splits), model, (run, &settings), (cache, device), observer, stop);
        // A mesh that cannot be prepared is known only when it is due. Training begins again without it.
        unusable = splits.iter().flat_map(PreparedSplit::take_failed).collect();
        match outcome {
            Err(error) if error.is_of_mesh() && !config.training.strict && !unusable.is_empty() => {
                unprepared
                    .extend(unusable.iter().map(|(item, problem)| (data.dataset.item_name(*item), problem.clone())));
                run.forget()?;
                write_beginning(config, &data.dataset, run, device, &unprepared)?;
            }
            outcome => return outcome,
        }
    }
}

/// Trains on the meshes of some splits.
fn train_prepared(
    config: &Checked<RunConfig>,
    (data, splits): (&Data, &[PreparedSplit]),
    (objective, model): (Objective<f32>, ModelWithParameters),
    (run, settings): (&RunDirectory, &Value),
    (cache, device): (&Cache, &Device),
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<Outcome> {
    let (training, held_out) = (&splits[0], &splits[1]);
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
    let begins = !run.checkpoint().exists();
    if begins {
        if config.training.scale_features {
            prepare_first(splits, config.training.seed, cache, observer, stop)?;
        }
        if stop.is_requested() {
            return Ok(Outcome::Stopped { epoch: 0, step: 0 });
        }
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
        settings,
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
pub fn opened(config: &Checked<RunConfig>, path: &Path) -> Result<RunDirectory> {
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
) -> Result<Option<(TrainedModel, Vec<Record>)>> {
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
pub(crate) struct Data {
    dataset: Dataset,
    /// The split to evaluate on in training: validation, or test if there is no validation split.
    held_out: Split,
}

impl Data {
    pub fn open(config: &RunConfig) -> Result<Self> {
        let dataset = config.dataset()?;
        let held_out = if dataset.is_empty(Split::Validation) { Split::Test } else { Split::Validation };
        Ok(Self { dataset, held_out })
    }

    /// An error unless there are meshes to train on.
    fn require_training_meshes(&self) -> Result<()> {
        if !self.dataset.is_empty(Split::Train) {
            return Ok(());
        }
        let skipped = summed_up(self.dataset.skipped());
        let problem = match skipped.first() {
            None => "the training split has no meshes".into(),
            Some(first) => format!("the training split has no meshes that can be used: {first}"),
        };
        Err(TaskError::setting(self.dataset.name(), problem))
    }

    /// The objective and the initialised model. Both are made before any mesh is prepared, to detect settings that do
    /// not fit the data. A run that goes on has weights of its own.
    pub fn model(&self, config: &RunConfig, begins: bool) -> Result<(Objective<f32>, ModelWithParameters)> {
        self.require_training_meshes()?;
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
    pub fn splits(&self, config: &RunConfig, cache: &Cache) -> Result<Vec<PreparedSplit>> {
        let preparation = config.preparation();
        let split = |split| self.dataset.split(split, &preparation, cache);
        let is_robust = match config.training.select {
            Some(selection) => selection == Selection::Robust,
            None => matches!(config.task, Task::Segmentation | Task::Classification),
        };
        let training = split(Split::Train)?.augmented(&config.augmentation)?;
        let held_out = split(self.held_out)?.with_memory_of(&training);
        let copies = match is_robust && self.held_out == Split::Validation {
            true => Some(split(Split::Validation)?.copies().with_memory_of(&training)),
            false => None,
        };
        let mut splits = vec![training, held_out];
        splits.extend(copies);
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
fn start_from(path: &Path, (network, parameters): &mut ModelWithParameters) -> Result<()> {
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
fn note_on_registration(model: &ModelConfig, split: &PreparedSplit) -> Result<Option<String>> {
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
fn notes_on_validation(split: &PreparedSplit, dataset: &Dataset) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if split.len() == 1 {
        notes.push("warning: the validation split is a single mesh, and its score says little about others".into());
    }
    let Some(classes) = dataset.classes().filter(|_| dataset.task() == Task::Segmentation) else { return Ok(notes) };
    let mut counts = vec![0; classes.count()];
    for index in 0..split.len() {
        let labels = split.target(index)?.classes().unwrap_or_default();
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

/// Names of the meshes that could not be prepared, and the problem of each.
type Skipped = BTreeMap<String, String>;

/// Writes versions, template and configuration to the run directory. The meshes that could not be prepared are written
/// beside the versions, so that a resumed run does not begin with them.
fn write_beginning(
    config: &RunConfig,
    dataset: &Dataset,
    run: &RunDirectory,
    device: &Device,
    skipped: &Skipped,
) -> Result<()> {
    let skipped = match skipped.is_empty() {
        true => String::new(),
        false => format!("[skipped]\n{}", toml::to_string(skipped).unwrap_or_default()),
    };
    let versions = format!(
        "gemcnn = {:?}\ndevice = {:?}\nsystem = \"{} {}\"\n{skipped}",
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

fn read_skipped(run: &RunDirectory) -> Result<Skipped> {
    #[derive(Deserialize)]
    struct Versions {
        #[serde(default)]
        skipped: Skipped,
    }
    let path = run.versions();
    let text = match gemcnn_mesh::read_text(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Skipped::new()),
        text => text.map_err(TaskError::file(&path))?,
    };
    let versions: Versions = toml::from_str(&text).map_err(|error| TaskError::at(&path, error.to_string()))?;
    Ok(versions.skipped)
}

fn write_config(config: &RunConfig, run: &RunDirectory) -> Result<()> {
    run.write_durably(&run.config(), config.to_toml()?.as_bytes())
}

/// Reads every mesh once, to detect problems before training, until `stop` is requested. Leaves out meshes that cannot
/// be used, and returns their numbers and problems; the first is an error if the data must be free of them. None is
/// prepared.
fn examine(splits: &mut [PreparedSplit], is_strict: bool, stop: &StopFlag) -> Result<BTreeMap<usize, String>> {
    let mut unusable = BTreeMap::new();
    for split in splits {
        for (item, problem) in split.examine(&|| !stop.is_requested())? {
            if is_strict {
                return Err(problem);
            }
            unusable.insert(item, problem.to_string());
        }
    }
    Ok(unusable)
}

/// Prepares the meshes from which features are scaled, in parallel. The first epoch prepares the others.
fn prepare_first(
    splits: &[PreparedSplit],
    seed: u64,
    cache: &Cache,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) -> Result<()> {
    let training = &splits[0];
    let first = training.typical(seed);
    let held_out: usize = splits[1..].iter().map(SampleSource::len).sum();
    // An epoch visits one version of each mesh, mostly another one.
    let again = if training.versions() > 1 { first.len() } else { 0 };
    let total = training.len() / training.versions() + again + held_out;
    let entries = splits.iter().map(SampleSource::len).sum();
    let progress = Preparing::new((first.len(), total), entries, cache, observer);
    first.into_par_iter().try_for_each(|index| match stop.is_requested() {
        true => Ok(()),
        false => training.load(index).map(|sample| progress.loaded(&sample)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Silent;
    use gemcnn_mesh::{DVec3, Mesh, shapes};
    use std::fs;

    /// A folder of `count` spheres with labels at vertices, and its configuration.
    fn spheres(folder: &Path, count: usize, validation: f64) -> Checked<RunConfig> {
        for number in 0..count {
            let stretch = DVec3::new(1.0, 1.0 + 0.02 * number as f64, 0.8);
            let mesh = shapes::icosphere(1).unwrap().map_vertices(|p| stretch * p).unwrap();
            write_labelled(folder, &format!("s{number:02}"), &mesh);
        }
        let config = format!(
            "task = 'segmentation'\n[data]\nfolder = {folder:?}\n[geometry]\nnormalise = false\n\
             [augmentation]\nversions = 1\nresample = 0.5\n\
             [model]\nkind = 'diffusion'\nblocks = 1\nchannels = 4\neigenvectors = 8\n\
             [training]\nepochs = 2\nvalidation = {validation}\n"
        );
        fs::write(
            folder.join("dataset.toml"),
            "task = 'segmentation'\ntarget.files = '{stem}.txt'\nsplit.patterns.train = '*'\n",
        )
        .unwrap();
        RunConfig::parse(&config).unwrap().checked().unwrap()
    }

    fn write_labelled(folder: &Path, name: &str, mesh: &Mesh) {
        let file = folder.join(format!("{name}.off"));
        write_mesh(file, mesh, &[], &WriteOptions::default()).unwrap();
        let labels = mesh.vertices().iter().map(|p| if p.x > 0.2 { "1\n" } else { "0\n" });
        fs::write(folder.join(format!("{name}.txt")), labels.collect::<String>()).unwrap();
    }

    /// Trains with a number of threads, and returns the losses of both splits in each epoch.
    fn losses(config: &Checked<RunConfig>, run: &Path, cache: &Cache, threads: usize) -> Vec<[Option<f64>; 3]> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let trained = || {
            let run = RunDirectory::open_or_create(run).unwrap();
            let outcome = train(config, &run, cache, &Device::Cpu, &mut Silent, &StopFlag::new()).unwrap();
            assert!(matches!(outcome, Outcome::Finished { .. }));
            read_metrics(&run.metrics()).unwrap()
        };
        let loss = |scores: Option<crate::train::Scores>| scores.map(|scores| scores.loss);
        let records = pool.install(trained).into_iter();
        records.map(|record| [record.training, record.held_out, record.robust].map(loss)).collect()
    }

    #[test]
    fn a_run_that_prepares_as_it_goes_has_the_same_bits_as_one_that_reads() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir(&data).unwrap();
        // More than features are scaled from.
        let config = spheres(&data, 22, 0.1);
        let cache = Cache::new(place.path().join("cache"));
        let expected = losses(&config, &place.path().join("none"), &Cache::none(), 1);
        assert_eq!(expected.len(), 2);
        for (name, threads) in [("cold", 2), ("warm", 1), ("again", 3)] {
            assert_eq!(losses(&config, &place.path().join(name), &cache, threads), expected, "{name}");
        }
    }

    #[test]
    fn a_mesh_that_cannot_be_prepared_is_left_out_when_it_is_due() {
        let place = tempfile::tempdir().unwrap();
        let [good, bad] = ["good", "bad"].map(|name| place.path().join(name));
        [&good, &bad].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let expected = losses(&spheres(&good, 4, 0.0), &place.path().join("run"), &Cache::none(), 2);
        let config = spheres(&bad, 4, 0.0);
        // It has vertices and labels, but no surface.
        let points = [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z].to_vec();
        let faces = [[0u32, 0, 1], [1, 1, 2], [2, 2, 3], [3, 3, 0]];
        write_labelled(&bad, "t", &Mesh::new(points, faces.iter().collect()).unwrap());
        let path = place.path().join("without");
        assert_eq!(losses(&config, &path, &Cache::none(), 2), expected);
        let run = opened(&config, &path).unwrap();
        assert_eq!(read_skipped(&run).unwrap().into_keys().collect::<Vec<_>>(), ["t.off"]);
        drop(run);
        // A run that is resumed knows it.
        let longer =
            RunConfig { training: TrainingConfig { epochs: 3, ..config.training.clone() }, ..(*config).clone() };
        let resumed = losses(&longer.checked().unwrap(), &path, &Cache::none(), 1);
        assert_eq!((resumed.len(), &resumed[..2]), (3, &expected[..]));
        let strict =
            RunConfig { training: TrainingConfig { strict: true, ..config.training.clone() }, ..(*config).clone() };
        let run = opened(&strict.clone().checked().unwrap(), &place.path().join("strict")).unwrap();
        let refused =
            train(&strict.checked().unwrap(), &run, &Cache::none(), &Device::Cpu, &mut Silent, &StopFlag::new());
        assert!(refused.unwrap_err().is_of_mesh());
    }
}
