//! Opening data sets: folders, FAUST and synthetic bodies.

use super::classes::{Classes, listed};
use super::config::{BodiesConfig, DataConfig};
use super::content::Content;
use super::dataset::Inner;
use super::description::{DESCRIPTION_FILE, Description};
use super::groups::{GroupSource, Groups, SplitConfig, ValidationUnit};
use super::infer_split::split_in_words;
use super::mesh_classes::{assign_classes, assign_values};
use super::meshes::{Item, find_meshes};
use super::problems::Problems;
use super::source::TargetSource;
use super::split::Split;
use super::splits::Splits;
use super::target::{Learned, TargetReader, ValueColumns};
use super::{faust, infer};
use crate::{DataError, Element, Result, Task, TaskError};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions, BodyPart};
use gemcnn_mesh::{Mesh, PointIndex};
use gemcnn_nn::Target;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// With more classes, the user is told that the labels may be values.
const MANY_CLASSES: usize = 100;
/// Largest number of classes that is inferred from labels.
const MAX_INFERRED_CLASSES: usize = 10_000;

/// Opens a data set and collects the problems of its lists, and of meshes that had to be read.
pub(crate) fn gather(config: &DataConfig, split: &SplitConfig, task: Option<Task>) -> Result<(Inner, Problems)> {
    let mut problems = Problems::default();
    let inner = match config {
        DataConfig::Folder(folder) => {
            let described = folder.join(DESCRIPTION_FILE).exists();
            if !described && faust::is_faust(folder) {
                open_faust(folder, task, &mut problems)?
            } else {
                open_folder(folder, split, task, &mut problems)?
            }
        }
        DataConfig::Faust(folder) => open_faust(folder, task, &mut problems)?,
        DataConfig::Bodies(bodies) => open_bodies(bodies, task)?,
    };
    if split.fold.is_some() && inner.groups.is_none() && problems.is_empty() {
        let problem = "there are no groups of meshes to test on in turn; name them with `groups`";
        problems.push(TaskError::setting("split.fold", problem));
    }
    Ok((inner, problems))
}

pub(super) fn require(folder: &Path, found: Task, wanted: Option<Task>) -> Result<()> {
    match wanted {
        Some(wanted) if wanted != found => Err(DataError::OtherTask { folder: folder.into(), found, wanted }.into()),
        _ => Ok(()),
    }
}

fn open_faust(folder: &Path, task: Option<Task>, problems: &mut Problems) -> Result<Inner> {
    require(folder, Task::Correspondence, task)?;
    let mut found = Vec::new();
    let (items, template) = faust::registrations(folder, &mut found)?;
    for problem in found {
        let is_named = |item: &Item| matches!(&problem, TaskError::Mesh(error) if error.path == item.path);
        match items.iter().position(is_named) {
            Some(item) => problems.of(item, problem),
            None => problems.push(problem),
        }
    }
    let note = format!(
        "FAUST: {} registrations, the first {} for training, the others for testing",
        faust::COUNT,
        faust::TRAIN
    );
    Ok(registered(folder.display().to_string(), items, Splits::first(faust::TRAIN, faust::COUNT), template, vec![note]))
}

