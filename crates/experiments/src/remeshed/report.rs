//! Results of the experiment: numbers as JSON, a table as Markdown, a figure of error curves.

use super::{Meshing, Row, Settings};
use crate::Estimate;
use crate::runs::{TableRow, Tested, described, markdown, row_report, write_results};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::evaluation::{Evaluation, LARGEST_RADIUS};
use gemcnn_tasks::train::device_name;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// One for each row with at least one run.
    pub rows: Vec<RowReport>,
}

/// Results of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// The network, with or without augmentation.
    pub row: Row,
    /// Training time of each run in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: Vec<f64>,
    /// Results of each run on each meshing.
    pub meshings: BTreeMap<Meshing, Vec<MeshingReport>>,
    /// Reasons of failed runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Results of one run on one meshing. Distances are geodesic on the template, in square roots of its area.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshingReport {
    /// Mean distance of the predicted from the true vertex.
    pub mean: f64,
    /// Median distance.
    pub median: f64,
    /// Share of vertices with a distance beyond 0.1.
    pub beyond: f64,
    /// Share of vertices with the exact prediction.
    pub exact: f64,
    /// Share of vertices within each radius.
    pub within: Vec<f64>,
}

impl MeshingReport {
    fn new(evaluation: &Evaluation) -> Option<Self> {
        let geodesic = evaluation.geodesic.as_ref()?;
        Some(Self {
            mean: geodesic.mean,
            median: geodesic.median,
            beyond: 1.0 - geodesic.share_within(0.1),
            exact: evaluation.scores.accuracy.unwrap_or(0.0),
            within: geodesic.within.clone(),
        })
    }
}

impl RowReport {
    fn estimate(&self, meshing: Meshing, value: impl Fn(&MeshingReport) -> f64) -> Option<Estimate> {
        let runs = self.meshings.get(&meshing)?;
        Estimate::of(&runs.iter().map(value).collect::<Vec<f64>>())
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

    /// Adds a run to its row; one line about it.
    pub(super) fn add(
        &mut self,
        row: Row,
        seed: u64,
        outcome: Result<(f64, Tested<Meshing>), String>,
    ) -> Option<String> {
        let new = || RowReport { row, training_seconds: Vec::new(), meshings: BTreeMap::new(), failures: Vec::new() };
        let report = row_report(&mut self.rows, |report| report.row == row, new);
        let (seconds, evaluations) = match outcome {
            Ok(results) => results,
            Err(reason) => {
                report.failures.push(format!("seed {seed}: {reason}"));
                return None;
            }
        };
        report.training_seconds.push(seconds);
        let mut line = "mean error x 100:".to_string();
        for (meshing, evaluation) in evaluations {
            if let Some(result) = MeshingReport::new(&evaluation) {
                line += &format!(" {meshing} {:.2}", 100.0 * result.mean);
                report.meshings.entry(meshing).or_default().push(result);
            }
        }
        Some(format!("{line}, after {seconds:.1} s of training"))
    }

    /// True if any run failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(|row| !row.failures.is_empty())
    }

    /// Meshings with results.
    fn meshings(&self) -> Vec<Meshing> {
        let is_tested = |meshing: &Meshing| {
            let mut rows = self.rows.iter();
            rows.any(|row| row.meshings.contains_key(meshing))
        };
        Meshing::ALL.into_iter().filter(is_tested).collect()
    }

    /// The tables in Markdown.
    pub fn to_markdown(&self) -> String {
        let data = described(&self.data);
        let mut text = format!(
            "Correspondence on meshings that training never saw. {data}; {} epochs, {} seed(s), mean ± standard \
             error, {}. `+`: the training bodies are also remeshed, with other settings and seeds than the test bodies, and networks on surfaces \
             see random points of them.\n",
            self.epochs, self.seeds, self.device
        );
        let meshings = self.meshings();
        type Value = fn(&MeshingReport) -> f64;
        let tables: [(&str, Value, usize); 4] = [
            ("Mean geodesic error x 100, in square roots of the area", |run| run.mean, 2),
            ("Median geodesic error x 100", |run| run.median, 2),
            ("Vertices beyond 0.1 (%)", |run| run.beyond, 2),
            ("Exact predictions (%)", |run| run.exact, 1),
        ];
        for (title, value, digits) in tables {
            let rows = self.rows.iter().map(|row| TableRow {
                name: row.row.to_string(),
                failures: row.failures.len(),
                cells: (meshings.iter()).map(|&meshing| row.estimate(meshing, value)).collect(),
                training_seconds: row.training_seconds.clone(),
            });
            let table = markdown("network", &meshings, rows, digits);
            text += &format!("\n{title}:\n\n{table}");
        }
        text
    }

    /// The error curves: a panel for each meshing, a series for each row.
    pub fn chart(&self) -> Chart {
        let mut chart = Chart::new("Correspondence on other meshings").columns(3).width(1100);
        for meshing in self.meshings() {
            let mut panel = Panel::new(
                meshing.word(),
                Axis::linear("geodesic error / root of area").limits(0.0, LARGEST_RADIUS),
                Axis::linear("vertices within (%)").limits(0.0, 101.0),
            );
            for row in &self.rows {
                let Some(runs) = row.meshings.get(&meshing) else {
                    continue;
                };
                let steps = runs.first().map_or(0, |run| run.within.len());
                let points = (0..steps).map(|step| {
                    let radius = LARGEST_RADIUS * step as f64 / (steps - 1).max(1) as f64;
                    let sum: f64 = runs.iter().filter_map(|run| run.within.get(step)).sum();
                    (radius, 100.0 * sum / runs.len() as f64)
                });
                let series = Series::new(row.row.to_string(), points);
                panel = panel.series(series.without_markers());
            }
            chart = chart.panel(panel);
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
