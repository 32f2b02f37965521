//! What a training run tells while it runs.

use super::metrics::Record;
use gemcnn_nn::Module;
use std::path::Path;
use std::time::Duration;

/// Watches a training run.
pub trait Observer: Send {
    /// Something happened.
    fn observe(&mut self, event: Event<'_>);
}

/// An observer that looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn observe(&mut self, _: Event<'_>) {}
}

/// What happens in a run. Epochs and steps are counted from 1 here.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something about the data that was found out rather than said.
    Note(&'a str),
    /// Meshes are made ready before the first step: read, or computed where the cache has them not.
    Preparing {
        /// Meshes that are ready.
        done: usize,
        /// Meshes in all.
        total: usize,
    },
    /// Training is about to begin or to go on.
    Started {
        /// Directory of the run.
        run: &'a Path,
        /// What is trained; prints as a table of layers.
        network: &'a dyn Module<f32>,
        /// Epochs in all.
        epochs: u64,
        /// Steps of an epoch.
        steps: u64,
        /// Meshes in the training part.
        training: usize,
        /// Meshes to evaluate on.
        held_out: usize,
    },
    /// A checkpoint was found and training goes on from it.
    Resumed {
        /// The file.
        checkpoint: &'a Path,
        /// Epoch of the next step.
        epoch: u64,
        /// Steps of that epoch that are done.
        step: u64,
        /// The device that the checkpoint was made on, if it was another one: results will then be
        /// as good, but not the same to the bit.
        other_device: Option<&'a str>,
    },
    /// An epoch begins.
    EpochStarted {
        /// Which.
        epoch: u64,
    },
    /// A step is done.
    StepDone(&'a StepReport),
    /// An epoch is over and was evaluated, where that was due.
    EpochDone(&'a Record),
    /// A checkpoint is safe on the disk.
    CheckpointWritten {
        /// The file.
        path: &'a Path,
        /// Steps since the beginning of the run.
        steps: u64,
    },
}

/// How training goes, as far as known: on a GPU losses are read only now and then.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The epoch.
    pub epoch: u64,
    /// Steps of it that are done.
    pub step: u64,
    /// Steps of it in all.
    pub steps: u64,
    /// Mean loss of the epoch so far.
    pub loss: Option<f64>,
    /// Share of the labels of the epoch so far that were right; none in regression.
    pub accuracy: Option<f64>,
    /// Meshes trained on in a second.
    pub meshes_per_second: f64,
    /// Until the last epoch is done.
    pub time_left: Duration,
}
