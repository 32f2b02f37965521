//! Statistics of the columns of features, and maps of each column. These loops over all values are compiled here: the
//! crates that use them are not optimised.

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
