//! `dataset.toml`: task, targets and splits of a folder of meshes.

use super::classes::Classes;
use super::groups::GroupSource;
use super::pattern::Pattern;
use super::split::Split;
use crate::registry::is_default;
use crate::{DataError, Element, Result, Task, TaskError};
use gemcnn_mesh::write_atomically;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// File name of a description in the folder of a data set.
pub const DESCRIPTION_FILE: &str = "dataset.toml";

/// Description of a data set. All paths are relative to its folder.
///
/// ```
/// use gemcnn_tasks::{Task, data::Description};
/// let description: Description = toml::from_str(r#"
///     task = "segmentation"
///     meshes = "scans/*.ply"
///     classes = ["gum", "molar"]
///     [target]
///     files = "labels/{stem}.npy"
///     [split]
///     fractions = { train = 0.7, validation = 0.1, test = 0.2 }
/// "#)?;
/// assert_eq!(description.task, Task::Segmentation);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The task.
    pub task: Task,
    /// A folder, or a pattern such as `scans/*.ply` or `**/*.off` (default: all meshes at any depth).
    #[serde(default = "everywhere")]
    pub meshes: String,
    /// Names of all classes (default: inferred).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Label of each class in the targets (default: 0, 1, 2, ...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<i64>,
    /// Numbers that mean "unknown". The label -1 always does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<i64>,
    /// Correspondence: the mesh whose vertices are the classes (default: the first training mesh).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PathBuf>,
    /// Source of the targets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target: TargetDescription,
    /// PerSplit of the data set.
    #[serde(default, skip_serializing_if = "is_default")]
    pub split: SplitDescription,
}

/// Source of the targets: exactly one of `property`, `files`, `table`, `folders` and `pattern`.
/// Correspondence may have none of them: each vertex then corresponds to the template vertex with the same
/// index.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetDescription {
    /// One or several vertex or face properties of mesh files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property: Option<OneOrMany<String>>,
    /// A file for each mesh: `.npy`, `.csv`, `.txt`, `.seg`, `.eseg` or `.json`, or `.*` for any of these. `{stem}` is the
    /// file name of the mesh without extension, `{name}` the same with its folders, `{inner}` the same without the
    /// outermost folder, `{folder}` the folders alone, `{folder:1}` the outermost one, `{stem:2}` the first two parts of
    /// the file name between `.`, `_` and `-`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Columns of the files or the table, by number from 0 or by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<OneOrMany<Column>>,
    /// Rows of the files, or properties, are those of vertices, faces or edges (default: decided by their number).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<Element>,
    /// Each three columns are a vector in space, which is learned as a tangent vector.
    #[serde(skip_serializing_if = "is_default")]
    pub vectors: bool,
    /// A `.csv` file with the name and the class or values of a mesh in each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<PathBuf>,
    /// The folder of a mesh is its class.
    #[serde(skip_serializing_if = "is_default")]
    pub folders: bool,
    /// A pattern for names that contain the class, such as `{class}-*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

/// PerSplit of a data set: at most one of `files`, `table`, `patterns` and `fractions`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitDescription {
    /// A list of meshes for each split, one per line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<PerSplit<PathBuf>>,
    /// A `.csv` file with the name and split of a mesh in each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<PathBuf>,
    /// One or several patterns for each split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patterns: Option<PerSplit<OneOrMany<String>>>,
    /// Fraction of the meshes in each split, at random (default: 0.8 for training and 0.2 for testing).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fractions: Option<PerSplit<f64>>,
    /// Seed of the random splits (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub seed: u64,
    /// Groups of meshes that stay together in random splits (default: inferred where they are obvious).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupSource>,
}

/// A value for each split of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerSplit<T> {
    /// For training.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub train: Option<T>,
    /// For choosing settings.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub validation: Option<T>,
    /// For the final evaluation.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub test: Option<T>,
}

impl<T> PerSplit<T> {
    /// The value for a split.
    pub fn get(&self, split: Split) -> Option<&T> {
        match split {
            Split::Train => self.train.as_ref(),
            Split::Validation => self.validation.as_ref(),
            Split::Test => self.test.as_ref(),
        }
    }
}

/// A value or a list of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// As a list.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// By number, from 0.
    Number(usize),
    /// By its name in the header.
    Name(String),
}

fn everywhere() -> String {
    "**/*".into()
}

fn none<T>() -> Option<T> {
    None
}

impl Description {
    /// A description with a task and defaults.
    pub fn new(task: Task) -> Self {
        Self {
            task,
            meshes: everywhere(),
            classes: Vec::new(),
            labels: Vec::new(),
            unknown: Vec::new(),
            template: None,
            target: TargetDescription::default(),
            split: SplitDescription::default(),
        }
    }

