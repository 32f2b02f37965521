//! Runs of experiments: each in a directory of its own, finished ones are not repeated.

use crate::Estimate;
use gemcnn_mesh::{SharedFolder, write_atomically};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset};
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::run::trained;
use gemcnn_tasks::train::{Event, Observer, RunConfig, StopFlag, TrainedModel};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::Path;

/// Test meshes under one condition.
pub(crate) struct TestSet<C> {
    pub condition: C,
    pub dataset: Dataset,
    pub options: EvaluationOptions,
}

/// Scores of a model under each condition.
pub(crate) type Tested<C> = Vec<(C, Evaluation)>;

/// Tests a model under all conditions, or reads earlier results; `None` if `stop` is requested.
fn tested<C: Copy + Display>(
    model: &TrainedModel,
    tests: &[TestSet<C>],
    path: &Path,
    place: &Place<'_>,
) -> Result<Option<Tested<C>>, TaskError> {
    let mut evaluations = Vec::new();
    for test in tests {
        if place.stop.is_requested() {
            return Ok(None);
        }
        let stem = path.join(format!("eval-{}", test.condition));
        let options = test.options.clone();
        let evaluation = evaluated(model, &test.dataset, options, &stem, place.cache, place.device)?;
        evaluations.push((test.condition, evaluation));
    }
    Ok(Some(evaluations))
}

/// Where the runs of an experiment take place.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub directory: &'a Path,
    pub cache: &'a Cache,
    pub device: &'a Device,
    pub stop: &'a StopFlag,
}

/// A table of an experiment: rows that are trained with several seeds and tested under several conditions.
pub(crate) trait Table {
    /// A row of the table.
    type Row: Copy + Display;
    /// A condition of the tests.
    type Condition: Copy + Display;

    /// The configuration of a run.
    fn config(&self, row: Self::Row, seed: u64) -> RunConfig;

    /// The tests of each run.
    fn tests(&self) -> &[TestSet<Self::Condition>];

    /// Takes the training time in seconds and the scores of a run, or why it failed, and writes the results so far.
    /// Returns a line about the run.
    ///
    /// # Errors
    /// Files that cannot be written.
    fn add(
        &mut self,
        row: Self::Row,
        seed: u64,
        outcome: Result<(&TrainedModel, f64, Tested<Self::Condition>), String>,
    ) -> Result<Option<String>, TaskError>;
}

/// The seeds of the runs of each row, which follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// The first one (default 1).
    pub first: u64,
    /// How many (default 3).
    pub count: u64,
}

impl Default for Seeds {
    fn default() -> Self {
        Self { first: 1, count: 3 }
    }
}

impl Seeds {
    /// The seeds in order.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |number| self.first.wrapping_add(number))
    }
}

/// Trains and tests all rows: one seed of every row before the next, so that a table that is not finished compares all
/// rows. Returns false if `stop` is requested; the same call then resumes.
///
/// # Errors
/// No rows or seeds, invalid settings or data, or a directory with runs of other settings. A run that diverges is noted
/// and does not stop the others.
pub(crate) fn fill<T: Table>(
    table: &mut T,
    rows: &[T::Row],
    seeds: Seeds,
    place: Place<'_>,
    observer: &mut dyn Observer,
) -> Result<bool, TaskError> {
    if rows.is_empty() || seeds.count == 0 {
        let problem = "there are no rows or no seeds to run";
        return Err(TaskError::setting("experiment", problem));
    }
    let total = rows.len() as u64 * seeds.count;
    let mut number = 0;
    for seed in seeds.iter() {
        for &row in rows {
            number += 1;
            let title = format!("run {number} of {total}: {row}, seed {seed}");
            observer.observe(Event::Note(&title));
            let path = place.directory.join(format!("{row}-seed{seed}"));
            let config = table.config(row, seed);
            let Place { cache, device, stop, .. } = place;
            let line = match trained(&config, &path, cache, device, observer, stop) {
                Ok(Some((model, records))) => {
                    let seconds = records.last().map_or(0.0, |record| record.seconds);
                    let Some(scores) = tested(&model, table.tests(), &path, &place)? else {
                        return Ok(false);
                    };
                    table.add(row, seed, Ok((&model, seconds, scores)))?
                }
                Ok(None) => return Ok(false),
                Err(error @ TaskError::Diverged { .. }) => {
                    observer.observe(Event::Note(&error.to_string()));
                    table.add(row, seed, Err(error.to_string()))?
                }
                Err(error) => return Err(error),
            };
            if let Some(line) = line {
                observer.observe(Event::Note(&line));
            }
        }
    }
    Ok(true)
}

