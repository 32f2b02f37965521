//! Block Lanczos iteration for the largest eigenvalues of an inverse.
//!
//! Blocks of vectors are stored row-major by real parts: `[n, PARTS, m]`. Read as a real matrix `V`
//! of `n PARTS` rows, the complex inner products `V^H W` are one real product
//! `V^T [W | J W]`, where `J` maps the parts `(re, im)` to `(im, -re)`. So real and complex problems
//! share one implementation, with real matrix products.

use super::sparse::{Cholesky, Scalar};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of vectors in a block.
const BLOCK: usize = 8;
/// The iteration runs on this power of the inverse: solves cost less than orthogonalisation.
pub(super) const POWER: usize = 2;
/// Largest residual of an eigenpair, relative to the eigenvalue of the inverse.
const RESIDUAL: f64 = 1e-8;
/// A column is linearly dependent if this fraction of its squared norm remains.
const DEPENDENT: f64 = 1e-13;
/// Limit of the dimension of the Krylov space, in multiples of the wanted pairs.
const LARGEST_SPACE: usize = 12;

/// Eigenpairs of a power of the inverse of a matrix, by descending eigenvalue.
pub(super) struct Ritz {
    /// Eigenvalues of the power [`POWER`] of the inverse.
    pub(super) values: Vec<f64>,
    /// Orthonormal eigenvectors of shape `[n, PARTS, values.len()]`.
    pub(super) vectors: Vec<f64>,
    /// Number of pairs that meet the tolerance.
    pub(super) converged: usize,
}

/// The `count` largest eigenvalues of the power [`POWER`] of the inverse of a factored matrix of
/// `size` rows.
pub(super) fn largest_of_inverse<T: Scalar>(factor: &Cholesky<T>, size: usize, count: usize) -> Ritz {
    let mut space = Space::<T>::new(size, count);
    let mut check = first_check(count);
    let limit = size.min(LARGEST_SPACE * count + 200);
    loop {
        space.extend(factor);
        let full = space.used + BLOCK > limit;
        if space.used >= check || full {
            let (values, vectors, converged) = space.ritz(count);
            if converged == count || full {
                let vectors = space.combine(&vectors, count);
                return Ritz { values, vectors, converged };
            }
            check = space.used + (space.used / 10).max(BLOCK);
        }
    }
}

/// Dimension of the Krylov space at which convergence is first tested.
fn first_check(count: usize) -> usize {
    2 * count + 9 * BLOCK
}

/// An orthonormal basis of a Krylov space and the projection of the inverse to it.
struct Space<T> {
    size: usize,
    /// Number of basis vectors whose image is known.
    used: usize,
    /// Room for this many basis vectors in a row of `basis`.
    capacity: usize,
    /// Basis vectors, `[size, PARTS, capacity]`. The block after `used` is orthonormal too.
    basis: Vec<f64>,
    /// Projected inverse, upper triangle by columns: column `j` has the inner products of all
    /// vectors up to the end of its block with the image of vector `j`.
    projected: Vec<Vec<T>>,
    /// Coefficients of the remainder of the last block in the block after `used`.
    remainder: [[T; BLOCK]; BLOCK],
    random: ChaCha8Rng,
    image: Vec<f64>,
    pair: Vec<f64>,
    product: Vec<f64>,
}

impl<T: Scalar> Space<T> {
    fn new(size: usize, count: usize) -> Self {
        let capacity = first_check(count) + 4 * BLOCK;
        let rows = size * T::PARTS;
        let mut space = Self {
            size,
            used: 0,
            capacity,
            basis: vec![0.0; rows * capacity],
            projected: Vec::new(),
            remainder: [[T::new(0.0, 0.0); BLOCK]; BLOCK],
            random: ChaCha8Rng::seed_from_u64(1),
            image: vec![0.0; rows * BLOCK],
            pair: vec![0.0; rows * BLOCK * T::PARTS],
            product: vec![0.0; rows * BLOCK * T::PARTS],
        };
        for value in &mut space.image {
            *value = space.random.random::<f64>() - 0.5;
        }
        space.orthonormalise();
        space.append();
        space
    }

