//! Eigenbases in 16 bits for each number, as they are stored.

use super::SpectraBatch;
use crate::error::check_size;
use crate::{NnError, Result};
use gemcnn_kernels::diffusion::basis_width;
use gemcnn_kernels::irrep_dimension;
use gemcnn_mesh::surface::Jets;

impl SpectraBatch<f32> {
    /// The eigenvectors of one mesh as whole multiples of steps, one step for each column. A step is a power of two: the
    /// error is at most 1 / 32,768 of the largest number of the column, and eigenvectors that were rounded before stay as
    /// they are. Gradients follow from the eigenvectors.
    pub fn in_16_bits(&self) -> (Vec<f32>, Vec<i16>) {
        let (mut steps, mut numbers) = (Vec::new(), Vec::new());
        for (fields, block) in self.blocks().take(self.columns.len()) {
            let columns = fields.multiplicities().last().copied().unwrap_or(0);
            round(block, columns, &mut steps, &mut numbers);
        }
        (steps, numbers)
    }

    /// The arrays of one mesh from eigenvectors as whole multiples of `steps`. The gradients are those of the jets of the
    /// mesh.
    ///
    /// # Errors
    /// Other numbers of steps or multiples than the columns and masses need, or jets of another mesh.
    pub fn from_16_bits(
        columns: Vec<usize>,
        mass: Vec<f32>,
        eigenvalues: Vec<f32>,
        (steps, numbers): (&[f32], &[i16]),
        jets: &Jets,
    ) -> Result<Self> {
        let (vertices, gradients) = (mass.len(), columns.first().copied().unwrap_or(0));
        let width = basis_width(&columns);
        check_size("vertices of jets", vertices, jets.vertex_count())?;
        check_size("steps of eigenvectors", columns.iter().sum(), steps.len())?;
        check_size("eigenvectors", vertices * (width - 2 * gradients), numbers.len())?;
        let mut bases = Vec::with_capacity(vertices * width);
        let (mut steps, mut numbers) = (steps, numbers);
        for (order, &count) in columns.iter().enumerate() {
            let (own, rest) = steps.split_at(count);
            let (block, after) = numbers.split_at(vertices * irrep_dimension(order) * count);
            (steps, numbers) = (rest, after);
            scale(block, own, &mut bases);
        }
        let gradient = jets.gradient_in_single(&bases[..vertices * gradients], gradients);
        bases.extend(gradient.map_err(|error| NnError::setting("eigenvectors", error.to_string()))?);
        Self::from_parts(columns, mass, bases, eigenvalues)
    }

    /// The same spectra as they are read after they were stored.
    ///
    /// # Errors
    /// Jets of another mesh.
    pub fn rounded(&self, jets: &Jets) -> Result<Self> {
        let (steps, numbers) = self.in_16_bits();
        let (mass, eigenvalues) = (self.mass.clone(), self.eigenvalues.clone());
        Self::from_16_bits(self.columns.clone(), mass, eigenvalues, (&steps, &numbers), jets)
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
    use gemcnn_mesh::surface::SurfaceLaplacian;
    use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};

    #[test]
    fn rounding_is_fine_and_happens_once() {
        let mesh = shapes::icosphere(1).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        let jets = Jets::new(&SurfaceLaplacian::new(&mesh).unwrap(), graph.frames()).unwrap();
        let (columns, vertices) = (vec![3, 2], mesh.vertex_count());
        let numbers = (0..vertices * basis_width(&columns)).map(|n| ((n * n % 101) as f32 - 50.3) * 1e-3);
        let mut bases: Vec<f32> = numbers.collect();
        // A column of zeros, and one of tiny numbers.
        for row in bases[..3 * vertices].chunks_exact_mut(3) {
            (row[0], row[1]) = (0.0, row[1] * 1e-36);
        }
        let (mass, values) = (vec![0.1; vertices], vec![1.0; 5]);
        let exact = SpectraBatch::from_parts(columns, mass, bases.clone(), values).unwrap();
        let rounded = exact.rounded(&jets).unwrap();
        let eigenvectors = 7 * vertices;
        for (a, b) in bases[..eigenvectors].iter().zip(rounded.bases()) {
            assert!((a - b).abs() <= 0.06 / 32_768.0, "{a} {b}");
        }
        let scalars: Vec<f64> = rounded.bases()[..3 * vertices].iter().copied().map(f64::from).collect();
        let gradient = jets.gradient(&scalars, 3).unwrap();
        assert!(gradient.iter().map(|&value| value as f32).eq(rounded.bases()[eigenvectors..].iter().copied()));
        assert_eq!(rounded.rounded(&jets).unwrap(), rounded);
        assert_ne!(rounded, exact);
        let (steps, numbers) = exact.in_16_bits();
        assert_eq!((steps.len(), numbers.len()), (5, eigenvectors));
        let again = |steps: &[f32], numbers: &[i16], vertices| {
            SpectraBatch::from_16_bits(vec![3, 2], vec![0.1; vertices], vec![1.0; 5], (steps, numbers), &jets)
        };
        assert_eq!(again(&steps, &numbers, vertices).unwrap(), rounded);
        assert!(again(&steps[1..], &numbers, vertices).is_err() && again(&steps, &numbers[1..], vertices).is_err());
        assert!(again(&steps, &numbers[7..], vertices - 1).is_err());
    }
}
