//! Check of a whole data set: contents and problems.

use super::classes::listed;
use super::comparison::{Extent, compare};
use super::config::DataConfig;
use super::content::Content;
use super::dataset::Inner;
use super::groups::SplitConfig;
use super::open::gather;
use super::split::Split;
use super::target::ValueColumns;
use crate::{Element, Result, Task, TaskError};
use gemcnn_mesh::{GeometryError, NormalWeighting, vertex_normals};
use gemcnn_nn::{IGNORE, Target};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Contents and problems of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Name of the data set.
    pub name: String,
    /// The task; `None` if it is unknown.
    pub task: Option<Task>,
    /// What the targets are for.
    pub per: Element,
    /// Notes about inferred settings, shown to the user.
    pub notes: Vec<String>,
    /// Size of each split.
    #[serde(rename = "parts")]
    pub splits: Vec<SplitCount>,
    /// Segmentation and classification: frequency of each class.
    pub classes: Vec<ClassCount>,
    /// Regression: range of each column.
    pub values: Vec<ValueRange>,
    /// All problems, one line each, in the order of the meshes.
    pub problems: Vec<String>,
}

/// The size of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SplitCount {
    /// The split.
    #[serde(rename = "part")]
    pub split: Split,
    /// Number of meshes.
    pub meshes: usize,
    /// Number of vertices of the readable meshes.
    pub vertices: usize,
    /// Number of targets of these meshes: one for each vertex, face, edge or mesh.
    pub targets: usize,
    /// Number of targets that are known.
    pub known: usize,
}

/// Frequency of a class in each split, in the order of [`Split::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// Name.
    pub name: String,
    /// Label in files.
    pub label: i64,
    /// Number of vertices, faces or edges of the class; 0 for classification.
    pub vertices: [usize; 3],
    /// Number of meshes of the class, or with vertices, faces or edges of the class.
    pub meshes: [usize; 3],
}

/// Range of the values of a column, over all splits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValueRange {
    /// Name of the column, or its number.
    pub name: String,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// Contents and problems of one mesh.
#[derive(Default)]
struct MeshContents {
    vertices: usize,
    targets: usize,
    known: usize,
    /// Number of rows of each class.
    classes: BTreeMap<u32, usize>,
    columns: Vec<Column>,
    extent: Option<Extent>,
    /// Vertices whose frames are estimated.
    without_plane: usize,
    is_cloud: bool,
    hash: Option<blake3::Hash>,
    problems: Vec<String>,
}

struct Column {
    name: String,
    min: f64,
    max: f64,
    sum: f64,
}

