//! The runs of a sweep: each in a directory of its own, finished ones are not repeated.

use super::file::{Named, Sweep, Test};
use super::labelled_bodies::Writer;
use super::picture;
use super::report::{Failure, Report, RunReport, Training};
use crate::output::{Report as _, invalid};
use gemcnn_mesh::remesh::{RemeshKind, Resample, Sequence};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::run::trained;
use gemcnn_tasks::train::{Checked, Event, Observer, RunConfig, Scores, StopFlag, TrainedModel, device_name};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Largest number of classes whose scores are results of a sweep. The files of the evaluations have all.
const MAX_CLASSES: usize = 100;

/// Where the runs of a sweep take place.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Directory of all runs and results.
    pub directory: &'a Path,
    /// Cache of prepared meshes.
    pub cache: &'a Cache,
    /// The device.
    pub device: &'a Device,
    /// Requests a stop.
    pub stop: &'a StopFlag,
}

/// A run of a sweep.
pub(crate) struct Run<'a> {
    pub world: &'a str,
    pub seed: u64,
    pub config: Checked<RunConfig>,
}

/// Trains and tests runs.
pub(crate) trait Engine {
    /// Opens the data of a world, with the configuration of its first run. Returns results of rows that need no
    /// training.
    fn open(&mut self, world: &str, config: &RunConfig) -> Result<Vec<RunReport>, TaskError>;

    #[allow(clippy::type_complexity)]
    /// Trains and tests a run in a directory, unless that is done there. Returns what training took and the results of
    /// the tests, or `None` if a stop is requested.
    fn run(
        &mut self,
        run: &Run<'_>,
        path: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Option<(Training, Map<String, Value>)>, TaskError>;
}

impl Sweep {
    /// Trains and tests all rows, and writes the results to the directory after each run: one seed of every row before
    /// the next, so that a table that is not finished compares all rows. Returns `None` if a stop is requested; the same
    /// call then resumes.
    ///
    /// # Errors
    /// Invalid data, or a directory with runs of other settings. A run that diverges is noted in the report and does not
    /// stop the others.
    pub fn run(&mut self, context: RunContext<'_>, observer: &mut dyn Observer) -> Result<Option<Report>, TaskError> {
        let made = self.make_bodies(&context.directory.join("data"))?;
        let sweep = self.clone();
        let mut standard = Standard { sweep: &sweep, context, made, tests: BTreeMap::new() };
        self.run_with(&mut standard, context, observer)
    }

