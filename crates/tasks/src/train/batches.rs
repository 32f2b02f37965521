//! Batches, and threads that prepare them ahead.

use super::batch_plan::BatchPlan;
use crate::{Result, Sample, SampleSource, TaskError, Visit};
use gemcnn_nn::{Device, FeatureType, Geometry, IGNORE, Objective, SharedExtra, Target, TrainingBatch};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

/// Number of batches that each thread prepares ahead.
const READY: usize = 2;
/// Limit of the graphs that stay in main memory for the next epoch, in bytes.
const KEPT_ON_HOST: usize = 1 << 30;
/// Share of the memory of a GPU for graphs that stay there.
const KEPT_ON_GPU: usize = 3;

/// The batch of a step.
#[derive(Debug)]
pub(crate) struct PreparedBatch {
    /// Indices of its samples in their source.
    pub samples: Vec<usize>,
    pub batch: TrainingBatch<f32>,
}

/// Graphs of single samples in the form of the operators, and extras, for the next epoch. Those of batches of one
/// sample stay on the GPU.
#[derive(Debug, Default)]
pub(crate) struct GeometryCache {
    device: Device,
    kept: Mutex<Kept>,
    /// Largest size of what is kept, in bytes.
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// By the address of the hierarchy they are made of.
    graphs: HashMap<usize, Geometry<f32>>,
    /// Hierarchies and extras, by their addresses. They are kept alive, so that the addresses stay theirs.
    values: HashMap<usize, SharedExtra>,
    bytes: usize,
}

impl Kept {
    /// Keeps a value. False if it is too large.
    fn keep(&mut self, value: SharedExtra, bytes: usize, max_bytes: usize) -> bool {
        let key = Arc::as_ptr(&value).addr();
        let is_kept = self.values.contains_key(&key) || self.bytes + bytes <= max_bytes;
        if is_kept && self.values.insert(key, value).is_none() {
            self.bytes += bytes;
        }
        is_kept
    }
}

impl GeometryCache {
    /// A cache for training on a device.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            kept: Mutex::default(),
            max_bytes: match device {
                Device::Cpu => KEPT_ON_HOST,
                Device::Cuda(device) => device.total_memory() / KEPT_ON_GPU,
            },
        }
    }

    /// A cache that keeps nothing, for samples that are used once.
    pub fn off() -> Self {
        Self::default()
    }

    /// The joined geometry of samples, from that of each.
    fn join(&self, samples: &[Sample]) -> Result<Geometry<f32>> {
        let mut singles: Vec<Geometry<f32>> = samples.iter().map(|sample| self.of(sample)).collect::<Result<_, _>>()?;
        if singles.len() == 1 {
            return Ok(singles.remove(0));
        }
        Ok(Geometry::join(&singles.iter().collect::<Vec<_>>())?)
    }

    /// The geometry of one sample. Extras that only this sample holds are not needed again. Others stay on the GPU
    /// while there is memory for them.
    fn of(&self, sample: &Sample) -> Result<Geometry<f32>> {
        let keep = |value: SharedExtra, bytes: usize| self.kept().keep(value, bytes, self.max_bytes);
        Ok(self.graphs_of(sample)?.with_extras(sample.extras.for_batch(&self.device, &keep)?)?)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graphs_of(&self, sample: &Sample) -> Result<Geometry<f32>> {
        let key = Arc::as_ptr(&sample.hierarchy).addr();
        if let Some(graphs) = self.kept().graphs.get(&key) {
            return Ok(graphs.clone());
        }
        let graphs = Geometry::new([&*sample.hierarchy])?;
        let (mut kept, bytes) = (self.kept(), graphs.size_in_bytes(&self.device));
        if kept.keep(Arc::clone(&sample.hierarchy) as SharedExtra, bytes, self.max_bytes) {
            kept.graphs.insert(key, graphs.clone());
        }
        Ok(graphs)
    }
}