    /// Reads the description in a folder; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is invalid.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(DESCRIPTION_FILE);
        let text = match gemcnn_mesh::read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TaskError::file(path)(error)),
        };
        let wrong = |problem: String| DataError::Description { path: path.clone(), problem };
        let description: Self = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        description.check().map_err(wrong)?;
        Ok(Some(description))
    }

    /// The description as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Completes a data set: for each split with a list of names of meshes, writes it to `SPLIT.txt`, and then the
    /// description, with these lists.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(mut self, folder: &Path, meshes: [Option<Vec<String>>; 3]) -> Result<()> {
        let write = |file: &Path, text: &str| {
            let path = folder.join(file);
            write_atomically(&path, |file| file.write_all(text.as_bytes())).map_err(TaskError::file(&path))
        };
        let mut lists = [None, None, None];
        for ((split, names), list) in Split::ALL.into_iter().zip(meshes).zip(&mut lists) {
            if let Some(names) = names {
                let file = PathBuf::from(format!("{split}.txt"));
                write(&file, &names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
                *list = Some(file);
            }
        }
        let [train, validation, test] = lists;
        self.split.files = Some(PerSplit { train, validation, test });
        write(Path::new(DESCRIPTION_FILE), &self.to_toml())
    }

    /// Checks that the settings fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let target = &self.target;
        let given: Vec<&str> = [
            ("property", target.property.is_some()),
            ("files", target.files.is_some()),
            ("table", target.table.is_some()),
            ("folders", target.folders),
            ("pattern", target.pattern.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect();
        let allowed: &[&str] = match self.task {
            Task::Classification => &["table", "folders", "pattern"],
            Task::Regression => &["property", "files", "table"],
            _ => &["property", "files"],
        };
        if let Some(other) = given.iter().find(|name| !allowed.contains(name)) {
            return Err(format!("target.{other} does not fit {}; use {}", self.task, allowed.join(" or ")));
        }
        match given.len() {
            0 if self.task != Task::Correspondence => {
                return Err(format!("[target] needs a source: {}", allowed.join(" or ")));
            }
            0 | 1 => {}
            _ => return Err(format!("[target] has {}: choose one", given.join(" and "))),
        }
        if let Some(files) = &target.files {
            let named = |placeholder: &str| files.contains(placeholder);
            if !["{stem}", "{stem:", "{name}", "{inner}", "{folder}", "{folder:"].into_iter().any(named) {
                return Err(format!(
                    "target.files is `{files}`, but needs {{stem}}, {{name}}, {{inner}} or {{folder}} for the name of the mesh"
                ));
            }
        }
        if let Some(pattern) = &target.pattern
            && Pattern::new(pattern).class_count() != 1
        {
            return Err(format!("target.pattern is `{pattern}`, but needs exactly one {{class}}"));
        }
        if let Some(per) = target.per {
            let fits = match (&target.files, &target.property) {
                (Some(_), _) => per != Element::Mesh,
                (None, Some(_)) => matches!(per, Element::Vertex | Element::Face),
                (None, None) => false,
            };
            let elements =
                "\"vertex\", \"face\" or \"edge\" with target.files, \"vertex\" or \"face\" with target.property";
            if !fits {
                return Err(format!("target.per may be {elements}"));
            }
            let needs_vertices = target.vectors || self.task == Task::Correspondence;
            if needs_vertices && per != Element::Vertex {
                return Err("target.per: vectors and correspondences are those of vertices".into());
            }
        }
        if let Some(column) = &target.column {
            match (&target.files, &target.table) {
                (None, None) => {
                    return Err("target.column needs target.files or target.table; remove it".into());
                }
                (_, Some(_)) if column.as_slice().len() != 1 && self.task == Task::Classification => {
                    return Err("target.column: target.table has one column of classes; give one column".into());
                }
                _ => {}
            }
        }
        if target.vectors && (self.task != Task::Regression || target.table.is_some()) {
            return Err("target.vectors is for regression at vertices only".into());
        }
        self.check_classes()?;
        self.split.check()
    }

    fn check_classes(&self) -> Result<(), String> {
        let classes = !self.classes.is_empty() || !self.labels.is_empty();
        if classes && matches!(self.task, Task::Regression | Task::Correspondence) {
            return Err(format!("{} does not use `classes` or `labels`", self.task));
        }
        if !self.classes.is_empty() && !self.labels.is_empty() && self.classes.len() != self.labels.len() {
            return Err(format!(
                "{} `classes` and {} `labels`: each class needs one label",
                self.classes.len(),
                self.labels.len()
            ));
        }
        if let Some(name) = twice(&self.classes) {
            return Err(format!("class `{name}` occurs twice"));
        }
        if let Some(label) = twice(&self.labels) {
            return Err(format!("label {label} occurs twice"));
        }
        if let Some(label) = self.labels.iter().find(|&label| self.is_unknown(*label)) {
            return Err(format!("label {label} means \"unknown\""));
        }
        // Text files may use names in place of labels.
        let named = match self.task {
            Task::Segmentation => &self.classes[..],
            _ => &[],
        };
        for (class, name) in named.iter().enumerate() {
            let label = self.label(class);
            if name.parse().is_ok_and(|number: f64| number != label as f64) {
                return Err(format!(
                    "class `{name}` is a number, but its label is {label}; set `labels`, or rename the class"
                ));
            }
        }
        if self.template.is_some() && self.task != Task::Correspondence {
            return Err("template is for correspondence only".into());
        }
        Ok(())
    }

    /// The classes that it gives; `None` if they have to be inferred.
    pub(crate) fn given_classes(&self) -> Option<Classes> {
        match (self.classes.is_empty(), self.labels.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Classes::labelled(self.labels.clone())),
            (false, _) => Some(Classes::named(self.classes.clone(), self.labels.clone())),
        }
    }

    /// Label of a class.
    pub(crate) fn label(&self, class: usize) -> i64 {
        self.labels.get(class).copied().unwrap_or(class as i64)
    }

    /// True if a label means "unknown".
    pub fn is_unknown(&self, label: i64) -> bool {
        label == -1 || self.unknown.contains(&label)
    }
}

