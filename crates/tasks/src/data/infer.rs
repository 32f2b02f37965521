//! Inference of the description of a folder without `dataset.toml`.

use super::content::Content;
use super::description::{Description, OneOrMany, SplitDescription, TargetDescription};
use super::infer_split::{split, split_in_words, split_patterns};
use super::meshes::{Item, find_meshes, other_files};
use super::source::{ANY_EXTENSION, TargetSource};
use super::split::Split;
use super::table::{NumberTable, TextTable};
use super::target::{TargetReader, ValueColumns};
use crate::layout::is_made;
use crate::{DataError, Element, Result, Task, TaskError};
use gemcnn_mesh::{AttributeValues, Mesh, VertexAttribute};
use gemcnn_nn::Target;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Properties that are never targets: colours, normals, texture coordinates and others.
const NOT_TARGETS: &str = "red green blue alpha diffuse_red diffuse_green diffuse_blue nx ny nz s t u v texture_u texture_v \
                           confidence intensity flags radius";

/// Table of values of whole meshes.
const VALUE_TABLE: &str = "values.csv";

/// A possible target.
struct Candidate {
    words: String,
    description: Description,
}

impl Candidate {
    fn new(task: Task, words: String, target: TargetDescription) -> Self {
        let description = Description { target, ..Description::new(task) };
        Self { words, description }
    }
}

/// Infers the description of a folder for a task, or for any task, with notes for the user.
pub(crate) fn infer(folder: &Path, task: Option<Task>) -> Result<(Description, Vec<String>)> {
    let items = find_meshes(folder, "**/*")?;
    let (below, top): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.name.contains('/'));
    match (top.len(), below.len()) {
        (0, _) => infer_within(folder, "**/*", &below, task),
        (_, 0) => infer_within(folder, "*", &top, task),
        counts => {
            let chosen = |meshes: &str, items: &[Item]| {
                let inferred = infer_within(folder, meshes, items, task);
                let mut description = inferred.map_or_else(|_| example(task), |(it, _)| it);
                description.meshes = meshes.into();
                description.to_toml()
            };
            Err(DataError::TwoPlaces {
                folder: folder.into(),
                top: counts.0,
                below: counts.1,
                top_example: chosen("*", &top),
                below_example: chosen("*/**", &below),
            }
            .into())
        }
    }
}

/// Infers the description for the meshes of a pattern, or for those with the only extension that have targets.
fn infer_within(folder: &Path, meshes: &str, items: &[Item], task: Option<Task>) -> Result<(Description, Vec<String>)> {
    let extension = |item: &Item| item.path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let extensions: BTreeSet<String> = items.iter().map(extension).collect();
    let mut with_targets = Vec::new();
    for ending in extensions.iter().filter(|_| extensions.len() > 1) {
        let own: Vec<Item> = items.iter().filter(|item| extension(item) == *ending).cloned().collect();
        let inferred = infer_for(folder, &format!("{meshes}.{ending}"), &own, task);
        if matches!(inferred, Ok(_) | Err(TaskError::Data(DataError::Ambiguous { .. }))) {
            with_targets.push(inferred);
        }
    }
    match with_targets.pop() {
        Some(only) if with_targets.is_empty() => only.map(|(description, mut notes)| {
            notes.push(format!("only meshes {} have targets; the others are not used", description.meshes));
            (description, notes)
        }),
        _ => infer_for(folder, meshes, items, task),
    }
}

