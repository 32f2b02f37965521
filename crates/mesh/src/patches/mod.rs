//! Patches around vertices, as the networks before gauge equivariant ones read them.
//!
//! | item | patch of a vertex |
//! | --- | --- |
//! | [`spirals`] | a sequence of vertices, ring after ring |
//! | [`Discs`] | the vertices of a geodesic disc, in log map coordinates |
//! | [`ZernikeFit`] | coefficients of functions on the disc in Zernike polynomials |
//! | [`AnisotropicHeat`] | averages with heat kernels that are stretched along principal directions |

mod anisotropic;
mod disc;
mod spiral;
mod zernike;

pub use anisotropic::AnisotropicHeat;
pub use disc::Discs;
pub use spiral::spirals;
pub use zernike::ZernikeFit;

/// A row of a sparse matrix: vertices and weights.
pub type PatchRow = Vec<(u32, f64)>;

/// Cholesky factor of a dense symmetric positive definite matrix, row after row. Pivots are at least `f64::MIN_POSITIVE`,
/// so that the factor of any finite matrix is finite.
struct DenseFactor {
    size: usize,
    lower: Vec<f64>,
}

impl DenseFactor {
    /// Factors the lower triangle of a matrix of `size` rows.
    fn new(size: usize, mut lower: Vec<f64>) -> Self {
        for i in 0..size {
            for j in 0..=i {
                let (above, row) = lower.split_at(i * size);
                let other = if i == j { row } else { &above[j * size..] };
                let products = row[..j].iter().zip(&other[..j]).map(|(a, b)| a * b);
                let rest = row[j] - products.sum::<f64>();
                lower[i * size + j] = match i == j {
                    true => rest.max(f64::MIN_POSITIVE).sqrt(),
                    false => rest / lower[j * size + j],
                };
            }
        }
        Self { size, lower }
    }

    /// Replaces the right side by the solution.
    fn solve(&self, x: &mut [f64]) {
        let at = |i: usize, j: usize| self.lower[i * self.size + j];
        for i in 0..self.size {
            let sum: f64 = (0..i).map(|j| at(i, j) * x[j]).sum();
            x[i] = (x[i] - sum) / at(i, i);
        }
        for i in (0..self.size).rev() {
            x[i] /= at(i, i);
            let value = x[i];
            for (j, x) in x[..i].iter_mut().enumerate() {
                *x -= at(i, j) * value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_solves_its_system() {
        let size = 7;
        let entry = |i: usize, j: usize| ((i * 5 + j * 3) % 11) as f64 / 11.0 - 0.4;
        let matrix = |i: usize, j: usize| {
            let product: f64 = (0..size).map(|k| entry(i, k) * entry(j, k)).sum();
            product + if i == j { 0.5 } else { 0.0 }
        };
        let all = (0..size * size).map(|at| matrix(at / size, at % size));
        let factor = DenseFactor::new(size, all.collect());
        let wanted: Vec<f64> = (0..size).map(|i| (i as f64).sin()).collect();
        let mut x: Vec<f64> = (0..size)
            .map(|i| (0..size).map(|j| matrix(i, j) * wanted[j]).sum())
            .collect();
        factor.solve(&mut x);
        assert!(x.iter().zip(&wanted).all(|(x, w)| (x - w).abs() < 1e-12));
    }
}
