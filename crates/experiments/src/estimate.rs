//! Means with standard errors.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A mean and its standard error. Displays as `99.85 ± 0.02`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean; `None` for a single value.
    pub standard_error: Option<f64>,
}

impl Estimate {
    /// Estimates the mean of some values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (!values.is_empty()).then(|| Self {
            mean,
            standard_error: (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt()),
        })
    }

    /// Mean and error times a factor, with a number of decimals.
    pub(crate) fn show(&self, factor: f64, decimals: usize) -> String {
        let mean = format!("{:.decimals$}", factor * self.mean);
        match self.standard_error {
            Some(error) => format!("{mean} ± {:.decimals$}", factor * error),
            None => mean,
        }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(1.0, 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_means_with_standard_errors() {
        assert_eq!(Estimate::of(&[]), None);
        let one = Estimate::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.standard_error), (0.5, None));
        // Deviations -1, 0, 1: variance 1, over three values.
        let three = Estimate::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((three.standard_error.unwrap() - (1f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(three.show(100.0, 1), "200.0 ± 57.7");
        assert_eq!(three.to_string(), "2.00 ± 0.58");
    }
}
