//! Which samples make up which step, and threads that prepare steps ahead.
//!
//! The order of the data follows from the seed and the epoch alone, so that a step is found again by its
//! number. A prepared batch is one value that travels from a thread to the step.

use super::objective::Objective;
use crate::{Batch, SampleSource, TaskError};
use gemcnn_nn::{BatchTarget, Device, FeatureType, TrainingBatch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Scope;

/// Batches that each thread keeps ready.
const READY: usize = 2;

/// How samples are put into batches, epoch after epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPlan {
    pub samples: usize,
    pub batch: usize,
    /// None: always in their own order.
    pub shuffle: Option<u64>,
}

impl BatchPlan {
    /// Steps of an epoch; the last one may be smaller.
    pub fn steps(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    /// Samples of the first step of all.
    pub fn first(&self) -> Vec<usize> {
        let mut order = self.order(0);
        order.truncate(self.batch);
        order
    }

    /// The order of the samples in an epoch.
    fn order(&self, epoch: u64) -> Vec<usize> {
        match self.shuffle {
            Some(seed) => shuffled(self.samples, seed, epoch),
            None => (0..self.samples).collect(),
        }
    }
}

/// A random permutation of `0..count`: the order of the samples in one epoch. The same seed and epoch give the
/// same order.
pub fn shuffled(count: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(epoch);
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.random_range(0..=end));
    }
    order
}

/// A step, ready to be made.
#[derive(Debug)]
pub(crate) struct PreparedBatch {
    /// Numbers of its samples in their source.
    pub samples: Vec<usize>,
    pub batch: TrainingBatch<f32>,
    /// Rows whose target is known.
    pub counted: u64,
    /// Sum of the weights of their classes; how many they are, where there are no weights.
    pub weight: f64,
}

impl PreparedBatch {
    /// Loads samples, joins them and sends them to a GPU.
    pub fn load(
        source: &dyn SampleSource,
        samples: &[usize],
        objective: &Objective,
        device: &Device,
    ) -> Result<Self, TaskError> {
        let mut loaded = Vec::with_capacity(samples.len());
        for &index in samples {
            let sample = source.load(index)?;
            objective.check(&sample)?;
            loaded.push(sample);
        }
        let references: Vec<_> = loaded.iter().collect();
        let kind = match references.first() {
            Some(sample) => sample.kind.clone(),
            None => FeatureType::default(),
        };
        let joined = Batch::new(&references)?;
        let (target, counted, weight) = match objective {
            Objective::Classes { count, weights } => {
                let counted = joined.labelled();
                let weight = match weights {
                    None => counted as f64,
                    Some(weights) => weight_of(&joined.labels, weights),
                };
                let target = BatchTarget::Classes {
                    classes: *count,
                    labels: joined.labels,
                    weights: weights.clone(),
                };
                (target, counted, weight)
            }
            Objective::Values {
                kind,
                penalty,
                scaling,
            } => {
                let mut values = joined.values;
                if let Some(scaling) = scaling {
                    scaling.apply(&mut values);
                }
                let (known, counted) = known_rows(&mut values, kind.dimension());
                let target = BatchTarget::Values {
                    kind: kind.clone(),
                    penalty: *penalty,
                    values,
                    known,
                };
                (target, counted, counted as f64)
            }
        };
        let batch = match joined.hierarchy {
            None => TrainingBatch::new(joined.graph, kind, joined.features, target),
            Some(levels) => TrainingBatch::on_hierarchy(levels, kind, joined.features, target),
        }?;
        batch.send_ahead(device)?;
        Ok(Self {
            samples: samples.to_vec(),
            batch,
            counted: counted as u64,
            weight,
        })
    }
}

/// Sum of the weights of the classes of all labels; one that is not known has none.
fn weight_of(labels: &[u32], weights: &[f32]) -> f64 {
    let known = labels
        .iter()
        .filter_map(|&label| weights.get(label as usize));
    known.map(|&weight| f64::from(weight)).sum()
}

