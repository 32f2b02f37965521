//! Inference of the parts of a folder without `dataset.toml`.

use super::description::{OneOrMany, Parts, SplitDescription};
use super::meshes::Item;
use super::part::Part;
use std::collections::BTreeSet;
use std::path::Path;

/// Parts from existing lists or folders.
pub(super) fn split(folder: &Path, items: &[Item]) -> SplitDescription {
    let file = |names: &[&str]| {
        let found = names.iter().find(|name| folder.join(name).is_file());
        found.map(|name| name.into())
    };
    let mut split = SplitDescription::default();
    let files = Parts {
        train: file(&["train.txt"]),
        validation: file(&["validation.txt", "val.txt"]),
        test: file(&["test.txt"]),
    };
    let of_parts = |patterns: &Parts<OneOrMany<String>>| Part::ALL.iter().any(|&part| patterns.get(part).is_some());
    let mut patterns = part_patterns(items, 0);
    let outermost: BTreeSet<Option<&str>> =
        (items.iter()).map(|item| item.name.split_once('/').map(|(folder, _)| folder)).collect();
    if !of_parts(&patterns) && outermost.len() == 1 {
        // All meshes are in one folder, which may have folders of parts.
        patterns = part_patterns(items, 1);
    }
    if folder.join("split.csv").is_file() {
        split.table = Some("split.csv".into());
    } else if files.train.is_some() || files.test.is_some() {
        split.files = Some(files);
    } else if of_parts(&patterns) {
        split.patterns = Some(patterns);
    }
    split
}

/// Patterns of the folders of parts at a depth.
pub(super) fn part_patterns(items: &[Item], depth: usize) -> Parts<OneOrMany<String>> {
    let folders = items.iter().filter_map(|item| item.name.split('/').nth(depth));
    let folders: BTreeSet<&str> = folders.collect();
    let patterns = |part| {
        let of_part = folders.iter().filter(|name| Part::parse(name) == Some(part));
        let mut patterns: Vec<String> = of_part.map(|name| format!("{}{name}/**", "*/".repeat(depth))).collect();
        match patterns.len() {
            0 | 1 => patterns.pop().map(OneOrMany::One),
            _ => Some(OneOrMany::Many(patterns)),
        }
    };
    Parts { train: patterns(Part::Train), validation: patterns(Part::Validation), test: patterns(Part::Test) }
}

pub(super) fn split_in_words(split: &SplitDescription) -> String {
    if let Some(table) = &split.table {
        return format!("parts from {}", table.display());
    }
    if split.files.is_some() {
        return "parts from train.txt and test.txt".into();
    }
    if let Some(patterns) = &split.patterns {
        let folders: Vec<&str> = Part::ALL
            .iter()
            .filter_map(|&part| patterns.get(part))
            .flat_map(OneOrMany::as_slice)
            .map(|pattern| pattern.trim_end_matches("/**"))
            .collect();
        let rest = match patterns.train {
            Some(_) => "",
            None => ", other meshes for training",
        };
        return format!("parts from the folders {}{rest}", folders.join(", "));
    }
    "80 % for training and 20 % for testing, at random".into()
}