fn open_bodies(config: &BodiesConfig, task: Option<Task>) -> Result<Inner> {
    const NAME: &str = "synthetic bodies";
    let refuse = |problem: String| TaskError::setting(NAME, problem);
    BodiesConfig::sound_count(config.count)
        .map_err(|problem| refuse(format!("count is {}, but {problem}", config.count)))?;
    let &BodiesConfig { vertices, seed, variety, .. } = config;
    let options = BodyOptions { vertices, seed, variety, ..Default::default() };
    let of_vertices =
        |vertices| BodyFamily::new(&BodyOptions { vertices, ..options }).map_err(|error| refuse(error.to_string()));
    let family = of_vertices(vertices)?;
    let names = (0..config.count).map(|number| Item::new(BodiesConfig::body_name(number), "")).collect();
    let train = config.training();
    let splits = Splits::first(train, config.count);
    let note = format!("{} synthetic bodies, the first {train} for training, the others for testing", config.count);
    let mut inner = registered(NAME.into(), names, splits, Some(family.template().clone()), vec![note]);
    match (task, config.classes) {
        (Some(Task::Segmentation), _) => {
            let parts = family.segments().iter().map(|part| part.label().into());
            let classes = Classes::named(BodyPart::ALL.iter().map(|part| part.name().into()).collect(), Vec::new());
            inner.targets =
                TargetReader::new(TargetSource::Registered(parts.collect()), Target::Classes(Some(classes)));
            (inner.task, inner.template) = (Task::Segmentation, None);
        }
        (_, Some(vertices)) => {
            // Both are the same body at rest.
            let coarse = of_vertices(vertices)?.template().clone();
            let index = PointIndex::new(coarse.vertices());
            let nearest = |&point| index.nearest(point).map_or(0, |found| found.point);
            let labels = family.template().vertices().iter().map(nearest);
            let classes = Classes::numbered(coarse.vertex_count());
            inner.targets =
                TargetReader::new(TargetSource::Registered(labels.collect()), Target::Classes(Some(classes)));
            inner.template = Some(coarse);
        }
        (_, None) => {}
    }
    require(NAME.as_ref(), inner.task, task)?;
    inner.bodies = Some(family);
    Ok(inner)
}

/// A data set of registered meshes, in correspondence by vertex index.
fn registered(name: String, items: Vec<Item>, splits: Splits, template: Option<Mesh>, notes: Vec<String>) -> Inner {
    let classes = template.as_ref().map(|mesh| Classes::numbered(mesh.vertex_count()));
    Inner {
        name,
        items,
        splits,
        draws_splits: false,
        groups: None,
        validates_on_meshes: false,
        task: Task::Correspondence,
        targets: TargetReader::new(TargetSource::VertexNumber, Target::Classes(classes)),
        template,
        distances: Arc::default(),
        notes,
        skipped: Vec::new(),
        bodies: None,
    }
}

fn open_folder(folder: &Path, split: &SplitConfig, task: Option<Task>, problems: &mut Problems) -> Result<Inner> {
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
    // Before the split, because splits at random have a share of each class.
    let learned = assign_targets(folder, &description, &mut items, problems)?;
    let source = match &split.groups {
        None | Some(GroupSource::Inferred(true)) => {
            description.split.groups.as_ref().unwrap_or(&GroupSource::Inferred(true))
        }
        Some(source) => source,
    };
    source.check().map_err(|problem| TaskError::setting("split.groups", problem))?;
    let groups = Groups::new(folder, source, &items, &mut problems.of_lists);
    let splits = match (split.fold, &groups) {
        (Some(number), Some(groups)) => {
            let fold = groups.fold(number).map_err(|problem| TaskError::setting("split.fold", problem))?;
            Splits::fold(fold, description.split.seed)
        }
        _ => Splits::new(folder, &description.split, (&items, groups.as_ref()), &mut problems.of_lists),
    };
    if let Some(groups) = &groups
        && (split.fold.is_some() || description.split.is_random())
    {
        // Without groups, the note on the splits is that of the folder.
        notes.retain(|note| *note != split_in_words(&description.split));
        notes.push(groups.in_words());
        let names = Split::ALL.map(|split| format!("{split}: {}", groups.names_of(splits.of(split))));
        notes.push(names.into_iter().filter(|words| !words.ends_with(": ")).collect::<Vec<_>>().join("; "));
    }
    // A test split alone can be evaluated, if the classes of a correspondence are known.
    let needs_training = description.task == Task::Correspondence && description.template.is_none();
    if needs_training && splits.of(Split::Train).is_empty() && problems.is_empty() {
        problems.push(TaskError::at(folder, "the training split has no meshes, and there is no template"));
    }
    let names = description.classes.iter().cloned().enumerate();
    let mut targets = TargetReader {
        class_names: names.map(|(class, name)| (name, description.label(class))).collect(),
        unknown: description.unknown.clone(),
        ..TargetReader::new(TargetSource::new(folder, &description), learned)
    };
    if description.task == Task::Segmentation && matches!(targets.learned, Target::Classes(None)) {
        targets.name_classes(&items.iter().collect::<Vec<_>>());
    }
    match element(&description, &targets, &items) {
        Ok(per) => targets.per = per,
        Err(error) => problems.push(error),
    }
    if !matches!(targets.per, Element::Vertex | Element::Mesh) {
        notes.push(format!("the targets are those of {}", targets.per.words()[1]));
    }
    let used = Split::ALL.iter().flat_map(|&split| splits.of(split));
    let used: BTreeSet<usize> = used.copied().collect();
    let unused = items.len() - used.len();
    let used = used.into_iter().map(|item| &items[item]);
    problems.of_lists.extend(shared_targets(used, &targets.source));
    let mut inner = Inner {
        name: folder.display().to_string(),
        items,
        splits,
        draws_splits: description.split.is_silent() && split.fold.is_none(),
        groups,
        validates_on_meshes: split.validation == ValidationUnit::Meshes,
        task: description.task,
        targets,
        template: None,
        distances: Arc::default(),
        notes,
        skipped: Vec::new(),
        bodies: None,
    };
    match (description.task, &inner.targets.learned) {
        (Task::Correspondence, _) => find_template(&mut inner, folder, &description, problems),
        (_, Target::Classes(None)) => find_classes(&mut inner, problems)?,
        (_, Target::Values(_)) => find_columns(&mut inner, problems),
        _ => {}
    }
    let has_no_class = inner.targets.classes().is_some_and(|classes| classes.count() == 0);
    if has_no_class && inner.template.is_none() && problems.is_empty() {
        let problem = "no target is known: all are -1, empty, NaN or in `unknown`";
        problems.push(TaskError::setting(&inner.name, problem));
    }
    match unused {
        0 => {}
        1 => inner.notes.push("1 mesh is in no split".into()),
        _ => inner.notes.push(format!("{unused} meshes are in no split")),
    }
    Ok(inner)
}

