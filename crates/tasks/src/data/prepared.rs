//! The samples of a split of a data set.

use super::augmentation::{Augmentation, COPIES, Change, copy, swapped};
use super::cache::{Cache, CacheKey};
use super::content::Content;
use super::dataset::{Dataset, Inner};
use super::entry::{self, ENTRY_VERSION, Entry};
use super::meshes::Item;
use super::preparation::{Preparation, areas};
use super::resampling::resampled;
use super::split::Split;
use super::target::Sources;
use crate::elements::origins;
use crate::features::Fields;
use crate::sample::root_of_area;
use crate::{Result, Sample, SampleSource, TaskError, Visit};
use gemcnn_mesh::remesh::{RemeshKind, carry_labels};
use gemcnn_mesh::{Faces, Mesh};
use gemcnn_nn::{Device, Elements, Target};
use glam::DMat3;
use rand::RngExt;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Default limit of the samples in memory, in bytes, where the size of the memory is not known.
const DEFAULT_MEMORY: usize = 4 << 30;
/// Share of the memory of the machine for samples.
const SHARE: usize = 3;
/// Largest number of meshes from which features are scaled, where these take long to prepare.
const TYPICAL: usize = 8;
/// Largest number of meshes of which there are changed copies.
const COPIED: usize = 10;

/// The samples of a split. Geometry and features come from the cache, or are computed and cached. Samples stay
/// in memory up to a limit.
#[derive(Debug)]
pub struct PreparedSplit {
    dataset: Arc<Inner>,
    items: Vec<usize>,
    preparation: Preparation,
    augmentation: Augmentation,
    /// The class that takes the place of each class in a mirrored version; empty if all stay.
    swaps: Vec<u32>,
    /// Remesher of all meshes and its seed, instead of augmentation.
    meshing: Option<(RemeshKind, u64)>,
    /// True for changed copies of each mesh, instead of augmentation.
    is_copied: bool,
    cache: Cache,
    kept: Vec<OnceLock<Sample>>,
    outlines: Vec<OnceLock<Outline>>,
    /// Shared by the splits of a run.
    memory_left: Arc<AtomicUsize>,
    /// Meshes that could not be prepared.
    failed: Mutex<BTreeMap<usize, String>>,
}

/// What is known of a sample without its preparation.
#[derive(Debug, Clone, Copy)]
struct Outline {
    vertices: usize,
    size: Option<f64>,
    checksum: [u8; 32],
}

impl Dataset {
    /// The samples of a split, prepared on demand, with the elements that the targets are for.
    ///
    /// # Errors
    /// None at present.
    pub fn split(&self, split: Split, preparation: &Preparation, cache: &Cache) -> Result<PreparedSplit> {
        Ok(PreparedSplit::new(
            Arc::clone(&self.inner),
            self.inner.splits.of(split).to_vec(),
            Preparation { per: self.per(), ..preparation.clone() },
            cache.clone(),
        ))
    }
}

/// What the scores of a segmentation need besides a sample.
pub(crate) struct Scoring {
    /// The faces of the mesh.
    pub faces: Faces,
    /// For edges with soft labels, the classes that each may have.
    pub soft: Option<Vec<Vec<u32>>>,
}

impl PreparedSplit {
    fn new(dataset: Arc<Inner>, items: Vec<usize>, preparation: Preparation, cache: Cache) -> Self {
        Self {
            kept: items.iter().map(|_| OnceLock::new()).collect(),
            outlines: items.iter().map(|_| OnceLock::new()).collect(),
            dataset,
            items,
            preparation,
            augmentation: Augmentation::default(),
            swaps: Vec::new(),
            meshing: None,
            is_copied: false,
            cache,
            memory_left: Arc::new(AtomicUsize::new(default_memory())),
            failed: Mutex::default(),
        }
    }

    /// The same split with several versions of each mesh: version `v` of mesh `i` is sample `i * versions + v`.
    ///
    /// # Errors
    /// Mirroring that does not fit the targets.
    pub fn augmented(mut self, augmentation: &Augmentation) -> Result<Self> {
        let Inner { task, targets, .. } = &*self.dataset;
        self.swaps = augmentation.swaps((*task, targets.per), targets.classes())?;
        self.augmentation = augmentation.clone();
        self.forget();
        Ok(self)
    }

