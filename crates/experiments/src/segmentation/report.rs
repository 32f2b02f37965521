//! Results of the experiment: numbers as JSON and a table as Markdown.

use super::{Condition, Settings, Step};
use crate::Estimate;
use crate::runs::{TableRow, Tested, markdown, row_report, write_results};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::evaluation::BORDER;
use gemcnn_tasks::train::device_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The data in words.
    pub data: String,
    /// Number of epochs.
    pub epochs: u64,
    /// Runs of each step.
    pub seeds: u64,
    /// Name of the device.
    pub device: String,
    /// One for each step with at least one run.
    pub steps: Vec<StepReport>,
}

/// Results of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step of the recipe.
    pub step: Step,
    /// Training time of each run in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: Vec<f64>,
    /// Fraction of the vertices with the right class, for each condition and run.
    pub accuracy: BTreeMap<Condition, Vec<f64>>,
    /// Fraction of the area with the right class.
    #[serde(default)]
    pub by_area: BTreeMap<Condition, Vec<f64>>,
    /// Fraction of the vertices with the right class, of those away from borders of the classes.
    #[serde(default)]
    pub away_from_borders: BTreeMap<Condition, Vec<f64>>,
    /// Reasons of failed runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

impl Report {
    pub(super) fn new(settings: &Settings, device: &Device) -> Self {
        Self {
            data: match &settings.folder {
                Some(folder) => format!("{}, validation split", folder.display()),
                None => format!(
                    "{} synthetic bodies, trained with {} vertices{}",
                    settings.bodies,
                    settings.vertices,
                    match settings.is_registered {
                        true => "",
                        false => ", each with a mesh of its own",
                    }
                ),
            },
            epochs: settings.epochs,
            seeds: settings.seeds.count,
            device: device_name(device),
            steps: Vec::new(),
        }
    }

    /// Adds a run to its step; one line about it.
    pub(super) fn add(
        &mut self,
        step: Step,
        seed: u64,
        outcome: Result<(f64, Tested<Condition>), String>,
    ) -> Option<String> {
        let new = || StepReport {
            step,
            training_seconds: Vec::new(),
            accuracy: BTreeMap::new(),
            by_area: BTreeMap::new(),
            away_from_borders: BTreeMap::new(),
            failures: Vec::new(),
        };
        let report = row_report(&mut self.steps, |report| report.step == step, new);
        let (seconds, evaluations) = match outcome {
            Ok(results) => results,
            Err(reason) => {
                report.failures.push(format!("seed {seed}: {reason}"));
                return None;
            }
        };
        report.training_seconds.push(seconds);
        let mut line = "accuracy (%):".to_string();
        for (condition, evaluation) in evaluations {
            let accuracy = evaluation.scores.accuracy.unwrap_or(0.0);
            line += &format!(" {} {:.2}", condition.word(), 100.0 * accuracy);
            report.accuracy.entry(condition).or_default().push(accuracy);
            let scores = evaluation.segmentation.as_ref();
            let by_area = scores.map(|scores| scores.by_area);
            let away = scores.and_then(|scores| scores.away_from_borders);
            for (results, value) in [(&mut report.by_area, by_area), (&mut report.away_from_borders, away)] {
                results.entry(condition).or_default().extend(value);
            }
        }
        Some(format!("{line}, after {seconds:.1} s of training"))
    }

    /// True if any run failed.
    pub fn has_failures(&self) -> bool {
        self.steps.iter().any(|step| !step.failures.is_empty())
    }

    /// The tables in Markdown: accuracy of the vertices, by area, and away from borders.
    pub fn to_markdown(&self) -> String {
        let is_tested = |condition: &Condition| {
            let mut steps = self.steps.iter();
            steps.any(|step| step.accuracy.contains_key(condition))
        };
        let conditions: Vec<Condition> = Condition::ALL.into_iter().filter(is_tested).collect();
        let table = |results: fn(&StepReport) -> &BTreeMap<Condition, Vec<f64>>| {
            let rows = self.steps.iter().map(|step| TableRow {
                name: step.step.to_string(),
                failures: step.failures.len(),
                cells: (conditions.iter()).map(|condition| Estimate::of(results(step).get(condition)?)).collect(),
                training_seconds: step.training_seconds.clone(),
            });
            markdown("step", &conditions, rows, 2)
        };
        format!(
            "Vertices with the right class (%). {}; {} epochs, {} seed(s), mean ± standard error, {}.\n\n{}\n\
             Area with the right class (%):\n\n{}\n\
             Vertices with the right class, of those farther than {BORDER} from a border (unit: square root of the area) (%):\n\n{}",
            self.data,
            self.epochs,
            self.seeds,
            self.device,
            table(|step| &step.accuracy),
            table(|step| &step.by_area),
            table(|step| &step.away_from_borders),
        )
    }

    /// Writes `results.json` and `table.md`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), TaskError> {
        write_results(self, &self.to_markdown(), directory)
    }
}
