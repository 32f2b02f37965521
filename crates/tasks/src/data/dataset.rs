//! Data sets: meshes, their targets and their splits.

use super::classes::Classes;
use super::config::DataConfig;
use super::content::Content;
use super::groups::{Groups, SplitConfig};
use super::meshes::{Item, find_meshes};
use super::open::{gather, require};
use super::problems::Problems;
use super::source::TargetSource;
use super::split::Split;
use super::splits::Splits;
use super::target::TargetReader;
use super::template::TemplateDistances;
use crate::features::{FieldName, Fields};
use crate::{DataError, Element, Result, Task, TaskError};
use gemcnn_mesh::Mesh;
use gemcnn_mesh::shapes::BodyFamily;
use gemcnn_nn::{FeatureType, Target};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Meshes with targets, divided into splits.
///
/// ```no_run
/// use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Split, Preparation};
/// let dataset = Dataset::open(&DataConfig::Folder("teeth".into()))?;
/// let train = dataset.split(Split::Train, &Preparation::default(), &Cache::of_user())?;
/// # Ok::<(), gemcnn_tasks::TaskError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataset {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub name: String,
    pub items: Vec<Item>,
    pub splits: Splits,
    /// True if nothing says which meshes are for what, so that the splits are drawn.
    pub draws_splits: bool,
    /// Groups of the meshes, if there are any.
    pub groups: Option<Groups>,
    /// True if a validation split that is held out consists of meshes instead of groups.
    pub validates_on_meshes: bool,
    pub task: Task,
    pub targets: TargetReader,
    pub template: Option<Mesh>,
    /// Distances on the template, made at the first evaluation. Data sets with the same template share them.
    pub distances: Arc<OnceLock<TemplateDistances>>,
    pub notes: Vec<String>,
    /// Meshes that were left out, with the reason.
    pub skipped: Vec<String>,
    /// Generates the meshes, if they are not files.
    pub bodies: Option<BodyFamily>,
}

impl Inner {
    fn leave_out(&mut self, item: usize, problem: String) {
        self.splits.remove(item);
        self.skipped.push(problem);
    }

    /// Type of each row of the targets.
    pub fn outputs(&self) -> FeatureType {
        match &self.targets.learned {
            Target::Classes(Some(classes)) => FeatureType::scalars(classes.count()),
            Target::Values(columns) => columns.kind.clone(),
            Target::Classes(None) | Target::Unknown => FeatureType::default(),
        }
    }

    pub fn content(&self, item: usize) -> Result<Content<'_>> {
        match &self.bodies {
            Some(family) => Ok(Content::body(family, item as u64)),
            None => Content::read(&self.items[item].path),
        }
    }
}

impl Dataset {
    /// Opens a data set: reads its description and lists, and meshes only where needed.
    ///
    /// # Errors
    /// All problems of its description and lists.
    pub fn open(config: &DataConfig) -> Result<Self> {
        Self::open_as(config, &SplitConfig::default(), None)
    }

    /// Opens a data set for a task. A data set for another task is refused. In a folder without a description, a
    /// target for the task is inferred.
    pub fn open_for(config: &DataConfig, task: Task) -> Result<Self> {
        Self::open_as(config, &SplitConfig::default(), Some(task))
    }

    /// As [`open`](Self::open), or [`open_for`](Self::open_for) a task. Unless it is `strict`, meshes that cannot be
    /// read, or whose targets cannot, are left out ([`skipped`](Self::skipped)).
    ///
    /// # Errors
    /// All other problems of its description and lists, or no mesh that can be read.
    pub fn open_with(config: &DataConfig, task: Option<Task>, strict: bool) -> Result<Self> {
        Self::open_split(config, &SplitConfig::default(), task, strict)
    }

    /// As [`open_with`](Self::open_with), divided in another way.
    ///
    /// # Errors
    /// Also groups of data other than a folder, or a fold without groups.
    pub fn open_split(config: &DataConfig, split: &SplitConfig, task: Option<Task>, strict: bool) -> Result<Self> {
        if strict { Self::open_as(config, split, task) } else { Self::open_usable(config, split, task) }
    }

