//! Data sets: meshes, their targets and their parts.

use super::classes::Classes;
use super::config::{BodiesConfig, DataConfig};
use super::content::Content;
use super::description::{DESCRIPTION_FILE, Description};
use super::mesh_classes::assign_classes;
use super::meshes::{Item, find_meshes};
use super::part::Part;
use super::split::Split;
use super::target::{TargetSource, Targets};
use super::template::TemplateDistances;
use super::{faust, infer};
use crate::{DataError, Task, TaskError};
use gemcnn_mesh::Mesh;
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_nn::FeatureType;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// With more classes, the user is told that the labels may be values.
const MANY_CLASSES: usize = 100;
/// Largest number of classes that is inferred from labels.
const MOST_FOUND_CLASSES: usize = 10_000;

/// Meshes with targets, divided into parts.
///
/// ```no_run
/// use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Part, Preparation};
/// let dataset = Dataset::open(&DataConfig::Folder("teeth".into()))?;
/// let train = dataset.part(Part::Train, &Preparation::default(), &Cache::of_user())?;
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
    pub split: Split,
    /// True if nothing says which meshes are for what, so that the parts are drawn.
    pub draws_parts: bool,
    pub targets: Targets,
    pub outputs: FeatureType,
    pub template: Option<Mesh>,
    /// Distances on the template, made at the first evaluation. Data sets with the same template share them.
    pub distances: Arc<OnceLock<TemplateDistances>>,
    pub notes: Vec<String>,
    /// Generates the meshes, if they are not files.
    pub bodies: Option<BodyFamily>,
}

impl Inner {
    pub fn content(&self, item: usize) -> Result<Content<'_>, TaskError> {
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
    pub fn open(config: &DataConfig) -> Result<Self, TaskError> {
        Self::open_as(config, None)
    }

    /// Opens a data set for a task. A data set for another task is refused. In a folder without a description, a
    /// target for the task is inferred.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_for(config: &DataConfig, task: Task) -> Result<Self, TaskError> {
        Self::open_as(config, Some(task))
    }

    fn open_as(config: &DataConfig, task: Option<Task>) -> Result<Self, TaskError> {
        let (inner, mut problems) = gather(config, task)?;
        match problems.len() {
            0 => Ok(Self {
                inner: Arc::new(inner),
            }),
            1 => Err(problems.remove(0)),
            _ => Err(DataError::Many {
                problems: problems.iter().map(TaskError::to_string).collect(),
            }
            .into()),
        }
    }

    /// Name: its folder, or its source.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The task.
    pub fn task(&self) -> Task {
        self.inner.targets.task
    }

    /// The classes; `None` for regression.
    pub fn classes(&self) -> Option<&Classes> {
        self.inner.targets.classes.as_ref()
    }

    /// Output type of a model for each vertex or mesh: one scalar for each class, or the type of the target
    /// values.
    pub fn outputs(&self) -> &FeatureType {
        &self.inner.outputs
    }

    /// Correspondence: the mesh whose vertices are the classes.
    pub fn template(&self) -> Option<&Mesh> {
        self.inner.template.as_ref()
    }

    /// Geodesic distances on the template; `None` if there is no template.
    ///
    /// # Errors
    /// A template on which distances cannot be computed.
    pub(crate) fn distances(&self) -> Result<Option<&TemplateDistances>, TaskError> {
        let Some(template) = &self.inner.template else {
            return Ok(None);
        };
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

    /// Number of meshes of a part.
    pub fn len(&self, part: Part) -> usize {
        self.inner.split.part(part).len()
    }

    /// True if a part has no meshes.
    pub fn is_empty(&self, part: Part) -> bool {
        self.len(part) == 0
    }

    /// A mesh of a part, without preparation.
    ///
    /// # Errors
    /// An index out of range, or a mesh that cannot be read.
    pub fn mesh(&self, part: Part, index: usize) -> Result<Mesh, TaskError> {
        let items = self.inner.split.part(part);
        let item = items.get(index).ok_or_else(|| {
            let problem = format!("mesh {index} is out of range: there are {}", items.len());
            TaskError::setting(part.to_string(), problem)
        })?;
        Ok(self.inner.content(*item)?.mesh()?.clone())
    }

    /// Name of a mesh of a part; empty if the index is out of range.
    pub fn mesh_name(&self, part: Part, index: usize) -> &str {
        let item = self.inner.split.part(part).get(index);
        item.map_or("", |&item| &self.inner.items[item].name)
    }
}

