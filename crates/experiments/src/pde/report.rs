//! Results of the experiment: numbers as JSON, tables as Markdown, a figure of errors over time.

use super::evaluation::Errors;
use super::{Equation, PartErrors, Row, Settings, TestPart};
use crate::Estimate;
use crate::runs::{TableRow, markdown, write_results};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::device_name;
use gemcnn_view::plot::{Axis, Chart, Line, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Step of predictions that are fed back that the tables show, unless trajectories are shorter.
const SHOWN: usize = 20;

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The data in words.
    pub data: String,
    /// Number of epochs.
    pub epochs: u64,
    /// Runs of each row.
    pub seeds: u64,
    /// Name of the device.
    pub device: String,
    /// Rows of each table.
    pub rows: Vec<Row>,
    /// Errors of the prediction that nothing changes.
    pub still: BTreeMap<Equation, Errors>,
    /// All runs.
    pub runs: Vec<RunReport>,
    /// Reasons of failed runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Results of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The equation.
    pub equation: Equation,
    /// Name of the row.
    pub row: String,
    /// The seed.
    pub seed: u64,
    /// Number of trained parameters.
    pub parameters: usize,
    /// Training time in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: f64,
    /// Errors on each part.
    pub parts: BTreeMap<TestPart, PartErrors>,
}

impl RunReport {
    /// One line about the run.
    pub(super) fn line(&self) -> String {
        let part = |(part, errors): (&TestPart, &PartErrors)| {
            let [one, many] = [errors.one_step, errors.shown()].map(|error| 100.0 * error);
            format!(" {part} {one:.2}, {many:.2};")
        };
        let parts: String = self.parts.iter().map(part).collect();
        let (parameters, seconds) = (self.parameters, self.training_seconds);
        format!("error x 100 of one step and rolled out:{parts} {parameters} parameters, {seconds:.1} s of training")
    }
}

impl PartErrors {
    /// The error of predictions that are fed back that tables show.
    fn shown(&self) -> f64 {
        let step = self.rolled_out.len().min(SHOWN);
        self.rolled_out[..step].last().copied().unwrap_or(0.0)
    }
}

impl Report {
    pub(super) fn new(settings: &Settings, device: &Device) -> Self {
        Self {
            data: match &settings.folder {
                Some(folder) => folder.display().to_string(),
                None => format!("`gemcnn data make pde {}`", settings.data.command()),
            },
            epochs: settings.epochs,
            seeds: settings.seeds.count,
            device: device_name(device),
            rows: settings.rows.clone(),
            still: BTreeMap::new(),
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// True if any run failed.
    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    fn runs_of(&self, equation: Equation, row: Row) -> Vec<&RunReport> {
        let runs = self.runs.iter();
        runs.filter(|run| run.equation == equation && run.row == row.to_string()).collect()
    }

    /// The tables in Markdown, one for each equation.
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "Normalised root mean squared error x 100: of one step, and of predictions fed back {SHOWN} times (or to the last state). \
             {}; {} epochs, {} seed(s), mean ± standard error, {}.\n",
            self.data, self.epochs, self.seeds, self.device
        );
        let columns: Vec<String> = ["one step", "rolled out"]
            .into_iter()
            .flat_map(|what| TestPart::ALL.map(|part| format!("{part}, {what}")))
            .collect();
        for (&equation, still) in &self.still {
            let cells = |runs: &[&Errors]| -> Vec<Option<Estimate>> {
                let values: [fn(&PartErrors) -> f64; 2] = [|e| e.one_step, PartErrors::shown];
                let column = |value: fn(&PartErrors) -> f64, part: TestPart| {
                    let found = runs.iter().filter_map(|run| run.get(&part).map(value));
                    Estimate::of(&found.collect::<Vec<f64>>())
                };
                let each = values.into_iter();
                each.flat_map(|value| TestPart::ALL.map(|part| column(value, part))).collect()
            };
            let rows = self.rows.iter().map(|&row| {
                let runs = self.runs_of(equation, row);
                let size = runs.first().map(|run| run.parameters);
                let failed = format!("{equation}, {row}, ");
                TableRow {
                    name: size.map_or(row.to_string(), |n| format!("{row} ({n} parameters)")),
                    failures: (self.failures.iter()).filter(|failure| failure.starts_with(&failed)).count(),
                    cells: cells(&runs.iter().map(|run| &run.parts).collect::<Vec<_>>()),
                    training_seconds: runs.iter().map(|run| run.training_seconds).collect(),
                }
            });
            let still = TableRow {
                name: "no change".into(),
                failures: 0,
                cells: cells(&[still]),
                training_seconds: Vec::new(),
            };
            let table = markdown("network", &columns, rows.chain([still]), 2);
            text += &format!("\n{equation}:\n\n{table}");
        }
        text
    }

    /// Errors against the number of steps that are fed back: a panel for each equation and part, a series for each row.
    pub fn chart(&self) -> Chart {
        let mut chart = Chart::new("Predictions fed back").columns(3).width(1100);
        for (&equation, still) in &self.still {
            for part in TestPart::ALL {
                let mut panel =
                    Panel::new(format!("{equation}, {part}"), Axis::linear("steps"), Axis::log("normalised error"));
                let points = |errors: Vec<&PartErrors>| -> Vec<(f64, f64)> {
                    let steps = errors.first().map_or(0, |errors| errors.rolled_out.len());
                    let mean = |step: usize| {
                        let at = errors.iter().filter_map(|e| e.rolled_out.get(step));
                        at.sum::<f64>() / errors.len() as f64
                    };
                    (0..steps).map(|step| (step as f64 + 1.0, mean(step))).collect()
                };
                for &row in &self.rows {
                    let runs = self.runs_of(equation, row);
                    let errors = runs.iter().filter_map(|run| run.parts.get(&part));
                    let series = Series::new(row.to_string(), points(errors.collect()));
                    panel = panel.series(series.without_markers());
                }
                let errors = still.get(&part).into_iter().collect();
                let series = Series::new("no change", points(errors)).line(Line::Dashed);
                chart = chart.panel(panel.series(series.without_markers()));
            }
        }
        chart
    }

    /// Writes `results.json`, `table.md` and the figure `errors`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), TaskError> {
        write_results(self, &self.to_markdown(), directory)?;
        self.chart().write(&directory.join("errors"))?;
        Ok(())
    }
}
