//! The experiments of the paper and others, from data to tables and figures: sweeps that TOML files describe, programs,
//! and the measurements of `gemcnn bench`.

pub mod bench;
pub mod digits;
pub mod equivariance;
mod estimate;
pub mod matching;
pub mod mnist;
mod names;
pub mod nonlinearity_cost;
pub mod operators;
mod output;
pub mod pde;
mod random;
pub mod sweep;

pub use estimate::Estimate;
pub use output::Report;
pub use sweep::Sweep;
