//! Learning on meshes: data sets, features, models, training, evaluation and prediction.
//!
//! The modules depend on each other in this order: [`elements`], [`features`], [`data`], [`models`], [`train`],
//! [`evaluation`] and [`predict`], [`page`], [`run`], which trains the model of a configuration, and [`tune`], which
//! chooses one.

pub mod data;
pub mod elements;
mod error;
mod estimate;
pub mod evaluation;
pub mod features;
mod layout;
pub mod models;
pub mod page;
pub mod predict;
mod registry;
pub mod run;
mod sample;
mod scaling;
mod task;
pub mod train;
pub mod tune;

pub use elements::Element;
pub use error::{DataError, Result, TaskError, summed_up};
pub use estimate::{Estimate, estimate};
pub use features::FeatureConfig;
pub use models::ModelConfig;
pub use registry::{Choice, Chosen, Registry, Settings};
pub use sample::{Sample, SampleSource, Visit};
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