impl PreparedBatch {
    /// Loads samples, joins them and starts their copy to a GPU. A `visit` may change them at random.
    pub fn load(source: BatchSource<'_>, samples: &[usize], visit: Option<Visit>) -> Result<Self> {
        let BatchSource { samples: source, objective, cache, device } = source;
        let mut loaded = Vec::with_capacity(samples.len());
        for &index in samples {
            let sample = match visit {
                Some(visit) => source.visit(index, visit)?,
                None => source.load(index)?,
            };
            check(&sample, objective)?;
            loaded.push(sample);
        }
        let kind = loaded.first().map_or(FeatureType::default(), |s| s.kind.clone());
        let graphs = match source.shared_graphs(samples.len()) {
            Some(graphs) => graphs,
            None => Arc::new(cache.join(&loaded)?),
        };
        let mut features = Vec::new();
        let mut target: Target = Target::Unknown;
        for sample in loaded {
            if sample.kind != kind {
                let problem = format!("its features have type {}, but those of other samples {kind}", sample.kind);
                return Err(TaskError::setting(&sample.name, problem));
            }
            if features.is_empty() {
                features = sample.features;
            } else {
                features.extend_from_slice(&sample.features);
            }
            match (&mut target, sample.target) {
                (Target::Classes(all), Target::Classes(labels)) => all.extend(labels),
                (Target::Values(all), Target::Values(values)) => all.extend(values),
                (first, next) => *first = next,
            }
        }
        let batch = TrainingBatch::new(graphs, kind, features, Arc::clone(objective), target)?;
        batch.send_ahead(device)?;
        Ok(Self { samples: samples.to_vec(), batch })
    }
}

/// Checks the number of features and targets of a sample, and the range of its labels.
fn check(sample: &Sample, objective: &Objective<f32>) -> Result<()> {
    let refuse = |problem: String| Err(TaskError::setting(&sample.name, problem));
    let vertices = sample.graph().vertex_count();
    let expected = vertices * sample.kind.dimension();
    if sample.features.len() != expected {
        let found = sample.features.len();
        return refuse(format!("{found} feature values, but {expected} are needed"));
    }
    let rows = sample.row_count();
    match (&sample.target, objective) {
        (Target::Classes(labels), Objective::Classes { count, .. }) => {
            if labels.len() != rows && labels.len() != 1 {
                return refuse(format!("{} labels for {rows} rows", labels.len()));
            }
            let outside = |&label: &u32| label != IGNORE && label as usize >= *count;
            match labels.iter().position(outside) {
                None => Ok(()),
                Some(row) => refuse(format!("label {} of row {row} is not one of the {count} classes", labels[row])),
            }
        }
        (Target::Values(values), Objective::Values { kind, .. }) => {
            let width = kind.dimension();
            match values.len() == rows * width || values.len() == width {
                true => Ok(()),
                false => refuse(format!("{} target values for {rows} rows of type {kind}", values.len())),
            }
        }
        (Target::Unknown, _) => refuse("it has no target".into()),
        _ => refuse("its target does not fit the task".into()),
    }
}

/// Number of threads that load samples: as many as there are cores, because samples are prepared during the first
/// epochs.
fn loading_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// An iterator over batches, which threads prepare ahead.
pub(crate) struct Prefetch {
    /// Thread `n % threads` prepares batch `n`.
    threads: Vec<Receiver<Result<PreparedBatch>>>,
    next: usize,
}

/// Source of batches.
#[derive(Clone, Copy)]
pub(crate) struct BatchSource<'env> {
    pub samples: &'env dyn SampleSource,
    pub objective: &'env Arc<Objective<f32>>,
    pub cache: &'env GeometryCache,
    pub device: &'env Device,
}

impl Prefetch {
    /// Prepares the steps `first..end`, counted over all epochs. The threads end when the iterator is
    /// dropped.
    pub fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        source: BatchSource<'env>,
        plan: BatchPlan,
        range: (u64, u64),
    ) -> Self {
        Self::with_threads(scope, source, plan, range, loading_threads())
    }

    fn with_threads<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        source: BatchSource<'env>,
        plan: BatchPlan,
        (first, end): (u64, u64),
        threads: usize,
    ) -> Self {
        let prepare = |thread: usize| {
            let (sender, receiver) = sync_channel(READY);
            let plan = plan.clone();
            scope.spawn(move || {
                let mut divided = (None, Vec::new());
                for number in (first..end).skip(thread).step_by(threads) {
                    let (epoch, step) = (number / plan.steps(), number % plan.steps());
                    if divided.0 != Some(epoch) {
                        divided = (Some(epoch), plan.divided(epoch));
                    }
                    let chosen = divided.1.get(step as usize).map_or(&[][..], Vec::as_slice);
                    let batch = PreparedBatch::load(source, chosen, plan.visit(epoch));
                    // No batch is needed after the end of training.
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            });
            receiver
        };
        Self { threads: (0..threads).map(prepare).collect(), next: 0 }
    }
}

