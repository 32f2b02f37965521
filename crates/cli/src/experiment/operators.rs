//! `gemcnn experiment operators`: surface operators on two meshings of one surface.

use super::{create, directory, finish};
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use gemcnn_experiments::operators::{Settings, run};
use std::path::PathBuf;

/// Compare surface operators between meshings of the same smooth surfaces.
///
/// Meshes a bumpy sphere, an ellipsoid and a torus in a regular and in two other ways, at several resolutions, and
/// applies Laplacians, eigenpairs, diffusion, derivatives, curvature and geodesic distances to the same smooth fields.
/// Writes table.md, results.json and the figure operators.svg with the differences to OUT.
#[derive(Args)]
pub struct OperatorsCommand {
    /// Directory for results and figures [default: runs/operators; with --quick runs/operators-quick]
    #[arg(long, short, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial of a few seconds, with meshes of at most 2,562 vertices.
    #[arg(long)]
    quick: bool,

    /// Seed of the remeshing.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl OperatorsCommand {
    pub fn run(self) -> Result<(), Failure> {
        let settings = Settings { seed: self.seed, ..if self.quick { Settings::quick() } else { Settings::default() } };
        let directory = directory(self.out, "operators", self.quick);
        create(&directory)?;
        let report = progress::during("comparing", || run(&settings)).map_err(Failure::input)?;
        finish(&report, &directory)
    }
}
