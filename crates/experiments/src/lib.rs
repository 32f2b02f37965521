//! The experiments of the paper, from data to table and figure, and the benchmark of the `gemcnn` command.

pub mod bench;
pub mod bodies;
pub mod digits;
pub mod equivariance;
pub mod mnist;
pub mod nonlinearity_cost;
mod random;