impl Iterator for Prefetch {
    type Item = Result<PreparedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let thread = self.threads.get(self.next)?;
        self.next = (self.next + 1) % self.threads.len();
        thread.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{
        Augmentation, BodiesConfig, Cache, DataConfig, Dataset, Eigenvectors, Preparation, PreparedSplit, Rotations,
        Split, size_in_memory,
    };
    use crate::train::BatchSize;
    use crate::train::batch_plan::Division;
    use gemcnn_mesh::{GaugeGraph, GeometryOptions, Hierarchy, shapes};
    use gemcnn_nn::{Extra, Extras, SpectraBatch};
    use std::collections::HashSet;
    use std::sync::Weak;

    struct Spheres(Vec<Sample>);

    impl SampleSource for Spheres {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn name(&self, index: usize) -> String {
            self.0[index].name.clone()
        }

        fn load(&self, index: usize) -> Result<Sample> {
            Ok(self.0[index].clone())
        }
    }

    fn sample(subdivisions: u32, target: Target) -> Sample {
        let mesh = shapes::icosphere(subdivisions).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        Sample {
            name: format!("sphere {subdivisions}"),
            features: vec![subdivisions as f32; graph.vertex_count()],
            hierarchy: Arc::new(graph.into()),
            extras: Extras::default(),
            areas: Vec::new(),
            kind: FeatureType::scalars(1),
            target,
        }
    }

    fn load(samples: Vec<Sample>, which: &[usize]) -> Result<PreparedBatch> {
        let objective = Arc::new(Objective::classes(2));
        let cache = GeometryCache::new(&Device::Cpu);
        let source =
            BatchSource { samples: &Spheres(samples), objective: &objective, cache: &cache, device: &Device::Cpu };
        PreparedBatch::load(source, which, None)
    }

    #[test]
    fn augmented_batches_do_not_depend_on_the_number_of_threads() {
        let bodies = BodiesConfig { count: 5, vertices: 500, ..Default::default() };
        let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
        let augmentation =
            Augmentation { every_epoch: true, remesh: false, rotate: Rotations::All, bend: 0.05, ..Default::default() };
        let samples = dataset.split(Split::Train, &Preparation::default(), &Cache::none());
        let samples = samples.unwrap().augmented(&augmentation).unwrap();
        let plan = BatchPlan {
            samples: samples.len(),
            versions: 1,
            division: Division::new(&samples, BatchSize::Meshes(2)).unwrap(),
            shuffle: Some(7),
            drop_last: false,
        };
        let objective = Arc::new(Objective::classes(500));
        let batches = |threads: usize| -> Vec<String> {
            let cache = GeometryCache::off();
            let source = BatchSource { samples: &samples, objective: &objective, cache: &cache, device: &Device::Cpu };
            std::thread::scope(|scope| {
                let range = (0, 3 * plan.steps());
                Prefetch::with_threads(scope, source, plan.clone(), range, threads)
                    .map(|batch| format!("{:?}", batch.unwrap()))
                    .collect()
            })
        };
        let expected = batches(1);
        assert_eq!(expected.len() as u64, 3 * plan.steps());
        let distinct: HashSet<&String> = expected.iter().collect();
        assert_eq!(distinct.len(), expected.len(), "every visit is new");
        for threads in [2, 3, 8] {
            assert!(batches(threads) == expected, "{threads} threads");
        }
    }

