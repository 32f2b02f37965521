//! Views of matrices in plain buffers, and their product.

use crate::Real;

/// A matrix in a buffer: entry `(i, j)` is at `i * row_stride + j * column_stride`.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix of `rows` rows and `columns` columns, with `row_stride` values from one row to the next.
    ///
    /// # Panics
    /// If the buffer is too short. Operators check sizes before.
    pub fn new(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The transposed matrix, without a copy.
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A matrix in a buffer for writing; rows are contiguous.
#[derive(Debug)]
pub struct MatrixMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a, T> MatrixMut<'a, T> {
    /// A matrix of `rows` rows and `columns` columns, with `row_stride` values from one row to the next.
    ///
    /// # Panics
    /// If the buffer is too short. Operators check sizes before.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, columns, row_stride);
        assert!(row_stride >= columns || rows <= 1, "rows overlap");
        Self { data, rows, columns, row_stride }
    }
}

fn check_extent(length: usize, rows: usize, columns: usize, row_stride: usize) {
    if rows > 0 && columns > 0 {
        let last = (rows - 1) * row_stride + columns;
        assert!(last <= length, "a {rows}x{columns} matrix does not fit in {length} numbers");
    }
}

/// What a product does with its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Overwritten.
    Set,
    /// Added to.
    Add,
}

/// `c = a b` or `c += a b`, on the calling thread.
///
/// # Panics
/// If the shapes do not agree. Operators check sizes before.
pub fn product<T: Real>(c: &mut MatrixMut<'_, T>, destination: Destination, a: Matrix<'_, T>, b: Matrix<'_, T>) {
    assert!(
        a.rows == c.rows && b.columns == c.columns && a.columns == b.rows,
        "a {}x{} times {}x{} product into {}x{}",
        a.rows,
        a.columns,
        b.rows,
        b.columns,
        c.rows,
        c.columns
    );
    if c.rows == 0 || c.columns == 0 {
        return;
    }
    let add = destination == Destination::Add;
    // The kernels prefer columns that are contiguous. The rows of `c` are, so the transposed product is
    // computed: C^T = B^T A^T.
    let view = |m: &Matrix<'_, T>| (m.data.as_ptr(), m.row_stride as isize, m.column_stride as isize);
    let ((lhs, lhs_columns, lhs_rows), (rhs, rhs_columns, rhs_rows)) = (view(&b), view(&a));
    // SAFETY: `Matrix::new` and `MatrixMut::new` checked that every entry of each view lies in its
    // slice, the shapes agree, `c` is borrowed mutably and so overlaps neither `a` nor `b`, and its
    // rows do not overlap each other.
    unsafe {
        T::gemm()(
            c.columns,
            c.rows,
            a.columns,
            c.data.as_mut_ptr(),
            c.row_stride as isize,
            1,
            add,
            lhs,
            lhs_columns,
            lhs_rows,
            rhs,
            rhs_columns,
            rhs_rows,
            if add { T::one() } else { T::zero() },
            T::one(),
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn check<T: Real>(tolerance: f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (m, n, k) in [(1, 1, 1), (7, 5, 3), (64, 32, 160), (33, 17, 1), (3, 4, 0), (0, 4, 2)] {
            let mut draw = |count: usize| -> Vec<T> { (0..count).map(|_| T::of(rng.random::<f64>() - 0.5)).collect() };
            let (pad_a, pad_b, pad_c) = (k + 2, n + 1, n + 3);
            let (a, b) = (draw(m * pad_a + k), draw(k * pad_b + n));
            let start = draw(m * pad_c + n);
            for (destination, transposed) in
                [(Destination::Set, false), (Destination::Add, false), (Destination::Add, true)]
            {
                let mut c = start.clone();
                let left = Matrix::new(&a, m, k, pad_a);
                // The same numbers as b^T, stored by columns.
                let by_columns: Vec<T> = (0..n * k).map(|i| b[(i % k) * pad_b + i / k]).collect();
                let right = if transposed {
                    Matrix::new(&by_columns, n, k, k).transposed()
                } else {
                    Matrix::new(&b, k, n, pad_b)
                };
                product(&mut MatrixMut::new(&mut c, m, n, pad_c), destination, left, right);
                for (at, value) in c.iter().enumerate() {
                    let (i, j) = (at / pad_c, at % pad_c);
                    let mut expected = start[at].as_f64();
                    if i < m && j < n {
                        let sum: f64 = (0..k).map(|l| a[i * pad_a + l].as_f64() * b[l * pad_b + j].as_f64()).sum();
                        expected = if destination == Destination::Add { expected } else { 0.0 } + sum;
                    }
                    assert!((value.as_f64() - expected).abs() < tolerance);
                }
            }
        }
    }

    #[test]
    fn products_equal_their_definition_and_touch_nothing_else() {
        check::<f32>(1e-5);
        check::<f64>(1e-13);
    }
}
