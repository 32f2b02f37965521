//! Progress events of a training run.

use super::metrics::Record;
use crate::Sample;
use crate::data::{Cache, size_in_memory};
use gemcnn_nn::{Archive, Module};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Receives the events of a training run.
pub trait Observer: Send {
    /// Called for each event.
    fn observe(&mut self, event: Event<'_>);

    /// Called after each epoch: true asks for the current model, as [`Event::Model`]. By default there is no such
    /// event.
    fn wants_model(&mut self) -> bool {
        false
    }
}

/// An observer that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn observe(&mut self, _: Event<'_>) {}
}

/// An event of a run. Epochs and steps are counted from 1.
#[derive(Debug)]
pub enum Event<'a> {
    /// A note, such as an inferred setting or the reason for an early end.
    Note(&'a str),
    /// Meshes are being prepared before the first step: read from the cache, or computed. The others follow during the
    /// first epoch.
    Preparing {
        /// Number of prepared meshes.
        done: usize,
        /// Number of meshes that are prepared before the first step.
        first: usize,
        /// Number of all meshes.
        total: usize,
        /// Estimated memory of all of them, in bytes.
        bytes: usize,
        /// Estimated size in the cache of all of them and of their versions, in bytes; `None` without a cache.
        stored: Option<u64>,
        /// Estimated time until they are prepared.
        time_left: Duration,
    },
    /// Training starts or continues.
    Started {
        /// Directory of the run.
        run: &'a Path,
        /// The network; prints as a table of layers.
        network: &'a dyn Module<f32>,
        /// Number of epochs.
        epochs: u64,
        /// Steps per epoch.
        steps: u64,
        /// Meshes in the training split.
        training: usize,
        /// Held-out meshes.
        held_out: usize,
    },
    /// Training continues from a checkpoint.
    Resumed {
        /// The file.
        checkpoint: &'a Path,
        /// Epoch of the next step.
        epoch: u64,
        /// Completed steps of that epoch.
        step: u64,
        /// Device of the checkpoint, if it was another one. Results are then not bit-identical.
        other_device: Option<&'a str>,
    },
    /// A step is done.
    StepDone(&'a StepReport),
    /// An epoch is done, and evaluated if that was due.
    EpochDone(&'a Record),
    /// The current model, which [`Observer::wants_model`] asked for. See
    /// [`TrainedModel::from_archive`](super::TrainedModel::from_archive).
    Model(&'a Archive),
}

/// Reports meshes as they are prepared, from any thread, with estimates from those so far.
pub struct Preparing<'a> {
    first: usize,
    total: usize,
    /// Number of meshes and their versions.
    entries: u64,
    cache: &'a Cache,
    since: Instant,
    /// Number and memory of the meshes so far.
    state: Mutex<(usize, usize, &'a mut dyn Observer)>,
}

impl<'a> Preparing<'a> {
    /// Begins with the first of `total` meshes, which have `entries` entries in the cache with all their versions.
    pub fn new(
        (first, total): (usize, usize),
        entries: usize,
        cache: &'a Cache,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let state = Mutex::new((0, 0, observer));
        Self { first, total, entries: entries as u64, cache, since: Instant::now(), state }
    }

    /// Reports a mesh.
    pub fn loaded(&self, sample: &Sample) {
        // The lock is poisoned after a panic of the observer, which is then not called again.
        let Ok(mut state) = self.state.lock() else { return };
        let (done, bytes, observer) = &mut *state;
        *done += 1;
        *bytes += size_in_memory(sample);
        observer.observe(Event::Preparing {
            done: *done,
            first: self.first,
            total: self.total,
            bytes: *bytes / *done * self.total,
            stored: self.cache.mean_entry().map(|mean| mean * self.entries),
            time_left: self.since.elapsed().mul_f64(self.total.saturating_sub(*done) as f64 / *done as f64),
        });
    }
}

/// Progress of training. On a GPU, losses are read only from time to time.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The epoch.
    pub epoch: u64,
    /// Completed steps of the epoch.
    pub step: u64,
    /// Steps per epoch.
    pub steps: u64,
    /// Mean loss of the epoch so far.
    pub loss: Option<f64>,
    /// Accuracy of the epoch so far; `None` in regression.
    pub accuracy: Option<f64>,
    /// Meshes per second.
    pub meshes_per_second: f64,
    /// Estimated time until the last epoch is done.
    pub time_left: Duration,
}
