//! `gemcnn experiment`: the experiments of the paper.

mod bodies;
mod equivariance;
mod files;
mod mnist;
mod nonlinearity_cost;
mod operators;
mod pde;
mod remeshed;
mod segmentation;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum ExperimentCommand {
    Bodies(bodies::BodiesCommand),
    Equivariance(equivariance::EquivarianceCommand),
    Mnist(Box<mnist::MnistCommand>),
    NonlinearityCost(nonlinearity_cost::NonlinearityCostCommand),
    Operators(operators::OperatorsCommand),
    Pde(pde::PdeCommand),
    Remeshed(remeshed::RemeshedCommand),
    Segmentation(segmentation::SegmentationCommand),
}

pub fn run(command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Bodies(command) => command.run(),
        ExperimentCommand::Equivariance(command) => command.run(),
        ExperimentCommand::Mnist(command) => command.run(),
        ExperimentCommand::NonlinearityCost(command) => command.run(),
        ExperimentCommand::Operators(command) => command.run(),
        ExperimentCommand::Pde(command) => command.run(),
        ExperimentCommand::Remeshed(command) => command.run(),
        ExperimentCommand::Segmentation(command) => command.run(),
    }
}
