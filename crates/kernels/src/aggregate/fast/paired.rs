//! Sums of an order whose two components are one vector together: half a vector of channels, as heads of attention
//! have.

use super::{Block, Table};
use crate::Real;
use pulp::Simd;
use std::ops::Range;

impl Block {
    /// True if both components of this order are one vector.
    #[inline(always)]
    pub(super) fn is_paired<S: Simd, T: Real>(&self) -> bool {
        self.order > 0 && 2 * self.channels == T::count::<S>()
    }
}

impl<T: Real> Table<'_, T> {
    /// `COUNT` rows of a [paired](Block::is_paired) order, as [`sums`](Self::sums) has them.
    ///
    /// # Safety
    /// `edges` are tabulated edges, and there are `COUNT` rows from `first_row`.
    #[inline(always)]
    pub(super) unsafe fn paired_sums<S: Simd, const COUNT: usize>(
        &self,
        simd: S,
        edges: Range<usize>,
        block: Block,
        first_row: usize,
        out: &mut [T],
    ) {
        let (count, lanes) = (self.edges.len(), T::count::<S>());
        let start = edges.start - self.edges.start;
        let mut signs = [T::one(); 64];
        signs[..lanes / 2].fill(-T::one());
        let signs = T::load(simd, &signs[..lanes]);
        let mut sums = [T::splat(simd, T::zero()); COUNT];
        let weights = self.weights.as_ptr().wrapping_add(first_row * count + start);
        let turns = (block.order - 1) * 2 * count + start;
        let turns = self.rotations.as_ptr().wrapping_add(turns);
        for (place, &q) in self.graph.neighbours()[edges].iter().enumerate() {
            let from = q as usize * self.gather.dimension + block.start;
            // SAFETY: graph arrays name existing vertices only, and `tabulate` checked the length of `x`; the rotations
            // have two columns of `count` edges for each order.
            let (both, c, s) = unsafe {
                let at = turns.wrapping_add(place);
                let both = T::load_from::<S>(self.x.as_ptr().wrapping_add(from));
                (both, *at, *at.wrapping_add(count))
            };
            let sine = T::times(simd, T::splat(simd, s), signs);
            let turned = T::times(simd, T::splat(simd, c), both);
            let turned = T::times_plus(simd, sine, T::swap_halves(simd, both), turned);
            for (k, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the weights have one column of `count` edges for each row.
                let weight = unsafe { *weights.wrapping_add(k * count + place) };
                *sum = T::times_plus(simd, T::splat(simd, weight), turned, *sum);
            }
        }
        for (row, sum) in self.gather.rows[first_row..].iter().zip(sums) {
            let to = &mut out[row.destination + block.start..][..lanes];
            // SAFETY: `to` is one vector.
            unsafe { T::store_to::<S>(to.as_mut_ptr(), sum) };
        }
    }
}
