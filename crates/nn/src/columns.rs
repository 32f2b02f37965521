//! Statistics of the columns of features, and maps of each column. These loops over all values are compiled here: the
//! crates that use them are not optimised.

use crate::FeatureType;

/// Mean and deviation of each column, updated row by row.
#[derive(Debug, Clone)]
pub struct Moments {
    /// Number of rows.
    pub count: f64,
    /// Mean of each column.
    pub mean: Vec<f64>,
    /// Sum of the squared differences from the mean.
    pub deviations: Vec<f64>,
}

impl Moments {
    /// Of no rows.
    pub fn new(columns: usize) -> Self {
        Self { count: 0.0, mean: vec![0.0; columns], deviations: vec![0.0; columns] }
    }

    /// Adds rows. Those with values that are not finite are left out.
    pub fn add(&mut self, rows: &[f32]) {
        for row in rows.chunks_exact(self.mean.len().max(1)) {
            if !row.iter().all(|value| value.is_finite()) {
                continue;
            }
            self.count += 1.0;
            let sums = self.mean.iter_mut().zip(&mut self.deviations);
            for (&value, (mean, deviation)) in row.iter().zip(sums) {
                let before = f64::from(value) - *mean;
                *mean += before / self.count;
                *deviation += before * (f64::from(value) - *mean);
            }
        }
    }
}

/// Bounds of the channels of features: the least and largest scalar, and the largest length of a channel of higher order.
#[derive(Debug, Clone)]
pub struct Bounds {
    low: Vec<f32>,
    high: Vec<f32>,
}

impl Bounds {
    /// Share of the values outside the quantiles, on each side.
    const TAIL: f64 = 0.05;
    /// Distance of a bound from its quantile, relative to that between the two.
    const DISTANCE: f32 = 3.0;

    /// From -`size` to `size` for scalars, and lengths up to `size`.
    pub fn uniform(columns: usize, size: f32) -> Self {
        Self { low: vec![-size; columns], high: vec![size; columns] }
    }

    /// Bounds that only outliers exceed: those farther from the 5 and 95 % quantiles of a channel than three times the
    /// distance between the two. A channel whose quantiles are equal has no bounds. Lengths have no lower bound.
    pub fn of(kind: &FeatureType, rows: &[f32]) -> Self {
        let width = kind.dimension();
        let mut bounds = Self::uniform(width, f32::INFINITY);
        let mut sizes = Vec::new();
        for (order, channels) in kind.orders() {
            for at in kind.range(order).take(channels) {
                sizes.clear();
                let size = |row: &[f32]| if order == 0 { row[at] } else { row[at].hypot(row[at + channels]) };
                sizes.extend(rows.chunks_exact(width).map(size).filter(|size| size.is_finite()));
                if sizes.is_empty() {
                    continue;
                }
                let last = (sizes.len() - 1) as f64;
                let [low, high] = [Self::TAIL, 1.0 - Self::TAIL]
                    .map(|share| *sizes.select_nth_unstable_by((share * last).round() as usize, f32::total_cmp).1);
                let distance = Self::DISTANCE * (high - low);
                if distance > 0.0 {
                    (bounds.low[at], bounds.high[at]) = (low - distance, high + distance);
                }
            }
        }
        bounds
    }

    /// Moves scalars into the bounds, and shortens longer channels of higher orders. Leaves values that are not finite.
    pub fn apply(&self, kind: &FeatureType, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(kind.dimension().max(1)) {
            for (order, channels) in kind.orders() {
                for at in kind.range(order).take(channels) {
                    let (low, high) = (self.low[at], self.high[at]);
                    let size = if order == 0 { row[at] } else { row[at].hypot(row[at + channels]) };
                    if !size.is_finite() || (low..=high).contains(&size) {
                        continue;
                    }
                    if order == 0 {
                        row[at] = size.clamp(low, high);
                    } else if size > high {
                        row[at] *= high / size;
                        row[at + channels] *= high / size;
                    }
                }
            }
        }
    }
}

/// `x <- (x - shift) / scale` of each column.
pub fn standardise(rows: &mut [f32], shift: &[f32], scale: &[f32]) {
    for row in rows.chunks_exact_mut(scale.len().max(1)) {
        for ((value, shift), scale) in row.iter_mut().zip(shift).zip(scale) {
            *value = (*value - shift) / scale;
        }
    }
}

/// Sets some columns of rows of `width` values to 0.
pub fn clear(rows: &mut [f32], width: usize, columns: &[usize]) {
    for row in rows.chunks_exact_mut(width.max(1)) {
        columns.iter().for_each(|&column| row[column] = 0.0);
    }
}

/// `x <- x scale + shift` of each column, the inverse of [`standardise`].
pub fn restore(rows: &mut [f32], shift: &[f32], scale: &[f32]) {
    for row in rows.chunks_exact_mut(scale.len().max(1)) {
        for ((value, shift), scale) in row.iter_mut().zip(shift).zip(scale) {
            *value = *value * scale + shift;
        }
    }
}