/// Infers the description for the meshes of a pattern.
fn infer_for(folder: &Path, meshes: &str, items: &[Item], task: Option<Task>) -> Result<(Description, Vec<String>)> {
    let probes = probes(items)?;
    let (first, content) = &probes[0];
    let fits = |other: Task| task.is_none_or(|task| task == other);
    let mut candidates = Vec::new();
    let mut refused = None;
    if fits(Task::Segmentation) || fits(Task::Regression) {
        candidates = properties("vertex", content.attributes()?, task);
        if candidates.is_empty() {
            candidates = properties("face", content.face_attributes()?, task);
        }
        let found;
        (found, refused) = files(folder, items, &probes, task)?;
        candidates.extend(found);
    }
    if fits(Task::Classification) {
        candidates.extend(class_folders(items));
        let lists = other_files(folder)?.into_iter().filter(|name| !name.contains('/') && name.ends_with(".cla"));
        for table in ["classes.csv".into(), "labels.csv".into()].into_iter().chain(lists) {
            if folder.join(&table).is_file() {
                let words = format!("the classes in {table}");
                let target = TargetDescription { table: Some(table.into()), ..Default::default() };
                candidates.push(Candidate::new(Task::Classification, words, target));
            }
        }
    }
    if fits(Task::Regression) && folder.join(VALUE_TABLE).is_file() {
        let target = TargetDescription { table: Some(VALUE_TABLE.into()), ..Default::default() };
        let words = format!("the values of meshes in {VALUE_TABLE}");
        candidates.push(Candidate::new(Task::Regression, words, target));
    }
    if task == Some(Task::Correspondence) {
        candidates.push(registered(folder, items)?);
    }
    for candidate in &mut candidates {
        candidate.description.meshes = meshes.into();
        if candidate.description.split == SplitDescription::default() {
            candidate.description.split = split(folder, items);
        }
    }
    match &candidates[..] {
        [one] => {
            let description = one.description.clone();
            let notes = vec![
                format!("{} meshes; {} from {}", items.len(), description.task, one.words),
                split_in_words(&description.split),
            ];
            Ok((description, notes))
        }
        [] => Err(refused.unwrap_or_else(|| nothing(folder, first, content, task))),
        [chosen, ..] => Err(DataError::Ambiguous {
            folder: folder.into(),
            candidates: candidates.iter().map(|c| format!("{} from {}", c.description.task, c.words)).collect(),
            example: chosen.description.to_toml(),
        }
        .into()),
    }
}

fn nothing(folder: &Path, first: &Item, content: &Content, task: Option<Task>) -> TaskError {
    let attributes = content.attributes().unwrap_or_default();
    let attributes: Vec<&str> = attributes.iter().map(|a| a.name.as_str()).collect();
    let properties = match attributes.is_empty() {
        true => "no vertex properties".to_string(),
        false => format!("only the vertex properties {}", attributes.join(", ")),
    };
    let why = match task {
        Some(Task::Classification) => "the meshes are not in folders of classes, and there is no classes.csv".into(),
        _ => format!(
            "{} has {properties}, and there is no .npy, .csv, .txt, .seg, .eseg or .json file for it",
            first.name
        ),
    };
    let wanted = task.map_or("any task".to_string(), |task| task.to_string());
    DataError::NothingToLearn {
        folder: folder.into(),
        found: format!("no target for {wanted}: {why}"),
        example: example(task).to_toml(),
    }
    .into()
}

/// An example description for a task.
fn example(task: Option<Task>) -> Description {
    let task = task.unwrap_or(Task::Segmentation);
    let mut example = Description::new(task);
    match task {
        Task::Classification => example.target.pattern = Some("{class}-*".into()),
        _ => example.target.files = Some("{name}.npy".into()),
    }
    example
}

fn is_whole(value: f64) -> bool {
    value.is_nan() || value.fract() == 0.0
}

fn is_integer(attribute: &VertexAttribute) -> bool {
    !matches!(attribute.values, AttributeValues::F32(_) | AttributeValues::F64(_))
}

