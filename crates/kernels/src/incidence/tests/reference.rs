//! The same maps entry by entry.

use crate::aggregate::reference::{reversed, rotated};
use crate::incidence::IncidenceArrays;
use crate::{Aggregation, FeatureType, Real};

/// Adds `scale rho(angle) x_c` to row `r` of `y` for every entry `(r, c)`; with `back`, `scale rho(-angle) x_r` to `c`.
fn scatter<T: Real>(
    features: &FeatureType,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    y: &mut [T],
    back: bool,
    scale: impl Fn(usize, usize) -> T,
) {
    let width = features.dimension();
    y.fill(T::zero());
    for row in 0..incidence.row_count() {
        for entry in incidence.rows.entries(row) {
            let column = incidence.rows.others[entry] as usize;
            let phases = &incidence.phases;
            let phase = *phases.get(entry).unwrap_or(&[T::one(), T::zero()]);
            let (to, from, phase) = if back { (column, row, reversed(phase)) } else { (row, column, phase) };
            let weight = *incidence.weights.get(entry).unwrap_or(&T::one());
            let message = rotated(features, phase, &x[from * width..][..width]);
            for (at, value) in message.into_iter().enumerate() {
                y[to * width + at] += scale(row, column) * weight * value;
            }
        }
    }
}

/// The same as [`Sum`](crate::incidence::Sum) to rows, or as its gradient where `back` is set.
pub fn apply<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    y: &mut [T],
    back: bool,
) {
    let scale = |row: usize, _| aggregation.scale(incidence.rows.entries(row).len());
    scatter(features, incidence, x, y, back, scale);
}

/// The same as [`Sum`](crate::incidence::Sum) to columns, or as its gradient where `back` is set.
pub fn apply_transposed<T: Real>(
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    y: &mut [T],
    back: bool,
) {
    let of_column = |column: u32| (incidence.rows.others.iter()).filter(|&&c| c == column).count();
    let counts: Vec<usize> = (0..incidence.column_count() as u32).map(of_column).collect();
    let scale = |_, column: usize| aggregation.scale(counts[column]);
    scatter(features, incidence, x, y, !back, scale);
}