    /// Applies the inverse to the last block and appends the orthonormalised remainder.
    fn extend(&mut self, factor: &Cholesky<T>) {
        let first = self.used;
        if first + 2 * BLOCK > self.capacity {
            self.grow();
        }
        for (row, values) in self.basis.chunks_exact(self.capacity).enumerate() {
            self.image[row * BLOCK..(row + 1) * BLOCK].copy_from_slice(&values[first..first + BLOCK]);
        }
        for _ in 0..POWER {
            factor.solve(&mut self.image, BLOCK);
        }
        // The three-term recurrence removes most of the image; a pass over the whole basis then
        // keeps it orthogonal to working precision.
        let recent = first.saturating_sub(BLOCK)..first + BLOCK;
        let mut columns = vec![vec![T::new(0.0, 0.0); first + BLOCK]; BLOCK];
        self.project_out(recent, &mut columns);
        loop {
            let before: f64 = self.image.iter().map(|x| x * x).sum();
            let removed = self.project_out(0..first + BLOCK, &mut columns);
            if removed <= 0.25 * before {
                break;
            }
        }
        self.projected.append(&mut columns);
        self.used += BLOCK;
        self.orthonormalise();
        self.append();
    }

    /// Subtracts from `image` its projection to some of the basis vectors and adds the
    /// coefficients to `columns`. Returns the squared norm of the projection.
    fn project_out(&mut self, range: std::ops::Range<usize>, columns: &mut [Vec<T>]) -> f64 {
        let rows = self.size * T::PARTS;
        let width = BLOCK * T::PARTS;
        self.fill_pair();
        let basis = MatRef::from_row_major_slice_with_stride(&self.basis, rows, self.capacity, self.capacity)
            .subcols(range.start, range.len());
        let pair = MatRef::from_row_major_slice(&self.pair, rows, width);
        let mut products = Mat::<f64>::zeros(range.len(), width);
        matmul(&mut products, Accum::Replace, basis.transpose(), pair, 1.0, Par::Seq);
        let product = MatMut::from_row_major_slice_mut(&mut self.product, rows, width);
        matmul(product, Accum::Replace, basis, &products, 1.0, Par::Seq);
        subtract_combination::<T>(&mut self.image, &self.product);
        let mut squared = 0.0;
        for (at, column) in columns.iter_mut().enumerate() {
            for (place, entry) in column[range.clone()].iter_mut().enumerate() {
                let imaginary = if T::PARTS == 2 { products[(place, BLOCK + at)] } else { 0.0 };
                let real = products[(place, at)];
                squared += real * real + imaginary * imaginary;
                *entry = T::new(entry.real_part() + real, entry.imaginary_part() + imaginary);
            }
        }
        squared
    }

    /// `pair = [image | J image]`.
    fn fill_pair(&mut self) {
        if T::PARTS == 1 {
            self.pair.copy_from_slice(&self.image);
            return;
        }
        let pairs = self.pair.chunks_exact_mut(4 * BLOCK);
        for (pair, image) in pairs.zip(self.image.chunks_exact(2 * BLOCK)) {
            let (re, im) = image.split_at(BLOCK);
            pair[..BLOCK].copy_from_slice(re);
            pair[BLOCK..2 * BLOCK].copy_from_slice(im);
            pair[2 * BLOCK..3 * BLOCK].copy_from_slice(im);
            for (target, value) in pair[3 * BLOCK..].iter_mut().zip(re) {
                *target = -value;
            }
        }
    }