/// Properties of vertices or faces. Integers are labels, and other numbers are values; for a given task, all properties
/// that may be its targets. Three values of vertices whose names end in x, y and z are a vector.
fn properties(element: &str, attributes: &[VertexAttribute], task: Option<Task>) -> Vec<Candidate> {
    let possible = attributes.iter().filter(|attribute| !NOT_TARGETS.split(' ').any(|name| name == attribute.name));
    let (integers, floats): (Vec<_>, Vec<_>) = possible.clone().partition(|attribute| is_integer(attribute));
    let (labels, values) = match task {
        Some(Task::Segmentation) if integers.is_empty() => {
            (floats.into_iter().filter(|attribute| attribute.values.iter_f64().all(is_whole)).collect(), Vec::new())
        }
        Some(Task::Segmentation) => (integers, Vec::new()),
        Some(Task::Regression) => (Vec::new(), possible.collect()),
        _ => (integers, floats),
    };
    let named =
        |columns: &[&VertexAttribute]| -> Vec<String> { columns.iter().map(|column| column.name.clone()).collect() };
    let candidate = |task, name: &str| {
        let target = TargetDescription { property: Some(OneOrMany::One(name.into())), ..Default::default() };
        Candidate::new(task, format!("the {element} property `{name}`"), target)
    };
    let mut candidates: Vec<Candidate> =
        labels.into_iter().map(|attribute| candidate(Task::Segmentation, &attribute.name)).collect();
    let mut rest = &values[..];
    while let [column, others @ ..] = rest {
        let axes = column.name.strip_suffix('x').map(|stem| ["x", "y", "z"].map(|axis| format!("{stem}{axis}")));
        let three =
            rest.get(..3).map(named).filter(|three| element == "vertex" && axes.is_some_and(|axes| **three == axes));
        rest = others;
        candidates.push(match three {
            Some(three) => {
                rest = &rest[2..];
                let words = format!("the vertex vector `{}`", three.join(", "));
                let property = Some(OneOrMany::Many(three));
                Candidate::new(
                    Task::Regression,
                    words,
                    TargetDescription { property, vectors: true, ..Default::default() },
                )
            }
            None => candidate(Task::Regression, &column.name),
        });
    }
    candidates
}

