//! Learning on meshes: data sets, models for each task, the training loop, evaluation and prediction.

pub mod data;
mod error;
pub mod evaluation;
mod features;
pub mod models;
pub mod predict;
mod sample;
mod scaling;
mod task;
pub mod train;

pub use error::TaskError;
pub use features::{FeatureConfig, FeatureKind};
pub use models::ModelConfig;
pub use sample::{Batch, Sample, SampleSource, Target};
pub use scaling::FeatureScaling;
pub use task::Task;

/// Runs the code of the page on data sets.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/data.md")]
struct DataPage;

/// Compiles the code of the page on trained models.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/using.md")]
struct UsingPage;
