//! The report of an experiment: all results in one file, tables, the figure and pictures of the grids.

use super::{GridOptions, Model, Part, RESULT, RunResult, Surface};
use crate::Estimate;
use crate::digits::Mnist;
use crate::output::{self, Table, invalid, read_json};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::Record;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use gemcnn_view::render::{Picture, RenderOptions, Shading, Up, View, render};
use serde::Serialize;
use std::path::Path;

/// The paper's test error in percent after training and testing on the flat grid, with its standard error over
/// 6 runs.
const PAPER_FLAT: (f64, f64) = (0.60, 0.05);
/// The same for the paper's isotropic network, on all grids.
const PAPER_GRAPH: (f64, f64) = (19.80, 3.43);

/// The finished runs of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Report {
    results: Vec<RunResult>,
}

impl Report {
    /// Reads the finished runs in a directory.
    ///
    /// # Errors
    /// A directory that cannot be read, or a file that is not a result.
    pub fn read(folder: &Path) -> Result<Self, TaskError> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
            let path = entry.map_err(TaskError::file(folder))?.path();
            if path.is_dir() {
                paths.push(path.join(RESULT));
            }
        }
        paths.sort();
        let results = paths.iter().map(|path| read_json::<RunResult>(path));
        Ok(Self { results: results.filter_map(Result::transpose).collect::<Result<_, _>>()? })
    }

    /// The results, sorted by the names of their runs.
    pub fn results(&self) -> &[RunResult] {
        &self.results
    }

    /// Mean test error in percent over the seeds.
    pub fn error(&self, model: Model, train: Surface, test: Surface) -> Option<Estimate> {
        let errors: Vec<f64> =
            self.runs(model, train).filter_map(|result| Some(100.0 * result.test(test)?.error())).collect();
        Estimate::of(&errors)
    }

    fn runs(&self, model: Model, train: Surface) -> impl Iterator<Item = &RunResult> {
        let all = self.results.iter().map(|result| (result, &result.settings));
        all.filter(move |(_, settings)| settings.model == model && settings.train == train).map(|(result, _)| result)
    }

    fn models(&self) -> Vec<Model> {
        let has = |model: &Model| self.results.iter().any(|r| r.settings.model == *model);
        Model::ALL.into_iter().filter(has).collect()
    }

    /// Training geometries of a model, from flat to rough.
    fn trained_on(&self, model: Model) -> Vec<Surface> {
        let of_model = self.results.iter().filter(|r| r.settings.model == model);
        in_order(of_model.map(|result| result.settings.train))
    }

    /// Test geometries, from flat to rough.
    fn tested_on(&self) -> Vec<Surface> {
        let tests = self.results.iter().flat_map(|result| &result.tests);
        in_order(tests.map(|test| test.surface))
    }

    /// A plot of the test error against the test geometry: a panel for each model, a curve for each training
    /// geometry.
    pub fn chart(&self) -> Chart {
        let tested = self.tested_on();
        let chart = Chart::new("Embedded MNIST: test error by geometry, with standard errors");
        self.models().into_iter().fold(chart.columns(1).panel_height(330), |chart, model| {
            let panel = Panel::new(
                model.to_string(),
                Axis::named("test geometry (numbers: roughness)", tested.iter().map(Surface::to_string)),
                Axis::log("test error in %"),
            );
            let panel = self.trained_on(model).into_iter().fold(panel, |panel, train| {
                let estimates: Vec<Option<Estimate>> =
                    (tested.iter()).map(|&test| self.error(model, train, test)).collect();
                let means = estimates.iter().map(|e| e.map_or(f64::NAN, |e| e.mean));
                let bands = estimates.iter().map(|e| e.and_then(|e| e.standard_error));
                panel.series(
                    Series::new(
                        format!("trained on {train}"),
                        means.enumerate().map(|(place, mean)| (place as f64, mean)),
                    )
                    .band(bands.map(Option::unwrap_or_default)),
                )
            });
            chart.panel(panel)
        })
    }

    /// Test errors of a model: a row for each training geometry, a column for each test geometry.
    fn errors(&self, model: Model) -> Table {
        let tested = self.tested_on();
        let first = ["trained on", "seeds"].map(String::from).into_iter();
        let mut table = Table::new(first.chain(tested.iter().map(Surface::to_string)));
        for train in self.trained_on(model) {
            let errors =
                tested.iter().map(|&test| self.error(model, train, test).map_or("-".into(), |e| e.to_string()));
            table.row([train.to_string(), self.runs(model, train).count().to_string()].into_iter().chain(errors));
        }
        table
    }

    /// Errors on the flat grid, beside those of the paper.
    fn beside_paper(&self) -> Table {
        let mut table = Table::new(["flat to flat, test error in %", "here", "paper"]);
        for model in self.models() {
            let (paper, deviation) = match model {
                Model::PaperTypes | Model::PaperSize => PAPER_FLAT,
                Model::Graph => PAPER_GRAPH,
            };
            if let Some(error) = self.error(model, Surface::Flat, Surface::Flat) {
                table.row([model.to_string(), error.to_string(), format!("{paper:.2} ± {deviation:.2}")]);
            }
        }
        table
    }

    fn isometries(&self) -> Table {
        let mut table = Table::new([
            "run",
            "predictions that differ between flat and isometric grids",
            "largest difference of a logit",
            "largest logit",
        ]);
        for result in &self.results {
            if let Some(isometry) = &result.isometry {
                table.row([
                    result.settings.name(),
                    format!("{} of {}", isometry.different_answers, isometry.digits),
                    format!("{:.1e}", isometry.largest_difference),
                    format!("{:.1}", isometry.largest_logit),
                ]);
            }
        }
        table
    }

    fn times(&self) -> Table {
        let mut table = Table::new(["run", "device", "epochs", "seconds per epoch, median", "validation error in %"]);
        for result in &self.results {
            let validation = result.history.last().and_then(|record| record.held_out);
            let accuracy = validation.and_then(|scores| scores.accuracy).unwrap_or(f64::NAN);
            table.row([
                result.settings.name(),
                result.device.clone(),
                result.history.len().to_string(),
                format!("{:.2}", median_epoch_seconds(&result.history)),
                format!("{:.2}", 100.0 * (1.0 - accuracy)),
            ]);
        }
        table
    }
}