    /// Changed copies of ten meshes of the split at most, evenly chosen: remeshed, with half the vertices, smoothed,
    /// roughened and bent. They are the same whenever they are made.
    pub fn copies(mut self) -> Self {
        let step = self.items.len().div_ceil(COPIED).max(1);
        self.items = self.items.into_iter().step_by(step).collect();
        self.is_copied = true;
        self.forget();
        self
    }

    /// Forgets all samples, because there are others.
    fn forget(&mut self) {
        let samples = 0..self.len();
        self.kept = samples.clone().map(|_| OnceLock::new()).collect();
        self.outlines = samples.map(|_| OnceLock::new()).collect();
    }

    /// The same split with every mesh remeshed, and targets carried along. The seed is combined with the name of the
    /// mesh. A mesh that the remesher refuses is an error.
    pub fn remeshed(mut self, kind: RemeshKind, seed: u64) -> Self {
        self.meshing = Some((kind, seed));
        self
    }

    /// The change of a version of a mesh; `None` if it stays as it is.
    fn change(&self, item: &Item, content: &Content<'_>, version: u64) -> Result<Option<Change>> {
        Ok(match &self.meshing {
            Some((kind, seed)) => {
                let hash = blake3::hash(item.name.as_bytes());
                let own = hash.as_bytes().first_chunk().copied().unwrap_or_default();
                let seed = seed.wrapping_add(u64::from_le_bytes(own));
                Some(Change::remeshing(kind.clone(), seed))
            }
            None if self.is_copied => Some(copy(&item.name, version as usize)),
            None if version == 0 => None,
            None => {
                let vertices = content.mesh()?.vertex_count();
                self.augmentation.change(&item.name, vertices, version)
            }
        })
    }

    /// The number of the mesh and the version of a sample.
    fn place(&self, index: usize) -> (usize, usize) {
        let versions = self.versions();
        (self.items[index / versions], index % versions)
    }

