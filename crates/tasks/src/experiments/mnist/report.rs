//! What an experiment comes to: one file of all results, a table, the figure and pictures of the grids.

use super::{Model, RESULT, RunResult, Surface, read_result, write_json, write_text};
use crate::TaskError;
use std::fmt;
use std::path::Path;

/// Files of the report.
const RESULTS: &str = "results.json";
const TABLE: &str = "table.md";

/// Mean and standard error of the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean; none of a single value.
    pub standard_error: Option<f64>,
    /// How many values there are.
    pub count: usize,
}

impl Estimate {
    /// Of these values; none of no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_error =
            (count > 1).then(|| (squares / (count - 1) as f64 / count as f64).sqrt());
        Some(Self {
            mean,
            standard_error,
            count,
        })
    }
}

/// The finished runs of one model, ready to be shown.
#[derive(Debug, Clone)]
pub struct Report {
    results: Vec<RunResult>,
}

impl Report {
    /// Writes results, table, figure and pictures of all finished runs in a folder.
    ///
    /// # Errors
    /// A folder that cannot be read or written, or a file in it that is no result.
    pub fn write(folder: &Path) -> Result<Self, TaskError> {
        let report = Self {
            results: read_results(folder)?,
        };
        write_json(&folder.join(RESULTS), &report.results)?;
        write_text(&folder.join(TABLE), &report.to_string())?;
        Ok(report)
    }

    /// Test error in percent of one model, over the seeds.
    pub fn error(&self, model: Model, train: Surface, test: Surface) -> Option<Estimate> {
        let errors: Vec<f64> = (self.results.iter())
            .filter(|result| result.settings.model == model && result.settings.train == train)
            .filter_map(|result| Some(100.0 * result.test(test)?.error()))
            .collect();
        Estimate::of(&errors)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs", self.results.len())
    }
}

/// The results of all finished runs in a folder, by name.
///
/// # Errors
/// A folder that cannot be read, or a file in it that is no result.
pub fn read_results(folder: &Path) -> Result<Vec<RunResult>, TaskError> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        if path.is_dir() {
            paths.push(path.join(RESULT));
        }
    }
    paths.sort();
    let results = paths.iter().map(|path| read_result(path));
    results.filter_map(Result::transpose).collect()
}
