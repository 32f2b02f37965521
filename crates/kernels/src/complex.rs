//! Products of complex matrices given by their parts, with three real products in place of four.
//!
//! Weights of an order above 0 act on the cosine and the sine as a complex number acts on another. With the rule of
//! Gauss
//!
//! ```text
//! (a + i b) (c + i d) = (p - b (c + d)) + i (p - a (c - d)),    p = (a + b) c
//! ```
//!
//! a block of the result takes three sums in registers. The sums `a + b` of some rows are written to the cache once,
//! for all columns; `c + d` and `c - d` are formed on the way.

use crate::narrow::{Left, Sizes};
use crate::{Destination, Real};
use pulp::{Simd, WithSimd};

/// The factor that is replaced by its conjugate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conjugate {
    Neither,
    Left,
    Right,
}

/// Offsets of the real and of the imaginary part in the slice of a matrix.
pub(crate) type Parts = [usize; 2];

/// Rows and terms of a panel of the left factor, whose parts are summed when it is copied: if it is contiguous by rows,
/// and if by columns. The number of rows is then a multiple of the length of any vector.
const PANELS: [[usize; 2]; 2] = [[4, 160], [16, 80]];

/// `c = a b` or `c += a b` for complex matrices; otherwise as [`narrow_product`](crate::narrow::narrow_product). The
/// left factor is contiguous by rows or by columns; `columns` must [be whole vectors](is_whole).
///
/// # Panics
/// If a part of a matrix does not lie in its slice, there is a partial vector, or a stride of the left factor is not 1.
pub(crate) fn complex_product<T: Real>(
    destination: Destination,
    conjugate: Conjugate,
    c: (&mut [T], usize, Parts),
    a: (Left<'_, T>, Parts),
    b: (&[T], usize, Parts),
    sizes: Sizes,
) {
    pulp::Arch::new().dispatch(ComplexProduct { destination, conjugate, c, a, b, sizes });
}

/// True if rows of `columns` numbers are whole vectors on this CPU, so that [`complex_product`] has use for all lanes.
pub(crate) fn is_whole<T: Real>(columns: usize) -> bool {
    struct LaneCount<T>(std::marker::PhantomData<T>);
    impl<T: Real> WithSimd for LaneCount<T> {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            T::count::<S>()
        }
    }
    let lanes = pulp::Arch::new().dispatch(LaneCount::<T>(std::marker::PhantomData));
    columns.is_multiple_of(lanes)
}

struct ComplexProduct<'a, T> {
    destination: Destination,
    conjugate: Conjugate,
    c: (&'a mut [T], usize, Parts),
    a: (Left<'a, T>, Parts),
    b: (&'a [T], usize, Parts),
    sizes: Sizes,
}

impl<T: Real> WithSimd for ComplexProduct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((c, c_stride, c_parts), (a, a_parts), (b, b_stride, b_parts)) = (self.c, self.a, self.b);
        let Sizes { rows, inner, columns } = self.sizes;
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(columns.is_multiple_of(T::count::<S>()));
        assert!(a.row_stride == 1 || a.column_stride == 1);
        let last = |parts: Parts| parts[0].max(parts[1]);
        assert!(last(c_parts) + (rows - 1) * c_stride + columns <= c.len());
        if inner > 0 {
            let left = (rows - 1) * a.row_stride + (inner - 1) * a.column_stride;
            assert!(last(a_parts) + left < a.data.len());
            assert!(last(b_parts) + (inner - 1) * b_stride + columns <= b.len());
        }
        // `(a + i b) (c - i d) = i conj((b + i a) (c + i d))`: parts trade places on both sides.
        let swap = |[re, im]: Parts| match self.conjugate {
            Conjugate::Neither => [re, im],
            Conjugate::Left | Conjugate::Right => [im, re],
        };
        let by_rows = a.column_stride == 1;
        let most = PANELS[usize::from(!by_rows)][1];
        for first in (0..inner.max(1)).step_by(most) {
            let (a_first, b_first) = (first * a.column_stride, first * b_stride);
            let place = Place {
                c: swap(c_parts).map(|part| c.as_mut_ptr().wrapping_add(part)),
                c_stride,
                a: swap(a_parts).map(|part| a.data.as_ptr().wrapping_add(part + a_first)),
                a_stride: a.row_stride.max(a.column_stride),
                both: std::ptr::null(),
                b: b_parts.map(|part| b.as_ptr().wrapping_add(part + b_first)),
                b_stride,
                inner: most.min(inner - first),
                columns,
                add: first > 0 || self.destination == Destination::Add,
                negative: self.conjugate == Conjugate::Left,
            };
            // SAFETY: the assertions above bound every entry of both parts of the `rows x columns` result, the `rows x
            // inner` left and the `inner x columns` right factor; `c` is borrowed mutably, so it overlaps neither.
            unsafe {
                if by_rows {
                    let mut both = [T::zero(); PANELS[0][0] * PANELS[0][1]];
                    panels::<S, T, true>(simd, place, rows, &mut both);
                } else {
                    let mut both = [T::zero(); PANELS[1][0] * PANELS[1][1]];
                    panels::<S, T, false>(simd, place, rows, &mut both);
                }
            }
        }
    }
}

