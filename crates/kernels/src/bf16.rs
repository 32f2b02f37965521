//! Products whose factors are rounded to bf16 (7 bits of mantissa) and whose sums are in f32, on CPUs with AVX512-BF16.
//!
//! One instruction multiplies pairs of neighbouring terms of 16 sums. Both factors therefore store two
//! consecutive terms of the inner dimension in one `u32`, the first in the low half; an odd last term has a zero
//! beside it. The left factor is read pair by pair ([`Left`]). The right factor is packed in panels of 48
//! columns, each `[pairs, columns of the panel]`, the last one padded to a multiple of 16 columns ([`pack_right`],
//! [`pack_right_transposed`]). A block of 8 rows and 48 columns of the result stays in registers.

use crate::Destination;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, __m512bh, __m512i, __mmask16, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_set1_epi32, _mm512_setzero_ps,
};

/// Columns of a panel of the right factor.
const PANEL: usize = 48;
/// Columns of a vector.
const LANES: usize = 16;
/// Rows of a group of a left factor.
pub(crate) const GROUP: usize = 16;
/// Rows of a block of the result.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 8;

/// True if this CPU has the instructions.
pub(crate) fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The bits of the nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
fn round(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

/// Two terms in one number.
#[inline(always)]
fn pair(first: f32, second: f32) -> u32 {
    round(first) | round(second) << 16
}

/// Numbers of a packed right factor.
pub(crate) fn right_length(pairs: usize, columns: usize) -> usize {
    pairs * columns.next_multiple_of(LANES)
}

/// Rounds a row; an odd last term has a zero beside it.
#[inline(always)]
pub(crate) fn pack_row(source: &[f32], packed: &mut [u32]) {
    // In memory, a pair is two consecutive numbers of 16 bits.
    let packed: &mut [u16] = bytemuck::cast_slice_mut(packed);
    for (packed, &value) in packed.iter_mut().zip(source) {
        *packed = round(value) as u16;
    }
    packed[source.len()..].fill(0);
}

/// `[rows, columns]` as a left factor, see [`Left::rows`].
pub(crate) fn pack_rows(source: &[f32], columns: usize, packed: &mut [u32]) {
    let rows = source.chunks_exact(columns.max(1));
    for (row, packed) in rows.zip(packed.chunks_exact_mut(columns.div_ceil(2).max(1))) {
        pack_row(row, packed);
    }
}

/// Two rows, the second of which may be empty, as the pairs of one index of a left factor in groups of 16
/// rows, see [`Left::groups`]. `packed` starts at that index of the first group.
#[inline(always)]
pub(crate) fn pack_group_rows(first: &[f32], second: &[f32], pairs: usize, packed: &mut [u32]) {
    let groups = packed.chunks_mut(GROUP * pairs);
    if second.is_empty() {
        for (values, group) in first.chunks(GROUP).zip(groups) {
            for (packed, &value) in group.iter_mut().zip(values) {
                *packed = round(value);
            }
        }
    } else {
        let values = first.chunks(GROUP).zip(second.chunks(GROUP));
        for ((first, second), group) in values.zip(groups) {
            for (packed, (&first, &second)) in group.iter_mut().zip(first.iter().zip(second)) {
                *packed = pair(first, second);
            }
        }
    }
}

/// `[inner, columns]` as a right factor.
pub(crate) fn pack_right(source: &[f32], columns: usize, packed: &mut [u32]) {
    let pairs = (source.len() / columns.max(1)).div_ceil(2);
    pack(packed, pairs, columns, |pair, column| {
        let at = 2 * pair * columns + column;
        (source[at], source.get(at + columns).copied())
    });
}

/// The transpose of `[columns, inner]` as a right factor.
pub(crate) fn pack_right_transposed(source: &[f32], inner: usize, packed: &mut [u32]) {
    let columns = source.len() / inner.max(1);
    pack(packed, inner.div_ceil(2), columns, |pair, column| {
        let row = &source[column * inner..][..inner];
        (row[2 * pair], row.get(2 * pair + 1).copied())
    });
}

#[inline(always)]
fn pack(packed: &mut [u32], pairs: usize, columns: usize, terms: impl Fn(usize, usize) -> (f32, Option<f32>)) {
    let panels = packed.chunks_mut((pairs * PANEL).max(1));
    for (panel, first) in panels.zip((0..columns).step_by(PANEL)) {
        let width = (columns - first).min(PANEL);
        let stride = width.next_multiple_of(LANES);
        for (index, row) in panel.chunks_exact_mut(stride).enumerate() {
            for (column, packed) in row[..width].iter_mut().enumerate() {
                let (even, odd) = terms(index, first + column);
                *packed = pair(even, odd.unwrap_or(0.0));
            }
            row[width..].fill(0);
        }
    }
}

/// A left factor: pair `p` of row `i` is at `i / GROUP * group_stride + i % GROUP * row_stride + p * pair_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub data: &'a [u32],
    pub group_stride: usize,
    pub row_stride: usize,
    pub pair_stride: usize,
}