/// Reads and checks a whole data set. All errors are listed in [`Check::problems`].
pub fn check(config: &DataConfig, task: Option<Task>) -> Check {
    let (inner, problems) = match gather(config, &SplitConfig::default(), task) {
        Ok(gathered) => gathered,
        Err(error) => {
            return Check {
                name: match config {
                    DataConfig::Folder(folder) | DataConfig::Faust(folder) => folder.display().to_string(),
                    DataConfig::Bodies(_) => "synthetic bodies".into(),
                },
                task,
                per: Element::default(),
                notes: Vec::new(),
                splits: Vec::new(),
                classes: Vec::new(),
                values: Vec::new(),
                problems: vec![error.to_string()],
            };
        }
    };
    let found: Vec<MeshContents> = (0..inner.items.len()).into_par_iter().map(|item| examine(&inner, item)).collect();
    let mut problems: Vec<String> = problems.all().iter().map(TaskError::to_string).collect();
    for found in &found {
        // Inferring the classes has read the labels too: each problem is listed once.
        let new = found.problems.iter().filter(|p| !problems.contains(p));
        let new: Vec<String> = new.cloned().collect();
        problems.extend(new);
    }
    problems.extend(duplicates(&inner, &found));
    let mut notes = inner.notes.clone();
    let mut split_of = vec![None; inner.items.len()];
    for split in Split::ALL {
        for &item in inner.splits.of(split) {
            split_of[item] = Some(split);
        }
    }
    let extents: Vec<Option<Extent>> = found.iter().map(|found| found.extent).collect();
    notes.extend(compare(&inner.splits, &extents));
    let without_plane: usize = found.iter().map(|found| found.without_plane).sum();
    let clouds = found.iter().filter(|found| found.is_cloud).count();
    if clouds > 0 {
        notes.push(format!("meshes without faces: {clouds}; their points are connected to surfaces"));
    }
    if without_plane > 0 {
        let meshes = found.iter().filter(|found| found.without_plane > 0).count();
        notes.push(format!(
            "vertices without a tangent plane: {without_plane} on {meshes} of the meshes; their frames come from neighbours"
        ));
    }
    let classes = class_counts(&inner, &found, &split_of);
    // Classes may be in meshes that could not be read.
    let is_known = found.iter().all(|found| found.problems.is_empty());
    let filled = |split: &Split| *split == Split::Train || !inner.splits.of(*split).is_empty();
    for split in Split::ALL.into_iter().filter(filled).filter(|_| is_known) {
        let absent = classes.iter().filter(|class| class.meshes[split as usize] == 0);
        let absent: Vec<String> = absent.map(|class| format!("`{}`", class.name)).collect();
        if !absent.is_empty() {
            notes.push(format!("no sample in {split} has class {}", listed(&absent, 10)));
        }
    }
    // A class of labels with a single row is rather a mistake in a file.
    if inner.task == Task::Segmentation {
        for (class, count) in classes.iter().enumerate().filter(|(_, count)| count.vertices.iter().sum::<usize>() == 1)
        {
            let has = |found: &MeshContents| found.classes.contains_key(&(class as u32));
            let item = found.iter().position(has).map_or("", |item| &*inner.items[item].name);
            let [element, _] = inner.targets.per.words();
            notes.push(format!(
                "class `{}` has one {element}, on {item}; if this is a mistake, correct the target of that mesh",
                count.name
            ));
        }
    }
    // A class on a single mesh may be a word that is spelt in two ways.
    if inner.task == Task::Segmentation && is_known {
        let on_one =
            |count: &&ClassCount| count.meshes.iter().sum::<usize>() == 1 && count.vertices.iter().sum::<usize>() > 1;
        let lonely: Vec<String> = (classes.iter().enumerate())
            .filter(|(_, count)| on_one(count))
            .filter_map(|(class, count)| {
                let item = found.iter().position(|found| found.classes.contains_key(&(class as u32)))?;
                Some(format!("`{}` on {}", count.name, inner.items[item].name))
            })
            .collect();
        if !lonely.is_empty() && inner.items.len() > 2 {
            notes.push(format!(
                "classes that one mesh has alone: {}; if a name is misspelt, correct the target of that mesh",
                listed(&lonely, 10)
            ));
        }
    }
    Check {
        name: inner.name.clone(),
        task: Some(inner.task),
        per: inner.targets.per,
        notes,
        splits: Split::ALL
            .map(|split| {
                let items = inner.splits.of(split);
                SplitCount {
                    split,
                    meshes: items.len(),
                    vertices: items.iter().map(|&item| found[item].vertices).sum(),
                    targets: items.iter().map(|&item| found[item].targets).sum(),
                    known: items.iter().map(|&item| found[item].known).sum(),
                }
            })
            .to_vec(),
        classes,
        values: value_ranges(&found),
        problems,
    }
}

fn examine(inner: &Inner, item: usize) -> MeshContents {
    let mut found = MeshContents::default();
    if let Err(error) = examine_mesh(inner, item, &mut found) {
        found.problems.push(error.to_string());
    }
    found
}

fn examine_mesh(inner: &Inner, index: usize, found: &mut MeshContents) -> Result<()> {
    let item = &inner.items[index];
    let content = inner.content(index)?;
    found.hash = Some(content.hash());
    let mesh = content.mesh()?;
    found.vertices = mesh.vertex_count();
    found.extent = Extent::new(mesh);
    found.is_cloud = content.is_cloud()?;
    if mesh.face_count() == 0 {
        let problem = "no faces, so no geometry".to_string();
        found.problems.push(format!("{}: {problem}", item.name));
    } else {
        match vertex_normals(mesh, NormalWeighting::Area) {
            Ok(_) => {}
            Err(GeometryError::NoTangentPlane { count, .. }) => found.without_plane = count,
            Err(source) => {
                let name = item.name.clone();
                let error = TaskError::Geometry { name, source };
                found.problems.push(error.to_string());
            }
        }
    }
    read_target(inner, index, &content, found)
}

