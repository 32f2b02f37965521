//! `gemcnn experiment matching`: maps between pairs of synthetic bodies.

use super::{create, directory, finish};
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use gemcnn_experiments::matching::{Settings, run};
use gemcnn_nn::ProductMode;
use std::path::PathBuf;

/// Match pairs of synthetic bodies, each in another meshing, and measure the errors of the maps.
///
/// Compares the bundled model, other models, and descriptors without a network, all with the same refinement. Writes
/// table.md and results.json to OUT.
#[derive(Args)]
pub struct MatchingCommand {
    /// Directory for results [default: runs/matching; with --quick runs/matching-quick]
    #[arg(long, short, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial with two pairs of 1,500 vertices.
    #[arg(long)]
    quick: bool,

    /// Number of pairs.
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,

    /// Number of vertices of the bodies before they are remeshed.
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Seed of the bodies.
    #[arg(long, value_name = "N", default_value_t = 77)]
    seed: u64,

    /// Further variety of the bodies, from 0 to 1.
    #[arg(long, value_name = "V", default_value_t = 0.5)]
    variety: f64,

    /// Another model to compare: a run directory, or a model file.
    #[arg(long = "model", value_name = "RUN")]
    models: Vec<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
}

impl MatchingCommand {
    pub fn run(self) -> Result<(), Failure> {
        let [pairs, vertices] = if self.quick { [2, 1500] } else { [100, 5000] };
        let settings = Settings {
            pairs: self.pairs.unwrap_or(pairs),
            vertices: self.vertices.unwrap_or(vertices),
            seed: self.seed,
            variety: self.variety,
            models: self.models,
        };
        let directory = directory(self.out, "matching", self.quick);
        create(&directory)?;
        let device = self.device.open(ProductMode::default())?;
        let results = progress::during("matching", || run(&settings, &device)).map_err(Failure::input)?;
        finish(&results, &directory)
    }
}
