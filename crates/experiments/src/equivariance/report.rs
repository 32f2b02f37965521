//! The table and the figures.

use super::{Model, Precision, Report, Row, Settings, Surface, Transform};
use crate::output::{self, Table};
use gemcnn_view::plot::{Axis, Chart, Line, PALETTE, Panel, Series};

/// The networks of the table.
const TABLED: [(Model, &str); 7] = [
    (Model::Gem, "GEM-CNN"),
    (Model::GemPolynomial, "GEM-CNN, polynomial"),
    (Model::GemNorm, "GEM-CNN, norm"),
    (Model::GemGated, "GEM-CNN, gated"),
    (Model::Attention, "attention"),
    (Model::Hermes, "messages"),
    (Model::Shot, "SHOT frames"),
];

impl Report {
    /// One figure: f64 above, f32 below.
    fn figure(&self, transform: Transform, title: &str) -> Chart {
        let chart = Chart::new(title);
        [(Precision::F64, "f64"), (Precision::F32, "f32")].into_iter().fold(chart, |chart, (precision, name)| {
            chart
                .panel(self.over_depth(transform, precision, name))
                .panel(self.over_samples(transform, precision, name))
        })
    }

    fn over_depth(&self, transform: Transform, precision: Precision, name: &str) -> Panel {
        let most = self.settings.most_samples;
        let panel = Panel::new(
            format!("Over depth (N = {most}, {name})"),
            Axis::linear("layers"),
            Axis::log("equivariance error"),
        );
        curves().fold(panel, |panel, curve| {
            let rows = self.measured(transform, precision, curve);
            let rows = rows.filter(|row| row.samples == row_samples(curve.model, most));
            panel.series(curve.series(points(rows, |row| row.depth)))
        })
    }

    fn over_samples(&self, transform: Transform, precision: Precision, name: &str) -> Panel {
        let settings = &self.settings;
        let axis = match transform {
            // The dips at multiples of 5 show only on a linear axis.
            Transform::Isometry => Axis::linear("samples N"),
            _ => Axis::log("samples N"),
        };
        let panel = Panel::new(
            format!("Over samples ({} layers, {name})", settings.depth),
            axis,
            Axis::log("equivariance error"),
        );
        curves().fold(panel, |panel, curve| {
            let rows = self.measured(transform, precision, curve);
            let rows = rows.filter(|row| row.depth == settings.depth);
            panel.series(
                curve.series(match curve.model {
                    // It has no samples: a constant.
                    Model::Shot => rows
                        .flat_map(|row| {
                            let ends = [settings.samples.first(), settings.samples.last()];
                            ends.map(|end| (end.copied().unwrap_or(1) as f64, row.error))
                        })
                        .collect(),
                    _ => points(rows, |row| row.samples.unwrap_or(0)),
                }),
            )
        })
    }

    fn measured(&self, transform: Transform, precision: Precision, curve: Curve) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| {
            (row.transform, row.precision, row.model, row.mesh) == (transform, precision, curve.model, curve.mesh)
        })
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
                let wanted = (Transform::Gauge, model, Surface::Icosahedron, precision, samples);
                let measured = self
                    .rows
                    .iter()
                    .filter(|row| (row.transform, row.model, row.mesh, row.precision, row.samples) == wanted);
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
            Series::new(name, points.map(move |row| (row.samples as f64, value(row)))).without_markers()
        };
        let panel = Panel::new("", Axis::log("samples N"), Axis::log("error in the 1-norm"))
            .series(series("theorem's bound, mean", |row| row.mean_bound).line(Line::Dashed))
            .series(series("largest error", |row| row.largest_error))
            .series(series("mean error", |row| row.mean_error));
        Chart::new("The regular nonlinearity alone: ReLU, band limit 2").width(560).panel(panel)
    }
}

impl output::Report for Report {
    /// Errors at the settings' fixed depth and number of samples.
    fn to_markdown(&self) -> String {
        let Settings { depth, most_samples, .. } = self.settings;
        let mut table = Table::new(["model", "mesh", "transform", "f64", "f32"]);
        for (model, model_name) in TABLED {
            for (mesh, mesh_name) in
                [(Surface::Icosahedron, "icosahedron"), (Surface::DeformedIcosahedron, "deformed icosahedron")]
            {
                for (transform, transform_name) in
                    [(Transform::Gauge, "gauge"), (Transform::Ambient, "ambient"), (Transform::Isometry, "isometry")]
                {
                    let error = |precision: Precision| {
                        let found = self.rows.iter().find(|row| {
                            (row.model, row.mesh, row.transform, row.precision) == (model, mesh, transform, precision)
                                && row.depth == depth
                                && (model != Model::Gem || row.samples == Some(most_samples))
                        });
                        found.map_or("-".into(), |row| format!("{:.1e}", row.error))
                    };
                    let names = [model_name, mesh_name, transform_name].map(String::from);
                    table.row(names.into_iter().chain([error(Precision::F64), error(Precision::F32)]));
                }
            }
        }
        format!("Equivariance errors, {depth} layers, N = {most_samples}\n\n{table}")
    }

    /// As in the paper: error against depth on the left, against samples on the right.
    fn figures(&self) -> Vec<(String, Chart)> {
        let charts = [
            ("gauge", self.figure(Transform::Gauge, "Random frames")),
            ("ambient", self.figure(Transform::Ambient, "Rotations and translations in space")),
            ("isometry", self.figure(Transform::Isometry, "Symmetries of the icosahedron")),
            ("exact", self.exact_figure()),
            ("bound", self.bound_figure()),
        ];
        charts.into_iter().map(|(name, chart)| (format!("equivariance-{name}"), chart)).collect()
    }
}

/// A curve of the paper's figures.
#[derive(Debug, Clone, Copy)]
struct Curve {
    model: Model,
    mesh: Surface,
    name: &'static str,
    line: Line,
    colour: [u8; 3],
}

impl Curve {
    fn series(self, points: Vec<(f64, f64)>) -> Series {
        Series::new(self.name, points).line(self.line).colour(self.colour).without_markers()
    }
}

/// All curves. Those on the deformed mesh are dashed and drawn last, so that the others stay visible.
fn curves() -> impl Iterator<Item = Curve> {
    use Surface::{DeformedIcosahedron, Icosahedron};
    let curves = [
        (Model::Gem, Icosahedron, "GEM-CNN, Ico", Line::Solid),
        (Model::Shot, Icosahedron, "SHOT, Ico", Line::Solid),
        (Model::Gem, DeformedIcosahedron, "GEM-CNN, Def. Ico", Line::Dashed),
        (Model::Shot, DeformedIcosahedron, "SHOT, Def. Ico", Line::Dashed),
    ];
    let coloured = curves.into_iter().zip([0, 2, 1, 3]);
    coloured.map(|((model, mesh, name, line), colour)| Curve { model, mesh, name, line, colour: PALETTE[colour] })
}

/// Number of samples of a model where the depth varies.
fn row_samples(model: Model, most: usize) -> Option<usize> {
    match model {
        Model::Gem => Some(most),
        _ => model.own_samples(),
    }
}

fn points<'a>(rows: impl Iterator<Item = &'a Row>, place: impl Fn(&Row) -> usize) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = rows.map(|row| (place(row) as f64, row.error)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