fn read_target(inner: &Inner, index: usize, content: &Content, found: &mut MeshContents) -> Result<()> {
    let (item, targets) = (&inner.items[index], &inner.targets);
    match targets.given(item, content, found.vertices)? {
        Target::Unknown => {}
        Target::Classes(labels) => {
            let classes = targets.classes_of(item, &labels)?;
            found.targets = labels.len();
            found.known = labels.iter().flatten().count();
            // The classes of a correspondence are vertices, and those of a classification have none.
            if inner.task != Task::Correspondence {
                let rows = usize::from(inner.task == Task::Segmentation);
                for class in classes.into_iter().filter(|&class| class != IGNORE) {
                    *found.classes.entry(class).or_default() += rows;
                }
            }
        }
        Target::Values(table) => {
            let expected = targets.learned.as_ref().values().map_or(0, ValueColumns::count);
            if table.columns != expected && expected > 0 {
                let problem = format!(
                    "{}: its target has {} numbers in each row, but that of other meshes has {expected}",
                    item.name, table.columns
                );
                found.problems.push(problem);
                return Ok(());
            }
            let known = |row: &&[f64]| row.iter().all(|value| !value.is_nan());
            let rows: Vec<&[f64]> = table.values.chunks(table.columns.max(1)).filter(known).collect();
            found.targets = table.rows();
            found.known = rows.len();
            let columns = if rows.is_empty() { 0 } else { table.columns };
            found.columns = (0..columns)
                .map(|place| {
                    let values = rows.iter().map(|row| row[place]);
                    Column {
                        name: table.header.get(place).cloned().unwrap_or_else(|| place.to_string()),
                        min: values.clone().fold(f64::INFINITY, f64::min),
                        max: values.clone().fold(f64::NEG_INFINITY, f64::max),
                        sum: values.sum(),
                    }
                })
                .collect();
        }
    }
    if found.known == 0 && inner.task != Task::Classification {
        let [element, _] = targets.per.words();
        found.problems.push(format!("{}: no {element} has a known target", item.name));
    }
    Ok(())
}

/// Finds the same mesh in two splits, which makes evaluations invalid.
fn duplicates(inner: &Inner, found: &[MeshContents]) -> Vec<String> {
    let mut first_with = HashMap::new();
    let mut problems = Vec::new();
    for split in Split::ALL {
        for &item in inner.splits.of(split) {
            let Some(hash) = found[item].hash else { continue };
            let (other_split, other) = *first_with.entry(hash).or_insert((split, item));
            if other_split != split {
                problems.push(format!(
                    "{} in {split} is the same file as {} in {other_split}",
                    inner.items[item].name, inner.items[other].name
                ));
            }
        }
    }
    problems
}

fn class_counts(inner: &Inner, found: &[MeshContents], split_of: &[Option<Split>]) -> Vec<ClassCount> {
    let classes = inner.targets.classes().filter(|_| inner.task != Task::Correspondence);
    let Some(classes) = classes else { return Vec::new() };
    let mut counts: Vec<ClassCount> = (0..classes.count())
        .map(|class| ClassCount {
            name: classes.name(class),
            label: classes.label(class),
            vertices: [0; 3],
            meshes: [0; 3],
        })
        .collect();
    for (found, split) in found.iter().zip(split_of) {
        let Some(split) = split else { continue };
        for (&class, &vertices) in &found.classes {
            if let Some(count) = counts.get_mut(class as usize) {
                count.vertices[*split as usize] += vertices;
                count.meshes[*split as usize] += 1;
            }
        }
    }
    counts
}

fn value_ranges(found: &[MeshContents]) -> Vec<ValueRange> {
    let known: usize = found.iter().map(|found| found.known).sum();
    let mut ranges: Vec<ValueRange> = Vec::new();
    for found in found {
        for (place, column) in found.columns.iter().enumerate() {
            if ranges.len() <= place {
                ranges.push(ValueRange {
                    name: column.name.clone(),
                    min: f64::INFINITY,
                    max: f64::NEG_INFINITY,
                    mean: 0.0,
                });
            }
            let range = &mut ranges[place];
            range.min = range.min.min(column.min);
            range.max = range.max.max(column.max);
            range.mean += column.sum / known.max(1) as f64;
        }
    }
    ranges
}