    /// Sets the limit of the samples in memory, in bytes (default: a third of the machine's memory). The others are
    /// read from the cache each time.
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.memory_left = Arc::new(AtomicUsize::new(bytes));
        self
    }

    /// Shares the limit of the samples in memory with another split.
    pub fn with_memory_of(mut self, other: &Self) -> Self {
        self.memory_left = Arc::clone(&other.memory_left);
        self
    }

    /// Reads every mesh and its target once, in parallel, to detect problems before training, and leaves out those that
    /// cannot be used. Nothing is prepared. `go_on` and the result are those of [`load_usable`](Self::load_usable).
    ///
    /// # Errors
    /// The first problem that is not of a single mesh.
    pub fn examine(&mut self, go_on: &(dyn Fn() -> bool + Sync)) -> Result<Vec<(usize, TaskError)>> {
        self.keep_usable(go_on, |split, index| {
            let (outline, _) = split.unprepared(split.place(index).0)?;
            if split.change_is_none(index) {
                // Another thread may have been first.
                let _ = split.outlines[index].set(outline);
            }
            Ok(())
        })
    }

    /// Loads every mesh once, in parallel, to fill the cache, and leaves out those that cannot be used. Their versions
    /// are prepared when they are loaded. `go_on` is called before each mesh, from any thread; the rest is skipped once it
    /// returns false. `loaded` is called after each mesh. Returns the numbers of unusable meshes in the data set and the
    /// problem of each.
    ///
    /// # Errors
    /// The first problem that is not of a single mesh.
    pub fn load_usable(
        &mut self,
        go_on: &(dyn Fn() -> bool + Sync),
        loaded: &(dyn Fn(&Sample) + Sync),
    ) -> Result<Vec<(usize, TaskError)>> {
        self.keep_usable(go_on, |split, index| split.load(index).map(|sample| loaded(&sample)))
    }

    fn keep_usable(
        &mut self,
        go_on: &(dyn Fn() -> bool + Sync),
        read: impl Fn(&Self, usize) -> Result<()> + Sync,
    ) -> Result<Vec<(usize, TaskError)>> {
        let results: Vec<Result<()>> = (0..self.len())
            .into_par_iter()
            .step_by(self.versions())
            .map(|index| if go_on() { read(self, index) } else { Ok(()) })
            .collect();
        let mut unusable: Vec<(usize, TaskError)> = Vec::new();
        for (&item, result) in self.items.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(error) if !error.is_of_mesh() => return Err(error),
                Err(error) => unusable.push((item, error)),
            }
        }
        self.leave_out(&unusable.iter().map(|(item, _)| *item).collect());
        Ok(unusable)
    }

    /// Leaves out meshes, by their numbers in the data set.
    pub(crate) fn leave_out(&mut self, unusable: &BTreeSet<usize>) {
        let good: Vec<bool> = (0..self.len()).map(|i| !unusable.contains(&self.place(i).0)).collect();
        let mut keep = good.iter();
        self.kept.retain(|_| *keep.next().unwrap_or(&true));
        let mut keep = good.iter();
        self.outlines.retain(|_| *keep.next().unwrap_or(&true));
        self.items.retain(|item| !unusable.contains(item));
    }

    /// Numbers in the data set of the meshes that turned out to be unusable when they were prepared, and the problem of
    /// each. They are told once.
    pub(crate) fn take_failed(&self) -> BTreeMap<usize, String> {
        std::mem::take(&mut self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Extent and target of a mesh as its file has it.
    fn unprepared(&self, item: usize) -> Result<(Outline, Target)> {
        let content = self.dataset.content(item)?;
        let Inner { items, targets, .. } = &*self.dataset;
        let item = &items[item];
        content.fields(&self.preparation.features.fields())?;
        let mesh = self.preparation.placed(&item.name, content.mesh()?)?;
        let graph = targets.has_vectors().then(|| self.preparation.graph(&mesh)).transpose();
        let graph = graph.map_err(|source| TaskError::Geometry { name: item.name.clone(), source })?;
        let frames = graph.as_ref().map_or(&[][..], |graph| graph.frames());
        let motion = self.preparation.rotation_of(&item.name).map(DMat3::from_quat);
        let target = targets.read(item, &content, (mesh.vertex_count(), frames), (motion, Sources::default()))?;
        let checksum = checksum(item, content.hash(), &target);
        let outline = Outline { vertices: mesh.vertex_count(), size: root_of_area(&areas(&mesh)), checksum };
        Ok((outline, target))
    }

    /// True if a sample is the mesh of a file.
    fn change_is_none(&self, index: usize) -> bool {
        self.meshing.is_none() && !self.is_copied && self.place(index).1 == 0
    }

    fn outline(&self, index: usize) -> Result<Outline> {
        let known = || self.outlines.get(index).and_then(OnceLock::get).copied();
        if let Some(outline) = known() {
            return Ok(outline);
        }
        if index < self.len() && self.change_is_none(index) {
            let (outline, _) = self.unprepared(self.place(index).0)?;
            return Ok(*self.outlines[index].get_or_init(|| outline));
        }
        let sample = self.load(index)?;
        known().ok_or_else(|| TaskError::setting(sample.name, "it was not read"))
    }

    /// Prepares the versions of all meshes, in parallel, to fill the cache. `loaded` is called after each.
    ///
    /// # Errors
    /// The first version that cannot be loaded.
    pub fn prepare_versions(&self, loaded: &(dyn Fn(&Sample) + Sync)) -> Result<()> {
        let versions = (0..self.len()).into_par_iter().filter(|index| index % self.versions() != 0);
        versions.try_for_each(|index| self.load(index).map(|sample| loaded(&sample)))
    }

    fn read(&self, index: usize) -> Result<Sample> {
        let (item, version) = self.place(index);
        let made = match self.make(item, version as u64, &self.cache) {
            // It is known only now that this version cannot be prepared.
            Err(error) if version > 0 && error.is_of_mesh() => self.make(item, 0, &self.cache),
            made => made,
        };
        if let Err(error) = &made
            && error.is_of_mesh()
        {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(item, error.to_string());
        }
        let (mut sample, content) = made?;
        sample.name = self.name(index);
        let item = &self.dataset.items[item];
        self.outlines[index].get_or_init(|| Outline {
            vertices: sample.graph().vertex_count(),
            size: sample.size(),
            checksum: checksum(item, content, &sample.target),
        });
        Ok(sample)
    }

    /// Labels of the vertices of a mesh, carried to those of a sample of it. Without labels there are none.
    pub(crate) fn carried(&self, index: usize, labels: Vec<u32>) -> Result<Vec<u32>> {
        let (item, version) = self.place(index);
        let content = self.dataset.content(item)?;
        let item = &self.dataset.items[item];
        let change = self.change(item, &content, version as u64)?.filter(|_| !labels.is_empty());
        let remeshed = change.map_or(Ok(None), |change| change.remeshed(&item.name, content.mesh()?))?;
        Ok(remeshed.map_or(labels.clone(), |remeshed| carry_labels(&remeshed.sources, &labels)))
    }

    /// A sample with what the scores of a segmentation need besides.
    pub(crate) fn load_scored(&self, index: usize) -> Result<(Sample, Scoring)> {
        let (item, version) = self.place(index);
        let content = self.dataset.content(item)?;
        let item = &self.dataset.items[item];
        let change = self.change(item, &content, version as u64)?;
        let mesh = content.mesh()?;
        let remeshed = match &change {
            Some(change) => change.remeshed(&item.name, mesh)?,
            None => None,
        };
        let soft = match remeshed {
            Some(_) => None,
            None => {
                let rows = self.preparation.per.count(mesh);
                self.dataset.targets.soft_classes(item, rows)?
            }
        };
        let mesh = remeshed.as_ref().map_or(mesh, |remeshed| &remeshed.mesh);
        let scoring = Scoring { faces: mesh.faces().clone(), soft };
        let mut sample = self.make_from(item, &content, change, &self.cache)?;
        sample.name = self.name(index);
        Ok((sample, scoring))
    }

    /// Makes a version of a mesh, and returns the checksum of the content of the mesh.
    fn make(&self, item: usize, version: u64, cache: &Cache) -> Result<(Sample, blake3::Hash)> {
        let content = self.dataset.content(item)?;
        let item = &self.dataset.items[item];
        let change = self.change(item, &content, version)?;
        let sample = self.make_from(item, &content, change, cache)?;
        Ok((sample, content.hash()))
    }

    /// A mesh after a change, as a sample.
    fn make_from(&self, item: &Item, content: &Content<'_>, change: Option<Change>, cache: &Cache) -> Result<Sample> {
        let fields = content.fields(&self.preparation.features.fields())?;
        let key = self.key(&item.name, content.hash(), &fields, change.as_ref());
        let stored = cache.get(key).and_then(|bytes| entry::decode(&item.name, &bytes, &self.preparation));
        let entry = match stored {
            Some(entry) if self.lies_on(&entry, content)? => entry,
            _ => {
                let entry = self.prepare(item, content.mesh()?, &fields, change.as_ref())?;
                if cache.folder().is_some()
                    && let Some(bytes) = entry::encode(&entry, &self.preparation)
                {
                    cache.put(key, &bytes);
                }
                entry
            }
        };
        self.with_target(item, content, change, entry)
    }

    /// The sample of an entry of a mesh after a change, with its target.
    fn with_target(&self, item: &Item, content: &Content<'_>, change: Option<Change>, entry: Entry) -> Result<Sample> {
        let Entry { mut sample, sources, .. } = entry;
        let elements = sample.extras.get().map_or(&[][..], |elements: &Elements<f32>| &elements.origins);
        let sources = Sources { vertices: &sources, elements };
        let rotation = || self.preparation.rotation_of(&item.name);
        let motion = change.as_ref().and_then(|change| change.motion);
        let motion = motion.or_else(|| rotation().map(DMat3::from_quat));
        let frames = sample.graph().frames();
        let target = self.dataset.targets.read(item, content, (frames.len(), frames), (motion, sources))?;
        sample.target = match change.is_some_and(|change| change.is_mirrored()) {
            true => swapped(target, &self.swaps),
            false => target,
        };
        Ok(sample)
    }

    /// Prepares a sample without the cache, and returns it with the size of its entry in bytes.
    pub(crate) fn measure(&self, index: usize) -> Result<(Sample, usize)> {
        let (item, version) = self.place(index);
        let content = self.dataset.content(item)?;
        let item = &self.dataset.items[item];
        let change = self.change(item, &content, version as u64)?;
        let fields = content.fields(&self.preparation.features.fields())?;
        let entry = self.prepare(item, content.mesh()?, &fields, change.as_ref())?;
        let bytes = entry::encode(&entry, &self.preparation).map_or(0, |bytes| bytes.len());
        Ok((self.with_target(item, &content, change, entry)?, bytes))
    }

    /// Changes and prepares a mesh.
    fn prepare(&self, item: &Item, mesh: &Mesh, fields: &Fields, change: Option<&Change>) -> Result<Entry> {
        let name = &item.name;
        let Some(change) = change else {
            let (sample, mesh) = self.preparation.prepare_mesh(name, mesh, fields)?;
            return Ok(Entry { sample, mesh, sources: Vec::new() });
        };
        let remeshed = change.remeshed(name, mesh)?;
        let (changed, fields) = match &remeshed {
            Some(remeshed) => (&remeshed.mesh, fields.carried(&remeshed.sources)),
            None => (mesh, fields.clone()),
        };
        let (moved, fields) = change.moved(name, changed, fields)?;
        let (mut sample, moved) = self.preparation.prepare_mesh(name, &moved, &fields)?;
        if let (Some(remeshed), Some(elements)) = (&remeshed, sample.extras.get::<Elements<f32>>()) {
            let origins = origins(self.preparation.per, mesh, &remeshed.mesh)
                .map_err(|error| TaskError::setting(name, error.to_string()))?;
            sample.extras.insert(Arc::new(elements.with_origins(origins)));
        }
        Ok(Entry { sample, mesh: moved, sources: remeshed.map_or(Vec::new(), |remeshed| remeshed.sources) })
    }

    /// True if the places of a remeshed mesh are on the mesh of a file.
    fn lies_on(&self, entry: &Entry, content: &Content<'_>) -> Result<bool> {
        if entry.sources.is_empty() {
            return Ok(true);
        }
        let mesh = content.mesh()?;
        let (vertices, elements) = (mesh.vertex_count(), self.preparation.per.count(mesh));
        let corners = entry.sources.iter().flat_map(|source| &source.corners);
        let origins = entry.sample.extras.get().map_or(&[][..], |elements: &Elements<f32>| &elements.origins);
        Ok(corners.clone().all(|&v| (v as usize) < vertices) && origins.iter().all(|&e| (e as usize) < elements))
    }

    /// Cache key of a mesh: program version, content, fields, settings, change, and the name if it determines the
    /// rotation.
    fn key(&self, name: &str, content: blake3::Hash, fields: &Fields, change: Option<&Change>) -> CacheKey {
        let mut hasher = blake3::Hasher::new();
        fields.hash(&mut hasher);
        // Debug output has all digits.
        let change = format!("{change:?}");
        let name = match self.preparation.rotation {
            Some(_) => name,
            None => "",
        };
        CacheKey::new(&[
            env!("CARGO_PKG_VERSION").as_bytes(),
            &ENTRY_VERSION.to_le_bytes(),
            content.as_bytes(),
            hasher.finalize().as_bytes(),
            &self.preparation.key(),
            change.as_bytes(),
            name.as_bytes(),
        ])
    }

    /// Keeps a copy in memory, which shares the geometry, if there is space.
    fn keep(&self, index: usize, sample: &Sample) {
        let size = size_in_memory(sample);
        let room = self.memory_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size));
        if room.is_ok() && self.kept[index].set(sample.clone()).is_err() {
            // Another thread has stored it.
            self.memory_left.fetch_add(size, Ordering::Relaxed);
        }
    }
}

