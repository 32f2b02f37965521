//! `gemcnn experiment`: the experiments of the paper.

mod equivariance;
mod files;
mod mnist;
mod nonlinearity_cost;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum ExperimentCommand {
    Equivariance(equivariance::EquivarianceCommand),
    Mnist(Box<mnist::MnistCommand>),
    NonlinearityCost(nonlinearity_cost::NonlinearityCostCommand),
}

pub fn run(command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Equivariance(command) => command.run(),
        ExperimentCommand::Mnist(command) => command.run(),
        ExperimentCommand::NonlinearityCost(command) => command.run(),
    }
}