impl<'a> Left<'a> {
    /// Rows of `pairs` pairs, one after another.
    pub fn rows(data: &'a [u32], pairs: usize) -> Self {
        Self { data, group_stride: GROUP * pairs, row_stride: pairs, pair_stride: 1 }
    }

    /// Groups of 16 rows, each `[pairs, 16]`.
    pub fn groups(data: &'a [u32], pairs: usize) -> Self {
        Self { data, group_stride: GROUP * pairs, row_stride: 1, pair_stride: GROUP }
    }

    fn start(&self, row: usize) -> usize {
        row / GROUP * self.group_stride + row % GROUP * self.row_stride
    }
}

/// Sizes of a product: `rows x columns`, sums of `2 * pairs` terms.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub rows: usize,
    pub pairs: usize,
    pub columns: usize,
}

/// `c = a b` or `c += a b`; `c` is `[rows, columns]`.
///
/// # Panics
/// If a matrix does not lie in its slice, or without [support](is_supported).
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
pub(crate) fn product(c: &mut [f32], destination: Destination, a: Left<'_>, b: &[u32], sizes: Sizes) {
    let Sizes { rows, pairs, columns } = sizes;
    assert!(is_supported());
    assert!(rows * columns <= c.len() && right_length(pairs, columns) <= b.len());
    if rows == 0 || columns == 0 {
        return;
    }
    if pairs > 0 {
        // Rows start later and later within a group, and from group to group.
        let last = (0..rows).rev().take(GROUP).map(|row| a.start(row)).max();
        assert!(last.is_some_and(|last| last + (pairs - 1) * a.pair_stride < a.data.len()));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the CPU has the instructions, and all entries of all three matrices lie in their slices. `c` is
    // borrowed mutably, so it overlaps neither factor.
    unsafe {
        for first in (0..columns).step_by(PANEL) {
            let width = (columns - first).min(PANEL);
            let strip = Strip {
                c: c.as_mut_ptr().add(first),
                c_stride: columns,
                width,
                b: b.as_ptr().add(first * pairs),
                pairs,
                add: destination == Destination::Add,
            };
            match width.div_ceil(LANES) {
                1 => strip.multiply::<1>(a, rows),
                2 => strip.multiply::<2>(a, rows),
                _ => strip.multiply::<3>(a, rows),
            }
        }
    }
}

/// Addresses of the columns of one panel.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Strip {
    c: *mut f32,
    c_stride: usize,
    width: usize,
    b: *const u32,
    pairs: usize,
    add: bool,
}

#[cfg(target_arch = "x86_64")]
impl Strip {
    /// All rows of a strip of `V` vectors.
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn multiply<const V: usize>(self, a: Left<'_>, rows: usize) {
        let mut row = 0;
        while row < rows {
            // SAFETY: the caller's sizes; a block of 8 rows lies within one group.
            unsafe {
                let left = a.data.as_ptr().wrapping_add(a.start(row));
                let c = self.c.add(row * self.c_stride);
                if row + BLOCK <= rows {
                    self.block::<BLOCK, V>(c, left, a);
                    row += BLOCK;
                } else {
                    self.block::<1, V>(c, left, a);
                    row += 1;
                }
            }
        }
    }