impl output::Report for Report {
    fn to_markdown(&self) -> String {
        let mut text = String::new();
        for model in self.models() {
            let parameters = self.results.iter().find(|result| result.settings.model == model);
            let parameters = parameters.map_or(0, |result| result.parameters);
            text += &format!(
                "Test error of {model} ({parameters} parameters) in %, mean and standard error over seeds, by test \
                 geometry:\n\n{}\n",
                self.errors(model)
            );
        }
        text + &format!("{}\n{}\n{}", self.beside_paper(), self.isometries(), self.times())
    }

    fn figures(&self) -> Vec<(String, Chart)> {
        vec![("errors".into(), self.chart())]
    }

    /// One test grid of each geometry that the paper shows, with a digit on it.
    fn pictures(&self) -> Result<Vec<(String, Picture)>, TaskError> {
        let grids = self.results.first().map_or_else(GridOptions::default, |result| result.settings.grids);
        let digits = Mnist::sample().map_err(invalid("pictures of the grids"))?.test;
        let colour = |&ink: &u8| {
            let blend = |paper: u8, print: u8| {
                let (paper, print) = (f64::from(paper), f64::from(print));
                (paper + (print - paper) * f64::from(ink) / 255.0).round() as u8
            };
            [blend(232, 30), blend(226, 60), blend(210, 110)]
        };
        let colours: Vec<[u8; 3]> = digits.image(0).iter().map(colour).collect();
        let options = RenderOptions {
            width: 640,
            height: 480,
            view: View::orbit(20.0, 40.0, Up::Z),
            shading: Shading::Flat,
            wireframe: true,
            ..RenderOptions::default()
        };
        let picture = |surface: Surface| {
            let mesh = grids.mesh(surface, Part::Test, 0)?;
            let picture = render(&mesh, Some(&colours), &[], &options).map_err(invalid(surface.to_string()))?;
            Ok((format!("grids/{surface}"), picture))
        };
        Surface::PICTURED.into_iter().map(picture).collect()
    }
}

/// Median training time of an epoch in seconds, without validation.
fn median_epoch_seconds(history: &[Record]) -> f64 {
    let ends = history.iter().map(|record| record.seconds);
    let starts = [0.0].into_iter().chain(ends.clone());
    let mut seconds: Vec<f64> = ends.zip(starts).map(|(end, start)| end - start).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Distinct geometries: flat, isometric, then by roughness.
fn in_order(surfaces: impl Iterator<Item = Surface>) -> Vec<Surface> {
    let mut all: Vec<Surface> = surfaces.collect();
    let place = |surface: &Surface| match surface {
        Surface::Flat => -2.0,
        Surface::Isometric => -1.0,
        Surface::Rough(roughness) => *roughness,
    };
    all.sort_by(|a, b| place(a).total_cmp(&place(b)));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Experiment, Test};
    use super::*;
    use crate::output::Report as _;

    fn result(model: Model, train: Surface, seed: u64, wrong: [usize; 2]) -> RunResult {
        let experiment =
            Experiment { train: vec![train], models: vec![model], seeds: vec![seed], ..Experiment::quick() };
        let settings = experiment.runs(&Mnist::sample().unwrap()).unwrap().remove(0);
        let test = |surface, wrong| Test { surface, digits: 200, wrong };
        RunResult {
            settings,
            parameters: 7,
            device: "CPU".into(),
            history: Vec::new(),
            tests: vec![test(Surface::Flat, wrong[0]), test(Surface::Rough(2.25), wrong[1])],
            isometry: None,
        }
    }

    #[test]
    fn errors_have_standard_errors() {
        let report = Report {
            results: vec![
                result(Model::PaperTypes, Surface::Rough(1.0), 1, [8, 100]),
                result(Model::PaperTypes, Surface::Flat, 1, [2, 10]),
                result(Model::PaperTypes, Surface::Flat, 2, [4, 10]),
                result(Model::PaperTypes, Surface::Flat, 3, [6, 10]),
                result(Model::Graph, Surface::Flat, 1, [50, 50]),
            ],
        };
        let flat = report.error(Model::PaperTypes, Surface::Flat, Surface::Flat).unwrap();
        // 1, 2 and 3 %: standard deviation 1, divided by the square root of 3.
        assert_eq!(flat.to_string(), "2.00 ± 0.58");
        let text = report.to_markdown();
        for line in [
            "| trained on | seeds | flat | 2.25 |",
            "| flat | 3 | 2.00 ± 0.58 | 5.00 ± 0.00 |",
            "| 1 | 1 | 4.00 | 50.00 |",
            "| paper-types | 2.00 ± 0.58 | 0.60 ± 0.05 |",
            "| graph | 25.00 | 19.80 ± 3.43 |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let figure = report.chart().to_svg();
        for part in ["trained on flat", "trained on 1", "graph", "2.25"] {
            assert!(figure.contains(part), "{part}");
        }
        assert!(report.error(Model::PaperSize, Surface::Flat, Surface::Flat).is_none());
    }
}
