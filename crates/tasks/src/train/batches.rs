//! Which samples make up which step, and threads that prepare steps ahead.
//!
//! The order of the data follows from the seed and the epoch alone, so that a step is found again by its
//! number. A prepared batch is one value that travels from a thread to the step.

use crate::{Sample, SampleSource, TaskError, join_graphs};
use gemcnn_mesh::GaugeGraph;
use gemcnn_nn::{Device, FeatureType, HierarchyBatch, IGNORE, Objective, Target, TrainingBatch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

/// Batches that each thread keeps ready.
const READY: usize = 2;
/// Edges of graphs that stay joined and on the device for the next epoch: about 2 GB.
const KEPT_EDGES: usize = 64 << 20;

/// How samples are put into batches, epoch after epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPlan {
    pub samples: usize,
    pub batch: usize,
    /// Seed of the random order; `None` keeps the order of the samples.
    pub shuffle: Option<u64>,
    /// Leaves out the samples of an epoch that do not fill a batch.
    pub drop_last: bool,
}

impl BatchPlan {
    /// Steps of an epoch; the last one may be smaller.
    pub fn steps(&self) -> u64 {
        match self.drop_last && self.samples >= self.batch {
            true => (self.samples / self.batch) as u64,
            false => self.samples.div_ceil(self.batch) as u64,
        }
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

/// The numbers below `count` in the random order of one epoch of one seed.
fn shuffled(count: usize, seed: u64, epoch: u64) -> Vec<usize> {
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
}

/// Graphs of single samples, joined and perhaps on a GPU already, for the next epoch.
#[derive(Debug, Default)]
pub(crate) struct GraphCache {
    kept: Mutex<KeptGraphs>,
}

#[derive(Debug, Default)]
struct KeptGraphs {
    /// By the address of the graph, which is kept alive with it.
    graphs: HashMap<usize, (Arc<GaugeGraph>, Arc<HierarchyBatch<f32>>)>,
    edges: usize,
}

impl GraphCache {
    /// The joined graphs of samples; kept for batches of one sample, which come again.
    fn join(&self, samples: &[Sample]) -> Result<Arc<HierarchyBatch<f32>>, TaskError> {
        let [sample] = samples else {
            return Ok(Arc::new(join_graphs(samples)?));
        };
        let key = Arc::as_ptr(&sample.graph).addr();
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, graphs)) = kept().graphs.get(&key) {
            return Ok(Arc::clone(graphs));
        }
        let graphs = Arc::new(join_graphs(samples)?);
        let mut kept = kept();
        if kept.edges + sample.graph.edge_count() <= KEPT_EDGES {
            kept.edges += sample.graph.edge_count();
            let entry = (Arc::clone(&sample.graph), Arc::clone(&graphs));
            kept.graphs.insert(key, entry);
        }
        Ok(graphs)
    }
}

impl PreparedBatch {
    /// Loads samples, joins them and copies them to a GPU.
    pub fn load(
        source: &dyn SampleSource,
        samples: &[usize],
        objective: &Arc<Objective<f32>>,
        cache: &GraphCache,
        device: &Device,
    ) -> Result<Self, TaskError> {
        let mut loaded = Vec::with_capacity(samples.len());
        for &index in samples {
            let sample = source.load(index)?;
            check(&sample, objective)?;
            loaded.push(sample);
        }
        let kind = loaded
            .first()
            .map_or(FeatureType::default(), |s| s.kind.clone());
        let graphs = match source.shared_graphs(samples.len()) {
            Some(graphs) => graphs,
            None => cache.join(&loaded)?,
        };
        let mut features = Vec::new();
        let mut target = Target::Unknown;
        for sample in loaded {
            if sample.kind != kind {
                let problem = format!(
                    "its features are {}, but those of others {kind}",
                    sample.kind
                );
                return Err(TaskError::setting(&sample.name, problem));
            }
            match features.is_empty() {
                true => features = sample.features,
                false => features.extend_from_slice(&sample.features),
            }
            match (&mut target, sample.target) {
                (Target::Labels(all), Target::Labels(labels)) => all.extend(labels),
                (Target::Values(all), Target::Values(values)) => all.extend(values),
                (first, next) => *first = next,
            }
        }
        let batch = TrainingBatch::new(graphs, kind, features, Arc::clone(objective), target)?;
        batch.send_ahead(device)?;
        Ok(Self {
            samples: samples.to_vec(),
            batch,
        })
    }
}

