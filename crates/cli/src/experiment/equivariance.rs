//! `gemcnn experiment equivariance`: how much outputs depend on frames, pose and symmetry.

use super::{create, directory, finish};
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use gemcnn_experiments::equivariance::{Settings, run};
use std::path::PathBuf;

/// Measure equivariance errors: the paper's appendix on equivariance.
///
/// Runs networks with random weights on the icosahedron and on a deformed icosahedron, and changes frames,
/// pose (rotation and translation) and vertices (the 60 symmetries of the icosahedron). Varies the depth and
/// the number of samples of the regular nonlinearity, in f32 and f64. Writes table.md, results.json and figures to OUT.
#[derive(Args)]
pub struct EquivarianceCommand {
    /// Directory for results and figures [default: runs/equivariance; with --quick runs/equivariance-quick]
    #[arg(long, short, value_name = "OUT")]
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
        let directory = directory(self.out, "equivariance", self.quick);
        create(&directory)?;
        let report = progress::during("measuring", || run(&settings)).map_err(Failure::input)?;
        finish(&report, &directory)
    }
}
