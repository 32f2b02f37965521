//! Errors of regression.

use gemcnn_nn::FeatureType;
use serde::{Deserialize, Serialize};

/// Errors of a regression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegressionScores {
    /// Root mean squared length of the difference, over all components of a row.
    pub root_mean_square: f64,
    /// Mean over channels of the absolute difference of scalars and the length of the difference of vectors.
    pub mean_absolute: f64,
    /// Explained fraction of the variance of the targets (R squared): about the mean for scalars, about zero for
    /// vectors. `None` without variance; below 0 if predictions are worse than the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<f64>,
    /// Mean angle between predicted and true vectors in degrees, over those that are not zero. `None` without
    /// vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_angle: Option<f64>,
    /// Errors of each scalar, then of each vector, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnScores>,
}

/// Errors of a scalar or a vector of a regression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnScores {
    /// Name of the column, or its number from 0.
    pub name: String,
    /// Root mean square of the difference, or of its length.
    pub root_mean_square: f64,
    /// Mean absolute difference, or mean length of it.
    pub mean_absolute: f64,
}

/// Sums for [`RegressionScores`].
pub(crate) struct RegressionSums {
    kind: FeatureType,
    rows: u64,
    squares: f64,
    lengths: f64,
    channels: u64,
    angles: f64,
    vectors: u64,
    /// Sums of each scalar of the targets, and of all their squares.
    wanted: Vec<f64>,
    wanted_squares: f64,
    /// Sums of squares and of lengths of the difference of each channel.
    columns: Vec<[f64; 2]>,
}

impl RegressionSums {
    pub fn new(kind: &FeatureType) -> Self {
        Self {
            kind: kind.clone(),
            rows: 0,
            squares: 0.0,
            lengths: 0.0,
            channels: 0,
            angles: 0.0,
            vectors: 0,
            wanted: vec![0.0; kind.multiplicity(0)],
            wanted_squares: 0.0,
            columns: vec![[0.0; 2]; kind.orders().map(|(_, channels)| channels).sum()],
        }
    }

    /// Adds rows, or only the known ones, and returns their mean squared difference.
    pub fn add(&mut self, found: &[f32], wanted: &[f32], known: Option<&[bool]>) -> f64 {
        let width = self.kind.dimension().max(1);
        let (rows, squares) = (self.rows, self.squares);
        let pairs = found.chunks_exact(width).zip(wanted.chunks_exact(width));
        for (row, (found, wanted)) in pairs.enumerate() {
            if known.is_none_or(|known| known.get(row) == Some(&true)) {
                self.add_row(found, wanted);
            }
        }
        (self.squares - squares) / (self.rows - rows).max(1) as f64
    }

    fn add_row(&mut self, found: &[f32], wanted: &[f32]) {
        self.rows += 1;
        for (sum, &value) in self.wanted.iter_mut().zip(&wanted[self.kind.range(0)]) {
            *sum += f64::from(value);
        }
        self.wanted_squares += wanted.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
        let mut column = 0;
        for (order, channels) in self.kind.orders() {
            let start = self.kind.range(order).start;
            for channel in start..start + channels {
                // Both components of order above 0, and a zero for scalars.
                let pair = |row: &[f32]| match order {
                    0 => [row[channel].into(), 0.0],
                    _ => [row[channel].into(), f64::from(row[channel + channels])],
                };
                let ([x, y], [u, v]): ([f64; 2], [f64; 2]) = (pair(found), pair(wanted));
                let length = (x - u).hypot(y - v);
                self.squares += length * length;
                self.lengths += length;
                self.channels += 1;
                self.columns[column][0] += length * length;
                self.columns[column][1] += length;
                column += 1;
                if order == 1 && x.hypot(y) > 0.0 && u.hypot(v) > 0.0 {
                    self.angles += (x * v - y * u).atan2(x * u + y * v).abs();
                    self.vectors += 1;
                }
            }
        }
    }

    /// The scores. `names` are those of the columns, or empty.
    pub fn scores(&self, names: &[String]) -> RegressionScores {
        let mean = |sum: f64, count: u64| sum / count.max(1) as f64;
        let of_means: f64 = self.wanted.iter().map(|&sum| sum * mean(sum, self.rows)).sum();
        let variance = self.wanted_squares - of_means;
        // The variance of constants is rounding.
        let varies = variance > 1e-12 * self.wanted_squares;
        let column = |(number, [squares, lengths]): (usize, &[f64; 2])| ColumnScores {
            name: match names.get(number) {
                Some(name) if names.len() == self.columns.len() => name.clone(),
                _ => number.to_string(),
            },
            root_mean_square: mean(*squares, self.rows).sqrt(),
            mean_absolute: mean(*lengths, self.rows),
        };
        RegressionScores {
            columns: match self.columns.len() {
                0 | 1 => Vec::new(),
                _ => self.columns.iter().enumerate().map(column).collect(),
            },
            root_mean_square: mean(self.squares, self.rows).sqrt(),
            mean_absolute: mean(self.lengths, self.channels),
            explained: varies.then(|| 1.0 - self.squares / variance),
            mean_angle: (self.kind.multiplicity(1) > 0).then(|| mean(self.angles, self.vectors).to_degrees()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_vectors_have_their_own_errors() {
        // One scalar and one vector in a row.
        let mut sums = RegressionSums::new(&"1x0 + 1x1".parse().unwrap());
        let found = [1.0, 1.0, 0.0, 5.0, 0.0, 2.0, 9.0, 9.0, 9.0];
        let wanted = [4.0, 0.0, 1.0, 5.0, 0.0, 2.0, 0.0, 0.0, 0.0];
        let mean_square = sums.add(&found, &wanted, Some(&[true, true, false]));
        assert!((mean_square - 5.5).abs() < 1e-6);
        let scores = sums.scores(&["height".into(), "flow".into()]);
        assert!((scores.root_mean_square - 5.5f64.sqrt()).abs() < 1e-6);
        assert!((scores.mean_absolute - (3.0 + 2f64.sqrt()) / 4.0).abs() < 1e-6);
        assert!((scores.mean_angle.unwrap() - 45.0).abs() < 1e-4);
        let [height, flow] = &scores.columns[..] else { panic!("{:?}", scores.columns) };
        assert_eq!((&*height.name, &*flow.name), ("height", "flow"));
        assert!((height.root_mean_square - 4.5f64.sqrt()).abs() < 1e-6);
        assert!((height.mean_absolute - 1.5).abs() < 1e-6);
        assert!((flow.root_mean_square - 1.0).abs() < 1e-6);
        assert!((flow.mean_absolute - 0.5 * 2f64.sqrt()).abs() < 1e-6);
        // Scalars 4 and 5 about 4.5, vectors of lengths 1 and 2; differences of 3 and of the root of 2.
        let explained = 1.0 - (9.0 + 2.0) / (0.5 + 1.0 + 4.0);
        assert!((scores.explained.unwrap() - explained).abs() < 1e-9);
        assert_eq!(RegressionSums::new(&FeatureType::scalars(2)).scores(&[]).mean_angle, None);
        let mut constant = RegressionSums::new(&FeatureType::scalars(1));
        constant.add(&[1.0, 2.0], &[101_325.0; 2], None);
        assert_eq!(constant.scores(&[]).explained, None);
    }
}
