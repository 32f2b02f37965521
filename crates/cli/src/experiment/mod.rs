//! `gemcnn experiment`: the experiments of the paper.

mod mnist;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum ExperimentCommand {
    Mnist(mnist::MnistCommand),
}

pub fn run(command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Mnist(command) => command.run(),
    }
}
