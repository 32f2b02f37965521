//! Products of the rotated features of neighbours with rows in the layout of their sums.

use super::{Columns, Table};
use crate::Real;
use pulp::Simd;
use std::ops::Range;

/// Edges whose products are summed together.
const EDGES: usize = 16;

impl<T: Real> Table<'_, T> {
    /// For each edge of vertex `p`, which must be one of the tabulated ones: the sum over all rows of weight times the
    /// product of the rotated features with the part of `rows` where [`vertex`](Self::vertex) writes their sum.
    #[inline(always)]
    pub fn products<S: Simd>(&self, simd: S, p: usize, rows: &[T], out: &mut [T]) {
        let edges = self.graph.row(p);
        assert!(self.edges.start <= edges.start && edges.end <= self.edges.end);
        assert!(out.len() <= edges.len());
        let lanes = T::count::<S>();
        for (first, out) in edges.step_by(EDGES).zip(out.chunks_mut(EDGES)) {
            let edges = first..first + out.len();
            let mut sums = [T::splat(simd, T::zero()); EDGES];
            for &block in &self.gather.blocks {
                for first in (0..block.channels).step_by(lanes) {
                    let width = lanes.min(block.channels - first);
                    let columns = Columns { block, first, width };
                    if width == lanes {
                        self.add_products::<S, false>(simd, edges.clone(), columns, rows, &mut sums);
                    } else {
                        self.add_products::<S, true>(simd, edges.clone(), columns, rows, &mut sums);
                    }
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = T::sum_lanes(simd, sum);
            }
        }
    }

    /// The products for one vector of channels, with as many rows at a time as registers hold.
    #[inline(always)]
    fn add_products<S: Simd, const TAIL: bool>(
        &self,
        simd: S,
        edges: Range<usize>,
        columns: Columns,
        rows: &[T],
        sums: &mut [T::Vector<S>; EDGES],
    ) {
        let count = self.gather.rows.len();
        let mut first = 0;
        macro_rules! some_rows {
            ($($count:literal)*) => {$(
                while count - first >= $count {
                    // SAFETY: `products` checked that the edges are tabulated, and there are `$count` rows from
                    // `first`.
                    unsafe {
                        let edges = edges.clone();
                        if columns.block.order == 0 {
                            self.row_products::<S, $count, false, TAIL>(
                                simd, edges, columns, (first, rows), sums,
                            );
                        } else {
                            self.row_products::<S, $count, true, TAIL>(
                                simd, edges, columns, (first, rows), sums,
                            );
                        }
                    }
                    first += $count;
                }
            )*};
        }
        some_rows!(5 3 2 1);
    }

    /// The products for `COUNT` rows and one vector of channels; without `TURNED` the channels have order 0, and with
    /// `TAIL` they do not fill the vector.
    ///
    /// # Safety
    /// `edges` are tabulated edges, and there are `COUNT` rows from `first_row`.
    #[inline(always)]
    unsafe fn row_products<S: Simd, const COUNT: usize, const TURNED: bool, const TAIL: bool>(
        &self,
        simd: S,
        edges: Range<usize>,
        columns: Columns,
        (first_row, rows): (usize, &[T]),
        sums: &mut [T::Vector<S>; EDGES],
    ) {
        let Columns { block, first, width } = columns;
        let count = self.edges.len();
        let start = edges.start - self.edges.start;
        let (cosine, sine) = (block.start + first, block.start + first + block.channels);
        // SAFETY: `from` is one of the places below, with `width` numbers behind it; without a tail that is one full
        // vector.
        let load = |from: *const T| unsafe {
            if TAIL { T::load(simd, std::slice::from_raw_parts(from, width)) } else { T::load_from::<S>(from) }
        };
        let zero = T::splat(simd, T::zero());
        let (mut cosines, mut sines) = ([zero; COUNT], [zero; COUNT]);
        for k in 0..COUNT {
            let row = &rows[self.gather.rows[first_row + k].destination..];
            cosines[k] = load(row[cosine..][..width].as_ptr());
            if TURNED {
                sines[k] = load(row[sine..][..width].as_ptr());
            }
        }
        let weights = self.weights.as_ptr().wrapping_add(first_row * count + start);
        let turns = block.order.saturating_sub(1) * 2 * count + start;
        let turns = self.rotations.as_ptr().wrapping_add(turns);
        let neighbours = self.graph.neighbours()[edges].iter().enumerate();
        for ((place, &q), sum) in neighbours.zip(sums) {
            // For the safety of the loads: graph arrays name existing vertices only, and `tabulate` checked the length
            // of `x`.
            let features = self.x.as_ptr().wrapping_add(q as usize * self.gather.dimension);
            let (mut of_cosine, mut of_sine) = (zero, zero);
            for k in 0..COUNT {
                // SAFETY: the weights have one column of `count` edges for each row.
                let weight = unsafe { *weights.wrapping_add(k * count + place) };
                let weight = T::splat(simd, weight);
                of_cosine = T::times_plus(simd, weight, cosines[k], of_cosine);
                if TURNED {
                    of_sine = T::times_plus(simd, weight, sines[k], of_sine);
                }
            }
            let u = load(features.wrapping_add(cosine));
            if !TURNED {
                *sum = T::times_plus(simd, u, of_cosine, *sum);
                continue;
            }
            // SAFETY: the rotations have two columns of `count` edges for each order.
            let (c, s) = unsafe {
                let at = turns.wrapping_add(place);
                (*at, *at.wrapping_add(count))
            };
            let (c, s) = (T::splat(simd, c), T::splat(simd, s));
            let v = load(features.wrapping_add(sine));
            let turned_u = T::minus_times(simd, s, v, T::times(simd, c, u));
            let turned_v = T::times_plus(simd, s, u, T::times(simd, c, v));
            *sum = T::times_plus(simd, turned_u, of_cosine, *sum);
            *sum = T::times_plus(simd, turned_v, of_sine, *sum);
        }
    }
}
