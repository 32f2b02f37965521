//! Scaling of features and targets that keeps equivariance.

use crate::{Result, SampleSource, TaskError};
use gemcnn_nn::columns::{Bounds, Moments, restore, standardise};
use gemcnn_nn::{FeatureType, Target, irrep_dimension};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// Largest size of a scaled feature: of a scalar, or of the length of a channel of order above 0.
const LIMIT: f32 = 10.0;
/// Samples, and rows of each, from which the bounds of outliers are computed.
const BOUND_SAMPLES: usize = 64;
const BOUND_ROWS: usize = 4096;

/// An equivariant scaling of each channel. Scalars get mean 0 and variance 1. A channel of order above 0 is
/// divided by its root mean squared length and never shifted, because its mean depends on the frames.
///
/// Outliers do not decide the scale of features and do not reach a network: values far beyond the 5 and 95 % quantiles
/// count as if they were on the [bounds](Bounds), and scaled features are limited to 10. On the debris of a scan, a heat
/// kernel signature is thousands of deviations from all others.
///
/// ```
/// use gemcnn_nn::FeatureType;
/// use gemcnn_tasks::FeatureScaling;
/// let kind: FeatureType = "1x0 + 1x1".parse()?;
/// let features = [1.0, 3.0, 4.0, 5.0, -3.0, 4.0];
/// let scaling = FeatureScaling::fit(&kind, [&features[..]]);
/// let mut scaled = features;
/// scaling.apply(&mut scaled);
/// assert_eq!(scaled, [-1.0, 0.6, 0.8, 1.0, -0.6, 0.8]);
/// # Ok::<(), gemcnn_nn::ParseTypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureScaling {
    /// Subtracted from each component of a row; 0 for orders above 0.
    shift: Vec<f32>,
    /// Divisor of each component; the same for both components of a channel.
    scale: Vec<f32>,
    /// Largest size of a scaled feature. Targets have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<f32>,
}

impl FeatureScaling {
    /// The scaling that changes nothing.
    pub fn identity(kind: &FeatureType) -> Self {
        Self { shift: vec![0.0; kind.dimension()], scale: vec![1.0; kind.dimension()], limit: None }
    }

    /// Computes the scaling from features, given in pieces of whole rows. Rows with a value that is not
    /// finite are skipped, and a constant channel keeps its scale.
    pub fn fit<'a>(kind: &FeatureType, features: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let pieces: Vec<&[f32]> = features.into_iter().collect();
        let Ok(scaling) = Self::fit_pieces(kind, pieces.len(), |index| Ok::<_, Infallible>(pieces[index].to_vec()));
        scaling
    }

    /// Computes the scaling from the features of a source.
    ///
    /// # Errors
    /// A sample that cannot be loaded.
    pub fn fit_source(kind: &FeatureType, source: &dyn SampleSource) -> Result<Self> {
        Self::fit_pieces(kind, source.len(), |index| Ok(source.load(index)?.features))
    }

    fn fit_pieces<E>(kind: &FeatureType, count: usize, load: impl Fn(usize) -> Result<Vec<f32>, E>) -> Result<Self, E> {
        let width = kind.dimension().max(1);
        let mut some = Vec::new();
        for index in (0..count).step_by(count.div_ceil(BOUND_SAMPLES).max(1)) {
            let piece = load(index)?;
            let rows = piece.len() / width;
            let chosen = piece.chunks_exact(width).step_by(rows.div_ceil(BOUND_ROWS).max(1));
            chosen.for_each(|row| some.extend_from_slice(row));
        }
        let bounds = Bounds::of(kind, &some);
        let mut moments = Moments::new(kind.dimension());
        for index in 0..count {
            let mut piece = load(index)?;
            bounds.apply(kind, &mut piece);
            moments.add(&piece);
        }
        Ok(Self { limit: Some(LIMIT), ..scaling(&moments, kind) })
    }

    /// Computes the scaling from the target values of a source.
    ///
    /// # Errors
    /// A sample that cannot be loaded.
    pub fn fit_targets(kind: &FeatureType, source: &dyn SampleSource) -> Result<Self> {
        let mut moments = Moments::new(kind.dimension());
        for index in 0..source.len() {
            if let Target::Values(values) = source.target(index)? {
                moments.add(&values);
            }
        }
        Ok(scaling(&moments, kind))
    }

    /// Fails unless it is a finite scaling of features of a type.
    pub(crate) fn check(&self, what: &str, kind: &FeatureType) -> Result<()> {
        let size = kind.dimension();
        let refuse = |problem: String| Err(TaskError::setting(what, problem));
        if self.shift.len() != size || self.scale.len() != size {
            return refuse(format!("it does not have the {size} components of {kind}"));
        }
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        let limited = self.limit.is_none_or(|limit| limit > 0.0 && limit.is_finite());
        match finite(&self.shift) && finite(&self.scale) && !self.scale.contains(&0.0) && limited {
            true => Ok(()),
            false => refuse("it has values that are not finite, divides by 0, or limits features to 0".into()),
        }
    }

    /// Number of components of a row.
    pub fn dimension(&self) -> usize {
        self.scale.len()
    }

    /// Scales rows of features or targets, without limits.
    pub fn apply(&self, features: &mut [f32]) {
        standardise(features, &self.shift, &self.scale);
    }

    /// Scales rows of features, and limits them.
    pub fn apply_limited(&self, kind: &FeatureType, features: &mut [f32]) {
        self.apply(features);
        if let Some(limit) = self.limit {
            Bounds::uniform(kind.dimension(), limit).apply(kind, features);
        }
    }

    /// Inverse of [`apply`](Self::apply).
    pub fn undo(&self, features: &mut [f32]) {
        restore(features, &self.shift, &self.scale);
    }
}

