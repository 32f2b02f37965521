//! The experiments of the paper, from data to tables and figures, and the benchmark of the `gemcnn` command.

pub mod bench;
pub mod bodies;
pub mod digits;
pub mod equivariance;
mod estimate;
pub mod mnist;
pub mod nonlinearity_cost;
pub mod operators;
pub mod pde;
mod random;
pub mod remeshed;
mod runs;
pub mod segmentation;

pub use estimate::Estimate;
pub use runs::Seeds;