    fn open_usable(config: &DataConfig, split: &SplitConfig, task: Option<Task>) -> Result<Self> {
        let (mut inner, mut problems) = gather(config, split, task)?;
        for (item, problem) in &problems.of_meshes {
            inner.leave_out(*item, problem.to_string());
        }
        if Split::ALL.iter().any(|&split| !inner.splits.of(split).is_empty()) {
            problems.of_meshes.clear();
        }
        Self::without_problems(inner, problems)
    }

    fn open_as(config: &DataConfig, split: &SplitConfig, task: Option<Task>) -> Result<Self> {
        let (inner, problems) = gather(config, split, task)?;
        Self::without_problems(inner, problems)
    }

    fn without_problems(inner: Inner, problems: Problems) -> Result<Self> {
        let mut problems = problems.all();
        match problems.len() {
            0 => Ok(Self { inner: Arc::new(inner) }),
            1 => Err(problems.remove(0)),
            _ => Err(DataError::Many { problems: problems.iter().map(TaskError::to_string).collect() }.into()),
        }
    }

    /// Name: its folder, or its source.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The task.
    pub fn task(&self) -> Task {
        self.inner.task
    }

    /// The classes; `None` for regression.
    pub fn classes(&self) -> Option<&Classes> {
        self.inner.targets.classes()
    }

    /// What the targets are for.
    pub fn per(&self) -> Element {
        self.inner.targets.per
    }

    /// Names of the columns of target values in regression, in their order; empty if they have none.
    pub fn value_names(&self) -> &[String] {
        self.inner.targets.learned.as_ref().values().map_or(&[], |columns| &columns.names)
    }

    /// Output type of a model for each row of the targets: one scalar for each class, or the type of the target
    /// values.
    pub fn outputs(&self) -> FeatureType {
        self.inner.outputs()
    }

    /// What is learned.
    pub(crate) fn learned(&self) -> Target<&Classes, FeatureType> {
        match self.classes() {
            Some(classes) => Target::Classes(classes),
            None => Target::Values(self.outputs()),
        }
    }

    /// Correspondence: the mesh whose vertices are the classes.
    pub fn template(&self) -> Option<&Mesh> {
        self.inner.template.as_ref()
    }

    /// Geodesic distances on the template; `None` if there is no template.
    ///
    /// # Errors
    /// A template on which distances cannot be computed.
    pub(crate) fn distances(&self) -> Result<Option<&TemplateDistances>> {
        let Some(template) = &self.inner.template else { return Ok(None) };
        if self.inner.distances.get().is_none() {
            let made = TemplateDistances::new(template)?;
            // Another thread may have been first.
            let _ = self.inner.distances.set(made);
        }
        Ok(self.inner.distances.get())
    }

    /// Notes about inferred settings, shown to the user.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// Names of the groups of meshes that stay together, in the order of folds; empty if there are none.
    pub fn groups(&self) -> &[String] {
        self.inner.groups.as_ref().map_or(&[], Groups::names)
    }

    /// Meshes that were left out because they cannot be used, one line each.
    pub fn skipped(&self) -> &[String] {
        &self.inner.skipped
    }

    /// Leaves out meshes that cannot be used, by their numbers.
    pub(crate) fn leave_out(&mut self, unusable: &BTreeMap<usize, String>) {
        let inner = Arc::make_mut(&mut self.inner);
        for (&item, problem) in unusable {
            inner.leave_out(item, problem.clone());
        }
    }

    /// Name of a mesh, by its number.
    pub(crate) fn item_name(&self, item: usize) -> String {
        self.inner.items[item].name.clone()
    }

    /// Numbers of the meshes with some names, and what belongs to each name.
    pub(crate) fn named(&self, names: &BTreeMap<String, String>) -> BTreeMap<usize, String> {
        let items = self.inner.items.iter().enumerate();
        items.filter_map(|(number, item)| Some((number, names.get(&item.name)?.clone()))).collect()
    }