impl Dataset {
    /// The same data set with a share of its training part as validation part, and a note that says so. Meshes are
    /// drawn with the seed of the parts, in classification from each class. A data set with a validation part stays
    /// as it is, and so does one with a single training mesh.
    ///
    /// # Errors
    /// A share outside [0, 1).
    pub fn with_validation(mut self, share: f64) -> Result<Self, TaskError> {
        if !(0.0..1.0).contains(&share) {
            let problem = format!("{share} must be at least 0 and below 1");
            return Err(TaskError::setting("training.validation", problem));
        }
        if share == 0.0 || !self.is_empty(Part::Validation) {
            return Ok(self);
        }
        let Inner {
            split,
            items,
            notes,
            ..
        } = Arc::make_mut(&mut self.inner);
        let meshes = split.part(Part::Train).len();
        let moved = split.hold_out(share, |item| items[item].class);
        notes.push(match moved {
            0 => "there is one training mesh: no validation part is held out".into(),
            _ => format!("{moved} of {meshes} training meshes are held out as validation part"),
        });
        Ok(self)
    }

    /// The same data set with all meshes in the test part if nothing says which meshes are for what. Otherwise it stays
    /// as it is.
    pub fn all_for_testing(mut self) -> Self {
        if self.inner.draws_parts {
            let inner = Arc::make_mut(&mut self.inner);
            inner.split = Split::first(0, inner.items.len());
        }
        self
    }

    /// True if all meshes are in the test part.
    pub fn is_for_testing(&self) -> bool {
        self.len(Part::Test) == self.inner.items.len()
    }

    /// Test meshes of the same bodies in another meshing: the files `KIND/*.ply` of a folder, or of its folder `data`, each
    /// with a text file of the same name that has the template vertex of each vertex. This is the layout of the
    /// *discretization-robust correspondence benchmark*. Template and classes are those of this data set.
    ///
    /// # Errors
    /// A data set for another task, no such meshes, or a mesh without its text file.
    pub fn in_other_meshing(&self, folder: &Path, kind: &str) -> Result<Self, TaskError> {
        let Inner {
            targets, template, ..
        } = &*self.inner;
        require(folder, self.task(), Some(Task::Correspondence))?;
        let within = folder.join("data");
        let folder = match within.is_dir() {
            true => &within,
            false => folder,
        };
        let items = find_meshes(folder, &format!("{kind}/*.ply"))?;
        let source = TargetSource::files(folder, "{name}.txt");
        for item in &items {
            if let Some(path) = source.file(item).filter(|path| !path.is_file()) {
                let problem = format!("the target file {} does not exist", path.display());
                return Err(DataError::target(&item.name, problem).into());
            }
        }
        let split = Split::first(0, items.len());
        Ok(Self {
            inner: Arc::new(Inner {
                name: kind.into(),
                items,
                split,
                draws_parts: false,
                targets: Targets {
                    source,
                    ..targets.clone()
                },
                outputs: self.inner.outputs.clone(),
                template: template.clone(),
                distances: Arc::clone(&self.inner.distances),
                notes: Vec::new(),
                bodies: None,
            }),
        })
    }
}

/// Opens a data set and collects the problems of its lists.
pub(crate) fn gather(
    config: &DataConfig,
    task: Option<Task>,
) -> Result<(Inner, Vec<TaskError>), TaskError> {
    let mut problems = Vec::new();
    let inner = match config {
        DataConfig::Folder(folder) => {
            let described = folder.join(DESCRIPTION_FILE).exists();
            if !described && faust::is_faust(folder) {
                open_faust(folder, task, &mut problems)?
            } else {
                open_folder(folder, task, &mut problems)?
            }
        }
        DataConfig::Faust(folder) => open_faust(folder, task, &mut problems)?,
        DataConfig::Bodies(bodies) => open_bodies(bodies, task)?,
    };
    Ok((inner, problems))
}

fn require(folder: &Path, found: Task, wanted: Option<Task>) -> Result<(), TaskError> {
    match wanted {
        Some(wanted) if wanted != found => Err(DataError::OtherTask {
            folder: folder.into(),
            found,
            wanted,
        }
        .into()),
        _ => Ok(()),
    }
}

fn open_faust(
    folder: &Path,
    task: Option<Task>,
    problems: &mut Vec<TaskError>,
) -> Result<Inner, TaskError> {
    require(folder, Task::Correspondence, task)?;
    let (items, template) = faust::registrations(folder, problems)?;
    let note = format!(
        "FAUST: {} registrations, the first {} for training, the others for testing",
        faust::COUNT,
        faust::TRAIN
    );
    Ok(registered(
        folder.display().to_string(),
        items,
        Split::first(faust::TRAIN, faust::COUNT),
        template,
        vec![note],
    ))
}