    /// Inner products of the columns of `image`.
    fn gram(&mut self) -> [[T; BLOCK]; BLOCK] {
        let rows = self.size * T::PARTS;
        self.fill_pair();
        let image = MatRef::from_row_major_slice(&self.image, rows, BLOCK);
        let pair = MatRef::from_row_major_slice(&self.pair, rows, BLOCK * T::PARTS);
        let mut products = Mat::<f64>::zeros(BLOCK, BLOCK * T::PARTS);
        matmul(&mut products, Accum::Replace, image.transpose(), pair, 1.0, Par::Seq);
        std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let imaginary = if T::PARTS == 2 { products[(i, BLOCK + j)] } else { 0.0 };
                T::new(products[(i, j)], imaginary)
            })
        })
    }

    /// Makes the columns of `image` orthonormal by Cholesky factors of their inner products and
    /// stores the coefficients in `remainder`. Columns that depend on the others are replaced by
    /// random vectors orthogonal to the basis.
    fn orthonormalise(&mut self) {
        let zero = T::new(0.0, 0.0);
        let mut total: [[T; BLOCK]; BLOCK] =
            std::array::from_fn(|i| std::array::from_fn(|j| T::new(if i == j { 1.0 } else { 0.0 }, 0.0)));
        for pass in 0..8 {
            let gram = self.gram();
            let deviation = (0..BLOCK)
                .flat_map(|i| (0..BLOCK).map(move |j| (i, j)))
                .map(|(i, j)| {
                    let expected = if i == j { 1.0 } else { 0.0 };
                    let entry = gram[i][j];
                    (entry.real_part() - expected).abs() + entry.imaginary_part().abs()
                })
                .fold(0.0, f64::max);
            let (upper, dependent) = upper_factor(&gram);
            let inverse = inverse_of_upper(&upper);
            self.multiply_image(&inverse);
            // total <- upper * total.
            let before = total;
            for i in 0..BLOCK {
                for j in 0..BLOCK {
                    total[i][j] = (i..BLOCK).fold(zero, |sum, k| {
                        let factor = if dependent[k] && i == k { zero } else { upper[i][k] };
                        sum + factor * before[k][j]
                    });
                }
            }
            if dependent.contains(&true) {
                let rows = self.image.chunks_exact_mut(BLOCK);
                for row in rows {
                    for (value, _) in row.iter_mut().zip(dependent).filter(|(_, d)| *d) {
                        *value = self.random.random::<f64>() - 0.5;
                    }
                }
                if self.used > 0 {
                    let mut ignored = vec![vec![zero; self.used]; BLOCK];
                    for _ in 0..2 {
                        self.project_out(0..self.used, &mut ignored);
                    }
                }
            } else if pass > 0 && deviation < 1e-6 {
                break;
            }
        }
        self.remainder = total;
    }

    /// `image <- image * factor`.
    fn multiply_image(&mut self, factor: &[[T; BLOCK]; BLOCK]) {
        let parts: [[[f64; BLOCK]; BLOCK]; 2] =
            [factor.map(|row| row.map(T::real_part)), factor.map(|row| row.map(T::imaginary_part))];
        let image = &mut self.image;
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for row in image.chunks_exact_mut(T::PARTS * BLOCK) {
                    let mut result = [[0.0; BLOCK]; 2];
                    for k in 0..BLOCK {
                        let (x, y) = (&parts[0][k], &parts[1][k]);
                        let re = row[k];
                        if T::PARTS == 1 {
                            for j in 0..BLOCK {
                                result[0][j] += re * x[j];
                            }
                        } else {
                            let im = row[BLOCK + k];
                            for j in 0..BLOCK {
                                result[0][j] += re * x[j] - im * y[j];
                                result[1][j] += re * y[j] + im * x[j];
                            }
                        }
                    }
                    row.copy_from_slice(&result.as_flattened()[..T::PARTS * BLOCK]);
                }
            },
        );
    }

    /// Copies `image` to the block after `used`.
    fn append(&mut self) {
        let (first, capacity) = (self.used, self.capacity);
        for (row, values) in self.basis.chunks_exact_mut(capacity).enumerate() {
            values[first..first + BLOCK].copy_from_slice(&self.image[row * BLOCK..(row + 1) * BLOCK]);
        }
    }

    fn grow(&mut self) {
        let capacity = self.capacity + self.capacity / 2 + 2 * BLOCK;
        let mut basis = vec![0.0; self.size * T::PARTS * capacity];
        let rows = basis.chunks_exact_mut(capacity);
        for (new, old) in rows.zip(self.basis.chunks_exact(self.capacity)) {
            new[..self.capacity].copy_from_slice(old);
        }
        self.basis = basis;
        self.capacity = capacity;
    }

    /// The `count` largest eigenvalues of the projected inverse with their vectors, and the number
    /// of them that have converged.
    fn ritz(&self, count: usize) -> (Vec<f64>, Mat<T>, usize) {
        let size = self.used;
        let matrix = Mat::<T>::from_fn(size, size, |i, j| {
            let (low, high) = (i.min(j), i.max(j));
            let entry = self.projected[high][low];
            if i <= j { entry } else { entry.conjugate() }
        });
        let Ok(pairs) = matrix.self_adjoint_eigen(Side::Lower) else {
            return (vec![f64::NAN; count], Mat::zeros(size, count), 0);
        };
        let found = count.min(size);
        let values = pairs.S().column_vector();
        let vectors = Mat::from_fn(size, found, |i, j| pairs.U()[(i, size - 1 - j)]);
        let values: Vec<f64> = (0..found).map(|j| values[size - 1 - j].real_part()).collect();
        let zero = T::new(0.0, 0.0);
        let converged = (0..found)
            .filter(|&pair| {
                let squared: f64 = self
                    .remainder
                    .iter()
                    .map(|row| {
                        let entry = (0..BLOCK).fold(zero, |sum, k| sum + row[k] * vectors[(size - BLOCK + k, pair)]);
                        entry.real_part().powi(2) + entry.imaginary_part().powi(2)
                    })
                    .sum();
                squared.sqrt() <= RESIDUAL * values[pair]
            })
            .count();
        (values, vectors, converged)
    }

    /// Linear combinations of the basis vectors, of shape `[size, PARTS, count]`.
    fn combine(&self, coefficients: &Mat<T>, count: usize) -> Vec<f64> {
        let rows = self.size * T::PARTS;
        let width = count * T::PARTS;
        let real = Mat::<f64>::from_fn(self.used, width, |i, j| {
            if j < count { coefficients[(i, j)].real_part() } else { coefficients[(i, j - count)].imaginary_part() }
        });
        let basis = MatRef::from_row_major_slice_with_stride(&self.basis, rows, self.capacity, self.capacity)
            .subcols(0, self.used);
        let mut product = vec![0.0; rows * width];
        let target = MatMut::from_row_major_slice_mut(&mut product, rows, width);
        matmul(target, Accum::Replace, basis, &real, 1.0, Par::Seq);
        if T::PARTS == 1 {
            return product;
        }
        let mut vectors = Vec::with_capacity(rows * count);
        for row in product.chunks_exact(4 * count) {
            let part = |at: usize| row[at * count..(at + 1) * count].iter();
            vectors.extend(part(0).zip(part(3)).map(|(a, b)| a - b));
            vectors.extend(part(1).zip(part(2)).map(|(a, b)| a + b));
        }
        vectors
    }
}