impl SampleSource for PreparedSplit {
    fn len(&self) -> usize {
        self.items.len() * self.versions()
    }

    fn versions(&self) -> usize {
        match self.is_copied {
            true => COPIES,
            false => self.augmentation.prepared_versions(),
        }
    }

    fn name(&self, index: usize) -> String {
        if index >= self.len() {
            return String::new();
        }
        let (item, version) = self.place(index);
        let name = &self.dataset.items[item].name;
        match version {
            0 => name.clone(),
            version => format!("{name}, version {version}"),
        }
    }

    fn load(&self, index: usize) -> Result<Sample> {
        let kept = self.kept.get(index).ok_or_else(|| {
            TaskError::setting("sample", format!("sample {index} is out of range: there are {}", self.len()))
        })?;
        if let Some(sample) = kept.get() {
            return Ok(sample.clone());
        }
        let sample = self.read(index)?;
        self.keep(index, &sample);
        Ok(sample)
    }

    fn visit(&self, index: usize, visit: Visit) -> Result<Sample> {
        let mut random = visit.random(index);
        let sample = match self.augmentation.every_epoch && index < self.len() {
            true => {
                let (item, _) = self.place(index);
                let version = random.random_range(1..=u64::MAX);
                self.make(item, version, &Cache::none())?.0
            }
            false => self.load(index)?,
        };
        match self.augmentation.resample {
            0.0 => Ok(sample),
            share => resampled(sample, &self.dataset.outputs(), share, &mut random),
        }
    }