/// Fails for a sample with another number of features or targets than it needs, or a label that names no
/// class.
fn check(sample: &Sample, objective: &Objective<f32>) -> Result<(), TaskError> {
    let refuse = |problem: String| Err(TaskError::setting(&sample.name, problem));
    let vertices = sample.graph.vertex_count();
    let expected = vertices * sample.kind.dimension();
    if sample.features.len() != expected {
        let found = sample.features.len();
        return refuse(format!(
            "it has {found} numbers of features, but needs {expected}"
        ));
    }
    match (&sample.target, objective) {
        (Target::Labels(labels), Objective::Classes { count, .. }) => {
            if labels.len() != vertices && labels.len() != 1 {
                return refuse(format!("{} labels for {vertices} vertices", labels.len()));
            }
            let outside = |&label: &u32| label != IGNORE && label as usize >= *count;
            match labels.iter().position(outside) {
                None => Ok(()),
                Some(row) => refuse(format!(
                    "label {} of row {row} names none of the {count} classes",
                    labels[row]
                )),
            }
        }
        (Target::Values(values), Objective::Values { kind, .. }) => {
            let width = kind.dimension();
            match values.len() == vertices * width || values.len() == width {
                true => Ok(()),
                false => refuse(format!(
                    "{} target values for {vertices} vertices of type {kind}",
                    values.len()
                )),
            }
        }
        (Target::Unknown, _) => refuse("it has no target to learn from".into()),
        _ => refuse("its target does not fit the task".into()),
    }
}

/// Number of threads that load samples: one beside computations on the CPU, which need the cores
/// themselves, and a few beside a GPU.
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

/// What batches are prepared from.
#[derive(Clone, Copy)]
pub(crate) struct BatchSource<'env> {
    pub samples: &'env dyn SampleSource,
    pub objective: &'env Arc<Objective<f32>>,
    pub cache: &'env GraphCache,
    pub device: &'env Device,
}

impl Prefetch {
    /// Prepares the steps from number `first` up to `end`, counted over all epochs, on threads that end
    /// when this is dropped.
    pub fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        source: BatchSource<'env>,
        plan: BatchPlan,
        (first, end): (u64, u64),
    ) -> Self {
        let threads = loading_threads(source.device);
        let prepare = |thread: usize| {
            let (sender, receiver) = sync_channel(READY);
            scope.spawn(move || {
                let BatchSource {
                    samples,
                    objective,
                    cache,
                    device,
                } = source;
                let mut order = (None, Vec::new());
                for number in (first..end).skip(thread).step_by(threads) {
                    let (epoch, step) = (number / plan.steps(), number % plan.steps());
                    if order.0 != Some(epoch) {
                        order = (Some(epoch), plan.order(epoch));
                    }
                    let chosen = order.1.chunks(plan.batch).nth(step as usize).unwrap_or(&[]);
                    let batch = PreparedBatch::load(samples, chosen, objective, cache, device);
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
    use gemcnn_mesh::{GeometryOptions, shapes};

    #[test]
    fn every_epoch_has_all_samples_in_an_order_of_its_own() {
        let plan = BatchPlan {
            samples: 10,
            batch: 4,
            shuffle: Some(3),
            drop_last: false,
        };
        assert_eq!(plan.steps(), 3);
        let dropping = BatchPlan {
            drop_last: true,
            ..plan
        };
        assert_eq!(dropping.steps(), 2);
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

    struct Spheres(Vec<Sample>);

    impl SampleSource for Spheres {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn name(&self, index: usize) -> String {
            self.0[index].name.clone()
        }

        fn load(&self, index: usize) -> Result<Sample, TaskError> {
            Ok(self.0[index].clone())
        }
    }

    fn sample(subdivisions: u32, target: Target<f32>) -> Sample {
        let mesh = shapes::icosphere(subdivisions).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        Sample {
            name: format!("sphere {subdivisions}"),
            features: vec![subdivisions as f32; graph.vertex_count()],
            graph: graph.into(),
            hierarchy: None,
            kind: FeatureType::scalars(1),
            target,
        }
    }

    fn load(samples: Vec<Sample>, which: &[usize]) -> Result<PreparedBatch, TaskError> {
        let objective = Arc::new(Objective::Classes {
            count: 2,
            weights: None,
        });
        let cache = GraphCache::default();
        PreparedBatch::load(&Spheres(samples), which, &objective, &cache, &Device::Cpu)
    }

    #[test]
    fn samples_of_unequal_size_are_joined_in_order() {
        let small = sample(0, Target::Labels(vec![1; 12]));
        let large = sample(1, Target::Labels(vec![IGNORE; 42]));
        let PreparedBatch { batch, .. } = load(vec![small, large], &[1, 0]).unwrap();
        let graph = batch.levels().graph().unwrap();
        assert_eq!(graph.vertices_of(1), 42..54);
        assert_eq!((batch.features()[41], batch.features()[42]), (1.0, 0.0));
        assert_eq!((batch.features().len(), batch.counted()), (54, 12));
    }

    #[test]
    fn samples_that_do_not_fit_are_named() {
        let labelled = sample(0, Target::Labels(vec![1; 12]));
        let short = sample(1, Target::Labels(vec![1; 12]));
        let outside = sample(1, Target::Labels(vec![2; 42]));
        let other = sample(1, Target::Values(vec![0.0; 42]));
        for bad in [short, outside, other] {
            match load(vec![labelled.clone(), bad], &[0, 1]).unwrap_err() {
                TaskError::Setting { what, .. } => assert_eq!(what, "sphere 1"),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn the_graphs_of_a_single_sample_are_joined_once() {
        let samples = [sample(0, Target::Labels(vec![1; 12]))];
        let cache = GraphCache::default();
        let first = cache.join(&samples).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.join(&samples).unwrap()));
    }
}
