//! Training problems.

use super::settings::TrainingConfig;
use crate::data::Classes;
use crate::{Element, SampleSource, TaskError};
use gemcnn_nn::{Builder, Module, Objective};
use serde_json::Value;

/// Adds the parameters of a network to a builder and returns the network.
pub type BuildModel<'a> = dyn Fn(&mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> + 'a;

/// A training problem: data, model and objective.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Samples to train on.
    pub training: &'a dyn SampleSource,
    /// Held-out samples to evaluate on; may be empty.
    pub held_out: &'a dyn SampleSource,
    /// True if the held-out samples are a validation part, on which the final model may be selected.
    pub validates: bool,
    /// Builds the model.
    pub model: &'a BuildModel<'a>,
    /// The objective.
    pub objective: &'a Objective<f32>,
    /// What a row of the output is for, stored with the model.
    pub per: Element,
    /// The classes, stored with the model.
    pub classes: Option<&'a Classes>,
    /// Settings of the training loop.
    pub config: &'a TrainingConfig,
    /// The whole configuration. A checkpoint can be resumed only with the same settings.
    pub settings: &'a Value,
}