    /// Names of the meshes of a split that are also training meshes of a data set: files of the same content, or, in
    /// another data set, of the same name.
    pub fn in_training(&self, split: Split, training: &Self) -> Vec<String> {
        let is_same = std::ptr::eq(self, training) || Arc::ptr_eq(&self.inner, &training.inner);
        let (own, other) = (&*self.inner, &*training.inner);
        if own.bodies.is_some() || other.bodies.is_some() || (is_same && split == Split::Train) {
            return Vec::new();
        }
        let size = |inner: &Inner, item: usize| Some(std::fs::metadata(&inner.items[item].path).ok()?.len());
        let sizes = |inner: &Inner, items: &[usize]| -> HashSet<u64> {
            items.iter().filter_map(|&item| size(inner, item)).collect()
        };
        let (tested, trained) = (own.splits.of(split), other.splits.of(Split::Train));
        // Only files of the same size can be the same.
        let (of_tested, of_trained) = (sizes(own, tested), sizes(other, trained));
        let hash = |inner: &Inner, item: usize, among: &HashSet<u64>| {
            let read = || Some(inner.content(item).ok()?.hash());
            size(inner, item).filter(|size| among.contains(size)).and_then(|_| read())
        };
        let known: HashSet<blake3::Hash> =
            trained.par_iter().filter_map(|&item| hash(other, item, &of_tested)).collect();
        let named = trained.iter().filter(|_| !is_same).map(|&item| other.items[item].without_extension());
        let named: HashSet<&str> = named.collect();
        let is_known = |&&item: &&usize| {
            named.contains(own.items[item].without_extension())
                || hash(own, item, &of_trained).is_some_and(|hash| known.contains(&hash))
        };
        tested.par_iter().filter(is_known).map(|&item| own.items[item].name.clone()).collect()
    }

    /// Number of meshes of a split.
    pub fn len(&self, split: Split) -> usize {
        self.inner.splits.of(split).len()
    }

    /// True if a split has no meshes.
    pub fn is_empty(&self, split: Split) -> bool {
        self.len(split) == 0
    }

    /// A mesh of a split, without preparation.
    ///
    /// # Errors
    /// An index out of range, or a mesh that cannot be read.
    pub fn mesh(&self, split: Split, index: usize) -> Result<Mesh> {
        let item = self.item(split, index)?;
        Ok(self.inner.content(item)?.mesh()?.clone())
    }

    /// Fields of a mesh of a split that features need.
    ///
    /// # Errors
    /// As [`mesh`](Self::mesh), or a field that is not there.
    pub fn fields(&self, split: Split, index: usize, names: &[FieldName]) -> Result<Fields> {
        let item = self.item(split, index)?;
        self.inner.content(item)?.fields(names)
    }

    /// The place of a mesh of a split among all meshes.
    fn item(&self, split: Split, index: usize) -> Result<usize> {
        let items = self.inner.splits.of(split);
        items.get(index).copied().ok_or_else(|| {
            let problem = format!("mesh {index} is out of range: there are {}", items.len());
            TaskError::setting(split.to_string(), problem)
        })
    }

    /// The classes of the rows of a mesh of a split, as its file gives it.
    ///
    /// # Errors
    /// As [`mesh`](Self::mesh), or a target that cannot be read or does not fit the mesh.
    pub(crate) fn labels(&self, split: Split, index: usize) -> Result<Vec<u32>> {
        let item = self.item(split, index)?;
        let content = self.inner.content(item)?;
        let (targets, item) = (&self.inner.targets, &self.inner.items[item]);
        let labels = targets.given(item, &content, content.mesh()?.vertex_count())?.classes();
        targets.classes_of(item, &labels.unwrap_or_default())
    }

    /// True if the targets of a correspondence are the numbers of the vertices.
    pub fn is_registered(&self) -> bool {
        self.inner.targets.source == TargetSource::VertexNumber
    }

