//! Weights of classes in the loss.

use crate::{Result, SampleSource};
use gemcnn_nn::{IGNORE, Target};
use serde::{Deserialize, Serialize};

/// Weight of each class in the loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClassWeights {
    /// All vertices have equal weight.
    #[default]
    None,
    /// All classes have equal weight: with `n_c` of `n` labels of the training split in class `c`, and `k`
    /// classes that occur, the weight of class `c` is `n / (k n_c)`.
    Balanced,
    /// Given weights.
    Given {
        /// One for each class.
        weights: Vec<f64>,
    },
}

impl ClassWeights {
    /// The weights of a number of classes. Balanced weights are computed from the labels of the training split.
    pub(super) fn of(&self, classes: usize, source: &dyn SampleSource) -> Result<Option<Vec<f32>>> {
        Ok(match self {
            Self::None => None,
            Self::Given { weights } => Some(weights.iter().map(|&weight| weight as f32).collect()),
            Self::Balanced => {
                let mut counts = vec![0; classes];
                for index in 0..source.len() {
                    count_labels(&source.target(index)?, &mut counts);
                }
                Some(balanced(&counts))
            }
        })
    }
}

fn count_labels(target: &Target, counts: &mut [u64]) {
    for &label in target.as_ref().classes().into_iter().flatten().filter(|&&label| label != IGNORE) {
        if let Some(count) = counts.get_mut(label as usize) {
            *count += 1;
        }
    }
}

fn balanced(counts: &[u64]) -> Vec<f32> {
    let labels: u64 = counts.iter().sum();
    let occurring = counts.iter().filter(|&&count| count > 0).count() as f64;
    let weight = |&count: &u64| match count {
        0 => 0.0,
        count => (labels as f64 / (occurring * count as f64)) as f32,
    };
    counts.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_classes_weigh_more() {
        let mut counts = [0; 4];
        count_labels(&Target::Classes(vec![0, 0, 0, 1, IGNORE, 9]), &mut counts);
        count_labels(&Target::Classes(vec![3]), &mut counts);
        count_labels(&Target::Unknown, &mut counts);
        assert_eq!(counts, [3, 1, 0, 1]);
        let weights = balanced(&counts);
        assert_eq!(weights, [5.0 / 9.0, 5.0 / 3.0, 0.0, 5.0 / 3.0]);
        let shares: f32 = weights.iter().zip(counts).map(|(w, n)| w * n as f32).sum();
        assert!((shares - 5.0).abs() < 1e-6, "the mean weight is 1");
    }
}
