//! The experiments of the paper, from data to table and figure.

pub mod bodies;
pub mod equivariance;
pub mod mnist;
pub mod nonlinearity_cost;
mod random;