/// Addresses of the rows of a product, for both parts.
#[derive(Clone, Copy)]
struct Place<T> {
    c: [*mut T; 2],
    c_stride: usize,
    a: [*const T; 2],
    /// The stride of the left factor that is not 1.
    a_stride: usize,
    /// Sums of both parts of the left factor.
    both: *const T,
    b: [*const T; 2],
    b_stride: usize,
    inner: usize,
    columns: usize,
    add: bool,
    negative: bool,
}

/// All rows of the product, some at a time.
///
/// # Safety
/// All entries lie in memory that may be read, and for `c` written. A panel has all terms.
#[inline(always)]
unsafe fn panels<S: Simd, T: Real, const BY_ROWS: bool>(simd: S, mut place: Place<T>, mut rows: usize, both: &mut [T]) {
    while rows > 0 {
        let height = rows.min(PANELS[usize::from(!BY_ROWS)][0]);
        // SAFETY: the caller's, for fewer rows.
        place = unsafe { panel::<S, T, BY_ROWS>(simd, place, height, both) };
        rows -= height;
    }
}

/// The rows of one panel. Returns the place of the next.
///
/// # Safety
/// As for [`panels`].
#[inline(always)]
unsafe fn panel<S: Simd, T: Real, const BY_ROWS: bool>(
    simd: S,
    mut place: Place<T>,
    height: usize,
    both: &mut [T],
) -> Place<T> {
    let (lines, length, stride) = match BY_ROWS {
        true => (height, place.inner, PANELS[0][1]),
        false => (place.inner, height, PANELS[1][0]),
    };
    // Lines by columns are short: one vector, mostly.
    let whole = if BY_ROWS { 0 } else { length - length % T::count::<S>() };
    for (line, both) in both.chunks_exact_mut(stride).take(lines).enumerate() {
        let from = place.a.map(|a| a.wrapping_add(line * place.a_stride));
        // SAFETY: a line of each part of the left factor.
        let [x, y] = from.map(|from| unsafe { std::slice::from_raw_parts(from, length) });
        for at in (0..whole).step_by(T::count::<S>()) {
            let vector = at..at + T::count::<S>();
            let [x, y] = [x, y].map(|line| T::load(simd, &line[vector.clone()]));
            T::store(simd, &mut both[vector], T::plus(simd, x, y));
        }
        for ((both, &x), &y) in both[whole..].iter_mut().zip(&x[whole..]).zip(&y[whole..]) {
            *both = x + y;
        }
    }
    place.both = both.as_ptr();
    let mut rows = height;
    macro_rules! blocks {
        ($($height:literal)*) => {$(
            while rows >= $height {
                // SAFETY: the caller's, for fewer rows.
                unsafe { block::<S, T, $height, BY_ROWS>(simd, place) };
                let (a, both) = match BY_ROWS {
                    true => ($height * place.a_stride, $height * PANELS[0][1]),
                    false => ($height, $height),
                };
                place.a = place.a.map(|from| from.wrapping_add(a));
                place.both = place.both.wrapping_add(both);
                place.c = place.c.map(|c| c.wrapping_add($height * place.c_stride));
                rows -= $height;
            }
        )*};
    }
    if S::REGISTER_COUNT >= 32 {
        if BY_ROWS {
            blocks!(4 2 1);
        } else {
            blocks!(8 4 2 1);
        }
    } else {
        blocks!(2 1);
    }
    place
}