impl SplitDescription {
    /// True if it does not say which meshes are in which split, nor how many.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_random() && self.fractions.is_none()
    }

    /// True if meshes are assigned to splits at random.
    pub(crate) fn is_random(&self) -> bool {
        self.files.is_none() && self.table.is_none() && self.patterns.is_none()
    }

    fn check(&self) -> Result<(), String> {
        let given = [self.files.is_some(), self.table.is_some(), self.patterns.is_some(), self.fractions.is_some()];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err("[split] has several of files, table, patterns and fractions: choose one".into());
        }
        if let Some(groups) = &self.groups {
            groups.check()?;
        }
        let Some(fractions) = self.fractions else { return Ok(()) };
        let shares = Split::ALL.map(|split| fractions.get(split).copied().unwrap_or(0.0));
        let sum: f64 = shares.iter().sum();
        let sound = shares.iter().all(|share| (0.0..=1.0).contains(share));
        // Sums of decimal fractions are not exact.
        if !sound || sum > 1.0 + 1e-6 || shares[0] == 0.0 {
            return Err(format!(
                "split.fractions are {shares:?}: each must be from 0 to 1, their sum at most 1, and `train` above 0"
            ));
        }
        Ok(())
    }
}

/// A value that occurs more than once in a list.
fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    let again = |&(index, value): &(usize, &T)| values[..index].contains(value);
    values.iter().enumerate().find(again).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Description, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(DESCRIPTION_FILE), text).unwrap();
        match Description::read(folder.path()) {
            Ok(description) => Ok(description.unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_written_description_reads_back() {
        let text = "task = 'regression'\nunknown = [9]\n[target]\nfiles = '{name}.csv'\n\
                    column = ['u', 3]\nvectors = false\n[split.patterns]\ntrain = 'a*'\ntest = 'b*'";
        let description = read(text).unwrap();
        assert_eq!(read(&description.to_toml()).unwrap(), description);
        let plain = Description::new(Task::Correspondence);
        assert_eq!(read(&plain.to_toml()).unwrap(), plain);
    }

    #[test]
    fn invalid_settings_are_named() {
        for (text, reason) in [
            ("task = 'segmentation'", "property or files"),
            ("task = 'segmenting'", "segmenting"),
            ("task = 'segmentation'\ntaget = 1", "taget"),
            ("task = 'segmentation'\ntarget.folders = true", "target.folders"),
            ("task = 'segmentation'\ntarget = { property = 'a', files = '{stem}.npy' }", "property and files"),
            ("task = 'segmentation'\ntarget.files = 'a.npy'", "{stem}"),
            ("task = 'classification'\ntarget.pattern = 'a*'", "{class}"),
            ("task = 'segmentation'\nclasses = ['a', 'a']\ntarget.property = 'l'", "`a`"),
            ("task = 'segmentation'\nlabels = [-1]\ntarget.property = 'l'", "-1"),
            ("task = 'segmentation'\nclasses = ['1', '2']\ntarget.property = 'l'", "`1`"),
            ("task = 'segmentation'\ntarget = { property = 'l', per = 'edge' }", "target.per"),
            ("task = 'regression'\ntarget = { files = '{stem}.npy', per = 'face', vectors = true }", "target.per"),
            ("task = 'regression'\ntarget = { table = 't.csv', per = 'vertex' }", "target.per"),
            ("task = 'regression'\ntarget = { property = 'l', column = 1 }", "target.column"),
            ("task = 'classification'\ntarget = { folders = true, column = 1 }", "target.column"),
            ("task = 'classification'\ntarget = { table = 'c.csv', column = [1, 2] }", "target.column"),
            ("task = 'correspondence'\nsplit.fractions = { train = 0.8, test = 0.3 }", "split.fractions"),
            ("task = 'correspondence'\nsplit = { table = 's.csv', fractions = { train = 1 } }", "[split]"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
            assert!(said.contains(DESCRIPTION_FILE), "{said}");
        }
        for sound in [
            "task = 'segmentation'\nclasses = ['1', '2']\nlabels = [1, 2]\ntarget.property = 'l'",
            "task = 'classification'\nclasses = ['02691156', '03001627']\ntarget.folders = true",
            "task = 'classification'\ntarget = { table = 'c.csv', column = ['kind'] }",
            "task = 'correspondence'\nsplit.patterns = { train = ['a*', 'b*'], test = 'c*' }",
        ] {
            read(sound).unwrap();
        }
    }
}
