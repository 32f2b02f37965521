//! Output files of experiments.

use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output::{print, write_file};
use crate::train::{TrainProgress, stop_on_signals};
use clap::Args;
use gemcnn_experiments::Seeds;
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{BodiesConfig, DataConfig};
use gemcnn_tasks::train::{Precision, StopFlag};
use gemcnn_view::plot::Chart;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The directory given by the user, or `runs/NAME`, with `-quick` appended for a trial.
pub fn directory(asked: Option<PathBuf>, name: &str, quick: bool) -> PathBuf {
    let ending = if quick { "-quick" } else { "" };
    asked.unwrap_or_else(|| PathBuf::from(format!("runs/{name}{ending}")))
}

/// Synthetic bodies of an experiment.
#[derive(Args)]
pub struct BodiesArgs {
    /// Number of synthetic bodies, a fifth of them for testing [default: 100]
    #[arg(long, value_name = "N")]
    bodies: Option<usize>,

    /// Vertices of each synthetic body [default: 6890]
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Seed of the synthetic bodies [default: 1]. Choose settings on bodies of another seed than the reported ones.
    #[arg(long, value_name = "SEED")]
    body_seed: Option<u64>,
}

impl BodiesArgs {
    /// The bodies, with default values for what the user did not give.
    pub fn config(&self) -> DataConfig {
        let default = BodiesConfig::default();
        DataConfig::Bodies(BodiesConfig {
            count: self.bodies.unwrap_or(default.count),
            vertices: self.vertices.unwrap_or(default.vertices),
            seed: self.body_seed.unwrap_or(default.seed),
        })
    }
}

/// Seeds of the runs of each row.
#[derive(Args)]
pub struct SeedArgs {
    /// Runs of each row, with consecutive seeds [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,

    /// First seed [default: 1]. Commands with different seeds may run at the same time with the same OUT; a final
    /// command with all seeds makes the whole table.
    #[arg(long, value_name = "SEED")]
    first_seed: Option<u64>,
}

impl SeedArgs {
    /// The seeds, with default values for what the user did not give.
    pub fn or(&self, default: Seeds) -> Seeds {
        Seeds { first: self.first_seed.unwrap_or(default.first), count: self.seeds.unwrap_or(default.count) }
    }
}

/// Trains and tests the rows of a table on the device of the user, until a signal stops it. `run` returns the table in
/// Markdown and whether runs failed, or `None` if it was stopped.
pub fn run_table(
    (device, precision): (&DeviceArgs, Precision),
    (directory, files): (&Path, &[&str]),
    run: impl FnOnce(&Device, &mut TrainProgress, &StopFlag) -> Result<Option<(String, bool)>, TaskError>,
) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let device = device.open(precision.into())?;
    let mut progress = TrainProgress::new(false);
    let report = run(&device, &mut progress, &stop);
    drop(progress);
    let Some((table, has_failures)) = report.map_err(Failure::input)? else {
        return Err(stopped());
    };
    finish(&table, directory, files, has_failures)
}

/// Prints the table of a finished experiment and the paths of its files. Fails if some runs did.
pub fn finish(table: &str, directory: &Path, files: &[&str], has_failures: bool) -> Result<(), Failure> {
    let path = |name: &str| directory.join(name).display().to_string();
    let paths: String = files.iter().map(|name| path(name) + "\n").collect();
    print(&format!("{table}\n{paths}"))?;
    match has_failures {
        true => Err(Failure::input(format!("some runs failed; {} says why", path("results.json")))),
        false => Ok(()),
    }
}

/// The failure of an experiment that was stopped.
fn stopped() -> Failure {
    Failure::Interrupted("stopped; everything is saved, and the same command resumes from here".into())
}

/// Creates the output directory.
pub fn make(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::input(format!("{}: {error}", directory.display())))
}

/// Writes the report and the figures. Returns one line for each file.
pub fn write(directory: &Path, report: &impl Serialize, figures: &[(&'static str, Chart)]) -> Result<String, Failure> {
    let path = directory.join("results.json");
    let json = serde_json::to_string_pretty(report).map_err(Failure::input)?;
    write_file(&path, format!("{json}\n").as_bytes())?;
    let mut lines = format!("{}\n", path.display());
    for (stem, chart) in figures {
        for path in chart.write(&directory.join(stem)).map_err(Failure::input)? {
            lines += &format!("{}\n", path.display());
        }
    }
    Ok(lines)
}
