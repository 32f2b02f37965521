//! `gemcnn experiment`: sweeps, and the experiments of the paper that are programs.

mod measurements;
mod mnist;
mod pde;
mod sweep;

use crate::failure::Failure;
use crate::output::print;
use crate::train::stop_on_signals;
use crate::train_progress::TrainProgress;
use clap::{Args, Command, Subcommand};
use gemcnn_experiments::{Report, sweep::built_in};
use gemcnn_nn::Device;
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::StopFlag;
use std::path::{Path, PathBuf};

/// A sweep, or another experiment.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = sweep::help())]
pub struct ExperimentArgs {
    #[command(flatten)]
    sweep: sweep::SweepArgs,

    #[command(subcommand)]
    program: Option<Program>,
}

/// The experiments that are programs; each is documented where it is defined.
#[derive(Subcommand)]
enum Program {
    Equivariance(measurements::EquivarianceCommand),
    Matching(measurements::MatchingCommand),
    Mnist(Box<mnist::MnistCommand>),
    NonlinearityCost(measurements::NonlinearityCostCommand),
    Operators(measurements::OperatorsCommand),
    Pde(pde::PdeCommand),
}

impl ExperimentArgs {
    pub fn run(self) -> Result<(), Failure> {
        match self.program {
            Some(Program::Equivariance(command)) => command.run(),
            Some(Program::Matching(command)) => command.run(),
            Some(Program::Mnist(command)) => command.run(),
            Some(Program::NonlinearityCost(command)) => command.run(),
            Some(Program::Operators(command)) => command.run(),
            Some(Program::Pde(command)) => command.run(),
            None => self.sweep.run(),
        }
    }
}

/// All experiments, one line each.
fn list() -> Result<String, Failure> {
    let mut lines: Vec<(String, String)> =
        built_in().map_err(Failure::input)?.into_iter().map(|(name, sweep)| (name.into(), sweep.title)).collect();
    let programs = Program::augment_subcommands(Command::new("experiment"));
    let about = |command: &Command| command.get_about().map_or(String::new(), ToString::to_string);
    lines.extend(programs.get_subcommands().map(|command| (command.get_name().to_owned(), about(command))));
    let lines: String = lines.iter().map(|(name, title)| format!("{name:<18}{title}\n")).collect();
    Ok(lines
        + "\nA file of your own is run in the same way: gemcnn experiment FILE.toml (docs/experiments/README.md)\n")
}

/// The directory given by the user, or `runs/NAME`, with `-quick` appended for a trial.
fn directory(given: Option<PathBuf>, name: &str, quick: bool) -> PathBuf {
    let ending = if quick { "-quick" } else { "" };
    given.unwrap_or_else(|| PathBuf::from(format!("runs/{name}{ending}")))
}

/// Trains and tests until a signal stops it, and writes and prints the results.
fn train<R: Report>(
    device: &Device,
    directory: &Path,
    run: impl FnOnce(&Device, &mut TrainProgress, &StopFlag) -> Result<Option<R>, TaskError>,
) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let mut progress = TrainProgress::new(false);
    let report = run(device, &mut progress, &stop);
    drop(progress);
    match report.map_err(Failure::input)? {
        Some(report) => finish(&report, directory),
        None => {
            Err(Failure::Interrupted("stopped; everything is saved, and the same command resumes from here".into()))
        }
    }
}

/// Writes the results of an experiment, and prints the tables and the paths of the files. Fails if some runs did.
fn finish(report: &impl Report, directory: &Path) -> Result<(), Failure> {
    let paths = report.write(directory).map_err(Failure::input)?;
    let lines: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    print(&format!("{}\n{lines}", report.to_markdown()))?;
    match report.has_failures() {
        true => Err(Failure::input(format!("some runs failed; {} says why", paths[0].display()))),
        false => Ok(()),
    }
}
