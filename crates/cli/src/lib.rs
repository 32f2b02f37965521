//! The command `gemcnn` as a library: a program that registers features and models of its own first, and then
//! calls [`main`], has them in `train`, `eval` and `predict`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod data;
mod device;
mod eval;
mod experiment;
mod failure;
mod kinds;
mod matching;
mod mesh;
mod models;
mod output;
mod predict;
mod progress;
mod train;
mod train_progress;
mod usage;
mod view;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Gauge equivariant mesh CNNs: inspect surface meshes, compute their gauge geometry, and learn on them.
///
/// Exit status: 0 on success, 1 on an error, 2 for wrong usage, 130 if stopped by Ctrl-C.
#[derive(Parser)]
#[command(name = "gemcnn", version, propagate_version = true)]
struct Cli {
    /// Number of threads [default: all cores]. Results do not depend on it.
    #[arg(long, global = true, value_name = "N", help_heading = "General", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure speed, from geometry to training steps, and compare it with the limits of the machine.
    Bench(bench::BenchArgs),
    /// Check, fetch, prepare and generate data sets, and manage the cache of prepared meshes.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Evaluate a trained model on a data set.
    Eval(eval::EvalArgs),
    /// Compare settings in a table: the experiments of the paper, others that come with the program, and your own.
    Experiment(Box<experiment::ExperimentArgs>),
    /// Find for each point of a mesh the same point of another one, such as two scans of bodies, without training.
    ///
    /// Meshings, numbers of vertices, units and poses may differ. Prints how sure the map is. If it means nothing, such as
    /// between a body and a sphere, nothing is written, and the exit status is 1.
    Match(Box<matching::MatchArgs>),
    /// Inspect, convert, repair, make and picture meshes, and compute their gauge geometry.
    #[command(subcommand)]
    Mesh(mesh::MeshCommand),
    /// List the models that are part of the program, which `predict` and `match` use without training.
    Models(models::ModelsArgs),
    /// Apply a trained model to meshes.
    ///
    /// For each mesh, writes a coloured NAME.ply with labels, values or vectors, the same numbers as NAME.npy, and a
    /// picture NAME.png. Results for whole meshes are written to one table, classes.csv or values.csv. A mesh
    /// that cannot be used is reported and skipped, and the exit status is then 1.
    Predict(predict::PredictArgs),
    /// Train a network on meshes with targets, or on synthetic bodies.
    Train(Box<train::TrainArgs>),
    /// Write an interactive page of meshes, predictions or a training run, as one HTML file.
    View(view::ViewArgs),
}

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    let mut command = usage::negative_numbers(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))) {
        Ok(cli) => cli,
        Err(error) => return usage::report(error),
    };
    let result = start_threads(cli.threads).and_then(|()| match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Data(command) => data::run(command),
        Command::Eval(args) => args.run(),
        Command::Experiment(args) => args.run(),
        Command::Match(args) => args.run(),
        Command::Mesh(command) => mesh::run(command),
        Command::Models(args) => args.run(),
        Command::Predict(args) => args.run(),
        Command::Train(args) => train::run(*args),
        Command::View(args) => args.run(),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

fn start_threads(threads: Option<u16>) -> Result<(), Failure> {
    let Some(threads) = threads else { return Ok(()) };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.into())
        .build_global()
        .map_err(|error| Failure::input(format!("cannot start {threads} threads: {error}")))
}
