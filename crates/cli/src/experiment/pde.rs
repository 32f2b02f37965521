//! `gemcnn experiment pde`: networks as solvers of equations on surfaces.

use super::files::{SeedArgs, run_table};
use crate::data::TrajectoryArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::pde::{Equation, Row, Settings, run};
use std::path::PathBuf;

/// Train networks of equal size on single time steps of equations on surfaces, and test them at later times, from other
/// initial states and on other meshes, for single steps and with predictions fed back.
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

    /// Equations, comma-separated: heat, wave, cahn-hilliard, vector-heat [default: all]
    #[arg(long, value_name = "EQUATIONS", value_delimiter = ',')]
    equations: Option<Vec<Equation>>,

    /// Rows of each table, comma-separated: gem, attention, hermes, diffusion, surface, graph [default: all]
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    rows: Option<Vec<Row>>,

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
    #[arg(long, value_name = "OUT", default_value = "runs/pde")]
    out: PathBuf,

    #[command(flatten)]
    device: DeviceArgs,
}

impl PdeCommand {
    pub fn run(self) -> Result<(), Failure> {
        let default = Settings::default();
        let settings = Settings {
            folder: self.data,
            data: self.trajectories.settings(self.data_seed),
            equations: self.equations.unwrap_or(default.equations),
            rows: self.rows.unwrap_or(default.rows),
            seeds: self.seeds.or(default.seeds),
            epochs: self.epochs.unwrap_or(default.epochs),
            precision: self.device.products().map_or(default.precision, Into::into),
        };
        run_table(
            (&self.device, settings.precision),
            (&self.out, &["table.md", "results.json", "errors.svg"]),
            |device, progress, stop| {
                let report = run(&settings, &self.out, device, progress, stop)?;
                Ok(report.map(|report| (report.to_markdown(), report.has_failures())))
            },
        )
    }
}
