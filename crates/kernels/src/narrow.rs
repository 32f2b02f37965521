//! Products of a tile of rows with a matrix of few columns, without packing.
//!
//! The general product of the `gemm` crate first copies its operands into panels. Here the right operand
//! already has the layout of a panel (contiguous rows, a few vectors wide) and stays in the first-level
//! cache. A block of the result stays in registers, and the left operand is read in place, by rows (`tile x
//! weights`) or by columns (`tile^T x features`).

use crate::{Destination, Real};
use pulp::{Simd, WithSimd};

/// A matrix that is read entry by entry: entry `(i, j)` is at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a, T> {
    pub data: &'a [T],
    pub row_stride: usize,
    pub column_stride: usize,
}

/// Sizes of a product: `rows x columns`, sums of `inner` terms.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
}

/// `c = a b` or `c += a b`, rows of `c` and `b` contiguous with the strides given beside them.
///
/// # Panics
/// If a matrix does not lie in its slice.
pub(crate) fn narrow_product<T: Real>(
    destination: Destination,
    c: (&mut [T], usize),
    a: Left<'_, T>,
    b: (&[T], usize),
    sizes: Sizes,
) {
    pulp::Arch::new().dispatch(NarrowProduct { destination, c, a, b, sizes });
}

struct NarrowProduct<'a, T> {
    destination: Destination,
    c: (&'a mut [T], usize),
    a: Left<'a, T>,
    b: (&'a [T], usize),
    sizes: Sizes,
}

impl<T: Real> WithSimd for NarrowProduct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((c, c_stride), a, (b, b_stride)) = (self.c, self.a, self.b);
        let Sizes { rows, inner, columns } = self.sizes;
        if rows == 0 || columns == 0 {
            return;
        }
        assert!((rows - 1) * c_stride + columns <= c.len());
        assert!(rows == 1 || c_stride >= columns);
        if inner > 0 {
            assert!((rows - 1) * a.row_stride + (inner - 1) * a.column_stride < a.data.len());
            assert!((inner - 1) * b_stride + columns <= b.len());
        }
        let lanes = T::count::<S>();
        let mut column = 0;
        while column < columns {
            let left = columns - column;
            let place = Place {
                c: c.as_mut_ptr().wrapping_add(column),
                c_stride,
                a: a.data.as_ptr(),
                a_row: a.row_stride,
                a_column: a.column_stride,
                b: b.as_ptr().wrapping_add(column),
                b_stride,
                inner,
                tail: left.min(lanes),
                add: self.destination == Destination::Add,
            };
            // SAFETY: the assertions above bound every entry of the `rows x columns` result, the
            // `rows x inner` left and the `inner x columns` right operand; `c` is borrowed mutably,
            // so it overlaps neither. A strip is one or two full vectors, or the `tail` last
            // columns.
            unsafe {
                if left >= 2 * lanes {
                    strip::<S, T, 2, false>(simd, place, rows);
                    column += 2 * lanes;
                } else if left >= lanes {
                    strip::<S, T, 1, false>(simd, place, rows);
                    column += lanes;
                } else {
                    strip::<S, T, 1, true>(simd, place, rows);
                    column = columns;
                }
            }
        }
    }
}

/// Addresses of a strip of columns of the product.
#[derive(Clone, Copy)]
struct Place<T> {
    c: *mut T,
    c_stride: usize,
    a: *const T,
    a_row: usize,
    a_column: usize,
    b: *const T,
    b_stride: usize,
    inner: usize,
    /// Columns of the last vector, when it is not full.
    tail: usize,
    add: bool,
}

impl<T> Place<T> {
    fn below(self, rows: usize) -> Self {
        Self { c: self.c.wrapping_add(rows * self.c_stride), a: self.a.wrapping_add(rows * self.a_row), ..self }
    }
}

/// All rows of a strip, in blocks whose sums fit in the registers.
///
/// # Safety
/// All entries of the strip lie in memory that may be read, and for `c` written.
#[inline(always)]
unsafe fn strip<S: Simd, T: Real, const VECTORS: usize, const TAIL: bool>(
    simd: S,
    mut place: Place<T>,
    mut rows: usize,
) {
    macro_rules! blocks {
        ($($height:literal)*) => {$(
            while rows >= $height {
                // SAFETY: the caller's, for fewer rows.
                unsafe { block::<S, T, $height, VECTORS, TAIL>(simd, place) };
                place = place.below($height);
                rows -= $height;
            }
        )*};
    }
    if S::REGISTER_COUNT >= 32 {
        blocks!(12 8 4 2 1);
    } else {
        blocks!(6 4 2 1);
    }
}

