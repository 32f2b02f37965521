//! Scores of each class.

use crate::data::{Classes, csv_cell};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Largest number of classes with a confusion matrix.
const MAX_CONFUSED: usize = 100;

/// Scores of each class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// One for each class.
    pub classes: Vec<ClassScore>,
    /// Confusion matrix: for each true class, the counts of predicted classes. Only for at most 100 classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

/// Scores of a class, as counts of vertices or meshes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// Name.
    pub name: String,
    /// Label in files.
    pub label: i64,
    /// Number with this class.
    pub counted: u64,
    /// Number predicted as this class.
    pub predicted: u64,
    /// Number of correct predictions.
    pub right: u64,
}

impl ClassScore {
    /// Fraction of correct predictions (recall); `None` if the class does not occur.
    pub fn accuracy(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.right as f64 / self.counted as f64)
    }

    /// Intersection over union; `None` if the class neither occurs nor is predicted.
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
            confusion: (count <= MAX_CONFUSED).then(|| vec![vec![0; count]; count]),
        }
    }

    /// Counts one prediction. Both are classes of the model.
    pub(super) fn add(&mut self, label: u32, predicted: u32) {
        let (label, predicted) = (label as usize, predicted as usize);
        self.classes[label].counted += 1;
        self.classes[predicted].predicted += 1;
        self.classes[label].right += u64::from(label == predicted);
        if let Some(confusion) = &mut self.confusion {
            confusion[label][predicted] += 1;
        }
    }

    /// Mean accuracy of the classes that occur.
    pub fn mean_accuracy(&self) -> f64 {
        mean(self.classes.iter().filter_map(ClassScore::accuracy))
    }

    /// Mean intersection over union of the classes that occur or are predicted.
    pub fn mean_intersection_over_union(&self) -> f64 {
        let each = self.classes.iter();
        mean(each.filter_map(ClassScore::intersection_over_union))
    }

    /// The classes that occur, least accurate first.
    pub fn worst(&self) -> Vec<&ClassScore> {
        let mut worst: Vec<&ClassScore> = self.classes.iter().filter(|c| c.counted > 0).collect();
        let share = |class: &ClassScore| class.accuracy().unwrap_or(1.0);
        worst.sort_by(|a, b| share(a).total_cmp(&share(b)));
        worst
    }

    /// Names of the classes that do not occur.
    pub(super) fn absent(&self) -> Vec<String> {
        self.classes.iter().filter(|class| class.counted == 0).map(|class| class.name.clone()).collect()
    }

    pub(super) fn to_csv(&self) -> String {
        let mut text = "class,label,counted,predicted,right\n".to_string();
        for class in &self.classes {
            let ClassScore { name, label, counted, predicted, right } = class;
            // Writing to a string does not fail.
            let _ = writeln!(text, "{},{label},{counted},{predicted},{right}", csv_cell(name));
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
        // 2 of 4, 1 of 2, 0 of 1; the last class does not occur.
        assert!((scores.mean_intersection_over_union() - 1.0 / 3.0).abs() < 1e-12);
        let worst: Vec<i64> = scores.worst().iter().map(|class| class.label).collect();
        assert_eq!(worst, [2, 0, 1]);
        assert_eq!(scores.confusion.as_ref().map(|c| c[0].clone()), Some(vec![2, 1, 0, 0]));
        assert!(scores.to_csv().contains("\n2,2,1,0,0\n"));
        assert_eq!(ClassScores::new(&Classes::numbered(101)).confusion, None);
    }
}