/// A row of a table in Markdown.
pub(crate) struct TableRow {
    pub name: String,
    /// Number of failed runs.
    pub failures: usize,
    pub cells: Vec<Option<Estimate>>,
    pub training_seconds: Vec<f64>,
}

/// A table in Markdown: a column for each condition, as 100 times the values with a number of decimals, and one for the
/// training time.
pub(crate) fn markdown<C: Display>(
    what: &str,
    conditions: &[C],
    rows: impl Iterator<Item = TableRow>,
    decimals: usize,
) -> String {
    let mut text = format!("| {what} |");
    for condition in conditions {
        text += &format!(" {condition} |");
    }
    text += " training (s) |\n| --- |";
    text += &" --- |".repeat(conditions.len() + 1);
    text += "\n";
    let show = |estimate: Option<Estimate>, factor: f64, decimals: usize| {
        estimate.map_or(" - |".into(), |e| format!(" {} |", e.show(factor, decimals)))
    };
    for row in rows {
        let failed = match row.failures {
            0 => String::new(),
            count => format!(" ({count} failed)"),
        };
        text += &format!("| {}{failed} |", row.name);
        for cell in row.cells {
            text += &show(cell, 100.0, decimals);
        }
        text += &show(Estimate::of(&row.training_seconds), 1.0, 0);
        text += "\n";
    }
    text
}

/// The choice with a name.
///
/// # Errors
/// Another name.
pub(crate) fn named<C: Copy + Display>(what: &str, choices: &[C], name: &str) -> Result<C, TaskError> {
    let found = choices.iter().find(|choice| choice.to_string() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = choices.iter().map(C::to_string).collect();
        let names = names.join(", ");
        TaskError::setting(what, format!("`{name}` is not one of {names}"))
    })
}

/// The report of a row, made by `new` if there is none yet.
pub(crate) fn row_report<R>(reports: &mut Vec<R>, is_row: impl Fn(&R) -> bool, new: impl FnOnce() -> R) -> &mut R {
    let place = match reports.iter().position(is_row) {
        Some(place) => place,
        None => {
            reports.push(new());
            reports.len() - 1
        }
    };
    &mut reports[place]
}

/// Evaluates a model and writes the files `stem.*`, or reads them if they exist.
fn evaluated(
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

/// Locked while files are written.
pub(crate) const LOCK: &str = ".gemcnn-lock";

/// Opens a directory to write in, and removes what killed processes left there.
pub(crate) fn hold(directory: &Path) -> Result<SharedFolder, TaskError> {
    let lock = directory.join(LOCK);
    SharedFolder::open(directory, &lock).map_err(TaskError::file(lock))
}

/// Writes a report as `results.json`, and its table as `table.md`. Removes what killed processes left in the directory.
pub(crate) fn write_results(report: &impl Serialize, table: &str, directory: &Path) -> Result<(), TaskError> {
    let json =
        serde_json::to_string_pretty(report).map_err(|error| TaskError::setting("results", error.to_string()))?;
    let _folder = hold(directory)?;
    for (name, text) in [("results.json", json + "\n"), ("table.md", table.to_string())] {
        write_text(&directory.join(name), &text)?;
    }
    Ok(())
}

/// Reads the result of a run; `None` if the file does not exist.
pub(crate) fn read_json<R: DeserializeOwned>(path: &Path) -> Result<Option<R>, TaskError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TaskError::file(path)(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        TaskError::setting(
            path.display().to_string(),
            format!("not the result of a run: {error}; delete it to repeat the tests"),
        )
    })
}

/// Writes a result as JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TaskError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| TaskError::setting(path.display().to_string(), error.to_string()))?;
    write_text(path, &format!("{text}\n"))
}

/// Replaces a file atomically.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), TaskError> {
    write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(TaskError::file(path))
}