fn open_bodies(config: &BodiesConfig, task: Option<Task>) -> Result<Inner, TaskError> {
    const NAME: &str = "synthetic bodies";
    require(NAME.as_ref(), Task::Correspondence, task)?;
    BodiesConfig::sound_count(config.count).map_err(|problem| {
        TaskError::setting(NAME, format!("count is {}, but {problem}", config.count))
    })?;
    let options = BodyOptions {
        vertices: config.vertices,
        seed: config.seed,
        ..Default::default()
    };
    let family =
        BodyFamily::new(&options).map_err(|error| TaskError::setting(NAME, error.to_string()))?;
    let names = (0..config.count).map(BodiesConfig::body_name);
    let train = config.training();
    let note = format!(
        "{} synthetic bodies, the first {train} for training, the others for testing",
        config.count
    );
    let mut inner = registered(
        NAME.into(),
        names.map(|name| Item::new(name, "")).collect(),
        Split::first(train, config.count),
        Some(family.template().clone()),
        vec![note],
    );
    inner.bodies = Some(family);
    Ok(inner)
}

/// A data set of registered meshes, in correspondence by vertex index.
fn registered(
    name: String,
    items: Vec<Item>,
    split: Split,
    template: Option<Mesh>,
    notes: Vec<String>,
) -> Inner {
    let classes = template.as_ref().map(Mesh::vertex_count);
    Inner {
        name,
        items,
        split,
        draws_parts: false,
        targets: Targets {
            source: TargetSource::VertexNumber,
            task: Task::Correspondence,
            classes: classes.map(Classes::numbered),
            class_names: Vec::new(),
            unknown: Vec::new(),
            vectors: false,
        },
        outputs: FeatureType::scalars(classes.unwrap_or_default()),
        template,
        distances: Arc::default(),
        notes,
        bodies: None,
    }
}

fn open_folder(
    folder: &Path,
    task: Option<Task>,
    problems: &mut Vec<TaskError>,
) -> Result<Inner, TaskError> {
    if !folder.is_dir() {
        // Returns the system error.
        std::fs::read_dir(folder).map_err(TaskError::file(folder))?;
    }
    let (description, mut notes) = match Description::read(folder)? {
        Some(description) => (description, Vec::new()),
        None => infer::infer(folder, task)?,
    };
    require(folder, description.task, task)?;
    let mut items = find_meshes(folder, &description.meshes)?;
    notes.extend(leave_out_template(folder, &description, &mut items));
    let mut given = description.given_classes();
    if description.task == Task::Classification {
        // Parts at random have a share of each class.
        given = Some(assign_classes(
            folder,
            &description,
            &mut items,
            given,
            problems,
        )?);
    }
    let split = Split::new(folder, &description.split, &items, problems);
    let draws_parts = description.split.is_silent();
    // A test part alone can be evaluated, if the classes of a correspondence are known.
    let needs_training = description.task == Task::Correspondence && description.template.is_none();
    if needs_training && split.part(Part::Train).is_empty() && problems.is_empty() {
        problems.push(TaskError::setting(
            folder.display().to_string(),
            "the training part has no meshes, and there is no template",
        ));
    }
    let names = description.classes.iter().cloned().enumerate();
    let mut targets = Targets {
        source: TargetSource::new(folder, &description),
        task: description.task,
        classes: given,
        class_names: names
            .map(|(class, name)| (name, description.label(class)))
            .collect(),
        unknown: description.unknown.clone(),
        vectors: description.target.vectors,
    };
    let parts = Part::ALL.iter().flat_map(|&part| split.part(part));
    let used: BTreeSet<usize> = parts.copied().collect();
    let unused = items.len() - used.len();
    let used = used.into_iter().map(|item| &items[item]);
    problems.extend(shared_targets(used, &targets.source));
    let mut template = None;
    let mut outputs = FeatureType::default();
    match description.task {
        Task::Classification => {}
        Task::Segmentation => {
            if targets.classes.is_none() {
                let found = found_labels(&items, &targets, problems);
                if found.len() > MOST_FOUND_CLASSES {
                    return Err(TaskError::setting(
                        folder.display().to_string(),
                        format!(
                            "{} distinct labels are too many for classes; if they are right, list `classes` in {DESCRIPTION_FILE}",
                            found.len()
                        ),
                    ));
                }
                let classes = Classes::labelled(found.into_iter().collect());
                if classes.count() > 0 {
                    notes.push(format!(
                        "{} classes, inferred from the labels: {}",
                        classes.count(),
                        classes.allowed()
                    ));
                    if classes.count() > MANY_CLASSES {
                        notes.push("if these are values and not labels, use regression".into());
                    }
                }
                targets.classes = Some(classes);
            }
        }
        Task::Correspondence => {
            let path = match &description.template {
                Some(path) => Some(folder.join(path)),
                None => {
                    let first = split.part(Part::Train).first();
                    first.map(|&first| items[first].path.clone())
                }
            };
            match path.map(Mesh::read) {
                Some(Ok(mesh)) => {
                    targets.classes = Some(Classes::numbered(mesh.vertex_count()));
                    template = Some(mesh);
                }
                Some(Err(error)) => problems.push(error.into()),
                None => {}
            }
        }
        Task::Regression => {
            let first = split.part(Part::Train).first().or(Some(&0));
            let first = first.and_then(|&first| items.get(first));
            match first.map(|item| columns(item, &targets)) {
                Some(Ok(columns)) => {
                    if columns > 1 && !targets.vectors {
                        notes.push(format!(
                            "{columns} values are learned for each vertex; set `target.column` or \
                             `target.property` in dataset.toml to select some"
                        ));
                    }
                    outputs = targets.value_type(columns);
                }
                Some(Err(error)) => problems.push(error),
                None => {}
            }
        }
    }
    if let Some(classes) = &targets.classes {
        outputs = FeatureType::scalars(classes.count());
        if classes.count() == 0 && template.is_none() && problems.is_empty() {
            problems.push(TaskError::setting(
                folder.display().to_string(),
                "no target is known: all are -1, empty, NaN or in `unknown`",
            ));
        }
    }
    match unused {
        0 => {}
        1 => notes.push("1 mesh is in no part".into()),
        _ => notes.push(format!("{unused} meshes are in no part")),
    }
    Ok(Inner {
        name: folder.display().to_string(),
        items,
        split,
        draws_parts,
        targets,
        outputs,
        template,
        distances: Arc::default(),
        notes,
        bodies: None,
    })
}

