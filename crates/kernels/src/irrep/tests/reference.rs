//! The same maps number by number, in f64.

use crate::irrep::Grouping;
use crate::{FeatureType, Real, irrep_dimension};

/// The scalar of every number of a row.
pub(crate) fn scalars(features: &FeatureType, grouping: Grouping) -> Vec<usize> {
    let (mut scalars, mut irreps) = (Vec::new(), 0);
    for (order, channels) in features.orders() {
        for _component in 0..irrep_dimension(order) {
            scalars.extend((0..channels).map(|channel| match grouping {
                Grouping::Irreps => irreps + channel,
                Grouping::Heads(heads) => channel * heads / channels,
            }));
        }
        irreps += channels;
    }
    scalars
}

/// The same as [`Norm`](crate::irrep::Norm).
pub fn norm<T: Real>(features: &FeatureType, epsilon: f64, rows: usize, x: &[T], y: &mut [T]) {
    dot(features, Grouping::Irreps, rows, x, x, y);
    y.iter_mut().for_each(|y| *y = T::of((y.as_f64() + epsilon).sqrt()));
}

/// The same as [`NormBackward`](crate::irrep::NormBackward).
pub fn norm_backward<T: Real>(features: &FeatureType, epsilon: f64, rows: usize, x: &[T], dy: &[T], dx: &mut [T]) {
    let mut factors = vec![T::zero(); dy.len()];
    norm(features, epsilon, rows, x, &mut factors);
    for (factor, &dy) in factors.iter_mut().zip(dy) {
        *factor = dy / *factor;
    }
    scale(features, Grouping::Irreps, rows, x, &factors, dx);
}

/// The same as [`Dot`](crate::irrep::Dot).
pub fn dot<T: Real>(features: &FeatureType, grouping: Grouping, rows: usize, a: &[T], b: &[T], y: &mut [T]) {
    let (width, count) = (features.dimension(), grouping.count(features));
    for row in 0..rows {
        let mut sums = vec![0.0; count];
        for (at, scalar) in scalars(features, grouping).into_iter().enumerate() {
            sums[scalar] += a[row * width + at].as_f64() * b[row * width + at].as_f64();
        }
        for (scalar, sum) in sums.into_iter().enumerate() {
            y[row * count + scalar] = T::of(sum);
        }
    }
}

/// The same as [`Scale`](crate::irrep::Scale).
pub fn scale<T: Real>(features: &FeatureType, grouping: Grouping, rows: usize, x: &[T], factors: &[T], y: &mut [T]) {
    let (width, count) = (features.dimension(), grouping.count(features));
    for row in 0..rows {
        for (at, scalar) in scalars(features, grouping).into_iter().enumerate() {
            y[row * width + at] = factors[row * count + scalar] * x[row * width + at];
        }
    }
}