/// What a description says about what is learned. Assigns the classes or values of whole meshes.
fn assign_targets(
    folder: &Path,
    description: &Description,
    items: &mut [Item],
    problems: &mut Problems,
) -> Result<Learned> {
    let given = description.given_classes();
    Ok(match (description.task, &description.target.table) {
        (Task::Classification, _) => {
            Target::Classes(Some(assign_classes(folder, description, items, given, problems)?))
        }
        (Task::Segmentation | Task::Correspondence, _) => Target::Classes(given),
        (Task::Regression, table) => {
            if let Some(table) = table {
                assign_values(&folder.join(table), description, items, problems)?;
            }
            Target::Values(ValueColumns { vectors: description.target.vectors, ..Default::default() })
        }
    })
}

/// Finds the template, whose vertices are the classes: the given one, or the first mesh of the training split.
fn find_template(inner: &mut Inner, folder: &Path, description: &Description, problems: &mut Problems) {
    inner.template = match &description.template {
        Some(path) => Mesh::read(folder.join(path)).map_err(|error| problems.push(error.into())).ok(),
        None => {
            let training = inner.splits.of(Split::Train).iter().copied();
            first_usable(training, problems, |item| Ok(Mesh::read(&inner.items[item].path)?))
        }
    };
    if let Some(mesh) = &inner.template {
        inner.targets.learned = Target::Classes(Some(Classes::numbered(mesh.vertex_count())));
    }
}

/// Infers the classes from the labels of all meshes.
fn find_classes(inner: &mut Inner, problems: &mut Problems) -> Result<()> {
    let found = found_labels(&inner.items, &inner.targets, problems);
    if found.len() > MAX_INFERRED_CLASSES {
        let problem = format!(
            "{} distinct labels are too many for classes; if they are right, list `classes` in {DESCRIPTION_FILE}",
            found.len()
        );
        return Err(TaskError::setting(&inner.name, problem));
    }
    let named = &inner.targets.class_names;
    let classes = match named.is_empty() {
        true => Classes::labelled(found.into_iter().collect()),
        false => {
            let labels = named.iter().map(|(_, label)| *label).collect();
            Classes::named(named.iter().map(|(name, _)| name.clone()).collect(), labels)
        }
    };
    if classes.count() > 0 {
        let names: Vec<String> = (0..classes.count()).map(|class| classes.name(class)).collect();
        inner.notes.push(format!("{} classes, inferred from the labels: {}", names.len(), listed(&names, 50)));
    }
    if classes.count() > MANY_CLASSES {
        inner.notes.push("if these are values and not labels, use regression".into());
    }
    inner.targets.learned = Target::Classes(Some(classes));
    Ok(())
}

