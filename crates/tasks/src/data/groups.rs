//! Groups of meshes that belong together: those of a person, a scanner or a sequence. A group stays on one side of
//! every random split.

use super::description::Column;
use super::mesh_classes::words_in_table;
use super::meshes::Item;
use super::pattern::Pattern;
use super::problems::Problems;
use super::split::Split;
use crate::registry::is_default;
use crate::{DataError, TaskError};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Tables with names of meshes and groups that are recognised.
const TABLES: [&str; 3] = ["sources.csv", "groups.csv", "subjects.csv"];
/// Parts of names that are recognised as groups, in this order.
const PATTERNS: [&str; 4] = ["{group}/**", "**/{group}/*", "**/{group}__*", "**/{group}_*"];
/// Share of the asked number of meshes that whole groups should at least have.
const ABOUT: f64 = 0.75;
/// Smallest number of groups of which one can be held out for validation.
const ENOUGH: usize = 3;

/// Source of the groups: `groups` in `[split]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GroupSource {
    /// True: inferred where they are obvious (default). False: there are none.
    Inferred(bool),
    /// A pattern for names that contain the group, such as `{group}__*`.
    Pattern(String),
    /// A table with the name of a mesh in the first column.
    Table(GroupTable),
}

/// A table with the group of each mesh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// File, relative to the data set.
    pub table: PathBuf,
    /// Column of the groups (default: the second one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<Column>,
}

/// How a run divides a data set: the `[split]` table of a configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitConfig {
    /// Groups, in place of those of the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupSource>,
    /// Number of the group that is the test split, from 1, in alphabetical order. All others are for training
    /// (default: the splits of the data set).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<usize>,
    /// What the validation split that is held out consists of (default: whole groups).
    #[serde(skip_serializing_if = "is_default")]
    pub validation: ValidationUnit,
}

/// What a validation split that is held out consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationUnit {
    /// Whole groups, if the training split has at least three.
    #[default]
    Groups,
    /// Meshes at random.
    Meshes,
}

/// The group of each mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Where they are from, in words.
    source: String,
    /// Names, in alphabetical order.
    names: Vec<String>,
    /// The group of each mesh, as an index.
    of: Vec<usize>,
}

impl GroupSource {
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Pattern(pattern) if compiled(pattern).class_count() != 1 => {
                Err(format!("split.groups is `{pattern}`, but needs exactly one {{group}}"))
            }
            _ => Ok(()),
        }
    }
}

/// Patterns know one placeholder.
fn compiled(pattern: &str) -> Pattern {
    Pattern::new(&pattern.replace("{group}", "{class}"))
}

impl Groups {
    /// The groups of a source. Adds its problems to `problems`.
    pub fn new(folder: &Path, source: &GroupSource, items: &[Item], problems: &mut Vec<TaskError>) -> Option<Self> {
        let groups = Self::read(folder, source, items, problems)?;
        if groups.names.len() < 2 {
            let problem = format!("there is a single group from {}; at least two are needed", groups.source);
            problems.push(TaskError::setting("split.groups", problem));
        }
        Some(groups)
    }

    fn read(folder: &Path, source: &GroupSource, items: &[Item], problems: &mut Vec<TaskError>) -> Option<Self> {
        match source {
            GroupSource::Inferred(true) => Self::infer(folder, items),
            GroupSource::Inferred(false) => None,
            GroupSource::Pattern(pattern) => {
                let groups = Self::of_pattern(pattern, items);
                for (item, group) in items.iter().zip(&groups) {
                    if group.is_none() {
                        let problem = format!("its name does not match split.groups `{pattern}`");
                        problems.push(DataError::target(&item.name, problem).into());
                    }
                }
                Self::of_words(format!("the names ({pattern})"), groups)
            }
            GroupSource::Table(GroupTable { table, column }) => {
                let mut found = Problems::default();
                let words = words_in_table(&folder.join(table), column.as_ref(), items, &mut found);
                problems.extend(found.all());
                match words {
                    Ok(groups) => Self::of_words(table.display().to_string(), groups),
                    Err(error) => {
                        problems.push(error);
                        None
                    }
                }
            }
        }
    }

    /// The groups of a table or of names, where they are obvious: from 2 to half as many as meshes, each with two meshes
    /// or more. Groups that say the class or the split of a mesh are none.
    pub fn infer(folder: &Path, items: &[Item]) -> Option<Self> {
        let tables = TABLES.iter().filter_map(|table| {
            let mut problems = Problems::default();
            let words = words_in_table(&folder.join(table), None, items, &mut problems).ok()?;
            Self::of_words((*table).into(), words).filter(|_| problems.is_empty())
        });
        let patterns = PATTERNS
            .iter()
            .filter_map(|pattern| Self::of_words(format!("the names ({pattern})"), Self::of_pattern(pattern, items)));
        tables.chain(patterns).find(|groups| groups.are_obvious(items))
    }

