//! Patches around vertices, as the networks before gauge equivariant ones read them.
//!
//! | item | patch of a vertex |
//! | --- | --- |
//! | [`spirals`] | a sequence of vertices, ring after ring |
//! | [`Discs`] | the vertices of a geodesic disc, in log map coordinates |
//! | [`polar_bins`] | averages over polar bins of the disc |
//! | [`ZernikeFit`] | coefficients of functions on the disc in Zernike polynomials |
//! | [`AnisotropicHeat`] | averages with heat kernels that are stretched along principal directions |

mod anisotropic;
mod disc;
mod polar;
mod spiral;
mod zernike;

pub use anisotropic::AnisotropicHeat;
pub use disc::Discs;
pub use polar::polar_bins;
pub use spiral::spirals;
pub use zernike::ZernikeFit;

/// A row of a sparse matrix: vertices and weights.
pub type PatchRow = Vec<(u32, f64)>;

/// Cholesky factor of a symmetric positive definite matrix, row after row. Each row starts at its first entry that is
/// not zero, so an order of the unknowns that keeps these near the diagonal saves most of the work. Pivots are at least
/// `f64::MIN_POSITIVE`, so that the factor of any finite matrix is finite.
struct Envelope {
    size: usize,
    lower: Vec<f64>,
    /// The first column of each row.
    starts: Vec<usize>,
}

impl Envelope {
    /// A matrix of `size` rows of zeros.
    fn new(size: usize) -> Self {
        Self { size, lower: vec![0.0; size * size], starts: vec![0; size] }
    }

    /// Adds to an entry, if it is in the lower triangle.
    fn add(&mut self, row: usize, column: usize, value: f64) {
        if column <= row {
            self.lower[row * self.size + column] += value;
        }
    }

    /// Replaces the matrix by its factor.
    fn factor(&mut self) {
        let size = self.size;
        for i in 0..size {
            let (above, rest) = self.lower.split_at_mut(i * size);
            let row = &mut rest[..=i];
            let start = row.iter().position(|&entry| entry != 0.0).unwrap_or(i);
            self.starts[i] = start;
            for j in start..i {
                let other = &above[j * size..][..=j];
                let common = start.max(self.starts[j]);
                let products = dot(&row[common..j], &other[common..j]);
                row[j] = (row[j] - products) / other[j];
            }
            let rest = row[i] - dot(&row[start..i], &row[start..i]);
            row[i] = rest.max(f64::MIN_POSITIVE).sqrt();
        }
    }

    /// Replaces the right side by the solution, after [`factor`](Self::factor).
    fn solve(&self, x: &mut [f64]) {
        let row = |i: usize| (&self.lower[i * self.size..][..=i], self.starts[i]);
        for i in 0..self.size {
            let (row, start) = row(i);
            x[i] = (x[i] - dot(&row[start..i], &x[start..i])) / row[i];
        }
        for i in (0..self.size).rev() {
            let (row, start) = row(i);
            x[i] /= row[i];
            let value = x[i];
            let pairs = x[start..i].iter_mut().zip(&row[start..i]);
            pairs.for_each(|(x, entry)| *x -= entry * value);
        }
    }
}

/// The product of two vectors of equal length, in four independent sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f64 = rest.map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 4];
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums[0] + sums[1] + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_solves_its_system() {
        let size = 13;
        let entry = |i: usize, j: usize| ((i * 5 + j * 3) % 11) as f64 / 11.0 - 0.4;
        for band in [2, 5, size] {
            // A product of a band with its transpose, so most rows start after the first column.
            let band = |i: usize, j: usize| {
                if j <= i && i < j + band { entry(i, j) } else { 0.0 }
            };
            let matrix = |i: usize, j: usize| {
                let product: f64 = (0..size).map(|k| band(i, k) * band(j, k)).sum();
                product + if i == j { 0.5 } else { 0.0 }
            };
            let mut factor = Envelope::new(size);
            for (i, j) in (0..size * size).map(|at| (at / size, at % size)) {
                factor.add(i, j, matrix(i, j));
            }
            factor.factor();
            let wanted: Vec<f64> = (0..size).map(|i| (i as f64).sin()).collect();
            let mut x: Vec<f64> = (0..size).map(|i| (0..size).map(|j| matrix(i, j) * wanted[j]).sum()).collect();
            factor.solve(&mut x);
            assert!(x.iter().zip(&wanted).all(|(x, w)| (x - w).abs() < 1e-12));
        }
    }
}
