//! `gemcnn experiment`: the experiments of the paper.

mod bodies;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum ExperimentCommand {
    Bodies(bodies::BodiesCommand),
}

pub fn run(command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Bodies(command) => command.run(),
    }
}
