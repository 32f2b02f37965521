//! Eigenbases in 16 bits for each number, as they are stored.

use super::SpectraBatch;
use crate::NnError;
use crate::error::check_size;
use gemcnn_kernels::diffusion::basis_width;
use gemcnn_kernels::irrep_dimension;

impl SpectraBatch<f32> {
    /// The bases of one mesh as whole multiples of steps, one step for each column. A step is a power of two: the error
    /// is at most 1 / 32,768 of the largest number of the column, and bases that were rounded before stay as they are.
    pub fn in_16_bits(&self) -> (Vec<f32>, Vec<i16>) {
        let (mut steps, mut numbers) = (Vec::new(), Vec::with_capacity(self.bases().len()));
        for (fields, block) in self.blocks() {
            let columns = fields.multiplicities().last().copied().unwrap_or(0);
            round(block, columns, &mut steps, &mut numbers);
        }
        (steps, numbers)
    }

    /// The arrays of one mesh from bases as whole multiples of `steps`.
    ///
    /// # Errors
    /// Other numbers of steps or multiples than the columns and masses need.
    pub fn from_16_bits(
        columns: Vec<usize>,
        mass: Vec<f32>,
        eigenvalues: Vec<f32>,
        steps: &[f32],
        numbers: &[i16],
    ) -> Result<Self, NnError> {
        let gradients = columns.first().copied().unwrap_or(0);
        check_size("steps of eigenvectors", columns.iter().sum::<usize>() + gradients, steps.len())?;
        check_size("eigenvectors", mass.len() * basis_width(&columns), numbers.len())?;
        let mut bases = Vec::with_capacity(numbers.len());
        let (mut steps, mut numbers) = (steps, numbers);
        let blocks = columns.iter().copied().enumerate().chain([(1, gradients)]);
        for (order, count) in blocks {
            let (own, rest) = steps.split_at(count);
            let (block, after) = numbers.split_at(mass.len() * irrep_dimension(order) * count);
            (steps, numbers) = (rest, after);
            scale(block, own, &mut bases);
        }
        Self::from_parts(columns, mass, bases, eigenvalues)
    }

    /// The same spectra with bases as they are stored.
    ///
    /// # Errors
    /// None for the spectra of one mesh.
    pub fn rounded(&self) -> Result<Self, NnError> {
        let (steps, numbers) = self.in_16_bits();
        Self::from_16_bits(self.columns.clone(), self.mass.clone(), self.eigenvalues.clone(), &steps, &numbers)
    }
}

fn round(block: &[f32], columns: usize, steps: &mut Vec<f32>, numbers: &mut Vec<i16>) {
    let mut largest = vec![0.0f32; columns];
    for row in block.chunks_exact(columns.max(1)) {
        for (largest, value) in largest.iter_mut().zip(row) {
            *largest = largest.max(value.abs());
        }
    }
    let first = steps.len();
    steps.extend(largest.iter().map(|&largest| step(largest)));
    let inverse: Vec<f32> = steps[first..].iter().map(|step| step.recip()).collect();
    for row in block.chunks_exact(columns.max(1)) {
        // The conversion saturates.
        numbers.extend(row.iter().zip(&inverse).map(|(value, inverse)| (value * inverse).round_ties_even() as i16));
    }
}

/// The power of two of which fewer than 32,768 reach a number.
fn step(largest: f32) -> f32 {
    const BITS: u32 = 15;
    // The inverse of the step is finite too.
    let exponent = (largest.to_bits() >> 23).clamp(BITS + 1, 253);
    f32::from_bits((exponent + 1 - BITS) << 23)
}

fn scale(block: &[i16], steps: &[f32], bases: &mut Vec<f32>) {
    for row in block.chunks_exact(steps.len().max(1)) {
        bases.extend(row.iter().zip(steps).map(|(&number, step)| f32::from(number) * step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_fine_and_happens_once() {
        let (columns, vertices) = (vec![3, 2], 7);
        let numbers = (0..vertices * basis_width(&columns)).map(|n| ((n * n % 101) as f32 - 50.3) * 1e-3);
        let mut bases: Vec<f32> = numbers.collect();
        // A column of zeros, and one of tiny numbers.
        for row in bases[..3 * vertices].chunks_exact_mut(3) {
            (row[0], row[1]) = (0.0, row[1] * 1e-36);
        }
        let (mass, values) = (vec![0.1; vertices], vec![1.0; 5]);
        let exact = SpectraBatch::from_parts(columns, mass, bases.clone(), values).unwrap();
        let rounded = exact.rounded().unwrap();
        for (a, b) in bases.iter().zip(rounded.bases()) {
            assert!((a - b).abs() <= 0.06 / 32_768.0, "{a} {b}");
        }
        assert_eq!(rounded.rounded().unwrap(), rounded);
        assert_ne!(rounded, exact);
        let (steps, numbers) = exact.in_16_bits();
        let again = |steps: &[f32], numbers: &[i16]| {
            SpectraBatch::from_16_bits(vec![3, 2], vec![0.1; vertices], vec![1.0; 5], steps, numbers)
        };
        assert_eq!(again(&steps, &numbers).unwrap(), rounded);
        assert!(again(&steps[1..], &numbers).is_err() && again(&steps, &numbers[1..]).is_err());
    }
}
