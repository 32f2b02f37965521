//! Feature fields: features of all vertices with their type.

use crate::GeometryError;
use crate::geometry::check_length;

/// Features of all vertices, in vertex order.
///
/// The features of one vertex are sorted by order, then component, then channel, as in the feature
/// types of networks: `7x1` is seven cosine coefficients, then seven sine coefficients.
///
/// ```
/// use gemcnn_mesh::features::FeatureField;
/// let field = FeatureField { kind: vec![(2, 0), (1, 1)], values: vec![5.0, 6.0, 1.0, 0.0] };
/// assert_eq!(field.dimension(), 4);
/// // In a frame rotated by pi / 2, a vector along the old first axis points against the second axis.
/// let turned = field.gauge_transform(&[std::f64::consts::FRAC_PI_2])?;
/// assert!((turned.values[3] + 1.0).abs() < 1e-15);
/// # Ok::<(), gemcnn_mesh::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureField {
    /// The type: multiplicity and order of each block, with ascending orders.
    pub kind: Vec<(usize, usize)>,
    /// The values: [`dimension`](Self::dimension) numbers per vertex.
    pub values: Vec<f64>,
}

impl FeatureField {
    /// Number of values per vertex.
    pub fn dimension(&self) -> usize {
        let block = |&(multiplicity, order): &(usize, usize)| multiplicity * components(order);
        self.kind.iter().map(block).sum()
    }

    /// Iterates over the features of the vertices.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.dimension().max(1))
    }

    /// The same field with every channel divided by the median of its lengths, weighted by the areas of the vertices:
    /// rough and smooth surfaces then have values of the same size. A channel whose median is 0 stays as it is.
    ///
    /// # Errors
    /// `areas` is not one area per vertex.
    pub fn normalised(mut self, areas: &[f64]) -> Result<Self, GeometryError> {
        check_length("areas", areas.len(), self.rows().len())?;
        let (dimension, half) = (self.dimension().max(1), 0.5 * areas.iter().sum::<f64>());
        let mut start = 0;
        for &(multiplicity, order) in &self.kind {
            let end = start + multiplicity * components(order);
            for channel in start..start + multiplicity {
                let parts = || (channel..end).step_by(multiplicity);
                let length = |row: &[f64]| parts().map(|part| row[part] * row[part]).sum::<f64>().sqrt();
                let mut lengths: Vec<(f64, f64)> =
                    self.values.chunks_exact(dimension).map(length).zip(areas.iter().copied()).collect();
                lengths.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
                let mut area = 0.0;
                let is_middle = |&&(_, own): &&(f64, f64)| {
                    area += own;
                    area >= half
                };
                let median = lengths.iter().find(is_middle).map_or(0.0, |&(length, _)| length);
                if median > 0.0 {
                    let rows = self.values.chunks_exact_mut(dimension);
                    rows.for_each(|row| parts().for_each(|part| row[part] /= median));
                }
            }
            start = end;
        }
        Ok(self)
    }

    /// The features in frames rotated by `angles`: `rho_m(-a_p) f_p`.
    ///
    /// # Errors
    /// `angles` is not one angle per vertex.
    pub fn gauge_transform(mut self, angles: &[f64]) -> Result<Self, GeometryError> {
        check_length("gauge angles", angles.len(), self.rows().len())?;
        let dimension = self.dimension().max(1);
        for (row, angle) in self.values.chunks_exact_mut(dimension).zip(angles) {
            let mut rest = row;
            for &(multiplicity, order) in &self.kind {
                let (block, after) = rest.split_at_mut(multiplicity * components(order));
                rest = after;
                if order == 0 {
                    continue;
                }
                let (sine, cosine) = (order as f64 * angle).sin_cos();
                let (first, second) = block.split_at_mut(multiplicity);
                for (x, y) in first.iter_mut().zip(second) {
                    (*x, *y) = (cosine * *x + sine * *y, cosine * *y - sine * *x);
                }
            }
        }
        Ok(self)
    }
}

/// Dimension of the irrep of the given order.
fn components(order: usize) -> usize {
    if order == 0 { 1 } else { 2 }
}
