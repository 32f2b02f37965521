//! The report of an experiment: all results in one file, tables, the figure and pictures of the grids.

use super::{GridOptions, Isometry, Model, Part, RESULT, RunResult, Surface};
use crate::Estimate;
use crate::digits::Mnist;
use crate::runs::{read_json, write_json, write_text};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::Record;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use gemcnn_view::render::{RenderOptions, Shading, Up, View, render};
use std::fmt;
use std::path::Path;

/// Files of the report.
const RESULTS: &str = "results.json";
const TABLE: &str = "table.md";
const FIGURE: &str = "errors";
const GRIDS: &str = "grids";

/// The paper's test error in percent after training and testing on the flat grid, with its standard error over
/// 6 runs.
const PAPER_FLAT: (f64, f64) = (0.60, 0.05);
/// The same for the paper's isotropic network, on all grids.
const PAPER_GRAPH: (f64, f64) = (19.80, 3.43);

/// The finished runs of an experiment. Displays as tables in Markdown.
#[derive(Debug, Clone, PartialEq)]
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

    /// Writes `results.json`, `table.md`, `errors.png`, `errors.svg`, and pictures of the grids with a digit on
    /// each.
    pub fn write(&self, folder: &Path) -> Result<(), TaskError> {
        write_json(&folder.join(RESULTS), &self.results)?;
        write_text(&folder.join(TABLE), &self.to_string())?;
        if !self.results.is_empty() {
            self.chart().write(&folder.join(FIGURE))?;
        }
        let grids = self.results.first().map(|result| result.settings.grids);
        write_grids(&folder.join(GRIDS), &grids.unwrap_or_default())
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

    fn write_errors(&self, f: &mut fmt::Formatter<'_>, model: Model) -> fmt::Result {
        let tested = self.tested_on();
        writeln!(f, "| trained on | seeds |{}", cells(&tested))?;
        writeln!(f, "| --- | --- |{}", " --- |".repeat(tested.len()))?;
        for train in self.trained_on(model) {
            write!(f, "| {train} | {} |", self.runs(model, train).count())?;
            for &test in &tested {
                match self.error(model, train, test) {
                    Some(error) => write!(f, " {error} |")?,
                    None => write!(f, " - |")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn write_paper(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| flat to flat, test error in % | here | paper |")?;
        writeln!(f, "| --- | --- | --- |")?;
        for model in self.models() {
            let paper = match model {
                Model::PaperTypes | Model::PaperSize => PAPER_FLAT,
                Model::Graph => PAPER_GRAPH,
            };
            if let Some(error) = self.error(model, Surface::Flat, Surface::Flat) {
                writeln!(f, "| {model} | {error} | {:.2} ± {:.2} |", paper.0, paper.1)?;
            }
        }
        writeln!(f)
    }

    fn write_isometry(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| run | predictions that differ between flat and isometric grids | largest difference of a logit | largest logit |"
        )?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for result in &self.results {
            if let Some(isometry) = &result.isometry {
                let Isometry { digits, different_answers, largest_difference, largest_logit } = isometry;
                writeln!(
                    f,
                    "| {} | {different_answers} of {digits} | {largest_difference:.1e} | {largest_logit:.1} |",
                    result.settings.name(),
                )?;
            }
        }
        writeln!(f)
    }

    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| run | device | epochs | seconds per epoch, median | validation error in % |")?;
        writeln!(f, "| --- | --- | --- | --- | --- |")?;
        for result in &self.results {
            let validation = result.history.last().and_then(|record| record.held_out);
            let accuracy = validation.and_then(|scores| scores.accuracy);
            let error = accuracy.map_or(f64::NAN, |accuracy| 1.0 - accuracy);
            let median = median_epoch_seconds(&result.history);
            writeln!(
                f,
                "| {} | {} | {} | {median:.2} | {:.2} |",
                result.settings.name(),
                result.device,
                result.history.len(),
                100.0 * error
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for model in self.models() {
            let parameters = self.results.iter().find(|r| r.settings.model == model);
            let parameters = parameters.map_or(0, |result| result.parameters);
            writeln!(
                f,
                "Test error of {model} ({parameters} parameters) in %, mean and standard error over seeds, by test geometry:\n"
            )?;
            self.write_errors(f, model)?;
        }
        self.write_paper(f)?;
        self.write_isometry(f)?;
        self.write_times(f)
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

/// Cells of a row of a table.
fn cells(surfaces: &[Surface]) -> String {
    surfaces.iter().map(|surface| format!(" {surface} |")).collect()
}

/// Draws one test grid of each geometry that the paper shows, with a digit on it.
fn write_grids(folder: &Path, grids: &GridOptions) -> Result<(), TaskError> {
    std::fs::create_dir_all(folder).map_err(TaskError::file(folder))?;
    let digits = Mnist::few().map_err(|error| TaskError::setting("pictures of the grids", error.to_string()))?.test;
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
    for surface in Surface::PICTURED {
        let name = surface.to_string();
        let mesh = grids.mesh(surface, Part::Test, 0)?;
        let picture = render(&mesh, Some(&colours), &[], &options)
            .map_err(|error| TaskError::setting(name.clone(), error.to_string()))?;
        let path = folder.join(format!("{name}.png"));
        gemcnn_mesh::write_atomically(&path, |file| file.write_all(&picture.encode_png()))
            .map_err(TaskError::file(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Experiment, Test};
    use super::*;

    fn result(model: Model, train: Surface, seed: u64, wrong: [usize; 2]) -> RunResult {
        let experiment =
            Experiment { train: vec![train], models: vec![model], seeds: vec![seed], ..Experiment::quick() };
        let settings = experiment.runs(&Mnist::few().unwrap()).unwrap().remove(0);
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
        let text = report.to_string();
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
