//! Learning on meshes: data sets, models for each task, the training loop, metrics and the
//! experiments of the paper.

mod error;
mod sample;
mod task;
pub mod train;

pub use error::TaskError;
pub use sample::{Batch, Sample, SampleSource, Target};
pub use task::Task;