    /// `R` rows and `V` vectors of columns of the result.
    #[target_feature(enable = "avx512f,avx512bf16")]
    #[inline]
    unsafe fn block<const R: usize, const V: usize>(self, c: *mut f32, left: *const u32, a: Left<'_>) {
        let mut sums: [[__m512; V]; R] = [[_mm512_setzero_ps(); V]; R];
        // SAFETY: the caller's sizes. `__m512i` and `__m512bh` are 512 bits without invalid values. The mask
        // leaves out columns beyond the width.
        unsafe {
            let bf16 = |bits: __m512i| -> __m512bh { std::mem::transmute(bits) };
            let (mut left, mut right) = (left, self.b);
            for _ in 0..self.pairs {
                let mut columns = [_mm512_set1_epi32(0); V];
                for (index, vector) in columns.iter_mut().enumerate() {
                    *vector = _mm512_loadu_si512(right.add(index * LANES).cast());
                }
                for (index, sums) in sums.iter_mut().enumerate() {
                    let term = bf16(_mm512_set1_epi32(left.add(index * a.row_stride).read().cast_signed()));
                    for (sum, &vector) in sums.iter_mut().zip(&columns) {
                        *sum = _mm512_dpbf16_ps(*sum, bf16(vector), term);
                    }
                }
                left = left.wrapping_add(a.pair_stride);
                right = right.add(V * LANES);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (index, &sum) in sums.iter().enumerate() {
                    let count = (self.width - index * LANES).min(LANES);
                    let mask: __mmask16 = u16::MAX >> (LANES - count);
                    let place = c.add(row * self.c_stride + index * LANES);
                    let value = if self.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, place), sum) } else { sum };
                    _mm512_mask_storeu_ps(place, mask, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    fn rounded(value: f32) -> f64 {
        f64::from(f32::from_bits(round(value) << 16))
    }

    #[test]
    fn rounding_is_to_nearest_with_ties_to_even() {
        for (value, expected) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (-(1.0 + 1.1 / 256.0), -(1.0 + 2.0 / 256.0)),
            (f32::INFINITY, f64::INFINITY),
            (f32::MAX, f64::INFINITY),
        ] {
            assert_eq!(rounded(value), expected, "{value}");
        }
        assert!(rounded(f32::NAN).is_nan());
        assert!(rounded(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn products_are_those_of_rounded_factors() {
        if !is_supported() {
            return;
        }
        for (rows, inner, columns) in [(1, 1, 1), (8, 2, 16), (17, 5, 49), (33, 64, 97), (9, 0, 3)] {
            let a: Vec<f32> = random(rows * inner, 1);
            let b: Vec<f32> = random(inner * columns, 2);
            let transpose = |m: &[f32], width: usize| -> Vec<f32> {
                let height = m.len() / width.max(1);
                (0..m.len()).map(|i| m[i % height * width + i / height]).collect()
            };
            let pairs = inner.div_ceil(2);
            // What is not written must not be read: NaN.
            let mut left = [vec![u32::MAX; rows * pairs], vec![u32::MAX; rows.next_multiple_of(GROUP) * pairs]];
            pack_rows(&a, inner, &mut left[0]);
            let by_columns = transpose(&a, inner);
            for (pair, two) in by_columns.chunks(2 * rows).enumerate() {
                let (first, second) = two.split_at(rows);
                pack_group_rows(first, second, pairs, &mut left[1][pair * GROUP..]);
            }
            let mut right = vec![vec![u32::MAX; right_length(pairs, columns)]; 2];
            pack_right(&b, columns, &mut right[0]);
            pack_right_transposed(&transpose(&b, columns), inner, &mut right[1]);
            assert_eq!(right[0], right[1]);
            let lefts = [Left::rows(&left[0], pairs), Left::groups(&left[1], pairs)];
            for (left, (destination, start)) in
                lefts.into_iter().flat_map(|left| [(left, (Destination::Set, 0.0)), (left, (Destination::Add, 0.5))])
            {
                let mut c = vec![0.5; rows * columns + 1];
                let sizes = Sizes { rows, pairs, columns };
                product(&mut c, destination, left, &right[0], sizes);
                for (at, &found) in c[..rows * columns].iter().enumerate() {
                    let (i, j) = (at / columns, at % columns);
                    let term = |k: usize| rounded(a[i * inner + k]) * rounded(b[k * columns + j]);
                    let exact = start + (0..inner).map(term).sum::<f64>();
                    assert!((f64::from(found) - exact).abs() < 1e-5, "{found} is not {exact}");
                }
                assert_eq!(c[rows * columns], 0.5);
            }
        }
    }
}
