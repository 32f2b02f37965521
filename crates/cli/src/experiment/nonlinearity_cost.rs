//! `gemcnn experiment nonlinearity-cost`: time and memory over the number of samples.

use super::{create, directory, finish};
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use gemcnn_experiments::nonlinearity_cost::{Settings, run};
use gemcnn_nn::ProductMode;
use std::path::PathBuf;

/// Measure the cost of the regular nonlinearity: the paper's table of time and memory.
///
/// Trains the correspondence network for a few steps with a batch of one mesh, without the nonlinearity and
/// with several numbers of samples. Then times the nonlinearity alone, by matrices and by Fourier
/// transforms. Writes table.md, results.json and figures to OUT.
#[derive(Args)]
pub struct NonlinearityCostCommand {
    /// Directory for results and figures [default: runs/nonlinearity-cost; with --quick
    /// runs/nonlinearity-cost-quick]
    #[arg(long, short, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial of a few seconds on a small mesh.
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

impl NonlinearityCostCommand {
    pub fn run(self) -> Result<(), Failure> {
        let settings = if self.quick { Settings::quick() } else { Settings::default() };
        let directory = directory(self.out, "nonlinearity-cost", self.quick);
        create(&directory)?;
        let device = self.device.open(ProductMode::F32)?;
        let report = progress::during("measuring", || run(&settings, &device)).map_err(Failure::input)?;
        finish(&report, &directory)
    }
}
