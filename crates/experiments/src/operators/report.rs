//! Table and figure of the differences.

use super::{Meshing, Operator, Row, Settings};
use crate::runs::write_results;
use gemcnn_tasks::TaskError;
use gemcnn_view::plot::{Axis, Chart, Line, PALETTE, Panel, Series};
use serde::{Deserialize, Serialize};
use std::path::Path;

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

    /// The tables in Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = "Relative RMS difference of surface operators between a regular and another meshing of the same \
                        smooth surfaces, in percent: geometric mean over a bumpy sphere, an ellipsoid and a torus. `rate`: \
                        exponent of the edge length between the last two resolutions.\n"
            .to_string();
        for (meshing, title) in [
            (Meshing::Isotropic, "Isotropic remeshing"),
            (Meshing::Irregular, "Vertices moved and edges flipped at random"),
        ] {
            text += &format!("\n{title}:\n\n| operator |");
            for (vertices, _) in self.curve(Operator::Eigenvalues0, meshing) {
                text += &format!(" {vertices} |");
            }
            text += " rate |\n| --- |";
            text += &" --- |".repeat(self.settings.subdivisions.len() + 1);
            text += "\n";
            for operator in ROWS.into_iter().flat_map(|(_, operators)| operators) {
                let curve = self.curve(operator, meshing);
                text += &format!("| {} |", operator.name());
                for (_, difference) in &curve {
                    let digits = if *difference < 0.01 { 3 } else { 1 };
                    text += &format!(" {:.digits$} |", 100.0 * difference);
                }
                text += &format!(" {:.1} |\n", rate(&curve));
            }
        }
        text
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

    /// Writes `results.json`, `table.md` and the figure `operators`.
    pub fn write(&self, directory: &Path) -> Result<(), TaskError> {
        write_results(self, &self.to_markdown(), directory)?;
        self.chart().write(&directory.join("operators"))?;
        Ok(())
    }
}

/// Exponent of the edge length between the last two points of a curve. Vertices grow with its inverse square.
fn rate(curve: &[(f64, f64)]) -> f64 {
    match curve {
        [.., (few, large), (many, small)] => 2.0 * (large / small).ln() / (many / few).ln(),
        _ => f64::NAN,
    }
}