    fn dropped(&self, index: usize, visit: Visit) -> Vec<usize> {
        let mut random = visit.random(index);
        // The first stream changes the sample.
        random.set_stream(1);
        self.preparation.features.dropped(&mut random)
    }

    fn target(&self, index: usize) -> Result<Target> {
        match index < self.len() && self.change_is_none(index) {
            true => Ok(self.unprepared(self.place(index).0)?.1),
            false => Ok(self.load(index)?.target),
        }
    }

    fn extent(&self, index: usize) -> Result<(usize, Option<f64>)> {
        let Outline { vertices, size, .. } = self.outline(index)?;
        Ok((vertices, size))
    }

    /// Where eigenvectors take long, a few meshes, drawn with the seed.
    fn typical(&self, seed: u64) -> Vec<usize> {
        let mut meshes: Vec<usize> = (0..self.items.len()).collect();
        if self.preparation.eigenpairs() != [0; 3] && meshes.len() > TYPICAL {
            meshes.sort_by_cached_key(|mesh| Visit { seed, epoch: 0 }.random(*mesh).random::<u64>());
            meshes.truncate(TYPICAL);
            meshes.sort_unstable();
        }
        meshes.into_iter().map(|mesh| mesh * self.versions()).collect()
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32]> {
        Ok(self.outline(index)?.checksum)
    }
}