/// Which rows are known, unless all are, and how many; unknown ones become 0.
fn known_rows(values: &mut [f32], width: usize) -> (Option<Vec<bool>>, usize) {
    let mut mask = Vec::with_capacity(values.len() / width.max(1));
    for row in values.chunks_mut(width.max(1)) {
        let known = row.iter().all(|value| !value.is_nan());
        if !known {
            row.fill(0.0);
        }
        mask.push(known);
    }
    let counted = mask.iter().filter(|&&known| known).count();
    ((counted < mask.len()).then_some(mask), counted)
}

/// Threads that load samples: one beside computations on the CPU, which need the cores themselves, and a
/// few beside a GPU.
fn loading_threads(device: &Device) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match device {
        Device::Cpu => 1,
        Device::Cuda(_) => (cores / 2).clamp(1, 4),
    }
}

/// Batches in their order, prepared ahead by threads.
pub(crate) struct Prefetch {
    /// Batch number `n` comes from number `n % threads`.
    threads: Vec<Receiver<Result<PreparedBatch, TaskError>>>,
    next: usize,
}

impl Prefetch {
    /// Prepares the steps from number `first` up to `end`, counted over all epochs, for a device, on threads
    /// that end when this is dropped.
    pub fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        source: &'env dyn SampleSource,
        objective: &'env Objective,
        plan: BatchPlan,
        (first, end): (u64, u64),
        device: &'env Device,
    ) -> Self {
        let threads = loading_threads(device);
        let prepare = |thread: usize| {
            let (sender, receiver) = sync_channel(READY);
            scope.spawn(move || {
                let mut order = (None, Vec::new());
                for number in (first..end).skip(thread).step_by(threads) {
                    let (epoch, step) = (number / plan.steps(), number % plan.steps());
                    if order.0 != Some(epoch) {
                        order = (Some(epoch), plan.order(epoch));
                    }
                    let samples = order.1.chunks(plan.batch).nth(step as usize);
                    let batch =
                        PreparedBatch::load(source, samples.unwrap_or(&[]), objective, device);
                    // Nobody waits for what comes after a failure, or after the end of training.
                    let failed = batch.is_err();
                    if sender.send(batch).is_err() || failed {
                        return;
                    }
                }
            });
            receiver
        };
        Self {
            threads: (0..threads).map(prepare).collect(),
            next: 0,
        }
    }
}

impl Iterator for Prefetch {
    type Item = Result<PreparedBatch, TaskError>;

    fn next(&mut self) -> Option<Self::Item> {
        let thread = self.threads.get(self.next)?;
        self.next = (self.next + 1) % self.threads.len();
        thread.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_all_samples_in_an_order_of_its_own() {
        let plan = BatchPlan {
            samples: 10,
            batch: 4,
            shuffle: Some(3),
        };
        assert_eq!(plan.steps(), 3);
        let (first, second) = (plan.order(0), plan.order(1));
        assert_ne!(first, second);
        assert_eq!(plan.order(1), second);
        let other = BatchPlan {
            shuffle: Some(4),
            ..plan
        };
        assert_ne!(other.order(0), first);
        for mut order in [first, second] {
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..10));
        }
    }

    #[test]
    fn labels_that_are_not_known_have_no_weight() {
        let labels = [0, 1, gemcnn_nn::IGNORE, 1];
        assert_eq!(weight_of(&labels, &[2.0, 0.5]), 3.0);
    }

    #[test]
    fn unknown_rows_are_masked() {
        let mut all = vec![1.0, 2.0, 3.0, 4.0];
        assert_eq!(known_rows(&mut all, 2), (None, 2));
        let mut some = vec![1.0, f32::NAN, 3.0, 4.0];
        assert_eq!(known_rows(&mut some, 2), (Some(vec![false, true]), 1));
        assert_eq!(some, [0.0, 0.0, 3.0, 4.0]);
    }
}