    /// As [`run`](Self::run), with another way to train and test.
    pub(crate) fn run_with(
        &self,
        engine: &mut dyn Engine,
        context: RunContext<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Option<Report>, TaskError> {
        let (worlds, rows) = (self.world_names(), self.row_names());
        let mut report = self.report(context.device)?;
        for &world in &worlds {
            if !world.is_empty() {
                observer.observe(Event::Note(&format!("{world}: data")));
            }
            report.runs.extend(engine.open(world, &self.config(world, rows[0], self.first_seed)?)?);
            if context.stop.is_requested() {
                return Ok(None);
            }
        }
        let total = self.seeds * (worlds.len() * rows.len()) as u64;
        let (mut number, mut has_noted) = (0, false);
        for seed in (0..self.seeds).map(|place| self.first_seed.wrapping_add(place)) {
            for &world in &worlds {
                for &row in &rows {
                    number += 1;
                    let of_world = if world.is_empty() { String::new() } else { format!("{world}, ") };
                    let title = format!("{of_world}{row}, seed {seed}");
                    observer.observe(Event::Note(&format!("run {number} of {total}: {title}")));
                    let config = self.config(world, row, seed)?.checked()?;
                    if let Device::Cuda(cuda) = context.device {
                        cuda.set_product_mode(config.training.precision.into());
                    }
                    let name = format!("{row}-seed{seed}");
                    let name = if world.is_empty() { name } else { format!("{world}-{name}") };
                    let run = Run { world, seed, config };
                    let (world, row) = (world.to_owned(), row.to_owned());
                    match engine.run(&run, &context.directory.join(name), observer) {
                        Ok(Some((training, tests))) => {
                            report.runs.push(RunReport { world, row, training: Some(training), tests });
                            observer.observe(Event::Note(&report.line()));
                        }
                        Ok(None) => return Ok(None),
                        Err(error @ TaskError::Diverged { .. }) => {
                            observer.observe(Event::Note(&error.to_string()));
                            report.failures.push(Failure { world, row, seed, reason: error.to_string() });
                        }
                        Err(error) => return Err(error),
                    }
                    report.write(context.directory)?;
                    if !has_noted {
                        report.missing().iter().for_each(|note| observer.observe(Event::Note(note)));
                        has_noted = true;
                    }
                }
            }
        }
        Ok(Some(report))
    }

    /// A report without results.
    fn report(&self, device: &Device) -> Result<Report, TaskError> {
        let (mut epochs, mut data) = (Vec::new(), Vec::new());
        for world in self.world_names() {
            for row in self.row_names() {
                let config = self.config(world, row, self.first_seed)?;
                epochs.push(config.training.epochs);
                data.push((world, config.data));
            }
        }
        epochs.dedup();
        data.dedup();
        let data = data.iter().map(|(world, data)| match (world, self.data_text(data)) {
            (&"", text) => text,
            (world, text) => format!("{world}: {text}"),
        });
        Ok(Report {
            title: self.title.clone(),
            data: data.collect::<Vec<_>>().join("; "),
            epochs: (epochs.len() == 1).then(|| epochs[0]),
            seeds: self.seeds,
            device: device_name(device),
            runs: Vec::new(),
            failures: Vec::new(),
            sweep: self.clone(),
        })
    }

    /// Data in words.
    fn data_text(&self, data: &DataConfig) -> String {
        match (&self.labelled_bodies, data) {
            (Some(bodies), _) => {
                let own = if bodies.own_meshes { ", each with a mesh of its own" } else { "" };
                format!("{} synthetic bodies, trained with {} vertices{own}", bodies.count, bodies.vertices)
            }
            (None, DataConfig::Bodies(bodies)) => format!(
                "{} synthetic bodies of {} vertices, the first {} for training",
                bodies.count,
                bodies.vertices,
                bodies.training()
            ),
            (None, DataConfig::Folder(folder) | DataConfig::Faust(folder)) => folder.display().to_string(),
        }
    }

    /// Writes the synthetic bodies of the sweep, and takes them as its data. Returns the data of the tests that have
    /// their own.
    fn make_bodies(&mut self, directory: &Path) -> Result<BTreeMap<String, DataConfig>, TaskError> {
        let mut made = BTreeMap::new();
        let Some(bodies) = self.labelled_bodies.clone() else { return Ok(made) };
        let mut writer = Writer::new(&bodies, directory)?;
        let tests = self.tests("").clone();
        let first = tests.names().first().copied().unwrap_or("bodies").to_owned();
        let data = writer.training(&first)?;
        for (name, test) in tests.iter() {
            if let Some(change) = test.bodies {
                made.insert(name.to_owned(), writer.changed(name, change)?);
            }
        }
        self.set_data("", data);
        Ok(made)
    }
}

/// Test meshes of one test.
pub(super) struct TestSet {
    pub name: String,
    pub dataset: Dataset,
    pub options: EvaluationOptions,
}

/// Trains as `gemcnn train`, and tests as `gemcnn eval`.
struct Standard<'a> {
    sweep: &'a Sweep,
    context: RunContext<'a>,
    /// Data of the tests on synthetic bodies.
    made: BTreeMap<String, DataConfig>,
    tests: BTreeMap<String, Vec<TestSet>>,
}

impl Standard<'_> {
    /// A test on the data of a world; `None` if the user's data do not have it.
    fn test_set(&self, name: &str, test: &Test, data: &Dataset) -> Result<Option<TestSet>, TaskError> {
        let given = self.sweep.given_tests();
        let split = given.map_or(test.split, |given| given.split);
        if given.is_some_and(|given| !given.tests.iter().any(|known| known == name)) {
            return Ok(None);
        }
        let is_remeshed = test.remesh.is_some() || test.lattice.is_some();
        let (dataset, kind) = match (self.sweep.choices.benchmark.as_ref().filter(|_| is_remeshed), &test.benchmark) {
            (Some(folder), Some(name)) => (data.in_other_meshing(folder, name)?, None),
            (Some(_), None) => return Ok(None),
            (None, _) => {
                let own = self.made.get(name).cloned().or_else(|| Some(self.sweep.resolved(test.data.clone()?)));
                let dataset = match own {
                    Some(own) => Dataset::open_for(&own, data.task())?,
                    None => data.clone(),
                };
                let kind = match test.lattice {
                    Some(cells) => Some(lattice(cells, &dataset, split)?),
                    None => test.remesh.clone(),
                };
                (dataset, kind)
            }
        };
        if dataset.is_empty(split) {
            let problem = format!("the test `{name}` is on the {split} split, which has no meshes");
            return Err(TaskError::setting(dataset.name(), problem));
        }
        Ok(Some(TestSet {
            name: name.to_owned(),
            dataset,
            options: EvaluationOptions {
                split,
                rotation: test.rotation,
                strict: test.strict,
                meshing: kind.map(|kind| (kind, test.seed)),
                frames: test.frames,
                compare: test.compare,
            },
        }))
    }
}