/// A share of the memory of the machine, from the table that Linux keeps.
pub(crate) fn default_memory() -> usize {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = table.lines().find_map(|line| {
        let (_, number) = line.split_once("MemTotal:")?;
        let kilobytes: usize = number.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    });
    total.map_or(DEFAULT_MEMORY, |bytes| bytes / SHARE)
}

/// Checksum of name, file content and target.
fn checksum(item: &Item, content: blake3::Hash, target: &Target) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(content.as_bytes());
    match target {
        Target::Unknown => {}
        Target::Classes(labels) => labels.iter().for_each(|label| {
            hasher.update(&label.to_le_bytes());
        }),
        Target::Values(values) => values.iter().for_each(|value| {
            hasher.update(&value.to_le_bytes());
        }),
    }
    *hasher.update(item.name.as_bytes()).finalize().as_bytes()
}

/// Approximate size of a sample in bytes.
pub(crate) fn size_in_memory(sample: &Sample) -> usize {
    let graph = |graph: &gemcnn_mesh::GaugeGraph| {
        graph.vertex_count() * (size_of::<gemcnn_mesh::Frame>() + 4)
            + graph.edge_count() * (3 * size_of::<f64>() + 2 * size_of::<u32>())
            + size_of_val(graph.coefficients().1)
    };
    // Clusters store three numbers for each vertex.
    let levels = sample.hierarchy.levels().iter().map(|level| graph(&level.graph) + level.vertices.len() * 20);
    let target = match &sample.target {
        Target::Unknown => 0,
        Target::Classes(classes) => 4 * classes.len(),
        Target::Values(values) => 4 * values.len(),
    };
    let numbers = sample.features.len() + sample.areas.len();
    levels.sum::<usize>() + sample.extras.size_in_bytes(&Device::Cpu) + 4 * numbers + target
}
