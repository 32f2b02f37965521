//! Sums of rotated rows: the sparse loop that operators on edges, incidences and clusters share.
//!
//! ```text
//! y_r = sum_{terms of r} scale w rho(angle) x_source
//! ```
//!
//! `w` is one number for each head. Heads split the channels of every order evenly, in order. Only
//! `(cos, sin)` of the angle is given; higher orders follow from the angle-addition recurrence.

use crate::parallel::for_rows;
use crate::{FeatureType, Real, irrep_dimension};

/// One term of a sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term<'a, T> {
    /// Row of `x`.
    pub source: usize,
    /// `(cos, sin)` of the angle.
    pub phase: [T; 2],
    /// Factor of the whole row.
    pub scale: T,
    /// Factor of each head; empty for ones.
    pub weights: &'a [T],
}

impl<T: Real> Term<'_, T> {
    /// A rotated row with factor 1.
    pub fn new(source: usize, phase: [T; 2]) -> Self {
        Self { source, phase, scale: T::one(), weights: &[] }
    }
}

/// Overwrites every row of `y` with the sum of its terms.
pub(crate) fn rotated_sum<'a, T: Real, Terms: Iterator<Item = Term<'a, T>>>(
    features: &FeatureType,
    x: &[T],
    y: &mut [T],
    terms: impl Fn(usize) -> Terms + Sync,
) {
    let width = features.dimension();
    for_rows(
        y,
        width,
        #[inline(always)]
        |row, y| {
            y.fill(T::zero());
            for term in terms(row) {
                add_rotated(features, &term, &x[term.source * width..][..width], y);
            }
        },
    );
}

/// `y += scale w rho(angle) x`, for one row.
#[inline(always)]
pub(crate) fn add_rotated<T: Real>(features: &FeatureType, term: &Term<'_, T>, x: &[T], y: &mut [T]) {
    let ([cosine, sine], heads) = (term.phase, term.weights.len().max(1));
    let (mut c, mut s) = (T::one(), T::zero());
    let mut start = 0;
    for (order, &channels) in features.multiplicities().iter().enumerate() {
        if order > 0 {
            (c, s) = (c * cosine - s * sine, s * cosine + c * sine);
        }
        let run = channels / heads;
        for head in 0..heads {
            let weight = match term.weights {
                [] => term.scale,
                weights => term.scale * weights[head],
            };
            let first = start + head * run;
            if order == 0 {
                let pairs = y[first..first + run].iter_mut().zip(&x[first..first + run]);
                pairs.for_each(|(y, &x)| *y += weight * x);
                continue;
            }
            let (wc, ws) = (weight * c, weight * s);
            let (ya, yb) = y[first..first + channels + run].split_at_mut(channels);
            let (xa, xb) = x[first..first + channels + run].split_at(channels);
            for (((ya, yb), &a), &b) in ya[..run].iter_mut().zip(yb).zip(xa).zip(xb) {
                *ya += wc * a - ws * b;
                *yb += ws * a + wc * b;
            }
        }
        start += irrep_dimension(order) * channels;
    }
}
