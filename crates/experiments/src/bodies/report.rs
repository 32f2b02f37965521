//! Results of the experiment: numbers as JSON and a table as Markdown.

use super::{Condition, PaperResult, Row, Settings};
use crate::Estimate;
use crate::runs::{Tested, described, row_report, write_results};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::train::device_name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The data.
    pub data: DataConfig,
    /// Number of epochs.
    pub epochs: u64,
    /// Runs of each row.
    pub seeds: u64,
    /// Name of the device.
    pub device: String,
    /// One for each network with at least one run.
    pub rows: Vec<RowReport>,
}

/// Results of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// The network and its features.
    pub row: Row,
    /// Successful runs.
    pub runs: Vec<RunReport>,
    /// Reasons of failed runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Fraction of the vertices of test bodies with the right prediction.
    pub accuracy: Option<Estimate>,
    /// The same with randomly rotated test bodies.
    pub accuracy_rotated: Option<Estimate>,
    /// The same with remeshed test bodies: the predicted vertex is the template vertex nearest to the vertex.
    pub accuracy_remeshed: Option<Estimate>,
    /// Mean geodesic error on remeshed test bodies, in units of the square root of the template's area.
    pub geodesic_error_remeshed: Option<Estimate>,
    /// Training time in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: Option<Estimate>,
    /// The paper's accuracy on FAUST.
    pub paper: Option<PaperResult>,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Seed of the run.
    pub seed: u64,
    /// Fraction of the vertices of test bodies with the right prediction.
    pub accuracy: f64,
    /// The same with randomly rotated test bodies.
    pub accuracy_rotated: f64,
    /// The same with remeshed test bodies.
    pub accuracy_remeshed: f64,
    /// Mean geodesic error, in units of the square root of the template's area.
    pub geodesic_error: Option<f64>,
    /// The same with randomly rotated test bodies.
    pub geodesic_error_rotated: Option<f64>,
    /// The same with remeshed test bodies.
    pub geodesic_error_remeshed: Option<f64>,
    /// Number of trained parameters.
    pub parameters: usize,
    /// Training time in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: f64,
}

impl RunReport {
    pub(super) fn new(seed: u64, seconds: f64, scores: &Tested<Condition>) -> Self {
        let of = |condition| scores.iter().find(|(c, _)| *c == condition);
        let accuracy = |condition| {
            let scores = of(condition).map(|(_, evaluation)| evaluation.scores);
            scores.and_then(|scores| scores.accuracy).unwrap_or(0.0)
        };
        let geodesic = |condition| {
            let (_, evaluation) = of(condition)?;
            evaluation.geodesic.as_ref().map(|errors| errors.mean)
        };
        Self {
            seed,
            accuracy: accuracy(Condition::Original),
            accuracy_rotated: accuracy(Condition::Rotated),
            accuracy_remeshed: accuracy(Condition::Remeshed),
            geodesic_error: geodesic(Condition::Original),
            geodesic_error_rotated: geodesic(Condition::Rotated),
            geodesic_error_remeshed: geodesic(Condition::Remeshed),
            parameters: 0,
            training_seconds: seconds,
        }
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "test accuracy {:.2} %, randomly rotated {:.2} %, remeshed {:.2} %, after {:.1} s of training",
            100.0 * self.accuracy,
            100.0 * self.accuracy_rotated,
            100.0 * self.accuracy_remeshed,
            self.training_seconds
        )
    }
}

impl Report {
    pub(super) fn new(settings: &Settings, device: &Device) -> Self {
        Self {
            data: settings.data.clone(),
            epochs: settings.epochs,
            seeds: settings.seeds.count,
            device: device_name(device),
            rows: Vec::new(),
        }
    }

    /// Adds a run to its row.
    pub(super) fn add(&mut self, row: Row, seed: u64, outcome: Result<RunReport, String>) {
        let new = || RowReport {
            row,
            runs: Vec::new(),
            failures: Vec::new(),
            accuracy: None,
            accuracy_rotated: None,
            accuracy_remeshed: None,
            geodesic_error_remeshed: None,
            training_seconds: None,
            paper: row.paper(),
        };
        let report = row_report(&mut self.rows, |report| report.row == row, new);
        match outcome {
            Ok(run) => report.runs.push(run),
            Err(reason) => report.failures.push(format!("seed {seed}: {reason}")),
        }
        let estimate =
            |value: fn(&RunReport) -> f64| Estimate::of(&report.runs.iter().map(value).collect::<Vec<f64>>());
        report.accuracy = estimate(|run| run.accuracy);
        report.accuracy_rotated = estimate(|run| run.accuracy_rotated);
        report.accuracy_remeshed = estimate(|run| run.accuracy_remeshed);
        let errors: Option<Vec<f64>> = (report.runs.iter()).map(|run| run.geodesic_error_remeshed).collect();
        report.geodesic_error_remeshed = errors.and_then(|errors| Estimate::of(&errors));
        report.training_seconds = estimate(|run| run.training_seconds);
    }

    /// True if any run failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(|row| !row.failures.is_empty())
    }

    /// The table in Markdown.
    pub fn to_markdown(&self) -> String {
        let data = described(&self.data);
        let mut text = format!(
            "Shape correspondence: percentage of the vertices of test bodies whose template vertex is predicted \
             exactly.\n\n{data}; {} epochs, {} seed(s), mean ± standard error, {}. Training time excludes preparation, \
             evaluations and checkpoints. The paper's numbers are for FAUST.\n\n\
             | network | features | accuracy (%) | randomly rotated (%) | remeshed (%) | remeshed, mean error x 100 \
             | parameters | training (s) | paper (%) |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            self.epochs, self.seeds, self.device
        );
        let show = |estimate: &Option<Estimate>, factor: f64, digits: usize| match estimate {
            Some(estimate) => estimate.show(factor, digits),
            None => "-".into(),
        };
        for row in &self.rows {
            let paper = row.paper.map_or("-".into(), |paper| paper.to_string());
            let parameters = row.runs.first().map_or(0, |run| run.parameters);
            let failed = match row.failures.len() {
                0 => String::new(),
                count => format!(" ({count} failed)"),
            };
            text += &format!(
                "| {} | {} | {}{failed} | {} | {} | {} | {parameters} | {} | {paper} |\n",
                row.row.network_name(),
                row.row.features_name(),
                show(&row.accuracy, 100.0, 2),
                show(&row.accuracy_rotated, 100.0, 2),
                show(&row.accuracy_remeshed, 100.0, 2),
                show(&row.geodesic_error_remeshed, 100.0, 2),
                show(&row.training_seconds, 1.0, 1),
            );
        }
        text
    }

    /// Writes `results.json` and `table.md`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), TaskError> {
        write_results(self, &self.to_markdown(), directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_runs_show_and_do_not_count() {
        let mut report = Report::new(&Settings::quick(), &Device::Cpu);
        let run = RunReport {
            seed: 1,
            accuracy: 0.9975,
            accuracy_rotated: 0.5,
            geodesic_error: None,
            geodesic_error_rotated: None,
            accuracy_remeshed: 0.25,
            geodesic_error_remeshed: Some(0.125),
            parameters: 1234,
            training_seconds: 12.0,
        };
        report.add(Row::Gem, 1, Ok(run));
        report.add(Row::Gem, 2, Err("diverged".into()));
        assert!(report.has_failures());
        let table = report.to_markdown();
        let row = "| GEM-CNN | XYZ | 99.75 (1 failed) | 50.00 | 25.00 | 12.50 | 1234 | 12.0 | 99.73 ± 0.04 |\n";
        assert!(table.ends_with(row), "{table}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
