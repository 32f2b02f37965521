//! Training problems.

use super::checked::Checked;
use super::settings::TrainingConfig;
use crate::data::Classes;
use crate::{Element, SampleSource};
use gemcnn_nn::Objective;
use serde_json::Value;

/// A training problem: data, objective and settings.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Samples to train on.
    pub training: &'a dyn SampleSource,
    /// Held-out samples to evaluate on; may be empty.
    pub held_out: &'a dyn SampleSource,
    /// Changed copies of the held-out samples, by which evaluations are then compared.
    pub robust: Option<&'a dyn SampleSource>,
    /// True if the held-out samples are a validation split, on which the final model may be selected.
    pub validates: bool,
    /// The objective, [`TrainingConfig::objective`] of the settings.
    pub objective: &'a Objective<f32>,
    /// What a row of the output is for, stored with the model.
    pub per: Element,
    /// The classes, stored with the model.
    pub classes: Option<&'a Classes>,
    /// Settings of the training loop.
    pub config: &'a Checked<TrainingConfig>,
    /// The whole configuration. A checkpoint can be resumed only with the same settings.
    pub settings: &'a Value,
}
