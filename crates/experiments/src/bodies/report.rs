//! What comes out of the experiment: numbers for programs and a table for readers.

use super::{PaperResult, Row, Settings};
use gemcnn_mesh::write_atomically;
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::evaluation::Evaluation;
use gemcnn_tasks::train::device_name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was trained on.
    pub data: DataConfig,
    /// Passes over the training part.
    pub epochs: u64,
    /// Runs of each row.
    pub seeds: u64,
    /// What computed.
    pub device: String,
    /// One for each network, as far as runs are done.
    pub rows: Vec<RowReport>,
}

/// Results of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// The network and its features.
    pub row: Row,
    /// Its runs that ended well.
    pub runs: Vec<RunReport>,
    /// Why others did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Share of vertices of test bodies that are right.
    pub accuracy: Option<Spread>,
    /// The same with test bodies turned at random.
    pub accuracy_rotated: Option<Spread>,
    /// Seconds of training, without preparation, evaluations and checkpoints.
    pub training_seconds: Option<Spread>,
    /// What the paper reports on FAUST.
    pub paper: Option<PaperResult>,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Where its randomness came from.
    pub seed: u64,
    /// Share of vertices of test bodies that are right.
    pub accuracy: f64,
    /// The same with test bodies turned at random.
    pub accuracy_rotated: f64,
    /// Mean geodesic error in roots of the template's area.
    pub geodesic_error: Option<f64>,
    /// The same with test bodies turned at random.
    pub geodesic_error_rotated: Option<f64>,
    /// Seconds of training, without preparation, evaluations and checkpoints.
    pub training_seconds: f64,
}

impl RunReport {
    /// From the seed, the seconds of training, and tests on bodies as they are and turned at random.
    pub(super) fn new(seed: u64, seconds: f64, still: &Evaluation, turned: &Evaluation) -> Self {
        let accuracy = |evaluation: &Evaluation| evaluation.scores.accuracy.unwrap_or(0.0);
        let geodesic = |evaluation: &Evaluation| evaluation.geodesic.as_ref().map(|g| g.mean);
        Self {
            seed,
            accuracy: accuracy(still),
            accuracy_rotated: accuracy(turned),
            geodesic_error: geodesic(still),
            geodesic_error_rotated: geodesic(turned),
            training_seconds: seconds,
        }
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "test accuracy {:.2} %, turned at random {:.2} %, after {:.1} s of training",
            100.0 * self.accuracy,
            100.0 * self.accuracy_rotated,
            self.training_seconds
        )
    }
}

/// Mean and standard error of the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean; none for a single value.
    pub standard_error: Option<f64>,
}

impl Spread {
    /// Of some values; none of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (!values.is_empty()).then(|| Self {
            mean,
            standard_error: (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt()),
        })
    }

    /// Mean and error times a factor, as in `99.85 ± 0.02`.
    fn show(&self, factor: f64, digits: usize) -> String {
        let mean = format!("{:.digits$}", factor * self.mean);
        match self.standard_error {
            Some(error) => format!("{mean} ± {:.digits$}", factor * error),
            None => mean,
        }
    }
}

impl Report {
    pub(super) fn new(settings: &Settings, device: &Device) -> Self {
        Self {
            data: settings.data.clone(),
            epochs: settings.epochs,
            seeds: settings.seeds,
            device: device_name(device),
            rows: Vec::new(),
        }
    }

    /// Adds a run to its row.
    pub(super) fn add(&mut self, row: Row, seed: u64, outcome: Result<RunReport, String>) {
        let place = match self.rows.iter().position(|report| report.row == row) {
            Some(place) => place,
            None => {
                self.rows.push(RowReport {
                    row,
                    runs: Vec::new(),
                    failures: Vec::new(),
                    accuracy: None,
                    accuracy_rotated: None,
                    training_seconds: None,
                    paper: row.paper(),
                });
                self.rows.len() - 1
            }
        };
        let report = &mut self.rows[place];
        match outcome {
            Ok(run) => report.runs.push(run),
            Err(reason) => report.failures.push(format!("seed {seed}: {reason}")),
        }
        let spread = |value: fn(&RunReport) -> f64| {
            Spread::of(&report.runs.iter().map(value).collect::<Vec<f64>>())
        };
        report.accuracy = spread(|run| run.accuracy);
        report.accuracy_rotated = spread(|run| run.accuracy_rotated);
        report.training_seconds = spread(|run| run.training_seconds);
    }

    /// Whether some run failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(|row| !row.failures.is_empty())
    }

    /// The table in Markdown.
    pub fn to_markdown(&self) -> String {
        let data = match &self.data {
            DataConfig::Bodies(bodies) => format!(
                "{} synthetic bodies of {} vertices, the first {} for training",
                bodies.count,
                bodies.vertices,
                bodies.training()
            ),
            DataConfig::Folder(folder) | DataConfig::Faust(folder) => folder.display().to_string(),
        };
        let mut text = format!(
            "Shape correspondence: share of vertices of test bodies whose template vertex is found \
             exactly.\n\n{data}; {} epochs, {} seed(s), mean ± standard error, {}. Training time is without preparation, \
             evaluations and checkpoints. The paper's numbers are on FAUST.\n\n\
             | network | features | accuracy (%) | turned at random (%) | training (s) | paper (%) |\n\
             | --- | --- | --- | --- | --- | --- |\n",
            self.epochs, self.seeds, self.device
        );
        let show = |spread: &Option<Spread>, factor: f64, digits: usize| match spread {
            Some(spread) => spread.show(factor, digits),
            None => "-".into(),
        };
        for row in &self.rows {
            let paper = row.paper.map_or("-".into(), |paper| {
                format!("{:.2} ± {}", paper.accuracy, paper.standard_error)
            });
            let failed = match row.failures.len() {
                0 => String::new(),
                count => format!(" ({count} failed)"),
            };
            text += &format!(
                "| {} | {} | {}{failed} | {} | {} | {paper} |\n",
                row.row.network_name(),
                row.row.features_name(),
                show(&row.accuracy, 100.0, 2),
                show(&row.accuracy_rotated, 100.0, 2),
                show(&row.training_seconds, 1.0, 1),
            );
        }
        text
    }

    /// Writes `results.json` and `table.md`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), TaskError> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| TaskError::setting("results", error.to_string()))?;
        let table = self.to_markdown();
        for (name, text) in [("results.json", json + "\n"), ("table.md", table)] {
            let path = directory.join(name);
            write_atomically(&path, |file| file.write_all(text.as_bytes()))
                .map_err(TaskError::file(&path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_means_with_standard_errors() {
        assert_eq!(Spread::of(&[]), None);
        let one = Spread::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.standard_error), (0.5, None));
        // Deviations -1, 0, 1: variance 1, over three values.
        let three = Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((three.standard_error.unwrap() - (1f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(three.show(100.0, 1), "200.0 ± 57.7");
    }

    #[test]
    fn failed_runs_show_and_do_not_count() {
        let mut report = Report::new(&Settings::quick(), &Device::Cpu);
        let run = RunReport {
            seed: 1,
            accuracy: 0.9975,
            accuracy_rotated: 0.5,
            geodesic_error: None,
            geodesic_error_rotated: None,
            training_seconds: 12.0,
        };
        report.add(Row::Gem, 1, Ok(run));
        report.add(Row::Gem, 2, Err("diverged".into()));
        assert!(report.has_failures());
        let table = report.to_markdown();
        let row = "| GEM-CNN | XYZ | 99.75 (1 failed) | 50.00 | 12.0 | 99.73 ± 0.04 |\n";
        assert!(table.ends_with(row), "{table}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
