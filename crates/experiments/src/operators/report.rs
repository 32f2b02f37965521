//! Table and figure of the differences.

use super::{Meshing, Operator, Row, Settings};
use crate::output::{self, Table};
use gemcnn_view::plot::{Axis, Chart, Line, PALETTE, Panel, Series};
use serde::{Deserialize, Serialize};

/// Operators by row of the figure, in the order of the table.
const ROWS: [(&str, [Operator; 7]); 2] = [
    (
        "spectra and diffusion",
        [
            Operator::Eigenvalues0,
            Operator::Eigenvalues1,
            Operator::Eigenvalues2,
            Operator::HeatKernel,
            Operator::Diffusion0,
            Operator::Diffusion1,
            Operator::Diffusion2,
        ],
    ),
    (
        "distances, derivatives, curvature",
        [
            Operator::Geodesics,
            Operator::Gradient,
            Operator::Hessian,
            Operator::Laplacian,
            Operator::SmoothedLaplacian,
            Operator::Curvature,
            Operator::SmoothedCurvature,
        ],
    ),
];

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Settings of the experiment.
    pub settings: Settings,
    /// All differences.
    pub rows: Vec<Row>,
}

impl Report {
    /// Differences of an operator by resolution: vertices and the geometric mean over the surfaces.
    pub fn curve(&self, operator: Operator, meshing: Meshing) -> Vec<(f64, f64)> {
        let rows = |subdivisions: u32| {
            let wanted = (operator, meshing, subdivisions);
            let rows = self.rows.iter();
            rows.filter(move |row| (row.operator, row.meshing, row.subdivisions) == wanted)
        };
        let point = |&subdivisions: &u32| {
            let count = rows(subdivisions).count().max(1) as f64;
            let logarithms: f64 = rows(subdivisions).map(|row| row.difference.ln()).sum();
            let vertices = rows(subdivisions).map(|row| row.vertices).max();
            (vertices.unwrap_or(0) as f64, (logarithms / count).exp())
        };
        self.settings.subdivisions.iter().map(point).collect()
    }

    /// The figure: differences against vertices, a column for each meshing.
    pub fn chart(&self) -> Chart {
        let mut chart = Chart::new("Two meshings of one surface: difference of the results");
        for ((title, operators), line) in ROWS.into_iter().zip([Line::Solid, Line::Dashed]) {
            for (meshing, name) in [(Meshing::Isotropic, "isotropic"), (Meshing::Irregular, "irregular")] {
                let mut panel = Panel::new(
                    format!("{name}: {title}"),
                    Axis::log("vertices"),
                    Axis::log("relative difference").limits(5e-5, 0.5),
                );
                for (operator, colour) in operators.into_iter().zip(PALETTE) {
                    let series = Series::new(operator.name(), self.curve(operator, meshing));
                    panel = panel.series(series.colour(colour).line(line));
                }
                chart = chart.panel(panel);
            }
        }
        chart
    }
}

impl output::Report for Report {
    fn to_markdown(&self) -> String {
        let mut text = "Relative RMS difference of surface operators between a regular and another meshing of the same \
                        smooth surfaces, in percent: geometric mean over a bumpy sphere, an ellipsoid and a torus. `rate`: \
                        exponent of the edge length between the last two resolutions.\n"
            .to_string();
        for (meshing, title) in [
            (Meshing::Isotropic, "Isotropic remeshing"),
            (Meshing::Irregular, "Vertices moved and edges flipped at random"),
        ] {
            let vertices = self.curve(Operator::Eigenvalues0, meshing).into_iter().map(|(count, _)| count.to_string());
            let mut table = Table::new(["operator".into()].into_iter().chain(vertices).chain(["rate".into()]));
            for operator in ROWS.into_iter().flat_map(|(_, operators)| operators) {
                let curve = self.curve(operator, meshing);
                let cells = curve.iter().map(|&(_, difference)| {
                    let digits = if difference < 0.01 { 3 } else { 1 };
                    format!("{:.digits$}", 100.0 * difference)
                });
                let (name, rate) = (operator.name().into(), format!("{:.1}", rate(&curve)));
                table.row([name].into_iter().chain(cells).chain([rate]));
            }
            text += &format!("\n{title}:\n\n{table}");
        }
        text
    }

    fn figures(&self) -> Vec<(String, Chart)> {
        vec![("operators".into(), self.chart())]
    }
}

/// Exponent of the edge length between the last two points of a curve. Vertices grow with its inverse square.
fn rate(curve: &[(f64, f64)]) -> f64 {
    match curve {
        [.., (coarse, large), (fine, small)] => 2.0 * (large / small).ln() / (fine / coarse).ln(),
        _ => f64::NAN,
    }
}
