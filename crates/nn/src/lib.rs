//! Gauge equivariant networks on meshes: tape, layers, optimisers, checkpoints and the
//! equivariance tester.

mod archive;
mod error;
pub mod kernel_basis;
mod optimiser;
mod parameters;
mod pool;
mod schedule;

pub use archive::Archive;
pub use error::NnError;
pub use optimiser::{Method, Optimiser};
pub use parameters::{Parameter, ParameterId, Parameters, Role};
pub use pool::{Buffer, Device, Pool, PoolUsage};
pub use schedule::{Plateau, Schedule};
