//! Predictions of a trained model, and their files.
//!
//! ```no_run
//! use gemcnn_mesh::Mesh;
//! use gemcnn_nn::{Device, Workspace};
//! use gemcnn_tasks::train::TrainedModel;
//! let model = TrainedModel::read("runs/teeth-1".as_ref())?;
//! let mut workspace = Workspace::new(Device::Cpu);
//! let sample = model.sample("jaw", &Mesh::read("jaw.ply")?)?;
//! let prediction = model.predict(&mut workspace, &sample)?;
//! # Ok::<(), gemcnn_tasks::TaskError>(())
//! ```

mod colours;
mod examples;
mod files;
mod memory;
mod names;
mod prediction;
mod tiles;

pub(crate) use colours::template_attributes;
pub use colours::template_colours;
pub use examples::write_examples;
pub use files::{Pictures, PredictionFiles, holds_results};
pub use names::UniqueNames;
pub(crate) use prediction::MAX_PROBABILITIES;
pub use prediction::Prediction;