    /// Counts the loaded samples that are in memory at once.
    struct Counted<'a> {
        samples: &'a PreparedSplit,
        loaded: Mutex<(Vec<Weak<Hierarchy>>, usize)>,
    }

    impl SampleSource for Counted<'_> {
        fn len(&self) -> usize {
            self.samples.len()
        }

        fn name(&self, index: usize) -> String {
            self.samples.name(index)
        }

        fn load(&self, index: usize) -> Result<Sample> {
            let sample = self.samples.load(index)?;
            let mut loaded = self.loaded.lock().unwrap();
            let (all, most) = &mut *loaded;
            let hierarchy = Arc::downgrade(&sample.hierarchy);
            all.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&hierarchy));
            all.push(hierarchy);
            *most = (*most).max(all.len());
            Ok(sample)
        }
    }

    #[test]
    fn data_larger_than_the_memory_stream_from_the_cache() {
        let bodies = BodiesConfig { count: 20, vertices: 500, ..Default::default() };
        let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::new(place.path());
        let objective = Arc::new(Objective::classes(500));
        let (kept, threads) = (3, 2);
        let run = |meshes: Option<usize>| -> (Vec<String>, usize) {
            let preparation = Preparation { extras: vec![Eigenvectors([8, 0, 0]).into()], ..Default::default() };
            let split = dataset.split(Split::Train, &preparation, &cache).unwrap();
            let samples = match meshes {
                Some(meshes) => {
                    let largest = (0..split.len()).map(|i| size_in_memory(&split.load(i).unwrap())).max().unwrap();
                    dataset.split(Split::Train, &preparation, &cache).unwrap().with_memory(meshes * largest)
                }
                None => split,
            };
            let counted = Counted { samples: &samples, loaded: Mutex::default() };
            let plan = BatchPlan {
                samples: samples.len(),
                versions: 1,
                division: Division::Meshes(1),
                shuffle: Some(7),
                drop_last: false,
            };
            let cache = GeometryCache::off();
            let source = BatchSource { samples: &counted, objective: &objective, cache: &cache, device: &Device::Cpu };
            let batches = std::thread::scope(|scope| {
                let batches = Prefetch::with_threads(scope, source, plan.clone(), (0, 3 * plan.steps()), threads);
                batches.map(|batch| format!("{:?}", batch.unwrap())).collect()
            });
            let (_, most) = counted.loaded.into_inner().unwrap();
            (batches, most)
        };
        let (expected, all) = run(None);
        let (streamed, most) = run(Some(kept));
        assert_eq!((expected.len(), all), (48, 16));
        assert!(streamed == expected);
        // Those that are kept, and one for each thread.
        assert!(most <= kept + threads, "{most}");
    }

    #[test]
    fn samples_of_unequal_size_are_joined_in_order() {
        let small = sample(0, Target::Classes(vec![1; 12]));
        let large = sample(1, Target::Classes(vec![IGNORE; 42]));
        let PreparedBatch { batch, .. } = load(vec![small, large], &[1, 0]).unwrap();
        let graph = batch.levels().graph().unwrap();
        assert_eq!(graph.vertices_of(1), 42..54);
        assert_eq!((batch.features()[41], batch.features()[42]), (1.0, 0.0));
        assert_eq!((batch.features().len(), batch.counted()), (54, 12));
    }

    #[test]
    fn samples_that_do_not_fit_are_named() {
        let labelled = sample(0, Target::Classes(vec![1; 12]));
        let short = sample(1, Target::Classes(vec![1; 12]));
        let outside = sample(1, Target::Classes(vec![2; 42]));
        let other = sample(1, Target::Values(vec![0.0; 42]));
        for bad in [short, outside, other] {
            match load(vec![labelled.clone(), bad], &[0, 1]).unwrap_err() {
                TaskError::Setting { what, .. } => assert_eq!(what, "sphere 1"),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn graphs_and_lasting_eigenvectors_are_kept_within_the_limit() {
        let spectra = |columns| {
            let (mass, bases) = (vec![1.0; 12], vec![0.0; 12 * 3 * columns]);
            SpectraBatch::from_parts(vec![columns], mass, bases, vec![0.0; columns]).unwrap()
        };
        let lasting = Arc::new(spectra(4));
        let mut met = sample(0, Target::Classes(vec![1; 12]));
        met.extras.insert(Arc::clone(&lasting));
        let of = |batch: &Geometry<f32>| batch.extras().shared::<SpectraBatch<f32>>().unwrap();
        let cache = GeometryCache::new(&Device::Cpu);
        let first = cache.of(&met).unwrap();
        let again = cache.of(&met).unwrap();
        assert!(std::ptr::eq(first.levels(), again.levels()));
        assert!(Arc::ptr_eq(&of(&first), &lasting));
        let bytes = cache.kept().bytes;
        let graphs = cache.graphs_of(&met).unwrap().size_in_bytes(&Device::Cpu);
        assert_eq!(bytes, lasting.size_in_bytes(&Device::Cpu) + graphs);
        // Eigenvectors of one visit count for nothing, and go with it.
        met.extras.insert(Arc::new(spectra(5)));
        let visit = cache.of(&met).unwrap();
        assert_eq!(cache.kept().bytes, bytes);
        let own = Arc::downgrade(&of(&visit));
        drop((visit, met.extras));
        assert_eq!(own.strong_count(), 0);
        // Beyond the limit, a batch has arrays of its own.
        met.extras = Extras::default();
        met.extras.insert(Arc::clone(&lasting));
        let detached = of(&GeometryCache::off().of(&met).unwrap());
        assert!(!Arc::ptr_eq(&detached, &lasting));
        assert_eq!(detached, lasting);
    }
}