/// Accuracy, or error in regression.
fn number(scores: Scores) -> Option<f64> {
    scores.accuracy.or(scores.error)
}

/// Marching tetrahedra with a number of cells relative to the square root of the number of vertices.
fn lattice(cells: f64, dataset: &Dataset, split: gemcnn_tasks::data::Split) -> Result<RemeshKind, TaskError> {
    let vertices = match dataset.template() {
        Some(template) => template.vertex_count(),
        None => dataset.mesh(split, 0)?.vertex_count(),
    };
    let resolution = (cells * (vertices as f64).sqrt()).clamp(8.0, 500.0) as usize;
    Ok(RemeshKind::Sequence(Sequence { steps: vec![Resample { resolution }.into()] }))
}

impl Engine for Standard<'_> {
    fn open(&mut self, world: &str, config: &RunConfig) -> Result<Vec<RunReport>, TaskError> {
        let mut config = config.clone();
        config.training.strict = true;
        // A share of the recipe is drawn in training only.
        let settings = self.sweep.settings(world, "");
        if settings.get("training").and_then(|training| training.get("validation")).is_none() {
            config.training.validation = 0.0;
        }
        let dataset = config.dataset()?;
        let mut tests = Vec::new();
        let of_world: &Named<Test> = self.sweep.tests(world);
        for (name, test) in of_world.iter() {
            tests.extend(self.test_set(name, test, &dataset)?);
        }
        self.tests.insert(world.to_owned(), tests);
        Ok(Vec::new())
    }

    fn run(
        &mut self,
        run: &Run<'_>,
        path: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Option<(Training, Map<String, Value>)>, TaskError> {
        let RunContext { cache, device, stop, .. } = self.context;
        let Some((model, records)) = trained(&run.config, path, cache, device, observer, stop)? else {
            return Ok(None);
        };
        let tests = &self.tests[run.world];
        let mut results = Map::new();
        for test in tests {
            if stop.is_requested() {
                return Ok(None);
            }
            let mut evaluation = self.evaluated(&model, test, &path.join(format!("eval-{}", test.name)))?;
            evaluation.classes = evaluation.classes.filter(|scores| scores.classes.len() <= MAX_CLASSES);
            results.insert(test.name.clone(), serde_json::to_value(evaluation).map_err(invalid("evaluation"))?);
        }
        if let (1, Some(picture)) = (run.seed, &self.sweep.picture) {
            picture::draw(&model, tests, device, &path.join(format!("{picture}.png")))?;
        }
        let training = Training {
            seed: run.seed,
            parameters: model.parameters.trained_count(),
            training_seconds: records.last().map_or(0.0, |record| record.seconds),
            held_out: records.last().and_then(|record| number(record.held_out?)),
            robust: records.last().and_then(|record| number(record.robust?)),
        };
        Ok(Some((training, results)))
    }
}

impl Standard<'_> {
    /// Evaluates a model and writes the files `stem.*`, or reads them if they exist.
    fn evaluated(&self, model: &TrainedModel, test: &TestSet, stem: &Path) -> Result<Evaluation, TaskError> {
        if let Some(evaluation) = Evaluation::read(stem)? {
            return Ok(evaluation);
        }
        let RunContext { cache, device, .. } = self.context;
        let evaluation = evaluate(model, &test.dataset, test.options.clone(), cache, device)?;
        evaluation.write(stem)?;
        Ok(evaluation)
    }
}
