//! Learning on meshes: data sets, models for each task, the training loop, metrics and the
//! experiments of the paper.

mod error;
pub mod experiments;
pub mod plot;
mod sample;
mod task;

pub use error::TaskError;
pub use sample::{Batch, Sample, SampleSource, Target};
pub use task::Task;
