//! What experiments write: numbers as JSON, tables in Markdown, figures.

use crate::Estimate;
use gemcnn_mesh::{SharedFolder, write_atomically};
use gemcnn_tasks::TaskError;
use gemcnn_view::plot::Chart;
use gemcnn_view::render::Picture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::{Path, PathBuf};

/// The results of an experiment.
pub trait Report: Serialize {
    /// The tables in Markdown.
    fn to_markdown(&self) -> String;

    /// Figures with their file names, without extension.
    fn figures(&self) -> Vec<(String, Chart)> {
        Vec::new()
    }

    /// Pictures with their file names, without extension.
    fn pictures(&self) -> Result<Vec<(String, Picture)>, TaskError> {
        Ok(Vec::new())
    }

    /// True if a run failed.
    fn has_failures(&self) -> bool {
        false
    }

    /// Writes `results.json`, `table.md`, the figures as PNG and SVG, and the pictures. Returns their paths.
    fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, TaskError>
    where
        Self: Sized,
    {
        std::fs::create_dir_all(directory).map_err(TaskError::file(directory))?;
        // Removes what killed processes left.
        let _folder = open_shared(directory)?;
        let mut paths = vec![directory.join("results.json"), directory.join("table.md")];
        write_json(&paths[0], self)?;
        write_text(&paths[1], &self.to_markdown())?;
        for (name, chart) in self.figures() {
            paths.extend(chart.write(&directory.join(name))?);
        }
        for (name, picture) in self.pictures()? {
            let path = directory.join(format!("{name}.png"));
            let folder = path.parent().unwrap_or(directory);
            std::fs::create_dir_all(folder).map_err(TaskError::file(folder))?;
            write_bytes(&path, &picture.encode_png())?;
            paths.push(path);
        }
        Ok(paths)
    }
}

/// A table. Displays in Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(S::into).collect(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |\n|{}", self.header.join(" | "), " --- |".repeat(self.header.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

/// The mean of some values times a factor, with its standard error; `-` if there are none.
pub(crate) fn cell(values: &[f64], factor: f64, decimals: usize) -> String {
    Estimate::of(values).map_or("-".into(), |estimate| estimate.show(factor, decimals))
}

/// The mean of several curves at each place, as points.
pub(crate) fn mean_curve(x: &[f64], curves: &[&[f64]]) -> Vec<(f64, f64)> {
    let mean = |place: usize| {
        let values = curves.iter().filter_map(|curve| curve.get(place));
        values.sum::<f64>() / curves.len() as f64
    };
    x.iter().enumerate().map(|(place, &x)| (x, mean(place))).collect()
}

/// Locked while files are written.
pub(crate) const LOCK: &str = ".gemcnn-lock";

/// Opens a directory to write in, and removes what killed processes left there.
pub(crate) fn open_shared(directory: &Path) -> Result<SharedFolder, TaskError> {
    let lock = directory.join(LOCK);
    SharedFolder::open(directory, &lock).map_err(TaskError::file(lock))
}

/// Reads the result of a run; `None` if the file does not exist.
pub(crate) fn read_json<R: DeserializeOwned>(path: &Path) -> Result<Option<R>, TaskError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TaskError::file(path)(error)),
    };
    let refuse = |error| format!("not the result of a run: {error}; delete it to repeat the tests");
    serde_json::from_str(&text).map(Some).map_err(|error| TaskError::at(path, refuse(error)))
}

/// Writes a result as JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TaskError> {
    write_text(path, &(serde_json::to_string_pretty(value).map_err(invalid("results"))? + "\n"))
}

/// Replaces a file atomically.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), TaskError> {
    write_bytes(path, text.as_bytes())
}

/// Replaces a file atomically.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    write_atomically(path, |file| file.write_all(bytes)).map_err(TaskError::file(path))
}

/// Makes an error of a setting, mesh or file from any other, for `map_err`.
pub(crate) fn invalid<E: fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> TaskError {
    let what = what.into();
    move |error| TaskError::setting(what, error.to_string())
}