/// `ROWS` rows of a strip, summed in registers.
///
/// # Safety
/// As for [`strip`].
#[inline(always)]
unsafe fn block<S: Simd, T: Real, const ROWS: usize, const VECTORS: usize, const TAIL: bool>(simd: S, place: Place<T>) {
    let lanes = T::count::<S>();
    // SAFETY: the caller vouches for `lanes` numbers behind every full vector, and for `tail`
    // numbers behind a partial one.
    let load = |from: *const T| unsafe {
        if TAIL { T::load(simd, std::slice::from_raw_parts(from, place.tail)) } else { T::load_from::<S>(from) }
    };
    let mut sums = [[T::splat(simd, T::zero()); VECTORS]; ROWS];
    if place.add {
        for (i, row) in sums.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                *sum = load(place.c.wrapping_add(i * place.c_stride + v * lanes));
            }
        }
    }
    let (mut a, mut b) = (place.a, place.b);
    for _ in 0..place.inner {
        let mut right = [T::splat(simd, T::zero()); VECTORS];
        for (v, right) in right.iter_mut().enumerate() {
            *right = load(b.wrapping_add(v * lanes));
        }
        for (i, row) in sums.iter_mut().enumerate() {
            // SAFETY: entry (i, k) of the left operand.
            let left = T::splat(simd, unsafe { *a.wrapping_add(i * place.a_row) });
            for (sum, &right) in row.iter_mut().zip(&right) {
                *sum = T::times_plus(simd, left, right, *sum);
            }
        }
        a = a.wrapping_add(place.a_column);
        b = b.wrapping_add(place.b_stride);
    }
    for (i, row) in sums.iter().enumerate() {
        for (v, &sum) in row.iter().enumerate() {
            let to = place.c.wrapping_add(i * place.c_stride + v * lanes);
            // SAFETY: as for `load`, in the rows of `c` that are this block's own.
            unsafe {
                if TAIL {
                    T::store(simd, std::slice::from_raw_parts_mut(to, place.tail), sum);
                } else {
                    T::store_to::<S>(to, sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    /// All sizes of blocks and tails, by rows and by columns, with strides, for one instruction set.
    fn check<S: Simd, T: Real>(simd: S, tolerance: f64) {
        for (rows, inner, columns) in [(12, 5, 32), (27, 9, 16), (1, 1, 1), (7, 3, 53), (3, 0, 5), (0, 2, 3), (2, 3, 0)]
        {
            for by_columns in [false, true] {
                let (row_stride, column_stride) = if by_columns { (1, rows + 2) } else { (inner + 3, 1) };
                let (c_stride, b_stride) = (columns + 1, columns + 4);
                let a: Vec<T> = random((rows + 3) * (inner + 3), 1);
                let b: Vec<T> = random((inner + 1) * b_stride, 2);
                let start: Vec<T> = random((rows + 1) * c_stride, 3);
                for destination in [Destination::Set, Destination::Add] {
                    let mut c = start.clone();
                    simd.vectorize(NarrowProduct {
                        destination,
                        c: (&mut c, c_stride),
                        a: Left { data: &a, row_stride, column_stride },
                        b: (&b, b_stride),
                        sizes: Sizes { rows, inner, columns },
                    });
                    for (at, (value, start)) in c.iter().zip(&start).enumerate() {
                        let (i, j) = (at / c_stride, at % c_stride);
                        let product = |k: usize| {
                            let a = a[i * row_stride + k * column_stride].as_f64();
                            a * b[k * b_stride + j].as_f64()
                        };
                        let mut expected = start.as_f64();
                        if i < rows && j < columns {
                            let sum: f64 = (0..inner).map(product).sum();
                            let add = destination == Destination::Add;
                            expected = sum + if add { expected } else { 0.0 };
                        }
                        assert!((value.as_f64() - expected).abs() < tolerance);
                    }
                }
            }
        }
    }

    #[test]
    fn products_equal_their_definition_on_every_instruction_set() {
        check::<_, f32>(pulp::Scalar::new(), 1e-5);
        check::<_, f64>(pulp::Scalar::new(), 1e-14);
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = pulp::x86::V3::try_new() {
                check::<_, f32>(simd, 1e-5);
                check::<_, f64>(simd, 1e-14);
            }
            if let Some(simd) = pulp::x86::V4::try_new() {
                check::<_, f32>(simd, 1e-5);
                check::<_, f64>(simd, 1e-14);
            }
        }
    }
}
