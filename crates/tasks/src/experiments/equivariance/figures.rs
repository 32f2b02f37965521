//! The figures, arranged as in the paper: error over depth on the left, over samples on the right.

use super::{Model, Precision, Report, Row, Surface, Transform};
use crate::plot::{Axis, Chart, Line, PALETTE, Panel, Series};

impl Report {
    /// All figures with the stems of their file names.
    pub fn figures(&self) -> Vec<(&'static str, Chart)> {
        vec![
            (
                "equivariance-gauge",
                self.figure(Transform::Gauge, "Random frames"),
            ),
            (
                "equivariance-ambient",
                self.figure(Transform::Ambient, "Rotations and translations in space"),
            ),
            (
                "equivariance-isometry",
                self.figure(Transform::Isometry, "Symmetries of the icosahedron"),
            ),
            ("equivariance-exact", self.exact_figure()),
            ("equivariance-bound", self.bound_figure()),
        ]
    }

    fn figure(&self, transform: Transform, title: &str) -> Chart {
        let settings = &self.settings;
        let title_of = |what: &str, fixed: String| format!("Error over {what} ({fixed})");
        let mut depth = Panel::new(
            title_of("depth", format!("N = {}", settings.most_samples)),
            Axis::linear("layers"),
            Axis::log("equivariance error"),
        );
        let sample_axis = match transform {
            // Multiples of 5 are told apart by eye on equal steps only.
            Transform::Isometry => Axis::linear("samples N"),
            _ => Axis::log("samples N"),
        };
        let mut samples = Panel::new(
            title_of("samples", format!("{} layers", settings.depth)),
            sample_axis,
            Axis::log("equivariance error"),
        );
        for precision in [Precision::F64, Precision::F32] {
            for (index, (model, title, mesh)) in curves().enumerate() {
                let measured = self.rows.iter().filter(|row| {
                    (row.transform, row.model, row.mesh, row.precision)
                        == (transform, model, mesh, precision)
                });
                let style = |points: Vec<(f64, f64)>| {
                    let (line, ending) = match precision {
                        Precision::F64 => (Line::Solid, "f64"),
                        Precision::F32 => (Line::Dashed, "f32"),
                    };
                    let name = format!("{title}, {}, {ending}", mesh.title());
                    Series::new(name, points)
                        .colour(PALETTE[index])
                        .line(line)
                        .markers(false)
                };
                let all_samples = row_samples(model, settings.most_samples);
                let over_depth = measured.clone().filter(|row| row.samples == all_samples);
                depth = depth.series(style(points(over_depth, |row| row.depth)));
                let over_samples = measured.filter(|row| row.depth == settings.depth);
                let over_samples = match model {
                    // Has no samples: the same everywhere.
                    Model::Shot => over_samples
                        .flat_map(|row| {
                            let ends = [settings.samples.first(), settings.samples.last()];
                            ends.map(|end| (end.copied().unwrap_or(1) as f64, row.error))
                        })
                        .collect(),
                    _ => points(over_samples, |row| row.samples.unwrap_or(0)),
                };
                samples = samples.series(style(over_samples));
            }
        }
        Chart::new(title).panel(depth).panel(samples)
    }

    fn exact_figure(&self) -> Chart {
        let panel = |precision: Precision, title: &str| {
            let models = [
                (Model::Gem, "regular, ReLU, N = 101"),
                (Model::GemPolynomial, "regular, x + x^{2}/4, N = 7"),
                (Model::GemNorm, "norm"),
                (Model::GemGated, "gated"),
            ];
            let axes = (Axis::linear("layers"), Axis::log("gauge error"));
            let mut panel = Panel::new(title, axes.0, axes.1.limits(1e-17, 1e-1));
            for (model, name) in models {
                let samples = row_samples(model, self.settings.most_samples);
                let wanted = (
                    Transform::Gauge,
                    model,
                    Surface::Icosahedron,
                    precision,
                    samples,
                );
                let measured = self.rows.iter().filter(|row| {
                    (
                        row.transform,
                        row.model,
                        row.mesh,
                        row.precision,
                        row.samples,
                    ) == wanted
                });
                panel = panel.series(Series::new(name, points(measured, |row| row.depth)));
            }
            panel
        };
        Chart::new("Exact alternatives on the icosahedron")
            .panel(panel(Precision::F64, "f64"))
            .panel(panel(Precision::F32, "f32"))
    }

    fn bound_figure(&self) -> Chart {
        let series = |name: &str, value: fn(&super::BoundRow) -> f64| {
            let points = self.bound.iter();
            Series::new(
                name,
                points.map(move |row| (row.samples as f64, value(row))),
            )
            .markers(false)
        };
        let panel = Panel::new("", Axis::log("samples N"), Axis::log("error in the 1-norm"))
            .series(series("theorem's bound, mean", |row| row.mean_bound).line(Line::Dashed))
            .series(series("largest error", |row| row.largest_error))
            .series(series("mean error", |row| row.mean_error));
        Chart::new("The regular nonlinearity alone: ReLU, band limit 2")
            .width(560.0)
            .panel(panel)
    }
}

/// The curves of the paper's figures.
fn curves() -> impl Iterator<Item = (Model, &'static str, Surface)> {
    let models = [(Model::Gem, "GEM-CNN"), (Model::Shot, "SHOT")];
    models
        .into_iter()
        .flat_map(|(model, title)| Surface::ALL.map(|mesh| (model, title, mesh)))
}

/// Samples of a model where depth varies.
fn row_samples(model: Model, most: usize) -> Option<usize> {
    match model {
        Model::Gem => Some(most),
        _ => model.own_samples(),
    }
}

fn points<'a>(
    rows: impl Iterator<Item = &'a Row>,
    place: impl Fn(&Row) -> usize,
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = rows.map(|row| (place(row) as f64, row.error)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
