//! The relative error of the paper.

use gemcnn_nn::Real;

/// Sums over the outputs of one network. They are sums of differences in f64, so that an error of the size of
/// rounding is not lost next to large outputs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outputs {
    /// The output that others are compared with; by default the first one.
    reference: Vec<f64>,
    /// True if the variance around the mean counts, false for the distance from the reference.
    scatter: bool,
    count: f64,
    /// Sums over outputs of the differences and of their squares, by component.
    sums: Vec<f64>,
    squares: Vec<f64>,
}

impl Outputs {
    /// Outputs that should all be equal.
    pub fn alike() -> Self {
        Self { reference: Vec::new(), scatter: true, count: 0.0, sums: Vec::new(), squares: Vec::new() }
    }

    /// Outputs that should all equal `reference`.
    pub fn about<T: Real>(reference: &[T]) -> Self {
        let reference: Vec<f64> = reference.iter().map(|v| v.as_f64()).collect();
        Self {
            scatter: false,
            sums: vec![0.0; reference.len()],
            squares: vec![0.0; reference.len()],
            reference,
            ..Self::alike()
        }
    }

    pub fn add<T: Real>(&mut self, output: &[T]) {
        if self.reference.is_empty() {
            *self = Self { scatter: self.scatter, ..Self::about(output) };
        }
        self.count += 1.0;
        let sums = self.sums.iter_mut().zip(&mut self.squares);
        for ((value, reference), (sum, square)) in output.iter().zip(&self.reference).zip(sums) {
            let difference = value.as_f64() - reference;
            *sum += difference;
            *square += difference * difference;
        }
    }

    /// Variance over outputs, or mean squared distance, averaged over components.
    fn mean_error(&self) -> f64 {
        let components = self.sums.iter().zip(&self.squares);
        let errors = components.map(|(sum, square)| match self.scatter {
            true => (square - sum * sum / self.count).max(0.0) / (self.count - 1.0),
            false => square / self.count,
        });
        errors.sum::<f64>() / self.reference.len().max(1) as f64
    }
}

/// Square root of the mean error of all networks divided by the variance of all reference outputs.
pub(super) fn relative_error<'a>(networks: impl Iterator<Item = &'a Outputs> + Clone) -> f64 {
    let errors = networks.clone().map(Outputs::mean_error);
    let error = errors.sum::<f64>() / networks.clone().count() as f64;
    let values = || networks.clone().flat_map(|outputs| &outputs.reference);
    let count = values().count() as f64;
    let mean = values().sum::<f64>() / count;
    let variance = values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1.0);
    (error / variance).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_over_outputs_is_relative_to_that_over_components() {
        let mut outputs = Outputs::alike();
        for output in [[1.0, 10.0], [3.0, 10.0], [2.0, 13.0]] {
            outputs.add(&output);
        }
        // Variances 1 and 3; the reference is (1, 10) with variance 40.5.
        assert!((relative_error([&outputs].into_iter()) - (2.0f64 / 40.5).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn distance_is_from_the_reference() {
        let mut outputs = Outputs::about(&[1.0, 10.0]);
        outputs.add(&[2.0, 10.0]);
        outputs.add(&[4.0, 12.0]);
        // Mean squares 5 and 2.
        assert!((relative_error([&outputs].into_iter()) - (3.5f64 / 40.5).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn rounding_next_to_large_outputs_is_seen() {
        let mut outputs = Outputs::alike();
        outputs.add(&[1.0, 2.0]);
        outputs.add(&[1.0 + 1e-15, 2.0]);
        let error = relative_error([&outputs].into_iter());
        assert!(error > 1e-16 && error < 1e-14, "{error}");
    }
}