/// `ROWS` rows of the product, two vectors of columns at a time.
///
/// # Safety
/// As for [`panel`]; the sums of these rows are written.
#[inline(always)]
unsafe fn block<S: Simd, T: Real, const ROWS: usize, const BY_ROWS: bool>(simd: S, place: Place<T>) {
    let lanes = T::count::<S>();
    let mut column = 0;
    // SAFETY: the caller's, for some columns.
    unsafe {
        while BY_ROWS && column + 2 * lanes <= place.columns {
            strip::<S, T, ROWS, 2, BY_ROWS>(simd, place, column);
            column += 2 * lanes;
        }
        while column < place.columns {
            strip::<S, T, ROWS, 1, BY_ROWS>(simd, place, column);
            column += lanes;
        }
    }
}

/// `ROWS` rows of some columns, summed in registers.
///
/// # Safety
/// As for [`block`].
#[inline(always)]
unsafe fn strip<S: Simd, T: Real, const ROWS: usize, const VECTORS: usize, const BY_ROWS: bool>(
    simd: S,
    place: Place<T>,
    start: usize,
) {
    // From a row to the next and from a column to the next, in the left factor and in the sums of its parts.
    let (rows, columns) = match BY_ROWS {
        true => ([place.a_stride, PANELS[0][1]], [1, 1]),
        false => ([1, 1], [place.a_stride, PANELS[1][0]]),
    };
    let (lanes, zero) = (T::count::<S>(), T::splat(simd, T::zero()));
    let mut sums = [[[zero; VECTORS]; 3]; ROWS];
    let ([mut x, mut y], mut both) = (place.a, place.both);
    let mut b = place.b.map(|b| b.wrapping_add(start));
    for _ in 0..place.inner {
        let mut right = [[zero; VECTORS]; 3];
        let [reals, sums_of_both, differences] = &mut right;
        let vectors = reals.iter_mut().zip(sums_of_both).zip(differences);
        for (v, ((real, sum), difference)) in vectors.enumerate() {
            // SAFETY: a vector of the right factor.
            let [re, im] = b.map(|b| unsafe { T::load_from::<S>(b.wrapping_add(v * lanes)) });
            *real = re;
            *sum = T::plus(simd, re, im);
            *difference = T::minus(simd, re, im);
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let left = [both.wrapping_add(i * rows[1]), y.wrapping_add(i * rows[0]), x.wrapping_add(i * rows[0])];
            for ((sums, left), right) in sums.iter_mut().zip(left).zip(&right) {
                // SAFETY: entry (i, k) of the left factor, or of the sums.
                let left = T::splat(simd, unsafe { *left });
                for (sum, &right) in sums.iter_mut().zip(right) {
                    *sum = T::times_plus(simd, left, right, *sum);
                }
            }
        }
        (x, y) = (x.wrapping_add(columns[0]), y.wrapping_add(columns[0]));
        both = both.wrapping_add(columns[1]);
        b = b.map(|b| b.wrapping_add(place.b_stride));
    }
    for (i, [both, y, x]) in sums.into_iter().enumerate() {
        for v in 0..VECTORS {
            let first = if place.negative { T::minus(simd, y[v], both[v]) } else { T::minus(simd, both[v], y[v]) };
            let results = [first, T::minus(simd, both[v], x[v])];
            for (to, mut result) in place.c.into_iter().zip(results) {
                let to = to.wrapping_add(i * place.c_stride + start + v * lanes);
                // SAFETY: a vector of a row of `c` that is this block's own.
                unsafe {
                    if place.add {
                        result = T::plus(simd, T::load_from::<S>(to), result);
                    }
                    T::store_to::<S>(to, result);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    /// All heights of blocks, by rows and by columns, with strides and conjugates.
    fn check<S: Simd, T: Real>(simd: S, tolerance: f64) {
        let columns = 32;
        assert!(is_whole::<T>(columns));
        for (rows, inner) in [(8, 5), (31, 200), (1, 1), (3, 0), (0, 2)] {
            for (row_stride, column_stride) in [(2 * inner + 3, 1), (1, 2 * rows + 2)] {
                let a_parts = [0, if column_stride == 1 { inner } else { rows }];
                let (c_stride, b_stride) = (2 * columns + 1, columns + 4);
                let (c_parts, b_parts) = ([columns, 0], [1, inner * b_stride]);
                let a: Vec<T> = random((2 * rows + 3) * (2 * inner + 3), 1);
                let b: Vec<T> = random((2 * inner + 1) * b_stride, 2);
                let start: Vec<T> = random((rows + 1) * c_stride, 3);
                let sizes = Sizes { rows, inner, columns };
                for conjugate in [Conjugate::Neither, Conjugate::Left, Conjugate::Right] {
                    for destination in [Destination::Set, Destination::Add] {
                        let mut c = start.clone();
                        let left = Left { data: &a, row_stride, column_stride };
                        simd.vectorize(ComplexProduct {
                            destination,
                            conjugate,
                            c: (&mut c, c_stride, c_parts),
                            a: (left, a_parts),
                            b: (&b, b_stride, b_parts),
                            sizes,
                        });
                        let mut expected: Vec<f64> = start.iter().map(|v| v.as_f64()).collect();
                        let sign = |factor| if conjugate == factor { -1.0 } else { 1.0 };
                        for (i, j) in (0..rows * columns).map(|at| (at / columns, at % columns)) {
                            let mut sum = [0.0; 2];
                            for k in 0..inner {
                                let a = a_parts.map(|p| a[p + i * row_stride + k * column_stride].as_f64());
                                let b = b_parts.map(|p| b[p + k * b_stride + j].as_f64());
                                let (y, d) = (sign(Conjugate::Left) * a[1], sign(Conjugate::Right) * b[1]);
                                sum[0] += a[0] * b[0] - y * d;
                                sum[1] += a[0] * d + y * b[0];
                            }
                            for (part, sum) in c_parts.into_iter().zip(sum) {
                                let entry = &mut expected[part + i * c_stride + j];
                                let before = if destination == Destination::Add { *entry } else { 0.0 };
                                *entry = before + sum;
                            }
                        }
                        let pairs = c.iter().zip(&expected);
                        let close = |(found, expected): (&T, &f64)| (found.as_f64() - expected).abs() < tolerance;
                        assert!(pairs.clone().all(close), "{conjugate:?}, {destination:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn complex_products_on_every_instruction_set() {
        check::<_, f32>(pulp::Scalar::new(), 1e-4);
        check::<_, f64>(pulp::Scalar::new(), 1e-12);
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = pulp::x86::V3::try_new() {
                check::<_, f32>(simd, 1e-4);
                check::<_, f64>(simd, 1e-12);
            }
            if let Some(simd) = pulp::x86::V4::try_new() {
                check::<_, f32>(simd, 1e-4);
                check::<_, f64>(simd, 1e-12);
            }
        }
    }
}
