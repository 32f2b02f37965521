//! Classes: their number, names and labels.

use serde::{Deserialize, Serialize};

/// The classes of a data set. A class is an index from 0; its label is the number in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    count: usize,
    /// Name of each class, or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// Label of each class, or empty if labels equal indices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<i64>,
}

impl Classes {
    /// Classes without names, with their indices as labels.
    pub fn numbered(count: usize) -> Self {
        Self { count, names: Vec::new(), labels: Vec::new() }
    }

    /// Classes with names. `labels` may be empty.
    pub(crate) fn named(names: Vec<String>, labels: Vec<i64>) -> Self {
        Self { count: names.len(), names, labels }
    }

    /// Classes without names, with given labels.
    pub(crate) fn labelled(labels: Vec<i64>) -> Self {
        let count = labels.len();
        let same = labels.iter().copied().eq(0..count as i64);
        Self { count, names: Vec::new(), labels: if same { Vec::new() } else { labels } }
    }

    /// Number of classes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Names; empty if there are none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Name of a class, or its label.
    pub fn name(&self, class: usize) -> String {
        match self.names.get(class) {
            Some(name) => name.clone(),
            None => self.label(class).to_string(),
        }
    }

    /// Label of a class in files.
    pub fn label(&self, class: usize) -> i64 {
        self.labels.get(class).copied().unwrap_or(class as i64)
    }

    /// Class of a label.
    pub fn class_of(&self, label: i64) -> Option<u32> {
        let class = match self.labels.is_empty() {
            true => usize::try_from(label).ok()?,
            false => self.labels.iter().position(|&other| other == label)?,
        };
        (class < self.count).then_some(class as u32)
    }

    /// Class of a name, or of a label written as text.
    pub(crate) fn named_or_labelled(&self, word: &str) -> Option<usize> {
        let named = self.names.iter().position(|name| name == word);
        named.or_else(|| Some(self.class_of(word.parse().ok()?)? as usize))
    }

    /// All labels, for messages.
    pub(crate) fn allowed(&self) -> String {
        match self.labels.is_empty() {
            true => format!("0 to {}", self.count.saturating_sub(1)),
            false => {
                let words: Vec<String> = self.labels.iter().map(i64::to_string).collect();
                listed(&words, 50)
            }
        }
    }
}

/// The first `most` words, separated by commas, and the number of the others.
pub(crate) fn listed(words: &[String], most: usize) -> String {
    let shown = words[..words.len().min(most)].join(", ");
    match words.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_classes_are_inverse() {
        let teeth = Classes::named(vec!["gum".into(), "incisor".into()], vec![0, 11]);
        let found = Classes::labelled(vec![3, 5, 9]);
        for classes in [&teeth, &found, &Classes::numbered(4)] {
            for class in 0..classes.count() {
                assert_eq!(classes.class_of(classes.label(class)), Some(class as u32));
            }
            for none in [-1, 4, 7] {
                assert_eq!(classes.class_of(none), None);
            }
        }
        assert_eq!((teeth.name(1), found.name(1)), ("incisor".into(), "5".into()));
        assert_eq!(Classes::labelled(vec![0, 1]), Classes::numbered(2));
    }
}
