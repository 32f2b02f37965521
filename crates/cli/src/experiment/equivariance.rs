//! `gemcnn experiment equivariance`: how much outputs depend on frames, pose and symmetry.

use super::files;
use crate::failure::Failure;
use crate::output::print;
use crate::progress;
use clap::Args;
use gemcnn_experiments::equivariance::{Model, Precision, Report, Settings, Surface, Transform, run};
use std::fmt::Write;
use std::path::PathBuf;

/// Measure equivariance errors: the paper's appendix on equivariance.
///
/// Runs networks with random weights on the icosahedron and on a deformed icosahedron, and changes frames,
/// pose (rotation and translation) and vertices (the 60 symmetries of the icosahedron). Varies the depth and
/// the number of samples of the regular nonlinearity, in f32 and f64. Writes results.json and figures to OUT.
#[derive(Args)]
pub struct EquivarianceCommand {
    /// Directory for results and figures [default: runs/equivariance; with --quick runs/equivariance-quick]
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial of a few seconds with fewer networks, transforms, depths and samples.
    #[arg(long)]
    quick: bool,

    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl EquivarianceCommand {
    pub fn run(self) -> Result<(), Failure> {
        let settings = Settings { seed: self.seed, ..if self.quick { Settings::quick() } else { Settings::default() } };
        let directory = files::directory(self.out, "equivariance", self.quick);
        files::make(&directory)?;
        let report = progress::during("measuring", || run(&settings)).map_err(Failure::input)?;
        let written = files::write(&directory, &report, &report.figures())?;
        print(&(table(&report) + "\n" + &written))
    }
}

/// A table of errors at the settings' fixed depth and number of samples.
fn table(report: &Report) -> String {
    let Settings { depth, most_samples, .. } = report.settings;
    let mut text = format!(
        "Equivariance errors, {depth} layers, N = {most_samples}\n\n{:<14} {:<21} {:<9} {:>9} {:>9}\n",
        "model", "mesh", "transform", "f64", "f32"
    );
    let models = [
        (Model::Gem, "GEM-CNN"),
        (Model::GemPolynomial, "  polynomial"),
        (Model::GemNorm, "  norm"),
        (Model::GemGated, "  gated"),
        (Model::Attention, "attention"),
        (Model::Hermes, "messages"),
        (Model::Shot, "SHOT frames"),
    ];
    for (model, model_name) in models {
        for (mesh, mesh_name) in
            [(Surface::Icosahedron, "icosahedron"), (Surface::DeformedIcosahedron, "deformed icosahedron")]
        {
            for (transform, transform_name) in
                [(Transform::Gauge, "gauge"), (Transform::Ambient, "ambient"), (Transform::Isometry, "isometry")]
            {
                let error = |precision: Precision| {
                    let found = report.rows.iter().find(|row| {
                        (row.model, row.mesh, row.transform, row.precision) == (model, mesh, transform, precision)
                            && row.depth == depth
                            && (model != Model::Gem || row.samples == Some(most_samples))
                    });
                    found.map_or("-".into(), |row| format!("{:.1e}", row.error))
                };
                // Writing to a string does not fail.
                let _ = writeln!(
                    text,
                    "{model_name:<14} {mesh_name:<21} {transform_name:<9} {:>9} {:>9}",
                    error(Precision::F64),
                    error(Precision::F32)
                );
            }
        }
    }
    text
}