/// Removes the template from the meshes, unless a list of the parts names it, and returns a note.
fn leave_out_template(
    folder: &Path,
    description: &Description,
    items: &mut Vec<Item>,
) -> Option<String> {
    let template = folder.join(description.template.as_ref()?);
    let template = template.canonicalize().ok()?;
    let is_template = |item: &Item| (item.path.canonicalize()).is_ok_and(|path| path == template);
    let at = items.iter().position(is_template)?;
    if Split::names(folder, &description.split, items, at) {
        return None;
    }
    let name = items.remove(at).name;
    Some(format!("{name} is the template and in no part"))
}

/// Finds meshes that share their target file with another mesh.
fn shared_targets<'a>(
    items: impl Iterator<Item = &'a Item>,
    source: &TargetSource,
) -> Vec<TaskError> {
    let mut first_with: HashMap<PathBuf, &Item> = HashMap::new();
    let mut problems = Vec::new();
    for item in items {
        let Some(file) = source.file(item) else {
            continue;
        };
        if source.file_count(item) > 1 {
            let problem =
                "several files have the name of its target; give the extension in target.files";
            problems.push(DataError::target(&item.name, problem).into());
        }
        let other = *first_with.entry(file.clone()).or_insert(item);
        if other.name == item.name {
            continue;
        }
        let what_to_do = match other.without_extension() == item.without_extension() {
            true => "select one of the two with `meshes` in dataset.toml",
            false => "use {name} in target.files, which includes the folder of the mesh",
        };
        let (file, other) = (file.display(), &other.name);
        let problem = format!("its target {file} is also that of {other}; {what_to_do}");
        problems.push(DataError::target(&item.name, problem).into());
    }
    problems
}

/// Number of target values of each vertex.
fn columns(item: &Item, targets: &Targets) -> Result<usize, TaskError> {
    let content = Content::read(&item.path)?;
    let vertices = content.mesh()?.vertex_count();
    Ok(targets.values(item, &content, vertices)?.columns)
}

/// The distinct labels of all meshes.
fn found_labels(items: &[Item], targets: &Targets, problems: &mut Vec<TaskError>) -> BTreeSet<i64> {
    let labels_of = |item: &Item| -> Result<BTreeSet<i64>, TaskError> {
        let content = Content::read(&item.path)?;
        let vertices = content.mesh()?.vertex_count();
        let labels = targets.labels(item, &content, vertices)?;
        Ok(labels.into_iter().flatten().collect())
    };
    let found: Vec<_> = items.par_iter().map(labels_of).collect();
    let mut all = BTreeSet::new();
    for labels in found {
        match labels {
            Ok(labels) => all.extend(labels),
            Err(error) => problems.push(error),
        }
    }
    all
}
