//! Right and wrong, class by class.

use crate::data::{Classes, csv_cell};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Most classes whose confusion is kept.
const MOST_CONFUSED: usize = 100;

/// How a model does on each class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// One for each class.
    pub classes: Vec<ClassScore>,
    /// For each true class how often each class was predicted; only where there are at most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

/// How a model does on a class, in vertices or meshes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// What it is called.
    pub name: String,
    /// The number that stands for it in files.
    pub label: i64,
    /// How many are of this class.
    pub counted: u64,
    /// How many are said to be.
    pub predicted: u64,
    /// How many are both.
    pub right: u64,
}

impl ClassScore {
    /// Share of its own that are found; none if there are none.
    pub fn accuracy(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.right as f64 / self.counted as f64)
    }

    /// Those that are both over those that are either; none if there are none.
    pub fn intersection_over_union(&self) -> Option<f64> {
        let union = self.counted + self.predicted - self.right;
        (union > 0).then(|| self.right as f64 / union as f64)
    }
}

impl ClassScores {
    pub(super) fn new(classes: &Classes) -> Self {
        let count = classes.count();
        let score = |class: usize| ClassScore {
            name: classes.name(class),
            label: classes.label(class),
            counted: 0,
            predicted: 0,
            right: 0,
        };
        Self {
            classes: (0..count).map(score).collect(),
            confusion: (count <= MOST_CONFUSED).then(|| vec![vec![0; count]; count]),
        }
    }

    /// Counts one; both are classes of the model.
    pub(super) fn add(&mut self, label: u32, predicted: u32) {
        let (label, predicted) = (label as usize, predicted as usize);
        self.classes[label].counted += 1;
        self.classes[predicted].predicted += 1;
        self.classes[label].right += u64::from(label == predicted);
        if let Some(confusion) = &mut self.confusion {
            confusion[label][predicted] += 1;
        }
    }

    /// Mean of the accuracies of all classes that there are any of.
    pub fn mean_accuracy(&self) -> f64 {
        mean(self.classes.iter().filter_map(ClassScore::accuracy))
    }

    /// Mean over all classes that there are any of, found or predicted.
    pub fn mean_intersection_over_union(&self) -> f64 {
        let each = self.classes.iter();
        mean(each.filter_map(ClassScore::intersection_over_union))
    }

    /// Classes that there are any of, the least accurate first.
    pub fn worst(&self) -> Vec<&ClassScore> {
        let mut worst: Vec<&ClassScore> = self.classes.iter().filter(|c| c.counted > 0).collect();
        let share = |class: &ClassScore| class.accuracy().unwrap_or(1.0);
        worst.sort_by(|a, b| share(a).total_cmp(&share(b)));
        worst
    }

    pub(super) fn to_csv(&self) -> String {
        let mut text = "class,label,counted,predicted,right\n".to_string();
        for class in &self.classes {
            let ClassScore {
                name,
                label,
                counted,
                predicted,
                right,
            } = class;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{},{label},{counted},{predicted},{right}",
                csv_cell(name)
            );
        }
        text
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), v| (sum + v, count + 1));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_shares() {
        let mut scores = ClassScores::new(&Classes::numbered(4));
        for (label, predicted) in [(0, 0), (0, 0), (0, 1), (1, 1), (2, 0)] {
            scores.add(label, predicted);
        }
        let accuracies: Vec<_> = scores.classes.iter().map(ClassScore::accuracy).collect();
        assert_eq!(accuracies, [Some(2.0 / 3.0), Some(1.0), Some(0.0), None]);
        assert!((scores.mean_accuracy() - 5.0 / 9.0).abs() < 1e-12);
        // 2 of 4, 1 of 2, 0 of 1; the last class is nowhere.
        assert!((scores.mean_intersection_over_union() - 1.0 / 3.0).abs() < 1e-12);
        let worst: Vec<i64> = scores.worst().iter().map(|class| class.label).collect();
        assert_eq!(worst, [2, 0, 1]);
        assert_eq!(
            scores.confusion.as_ref().map(|c| c[0].clone()),
            Some(vec![2, 1, 0, 0])
        );
        assert!(scores.to_csv().contains("\n2,2,1,0,0\n"));
        assert_eq!(ClassScores::new(&Classes::numbered(101)).confusion, None);
    }
}
