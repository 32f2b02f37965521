//! Results of a sweep: all runs as JSON, tables in Markdown, figures.

use super::file::{AxisSpec, Best, ColumnSpec, FigureSpec, Sweep, TableSpec};
use crate::Estimate;
use crate::output::{self, Table, cell, mean_curve};
use gemcnn_view::plot::{Axis, Chart, Line, Panel, Series};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The results of a sweep.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What is compared.
    pub title: String,
    /// The data in words.
    pub data: String,
    /// Number of epochs, if all runs have the same.
    pub epochs: Option<u64>,
    /// Runs of each row.
    pub seeds: u64,
    /// Name of the device.
    pub device: String,
    /// All finished runs, and rows that need no training.
    pub runs: Vec<RunReport>,
    /// Runs that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    #[serde(skip)]
    pub(super) sweep: Sweep,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    /// The world; empty if the sweep has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub world: String,
    /// The row.
    pub row: String,
    /// The seed, and what training took; `None` for rows that need no training.
    #[serde(flatten)]
    pub training: Option<Training>,
    /// Results of each test.
    pub tests: Map<String, Value>,
}

/// The training of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The seed.
    pub seed: u64,
    /// Number of trained parameters.
    pub parameters: usize,
    /// Training time in seconds, without preparation, evaluations and checkpoints.
    pub training_seconds: f64,
    /// Accuracy or error on held-out meshes in the last evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<f64>,
    /// The same on changed copies of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robust: Option<f64>,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// The world; empty if the sweep has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub world: String,
    /// The row.
    pub row: String,
    /// The seed.
    pub seed: u64,
    /// Why it failed.
    pub reason: String,
}

impl RunReport {
    /// The result at a place: of a test, or without one of the run.
    fn value(&self, test: Option<&str>, place: &str) -> Option<Value> {
        let pointer = format!("/{place}");
        match test {
            Some(test) => self.tests.get(test)?.pointer(&pointer).cloned(),
            None => serde_json::to_value(self.training?).ok()?.pointer(&pointer).cloned(),
        }
    }

    /// The number of a column, before its factor.
    fn number(&self, column: &ColumnSpec) -> Option<f64> {
        let value = self.value(column.test.as_deref(), column.value.as_ref()?)?;
        Some(value.as_f64()? + column.offset / column.scale)
    }
}

/// A column with a title and, unless it is a label, a world.
struct Column {
    title: String,
    world: String,
    spec: ColumnSpec,
}

impl Report {
    /// Rows with results or failures, in the order of the sweep; those without training come last.
    fn rows(&self) -> Vec<&str> {
        let mut rows = self.sweep.row_names();
        rows.extend(self.runs.iter().filter(|run| run.training.is_none()).map(|run| run.row.as_str()));
        let has_results = |row: &str| {
            self.runs.iter().any(|run| run.row == row) || self.failures.iter().any(|failure| failure.row == row)
        };
        let mut unique = Vec::new();
        for row in rows {
            if has_results(row) && !unique.contains(&row) {
                unique.push(row);
            }
        }
        unique
    }