/// Up to three readable meshes, from which the target is inferred. Several are used, because one may have
/// problems.
///
/// # Errors
/// The first problem, if none can be read.
fn probes(items: &[Item]) -> Result<Vec<(&Item, Content<'static>)>> {
    let last = items.len() - 1;
    let places = BTreeSet::from([0, last / 2, last]);
    let read = |item: &Item| {
        let content = Content::read(&item.path)?;
        content.mesh()?;
        Ok::<_, TaskError>(content)
    };
    let mut problem = None;
    let mut probes = Vec::new();
    for item in places.into_iter().map(|place| &items[place]) {
        match read(item) {
            Ok(content) => probes.push((item, content)),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match problem {
        Some(error) if probes.is_empty() => Err(error),
        _ => Ok(probes),
    }
}

/// Target files with the names of meshes, next to them or in another folder, and the problem of the first file
/// that is not a target.
fn files(
    folder: &Path,
    items: &[Item],
    probes: &[(&Item, Content)],
    task: Option<Task>,
) -> Result<(Vec<Candidate>, Option<TaskError>)> {
    let beside = with_extensions(folder, items, "{name}");
    let has_all = |pattern: &String| {
        let source = TargetSource::files(folder, pattern);
        items.iter().all(|item| source.has_file(item))
    };
    let elsewhere = if beside.iter().any(has_all) { Vec::new() } else { target_folders(folder, items)? };
    let places = placeholders(items);
    let elsewhere = elsewhere.iter().flat_map(|name| {
        let within = |place: &&str| with_extensions(folder, items, &format!("{name}/{place}"));
        places.iter().flat_map(within).collect::<Vec<String>>()
    });
    let mut patterns: Vec<String> = beside.iter().cloned().chain(elsewhere).collect();
    let has_any = |pattern: &String| {
        let source = TargetSource::files(folder, pattern);
        probes.iter().any(|(item, _)| source.has_file(item))
    };
    if !patterns.iter().any(has_any) {
        patterns = further_patterns(folder, items)?;
    }
    let mut candidates = Vec::new();
    let mut whole = Vec::new();
    let mut refused = None;
    for pattern in patterns {
        let mut targets = TargetReader::new(TargetSource::files(folder, &pattern), Target::Classes(None));
        let has_file = |(item, _): &&(&Item, Content)| targets.source.has_file(item);
        let with_file: Vec<_> = probes.iter().filter(has_file).collect();
        if with_file.is_empty() {
            continue;
        }
        targets.name_classes(&with_file.iter().map(|(item, _)| *item).collect::<Vec<_>>());
        let contents = with_file.iter().map(|(item, content)| (*item, content));
        targets.per = match targets.found_element(contents) {
            Ok(per) => per,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        let mut given = |targets: &TargetReader| -> Result<Vec<_>> {
            let mut found = Vec::new();
            for (item, content) in &with_file {
                match targets.given(item, content, content.mesh()?.vertex_count()) {
                    Ok(target) => found.push(target),
                    Err(error) => {
                        refused.get_or_insert(error);
                    }
                }
            }
            Ok(found)
        };
        let described = TargetDescription { files: Some(pattern.clone()), ..Default::default() };
        let words = format!("the files {pattern}");
        if task != Some(Task::Regression) && !given(&targets)?.is_empty() {
            candidates.push(Candidate::new(Task::Segmentation, words, described));
            continue;
        }
        if task == Some(Task::Segmentation) {
            continue;
        }
        targets.learned = Target::Values(ValueColumns::default());
        // Whole numbers are invalid labels, which were refused above.
        let is_values =
            |table: &NumberTable| task.is_some() || table.columns != 1 || !table.values.iter().copied().all(is_whole);
        let tables = given(&targets)?.into_iter().filter_map(Target::values);
        let Some(table) = tables.into_iter().find(is_values) else { continue };
        // Whole numbers are rather labels, even if values are asked for.
        let found = if table.values.iter().copied().all(is_whole) { &mut whole } else { &mut candidates };
        found.push(Candidate::new(Task::Regression, words, described.clone()));
        if table.columns == 3 && targets.per == Element::Vertex {
            let target = TargetDescription { vectors: true, ..described };
            let words = format!("the vectors in {pattern}");
            candidates.push(Candidate::new(Task::Regression, words, target));
        }
    }
    candidates.append(&mut whole);
    Ok((candidates, refused))
}

/// Patterns of files that belong to meshes by the folder or by the start of the name, and that every mesh has.
fn further_patterns(folder: &Path, items: &[Item]) -> Result<Vec<String>> {
    let is_target = |name: &String| {
        let path = Path::new(name);
        TextTable::has_name(path) || path.extension().is_some_and(|e| e == "npy") || gemcnn_mesh::has_value_name(path)
    };
    let Some(first) = items.first() else { return Ok(Vec::new()) };
    let files = other_files(folder)?;
    let possible: BTreeSet<String> =
        files.iter().filter(|file| is_target(file)).filter_map(|file| pattern_of(first, file)).collect();
    // Stops at the first mesh without a file of its own: most patterns do not even fit the second.
    let fits = |pattern: &String| {
        let source = TargetSource::files(folder, pattern);
        let mut known = HashSet::new();
        let is_own = |item: &Item| source.file(item).is_some_and(|file| file.is_file() && known.insert(file));
        items.iter().all(is_own)
    };
    Ok(possible.into_iter().filter(fits).collect())
}

/// The pattern of a file that belongs to a mesh: with the folders of the mesh, its name, or the most parts of its name
/// that the file name begins with.
fn pattern_of(item: &Item, file: &str) -> Option<String> {
    let own = file.strip_prefix(item.folders()).filter(|_| !item.folders().is_empty());
    let shared = (1..10).rev().find_map(|count| Some((count, file.strip_prefix(item.first_folders(count)?)?)));
    let (folders, within) = match (own, shared) {
        (Some(within), _) => ("{folder}/".into(), within),
        (None, Some((count, within))) => (format!("{{folder:{count}}}/"), within),
        (None, None) => (String::new(), file),
    };
    let is_end = |text: &str| !text.starts_with(|c: char| c.is_alphanumeric());
    // The first place in a folder or a file name where the name of the mesh stands alone.
    let marked = |part: &str| {
        let stands = |at: &usize| {
            part[..*at].chars().next_back().is_none_or(|c| !c.is_alphanumeric())
                && is_end(&part[at + item.stem().len()..])
        };
        let at = part.match_indices(item.stem()).map(|(at, _)| at).find(stands)?;
        Some(format!("{}{{stem}}{}", &part[..at], &part[at + item.stem().len()..]))
    };
    let parts: Vec<String> = within.split('/').map(|part| marked(part).unwrap_or_else(|| part.into())).collect();
    let with_stem = parts.join("/");
    if with_stem != within {
        return Some(folders + &with_stem);
    }
    let name = within.rsplit_once('/').map_or(within, |(_, name)| name);
    let place = &within[..within.len() - name.len()];
    let starts = |parts: &usize| item.first_parts(*parts).is_some_and(|s| name.strip_prefix(s).is_some_and(is_end));
    match (1..10).rev().find(starts) {
        Some(parts) => {
            let rest = &name[item.first_parts(parts)?.len()..];
            Some(format!("{folders}{place}{{stem:{parts}}}{rest}"))
        }
        None => own.map(|within| format!("{{folder}}/{within}")),
    }
}

/// The placeholders that give different names to meshes in folders of this depth.
fn placeholders(items: &[Item]) -> &'static [&'static str] {
    let depth = |item: &Item| item.name.matches('/').count();
    match items.iter().map(depth).max() {
        None | Some(0) => &["{stem}"],
        Some(1) => &["{stem}", "{name}"],
        Some(_) => &["{stem}", "{inner}", "{name}"],
    }
}

/// File patterns of a place: one for each extension, or one for all if every mesh has one file, but of several kinds.
fn with_extensions(folder: &Path, items: &[Item], place: &str) -> Vec<String> {
    let any = format!("{place}.*");
    let each = ANY_EXTENSION.map(|extension| format!("{place}.{extension}"));
    let source = TargetSource::files(folder, &any);
    let kinds = each.iter().filter(|pattern| {
        let source = TargetSource::files(folder, pattern);
        items.iter().any(|item| source.has_file(item))
    });
    if kinds.count() > 1 && items.iter().all(|item| source.file_count(item) == 1) { vec![any] } else { each.to_vec() }
}

/// Folders without meshes, prediction results or runs, sorted.
fn target_folders(folder: &Path, items: &[Item]) -> Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let entry = entry.map_err(TaskError::file(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let inside = format!("{name}/");
        let has_meshes = items.iter().any(|item| item.name.starts_with(&inside));
        let path = entry.path();
        if path.is_dir() && !name.starts_with('.') && !has_meshes && !is_made(&path) {
            folders.push(name);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Folders of classes: `class/mesh`, or `class/train/mesh` and `class/test/mesh`.
fn class_folders(items: &[Item]) -> Option<Candidate> {
    let is_split = |name: &str| Split::parse(name).is_some();
    let nested = items.iter().all(|item| {
        let folders: Vec<&str> = item.name.split('/').collect();
        matches!(&folders[..], [_, split, _] if is_split(split))
    });
    if nested {
        let classes = items.iter().filter_map(|item| item.name.split('/').next());
        if classes.collect::<BTreeSet<_>>().len() < 2 {
            return None;
        }
        let target = TargetDescription { pattern: Some("{class}/*/*".into()), ..Default::default() };
        let words = "the folders of the meshes".to_string();
        let mut candidate = Candidate::new(Task::Classification, words, target);
        candidate.description.split.patterns = Some(split_patterns(items, 1));
        return Some(candidate);
    }
    let folders: Option<BTreeSet<&str>> = items.iter().map(Item::folder).collect();
    let folders = folders?;
    // A folder for each mesh is no class.
    if folders.len() < 2 || folders.len() == items.len() || folders.iter().any(|folder| is_split(folder)) {
        return None;
    }
    let target = TargetDescription { folders: true, ..Default::default() };
    let words = "the folders of the meshes".to_string();
    Some(Candidate::new(Task::Classification, words, target))
}

/// Registered meshes: correspondence by vertex index.
fn registered(folder: &Path, items: &[Item]) -> Result<Candidate> {
    // Meshes that cannot be read are found again later.
    let count = |item: &Item| Some(Mesh::read(&item.path).ok()?.vertex_count());
    let counts: Vec<Option<usize>> = items.par_iter().map(count).collect();
    let read: Vec<(&Item, usize)> =
        (items.iter().zip(counts)).filter_map(|(item, count)| Some((item, count?))).collect();
    if let Some((first, count)) = read.first()
        && let Some((other, another)) = read.iter().find(|(_, other)| other != count)
    {
        let mut example = Description::new(Task::Correspondence);
        example.template = Some("template.ply".into());
        example.target.files = Some("{name}.txt".into());
        return Err(DataError::NothingToLearn {
            folder: folder.into(),
            found: format!(
                "the meshes are not registered: {} has {count} vertices, but {} has {another}",
                first.name, other.name
            ),
            example: example.to_toml(),
        }
        .into());
    }
    Ok(Candidate::new(Task::Correspondence, "vertex indices".into(), TargetDescription::default()))
}
