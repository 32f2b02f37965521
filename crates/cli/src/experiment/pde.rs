//! `gemcnn experiment pde`: networks as solvers of equations on surfaces.

use super::sweep::SeedArgs;
use super::train;
use crate::data::TrajectoryArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::sweep::{Choices, RunContext};
use gemcnn_experiments::{Sweep, pde};
use gemcnn_nn::ProductMode;
use gemcnn_tasks::data::Cache;
use std::path::PathBuf;

/// Train networks of equal size as solvers of equations on surfaces.
///
/// They are trained on single time steps, and tested at later times, from other initial states and on other meshes, for
/// single steps and with predictions fed back.
///
/// Writes table.md, results.json, errors.svg and a directory for each run to OUT, with an animated picture of
/// predictions beside the solution. Finished runs are not repeated and interrupted runs resume: after Ctrl-C or a
/// crash, repeat the command. Processes with different rows may share OUT; a final command with all rows makes the
/// whole table.
#[derive(Args)]
pub struct PdeCommand {
    /// Folder of `gemcnn data make pde` [default: the data are made in OUT]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["vertices", "trajectories", "steps", "data_seed"])]
    data: Option<PathBuf>,

    #[arg(long, value_name = "EQUATIONS", value_delimiter = ',', help = named("Equations", |sweep| sweep.worlds.names()))]
    equations: Option<Vec<String>>,

    #[arg(long, value_name = "ROWS", value_delimiter = ',', help = named("Rows of each table", |sweep| sweep.rows.names()))]
    rows: Option<Vec<String>>,

    #[command(flatten)]
    seeds: SeedArgs,

    /// Number of epochs [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,

    #[command(flatten)]
    trajectories: TrajectoryArgs,

    /// Seed of meshes and initial states [default: 1]
    #[arg(long, value_name = "SEED")]
    data_seed: Option<u64>,

    /// Directory for results and runs
    #[arg(long, short, value_name = "OUT", default_value = "runs/pde")]
    out: PathBuf,

    #[command(flatten)]
    device: DeviceArgs,
}

/// The help text of an option that chooses names of the sweep.
fn named(what: &str, names: fn(&Sweep) -> Vec<&str>) -> String {
    let names = pde::sweep().map_or(String::new(), |sweep| names(&sweep).join(", "));
    format!("{what}, comma-separated: {names} [default: all]")
}

impl PdeCommand {
    pub fn run(self) -> Result<(), Failure> {
        let mut sweep = pde::sweep().map_err(Failure::input)?;
        let SeedArgs { seeds, first_seed } = self.seeds;
        let products = self.device.products().unwrap_or(ProductMode::Tf32);
        let (worlds, rows, epochs, precision) = (self.equations, self.rows, self.epochs, Some(products.into()));
        let choices = Choices { worlds, rows, seeds, first_seed, epochs, precision, ..Choices::default() };
        sweep.choose(choices).map_err(Failure::usage)?;
        let (device, settings) = (self.device.open(products)?, self.trajectories.settings(self.data_seed));
        train(&device, &self.out, |device, progress, stop| {
            let context = RunContext { directory: &self.out, cache: &Cache::none(), device, stop };
            pde::run(sweep, self.data, &settings, context, progress)
        })
    }
}