    fn runs_of<'a>(&'a self, world: &'a str, row: &'a str) -> impl Iterator<Item = &'a RunReport> {
        self.runs.iter().filter(move |run| run.world == world && run.row == row)
    }

    /// Tests with results in a world, in the order of the sweep.
    fn tests(&self, world: &str) -> Vec<&str> {
        let mut names = self.sweep.tests(world).names();
        names.retain(|name| self.runs.iter().any(|run| run.world == world && run.tests.contains_key(*name)));
        names
    }

    /// The values of a column in a row, one for each run; none if a run lacks it.
    fn values(&self, world: &str, row: &str, column: &ColumnSpec) -> Vec<f64> {
        self.runs_of(world, row).map(|run| run.number(column)).collect::<Option<_>>().unwrap_or_default()
    }

    /// The columns of a table, for one world or for all.
    fn columns(&self, spec: &TableSpec, worlds: &[&str]) -> Vec<Column> {
        let Some(value) = &spec.value else {
            let column = |column: &ColumnSpec| Column {
                title: column.title.clone(),
                world: column.world.clone().unwrap_or_else(|| worlds[0].to_owned()),
                spec: column.clone(),
            };
            return spec.columns.iter().map(column).collect();
        };
        let mut columns = Vec::new();
        for &world in worlds {
            let tests = self.tests(world);
            for test in &tests {
                let title = match (worlds.len(), tests.len()) {
                    (1, _) => (*test).to_owned(),
                    (_, 1) => world.to_owned(),
                    _ => format!("{world}, {test}"),
                };
                let TableSpec { scale, offset, decimals, .. } = *spec;
                let (value, test) = (Some(value.clone()), Some((*test).to_owned()));
                let spec = ColumnSpec { title: title.clone(), value, test, world: None, scale, offset, decimals };
                columns.push(Column { title, world: world.to_owned(), spec });
            }
        }
        columns
    }

    /// A table of some worlds.
    fn table(&self, spec: &TableSpec, worlds: &[&str]) -> Table {
        let columns = self.columns(spec, worlds);
        let (names, has_times) = (spec.columns.iter().all(|column| column.value.is_some()), spec.columns.is_empty());
        let mut header: Vec<String> = names.then(|| self.sweep.row_title.clone()).into_iter().collect();
        header.extend(columns.iter().map(|column| column.title.clone()));
        header.extend(has_times.then(|| "training (s)".into()));
        header.extend(spec.worst_rank.map(|_| "worst rank".into()));
        let ranks = spec.worst_rank.map(|best| self.worst_ranks(&columns, best));
        let mut table = Table::new(header);
        for (number, row) in self.rows().into_iter().enumerate() {
            let failed = self.failures.iter().filter(|f| f.row == row && worlds.contains(&f.world.as_str())).count();
            let labels = self.sweep.rows.get(row).map_or(&[][..], |row| &row.labels);
            let mut cells: Vec<String> = names.then(|| row.to_owned()).into_iter().collect();
            cells.extend(columns.iter().map(|Column { title, world, spec }| match &spec.value {
                Some(_) => cell(&self.values(world, row, spec), spec.scale, spec.decimals),
                None => {
                    let place = self.sweep.labels.iter().position(|label| label == title);
                    place.and_then(|place| labels.get(place)).map_or("-".into(), String::clone)
                }
            }));
            if let (Some(first), 1..) = (cells.first_mut(), failed) {
                *first += &format!(" ({failed} failed)");
            }
            if has_times {
                let runs = worlds.iter().flat_map(|world| self.runs_of(world, row));
                let seconds: Vec<f64> = runs.filter_map(|run| Some(run.training?.training_seconds)).collect();
                cells.push(cell(&seconds, 1.0, 0));
            }
            cells.extend(ranks.as_ref().map(|ranks| ranks[number].map_or("-".into(), |rank| rank.to_string())));
            table.row(cells);
        }
        table
    }

    /// The worst rank of each row over all columns; `None` for a row that lacks a value.
    fn worst_ranks(&self, columns: &[Column], best: Best) -> Vec<Option<usize>> {
        let rows = self.rows();
        let mut worst = vec![Some(1); rows.len()];
        for Column { world, spec, .. } in columns.iter().filter(|column| column.spec.value.is_some()) {
            let mean = |row: &&str| Some(Estimate::of(&self.values(world, row, spec))?.mean * spec.scale);
            let means: Vec<Option<f64>> = rows.iter().map(mean).collect();
            for (worst, own) in worst.iter_mut().zip(&means) {
                let is_better = |other: &&f64| match (best, own) {
                    (Best::Highest, Some(own)) => **other > *own,
                    (Best::Lowest, Some(own)) => **other < *own,
                    (_, None) => false,
                };
                let rank = own.map(|_| 1 + means.iter().flatten().filter(is_better).count());
                *worst = rank.and_then(|rank| worst.map(|worst| worst.max(rank)));
            }
        }
        worst
    }

    /// One line about the latest run: the values of the first table.
    pub(super) fn line(&self) -> String {
        let Some(run) = self.runs.last() else { return String::new() };
        let columns = self.table_specs().first().map_or(Vec::new(), |spec| self.columns(spec, &[&run.world]));
        let values =
            columns.iter().filter(|column| column.spec.test.is_some()).filter_map(|Column { title, spec, .. }| {
                Some(format!("{title} {}; ", cell(&[run.number(spec)?], spec.scale, spec.decimals)))
            });
        let seconds = run.training.map_or(0.0, |training| training.training_seconds);
        format!("{}{seconds:.1} s of training", values.collect::<String>())
    }

    /// Notes on columns whose values the latest run lacks.
    pub(super) fn missing(&self) -> Vec<String> {
        let Some(run) = self.runs.last() else { return Vec::new() };
        let specs = self.table_specs();
        let columns = specs.iter().flat_map(|spec| self.columns(spec, &self.sweep.world_names()));
        let is_missing = |column: &Column| column.world == run.world && run.number(&column.spec).is_none();
        let note = |Column { title, spec, .. }: Column| {
            let known = spec.test.and_then(|test| run.tests.get(&test)).map_or(Vec::new(), |test| numbers(test, ""));
            Some(format!("column `{title}`: there is no number `{}`; there are {}", spec.value?, known.join(", ")))
        };
        columns.filter(is_missing).filter_map(note).collect()
    }

    fn table_specs(&self) -> Vec<TableSpec> {
        if !self.sweep.tables.is_empty() {
            return self.sweep.tables.clone();
        }
        let is_accuracy = self
            .runs
            .iter()
            .all(|run| run.tests.values().all(|test| test.pointer("/scores/accuracy").is_some_and(Value::is_number)));
        let (title, value, scale, decimals) = match is_accuracy {
            true => ("Accuracy (%)", "scores/accuracy", 100.0, 2),
            false => ("Root mean square error", "scores/error", 1.0, 4),
        };
        let (title, value) = (Some(title.into()), Some(value.into()));
        vec![TableSpec {
            title,
            columns: Vec::new(),
            value,
            scale,
            offset: 0.0,
            decimals,
            worst_rank: None,
            each_world: false,
        }]
    }

    /// A panel for each world and test, a curve for each row.
    fn figure(&self, FigureSpec { title, x, y, .. }: &FigureSpec) -> Chart {
        let axis = |spec: &AxisSpec| {
            let axis = if spec.log { Axis::log(&spec.label) } else { Axis::linear(&spec.label) };
            spec.limits.map_or(axis.clone(), |[low, high]| axis.limits(low, high))
        };
        let list = |run: &RunReport, test: &str, spec: &AxisSpec| -> Option<Vec<f64>> {
            let value = run.value(Some(test), &spec.value)?;
            value.as_array()?.iter().map(|number| Some(spec.scale * number.as_f64()?)).collect()
        };
        let mut chart = Chart::new(title).columns(3).width(1100);
        for world in self.sweep.world_names() {
            for test in self.tests(world) {
                let title = if world.is_empty() { test.to_owned() } else { format!("{world}, {test}") };
                let mut panel = Panel::new(title, axis(x), axis(y));
                for row in self.rows() {
                    let runs: Vec<&RunReport> = self.runs_of(world, row).collect();
                    let curves: Vec<Vec<f64>> = runs.iter().filter_map(|run| list(run, test, y)).collect();
                    let places = runs.first().and_then(|run| list(run, test, x)).unwrap_or_default();
                    let curves: Vec<&[f64]> = curves.iter().map(Vec::as_slice).collect();
                    if curves.is_empty() {
                        continue;
                    }
                    let is_trained = runs.iter().any(|run| run.training.is_some());
                    let line = if is_trained { Line::Solid } else { Line::Dashed };
                    let series = Series::new(row, mean_curve(&places, &curves)).line(line);
                    panel = panel.series(series.without_markers());
                }
                chart = chart.panel(panel);
            }
        }
        chart
    }
}