/// Finds the columns of values from the first training mesh, or from any mesh if there is none.
fn find_columns(inner: &mut Inner, problems: &mut Problems) {
    let Inner { items, splits, targets, notes, .. } = inner;
    let training = splits.of(Split::Train);
    let first = training.iter().copied().chain((0..items.len()).filter(|_| training.is_empty()).take(1));
    let read = |item: usize| {
        let item = &items[item];
        let content = Content::read(&item.path)?;
        let vertices = content.mesh()?.vertex_count();
        Ok(targets.given(item, &content, vertices)?.values())
    };
    let Some(table) = first_usable(first, problems, read).flatten() else { return };
    let vectors = targets.has_vectors();
    if table.columns > 1 && !vectors {
        notes.push(format!(
            "{} values are learned for each {}; set `target.column` or `target.property` in dataset.toml to select some",
            table.columns,
            targets.per.words()[0]
        ));
    }
    targets.learned = Target::Values(ValueColumns::of(table.columns, table.header, vectors));
}

/// Removes the template from the meshes, unless a list of the splits names it, and returns a note.
fn leave_out_template(folder: &Path, description: &Description, items: &mut Vec<Item>) -> Option<String> {
    let template = folder.join(description.template.as_ref()?);
    let template = template.canonicalize().ok()?;
    let is_template = |item: &Item| (item.path.canonicalize()).is_ok_and(|path| path == template);
    let at = items.iter().position(is_template)?;
    if Splits::names(folder, &description.split, items, at) {
        return None;
    }
    let name = items.remove(at).name;
    Some(format!("{name} is the template and in no split"))
}

/// Finds meshes that share their target file with another mesh.
fn shared_targets<'a>(items: impl Iterator<Item = &'a Item>, source: &TargetSource) -> Vec<TaskError> {
    let mut first_with: HashMap<PathBuf, &Item> = HashMap::new();
    let mut problems = Vec::new();
    for item in items {
        let Some(file) = source.file(item) else { continue };
        if source.file_count(item) > 1 {
            let problem = "several files have the name of its target; give the extension in target.files";
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

/// The first result that is not a problem of a single mesh. Problems are listed.
fn first_usable<R>(
    mut of: impl Iterator<Item = usize>,
    problems: &mut Problems,
    read: impl Fn(usize) -> Result<R>,
) -> Option<R> {
    loop {
        let item = of.next()?;
        match read(item) {
            Ok(found) => return Some(found),
            Err(error) => {
                let goes_on = error.is_of_mesh();
                problems.of(item, error);
                if !goes_on {
                    return None;
                }
            }
        }
    }
}

/// What the targets are for: given, or found from their number.
fn element(description: &Description, targets: &TargetReader, items: &[Item]) -> Result<Element> {
    let target = &description.target;
    match (&targets.source, target.per) {
        (TargetSource::WholeMesh, _) => Ok(Element::Mesh),
        (_, Some(per)) => Ok(per),
        _ if target.vectors || description.task == Task::Correspondence => Ok(Element::Vertex),
        _ => {
            let contents = (items.iter()).filter_map(|item| Some((item, Content::read(&item.path).ok()?)));
            targets.found_element(contents)
        }
    }
}

/// The distinct labels of all meshes.
fn found_labels(items: &[Item], targets: &TargetReader, problems: &mut Problems) -> BTreeSet<i64> {
    let labels_of = |item: &Item| -> Result<BTreeSet<i64>> {
        let content = Content::read(&item.path)?;
        let vertices = content.mesh()?.vertex_count();
        let labels = targets.given(item, &content, vertices)?.classes().unwrap_or_default();
        Ok(labels.into_iter().flatten().collect())
    };
    let found: Vec<_> = items.par_iter().map(labels_of).collect();
    let mut all = BTreeSet::new();
    for (item, labels) in found.into_iter().enumerate() {
        match labels {
            Ok(labels) => all.extend(labels),
            Err(error) => problems.of(item, error),
        }
    }
    all
}