fn scaling(moments: &Moments, kind: &FeatureType) -> FeatureScaling {
    let mut scaling = FeatureScaling::identity(kind);
    if moments.count == 0.0 {
        return scaling;
    }
    let variance = |at: usize| moments.deviations[at] / moments.count;
    let squared = |at: usize| variance(at) + moments.mean[at] * moments.mean[at];
    for (order, channels) in kind.orders() {
        let start = kind.range(order).start;
        for first in start..start + channels {
            if order == 0 {
                scaling.shift[first] = moments.mean[first] as f32;
                // The deviation of a constant is rounding.
                let deviation = variance(first).sqrt();
                if deviation > 1e-6 * moments.mean[first].abs() {
                    scaling.scale[first] = usable(deviation);
                }
            } else {
                let length = (squared(first) + squared(first + channels)).sqrt();
                for component in 0..irrep_dimension(order) {
                    scaling.scale[first + component * channels] = usable(length);
                }
            }
        }
    }
    scaling
}

/// A divisor; 1 if the size is zero or not a normal number in single precision.
fn usable(size: f64) -> f32 {
    match size as f32 {
        size if size.is_normal() => size,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(kind: &FeatureType, rows: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 100.0 - 3.0;
        (0..rows * kind.dimension()).map(value).collect()
    }

    #[test]
    fn scalars_get_mean_0_and_all_channels_size_1() {
        let kind: FeatureType = "2x0 + 3x1 + 1x2".parse().unwrap();
        let mut rows = features(&kind, 500);
        let scaling = FeatureScaling::fit(&kind, rows.chunks(kind.dimension() * 7));
        let before = rows.clone();
        scaling.apply(&mut rows);
        let again = FeatureScaling::fit(&kind, [&rows[..]]);
        let identity = FeatureScaling::identity(&kind);
        let pairs = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(pairs(&again.shift, &identity.shift), "{again:?}");
        assert!(pairs(&again.scale, &identity.scale), "{again:?}");
        scaling.undo(&mut rows);
        assert!(pairs(&rows, &before));
    }

    #[test]
    fn scaling_commutes_with_rotations_of_frames() {
        let kind: FeatureType = "1x0 + 2x1 + 1x3".parse().unwrap();
        let rotated = |rows: &[f32]| -> Vec<f32> {
            let mut rows = rows.to_vec();
            for (index, row) in rows.chunks_exact_mut(kind.dimension()).enumerate() {
                for (order, channels) in kind.orders().filter(|&(order, _)| order > 0) {
                    let (sine, cosine) = (order as f32 * index as f32).sin_cos();
                    for x in kind.range(order).take(channels) {
                        let (a, b) = (row[x], row[x + channels]);
                        row[x] = cosine * a - sine * b;
                        row[x + channels] = sine * a + cosine * b;
                    }
                }
            }
            rows
        };
        let rows = features(&kind, 300);
        let scaling = FeatureScaling::fit(&kind, [&rows[..]]);
        let other = FeatureScaling::fit(&kind, [&rotated(&rows)[..]]);
        for (a, b) in scaling.scale.iter().zip(&other.scale) {
            assert!((a - b).abs() < 1e-4 * a, "statistics depend on frames");
        }
        let mut scaled_then_rotated = rows.clone();
        scaling.apply(&mut scaled_then_rotated);
        let scaled_then_rotated = rotated(&scaled_then_rotated);
        let mut rotated_then_scaled = rotated(&rows);
        scaling.apply(&mut rotated_then_scaled);
        for (a, b) in scaled_then_rotated.iter().zip(&rotated_then_scaled) {
            assert!((a - b).abs() < 1e-5);
        }
    }

    #[test]
    fn constants_and_unknown_rows_do_no_harm() {
        let kind = FeatureType::scalars(2);
        let rows = [1e3, 1.0, f32::NAN, 5.0, 1e3, 3.0];
        let scaling = FeatureScaling::fit(&kind, [&rows[..]]);
        let mut scaled = rows;
        scaling.apply(&mut scaled);
        assert_eq!((scaled[0], scaled[1], scaled[5]), (0.0, -1.0, 1.0));
        let none = FeatureScaling::fit(&kind, []);
        assert_eq!((none.shift, none.scale), (vec![0.0; 2], vec![1.0; 2]));
    }

    #[test]
    fn a_little_debris_changes_no_scale_and_stays_within_the_limit() {
        let kind: FeatureType = "1x0 + 1x1".parse().unwrap();
        let mut rows = features(&kind, 2000);
        let clean = FeatureScaling::fit(&kind, [&rows[..]]);
        for row in rows.chunks_exact_mut(3).step_by(100) {
            row.copy_from_slice(&[1e4, -3e5, 4e5]);
        }
        let scaling = FeatureScaling::fit(&kind, rows.chunks(3 * 500));
        for (a, b) in scaling.scale.iter().zip(&clean.scale) {
            assert!((1.0..2.0).contains(&(a / b)), "{scaling:?} {clean:?}");
        }
        scaling.apply_limited(&kind, &mut rows);
        assert_eq!(rows[0], 10.0);
        assert!((rows[1] + 6.0).abs() < 1e-5 && (rows[2] - 8.0).abs() < 1e-5);
        let mut second = rows[3..6].to_vec();
        scaling.undo(&mut second);
        assert!(second.iter().zip(&features(&kind, 2)[3..]).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}