/// Places of all numbers in a value, except in lists.
fn numbers(value: &Value, place: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| numbers(value, &format!("{place}/{key}"))).collect()
        }
        Value::Number(_) => vec![place.trim_start_matches('/').into()],
        _ => Vec::new(),
    }
}

impl output::Report for Report {
    fn to_markdown(&self) -> String {
        let epochs = self.epochs.map_or(String::new(), |epochs| format!("{epochs} epochs, "));
        let caption = match self.sweep.caption.trim() {
            "" => String::new(),
            caption => format!("{caption}\n\n"),
        };
        let mut text = format!(
            "{}\n\n{caption}{}; {epochs}{} seed(s), mean ± standard error, {}.\n",
            self.title, self.data, self.seeds, self.device
        );
        for spec in self.table_specs() {
            let worlds = self.sweep.world_names();
            let groups: Vec<&[&str]> = if spec.each_world { worlds.chunks(1).collect() } else { vec![&worlds] };
            for worlds in groups {
                let title = match (&spec.title, spec.each_world) {
                    (Some(title), true) => format!("{title}, {}:\n\n", worlds[0]),
                    (None, true) => format!("{}:\n\n", worlds[0]),
                    (Some(title), false) => format!("{title}:\n\n"),
                    (None, false) => String::new(),
                };
                text += &format!("\n{title}{}", self.table(&spec, worlds));
            }
        }
        text
    }

    fn figures(&self) -> Vec<(String, Chart)> {
        self.sweep.figures.iter().map(|figure| (figure.file.clone(), self.figure(figure))).collect()
    }

    fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }
}
