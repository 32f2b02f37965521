//! Classes: how many, what they are called, and which number stands for each.

use serde::{Deserialize, Serialize};

/// The classes of a data set; a class is a number from 0, a label the number that stands for it in
/// files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    count: usize,
    /// A name for each class, or none at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// A label for each class, or none at all where they are the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<i64>,
}

impl Classes {
    /// Classes that are called by their number.
    pub fn numbered(count: usize) -> Self {
        Self {
            count,
            names: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Classes with names; `labels` may be empty.
    pub(crate) fn named(names: Vec<String>, labels: Vec<i64>) -> Self {
        Self {
            count: names.len(),
            names,
            labels,
        }
    }

    /// Classes that are called by their labels.
    pub(crate) fn labelled(labels: Vec<i64>) -> Self {
        let count = labels.len();
        let same = labels.iter().copied().eq(0..count as i64);
        Self {
            count,
            names: Vec::new(),
            labels: if same { Vec::new() } else { labels },
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Names, if there are any.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What to call a class.
    pub fn name(&self, class: usize) -> String {
        match self.names.get(class) {
            Some(name) => name.clone(),
            None => self.label(class).to_string(),
        }
    }

    /// The number that stands for a class in files.
    pub fn label(&self, class: usize) -> i64 {
        self.labels.get(class).copied().unwrap_or(class as i64)
    }

    /// The class that a label stands for.
    pub fn class_of(&self, label: i64) -> Option<u32> {
        let class = match self.labels.is_empty() {
            true => usize::try_from(label).ok()?,
            false => self.labels.iter().position(|&other| other == label)?,
        };
        (class < self.count).then_some(class as u32)
    }

    /// The labels that there are, for messages.
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

/// Words with commas between them, and how many there are beyond the first `most`.
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
        assert_eq!(
            (teeth.name(1), found.name(1)),
            ("incisor".into(), "5".into())
        );
        assert_eq!(Classes::labelled(vec![0, 1]), Classes::numbered(2));
    }
}