    /// Name of a mesh of a split; empty if the index is out of range.
    pub fn mesh_name(&self, split: Split, index: usize) -> &str {
        let item = self.inner.splits.of(split).get(index);
        item.map_or("", |&item| &self.inner.items[item].name)
    }
}

impl Dataset {
    /// The same data set with a share of its training split as validation split, and a note that says so. Meshes are
    /// drawn with the seed of the splits: whole groups if the training split has at least three, otherwise meshes, in
    /// classification from each class. A data set with a validation split stays
    /// as it is, and so does one with a single training mesh.
    ///
    /// # Errors
    /// A share outside [0, 1).
    pub fn with_validation(mut self, share: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&share) {
            let problem = format!("{share} must be at least 0 and below 1");
            return Err(TaskError::setting("training.validation", problem));
        }
        if share == 0.0 || !self.is_empty(Split::Validation) {
            return Ok(self);
        }
        let Inner { splits, items, notes, groups, validates_on_meshes, .. } = Arc::make_mut(&mut self.inner);
        let meshes = splits.of(Split::Train).len();
        let groups = groups.as_ref().filter(|_| !*validates_on_meshes);
        if let Some(groups) = groups.filter(|groups| groups.are_enough(splits.of(Split::Train))) {
            splits.hold_out_groups(share, groups);
            let validation = splits.of(Split::Validation);
            let (moved, names) = (validation.len(), groups.names_of(validation));
            notes.push(format!("{moved} of {meshes} training meshes are held out as validation split: {names}"));
            return Ok(self);
        }
        let moved = splits.hold_out(share, |item| items[item].class());
        let why = match groups {
            Some(_) => ", at random, because there are too few groups to hold one out",
            None => "",
        };
        notes.push(match moved {
            0 => "there is one training mesh: no validation split is held out".into(),
            _ => format!("{moved} of {meshes} training meshes are held out as validation split{why}"),
        });
        Ok(self)
    }

    /// The same data set with all meshes in the test split if nothing says which meshes are for what. Otherwise it stays
    /// as it is.
    pub fn all_for_testing(mut self) -> Self {
        if self.inner.draws_splits {
            Arc::make_mut(&mut self.inner).splits.move_to_test();
        }
        self
    }

    /// True if no other split has meshes than the test split.
    pub fn is_for_testing(&self) -> bool {
        self.is_empty(Split::Train) && self.is_empty(Split::Validation)
    }

    /// Test meshes of the same bodies in another meshing: the files `KIND/*.ply` of a folder, or of its folder `data`,
    /// each with a text file of the same name that has the template vertex of each vertex. This is the layout of the
    /// *discretization-robust correspondence benchmark*. Template and classes are those of this data set.
    ///
    /// # Errors
    /// A data set for another task, no such meshes, or a mesh without its text file.
    pub fn in_other_meshing(&self, folder: &Path, kind: &str) -> Result<Self> {
        let Inner { targets, template, .. } = &*self.inner;
        require(folder, self.task(), Some(Task::Correspondence))?;
        let within = folder.join("data");
        let folder = if within.is_dir() { &within } else { folder };
        let items = find_meshes(folder, &format!("{kind}/*.ply"))?;
        let source = TargetSource::files(folder, "{name}.txt");
        for item in &items {
            if let Some(path) = source.file(item).filter(|path| !path.is_file()) {
                let problem = format!("the target file {} does not exist", path.display());
                return Err(DataError::target(&item.name, problem).into());
            }
        }
        let splits = Splits::first(0, items.len());
        Ok(Self {
            inner: Arc::new(Inner {
                name: kind.into(),
                items,
                splits,
                draws_splits: false,
                groups: None,
                validates_on_meshes: false,
                task: self.task(),
                targets: TargetReader { source, ..targets.clone() },
                template: template.clone(),
                distances: Arc::clone(&self.inner.distances),
                notes: Vec::new(),
                skipped: Vec::new(),
                bodies: None,
            }),
        })
    }
}
