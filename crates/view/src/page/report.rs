//! The report of a training run: curves, tables and text.

use serde::Serialize;

/// Report of a training run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Facts about the run, as name and value.
    pub facts: Vec<(String, String)>,
    /// Learning curves.
    pub curves: Vec<Curve>,
    /// Confusion of classes.
    pub confusion: Option<Confusion>,
    /// Meshes from the worst to the best.
    pub ranking: Vec<Ranked>,
    /// Name of the score of the ranking.
    pub score: String,
    /// The configuration, as text.
    pub configuration: String,
    /// Progress of a run that is not finished.
    pub progress: Option<Progress>,
}

/// A chart of several series over the same axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// Title.
    pub name: String,
    /// Name of the horizontal axis.
    pub over: String,
    /// True for a logarithmic vertical axis.
    pub log: bool,
    /// The series.
    pub series: Vec<Series>,
}

/// Points of a chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Name.
    pub name: String,
    /// Points in the order of the horizontal axis.
    pub points: Vec<[f64; 2]>,
}

/// Confusion matrix: for each true class, the counts of predicted classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confusion {
    /// Name of each class.
    pub names: Vec<String>,
    /// Row by row.
    pub counts: Vec<Vec<u64>>,
}

/// A mesh in a ranking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// Name of the mesh.
    pub name: String,
    /// Its score.
    pub score: f64,
    /// Index of the mesh in the page, if it is there.
    pub mesh: Option<usize>,
}

/// Progress of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Completed part, from 0 to 1.
    pub share: f64,
    /// State in words.
    pub text: String,
    /// True after the end of the run.
    pub ended: bool,
}