/// Subtracts the products `V [H_re | H_im]` from vectors: real parts `V_re H_re - V_im H_im`,
/// imaginary parts `V_re H_im + V_im H_re`.
fn subtract_combination<T: Scalar>(image: &mut [f64], product: &[f64]) {
    if T::PARTS == 1 {
        for (value, product) in image.iter_mut().zip(product) {
            *value -= product;
        }
        return;
    }
    let rows = image.chunks_exact_mut(2 * BLOCK);
    for (image, product) in rows.zip(product.chunks_exact(4 * BLOCK)) {
        for at in 0..BLOCK {
            image[at] -= product[at] - product[3 * BLOCK + at];
            image[BLOCK + at] -= product[BLOCK + at] + product[2 * BLOCK + at];
        }
    }
}

/// Upper factor `R` with `R^H R` equal to the given inner products, and the columns that depend on
/// those before them. Such a column has 1 on the diagonal.
fn upper_factor<T: Scalar>(gram: &[[T; BLOCK]; BLOCK]) -> ([[T; BLOCK]; BLOCK], [bool; BLOCK]) {
    let zero = T::new(0.0, 0.0);
    let mut upper = [[zero; BLOCK]; BLOCK];
    let mut dependent = [false; BLOCK];
    for j in 0..BLOCK {
        let mut pivot = gram[j][j].real_part();
        for i in 0..j {
            if dependent[i] {
                continue;
            }
            let sum = (0..i)
                .filter(|&k| !dependent[k])
                .fold(gram[i][j], |sum, k| sum - upper[k][i].conjugate() * upper[k][j]);
            let inverse = upper[i][i].real_part().recip();
            let entry = T::new(sum.real_part() * inverse, sum.imaginary_part() * inverse);
            upper[i][j] = entry;
            pivot -= entry.real_part().powi(2) + entry.imaginary_part().powi(2);
        }
        // Not a number counts as dependent.
        let is_independent = pivot > DEPENDENT * gram[j][j].real_part();
        dependent[j] = !is_independent;
        upper[j][j] = T::new(if dependent[j] { 1.0 } else { pivot.sqrt() }, 0.0);
    }
    (upper, dependent)
}

/// Inverse of an upper triangular matrix.
fn inverse_of_upper<T: Scalar>(upper: &[[T; BLOCK]; BLOCK]) -> [[T; BLOCK]; BLOCK] {
    let zero = T::new(0.0, 0.0);
    let mut inverse = [[zero; BLOCK]; BLOCK];
    for i in (0..BLOCK).rev() {
        let scale = upper[i][i].real_part().recip();
        let row: [T; BLOCK] = std::array::from_fn(|j| {
            let unit = T::new(if i == j { 1.0 } else { 0.0 }, 0.0);
            let sum = (i + 1..BLOCK).fold(unit, |sum, k| sum - upper[i][k] * inverse[k][j]);
            T::new(sum.real_part() * scale, sum.imaginary_part() * scale)
        });
        inverse[i] = row;
    }
    inverse
}
