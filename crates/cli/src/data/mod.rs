//! `gemcnn data`: data sets.

mod fetch;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum DataCommand {
    Fetch(fetch::Fetch),
}

pub fn run(command: DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Fetch(command) => command.run(),
    }
}
