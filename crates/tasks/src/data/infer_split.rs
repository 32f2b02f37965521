//! Inference of the splits of a folder without `dataset.toml`.

use super::description::{OneOrMany, PerSplit, SplitDescription};
use super::meshes::Item;
use super::split::Split;
use std::collections::BTreeSet;
use std::path::Path;

/// PerSplit from existing lists or folders.
pub(super) fn split(folder: &Path, items: &[Item]) -> SplitDescription {
    let file = |names: &[&str]| {
        let found = names.iter().find(|name| folder.join(name).is_file());
        found.map(|name| name.into())
    };
    let mut split = SplitDescription::default();
    let files = PerSplit {
        train: file(&["train.txt"]),
        validation: file(&["validation.txt", "val.txt"]),
        test: file(&["test.txt"]),
    };
    let of_splits =
        |patterns: &PerSplit<OneOrMany<String>>| Split::ALL.iter().any(|&split| patterns.get(split).is_some());
    let mut patterns = split_patterns(items, 0);
    let outermost: BTreeSet<Option<&str>> =
        (items.iter()).map(|item| item.name.split_once('/').map(|(folder, _)| folder)).collect();
    if !of_splits(&patterns) && outermost.len() == 1 {
        // All meshes are in one folder, which may have folders of splits.
        patterns = split_patterns(items, 1);
    }
    if folder.join("split.csv").is_file() {
        split.table = Some("split.csv".into());
    } else if files.train.is_some() || files.test.is_some() {
        split.files = Some(files);
    } else if of_splits(&patterns) {
        split.patterns = Some(patterns);
    }
    split
}

/// Patterns of the folders of splits at a depth.
pub(super) fn split_patterns(items: &[Item], depth: usize) -> PerSplit<OneOrMany<String>> {
    let folders = items.iter().filter_map(|item| item.name.split('/').nth(depth));
    let folders: BTreeSet<&str> = folders.collect();
    let patterns = |split| {
        let of_split = folders.iter().filter(|name| Split::parse(name) == Some(split));
        let mut patterns: Vec<String> = of_split.map(|name| format!("{}{name}/**", "*/".repeat(depth))).collect();
        match patterns.len() {
            0 | 1 => patterns.pop().map(OneOrMany::One),
            _ => Some(OneOrMany::Many(patterns)),
        }
    };
    PerSplit { train: patterns(Split::Train), validation: patterns(Split::Validation), test: patterns(Split::Test) }
}

pub(super) fn split_in_words(split: &SplitDescription) -> String {
    if let Some(table) = &split.table {
        return format!("splits from {}", table.display());
    }
    if split.files.is_some() {
        return "splits from train.txt and test.txt".into();
    }
    if let Some(patterns) = &split.patterns {
        let folders: Vec<&str> = Split::ALL
            .iter()
            .filter_map(|&split| patterns.get(split))
            .flat_map(OneOrMany::as_slice)
            .map(|pattern| pattern.trim_end_matches("/**"))
            .collect();
        let rest = match patterns.train {
            Some(_) => "",
            None => ", other meshes for training",
        };
        return format!("splits from the folders {}{rest}", folders.join(", "));
    }
    "80 % for training and 20 % for testing, at random".into()
}