    fn are_obvious(&self, items: &[Item]) -> bool {
        let count = self.names.len();
        let sizes = self.sizes();
        let classes_of = |group: usize| {
            let own = items.iter().zip(&self.of).filter(|(_, of)| **of == group);
            own.map(|(item, _)| item.class()).collect::<BTreeSet<_>>()
        };
        let is_class =
            |group: usize| matches!(classes_of(group).first(), Some(Some(_)) if classes_of(group).len() == 1);
        count >= 2
            && 2 * count <= items.len()
            && sizes.iter().all(|&size| size >= 2)
            && !self.names.iter().any(|name| Split::parse(name).is_some())
            && !(0..count).all(is_class)
    }

    fn of_pattern(pattern: &str, items: &[Item]) -> Vec<Option<String>> {
        let pattern = compiled(pattern);
        let group = |item: &Item| pattern.class(item.without_extension()).or_else(|| pattern.class(item.stem()));
        items.iter().map(group).collect()
    }

    /// Groups by their names; `None` if a mesh has none.
    fn of_words(source: String, words: Vec<Option<String>>) -> Option<Self> {
        let words: Vec<String> = words.into_iter().collect::<Option<_>>()?;
        let names: Vec<String> = words.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let of = words.iter().filter_map(|word| names.binary_search(word).ok()).collect();
        Some(Self { source, names, of })
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.names.len()];
        self.of.iter().for_each(|&group| sizes[group] += 1);
        sizes
    }

    /// The groups of some meshes, in order.
    fn among(&self, meshes: &[usize]) -> BTreeSet<usize> {
        meshes.iter().map(|&mesh| self.of[mesh]).collect()
    }

    /// Names of the groups of some meshes.
    pub fn names_of(&self, meshes: &[usize]) -> String {
        let names: Vec<&str> = self.among(meshes).into_iter().map(|group| self.names[group].as_str()).collect();
        super::classes::listed(&names.iter().map(ToString::to_string).collect::<Vec<_>>(), 10)
    }

    /// True if there are enough groups among some meshes to hold one out for validation.
    pub fn are_enough(&self, meshes: &[usize]) -> bool {
        self.among(meshes).len() >= ENOUGH
    }

    /// Divides meshes into those of whole groups that are about `count`, and the rest, which keeps a group at least.
    /// Groups that fit are drawn at random; if none fits, the smallest one is taken.
    pub fn draw(&self, meshes: &[usize], count: f64, random: &mut ChaCha8Rng) -> [Vec<usize>; 2] {
        let of_group = |group: usize| meshes.iter().filter(|&&mesh| self.of[mesh] == group).count();
        let mut left: Vec<(usize, usize)> = self.among(meshes).into_iter().map(|g| (g, of_group(g))).collect();
        left.shuffle(random);
        let (mut drawn, mut taken) = (BTreeSet::new(), 0);
        while left.len() > 1 && (taken as f64) < ABOUT * count {
            let fits = left.iter().position(|&(_, size)| (taken + size) as f64 <= count);
            let smallest = || left.iter().enumerate().min_by_key(|(_, (_, size))| *size).map(|(place, _)| place);
            let Some(place) = fits.or_else(smallest) else { break };
            let (group, size) = left.remove(place);
            drawn.insert(group);
            taken += size;
        }
        let (drawn, rest) = meshes.iter().partition(|&&mesh| drawn.contains(&self.of[mesh]));
        [drawn, rest]
    }

    /// The meshes of a group, and all others.
    ///
    /// # Errors
    /// A number that is not from 1 to the number of groups.
    pub fn fold(&self, number: usize) -> Result<[Vec<usize>; 2], String> {
        let group = number.checked_sub(1).filter(|&group| group < self.names.len());
        let group =
            group.ok_or_else(|| format!("{number} must be from 1 to {}, the number of groups", self.names.len()))?;
        let (test, rest) = (0..self.of.len()).partition(|&mesh: &usize| self.of[mesh] == group);
        Ok([test, rest])
    }

    /// What they are, in words.
    pub fn in_words(&self) -> String {
        let sizes = self.names.iter().zip(self.sizes());
        let sizes: Vec<String> = sizes.map(|(name, size)| format!("{name} {size}")).collect();
        format!("{} groups of meshes from {}: {}", self.names.len(), self.source, super::classes::listed(&sizes, 10))
    }
}
