//! Products of the rotated features of neighbours with rows in the layout of their sums.

use super::Table;
use crate::Real;
use pulp::Simd;

/// Most lanes of a vector.
const MOST_LANES: usize = 16;

impl<T: Real> Table<'_, T> {
    /// For each edge of vertex `p`, which must be one of the tabulated ones: the sum over all rows of weight times the product
    /// of the rotated features with the part of `rows` where [`vertex`](Self::vertex) writes their sum.
    #[inline(always)]
    pub fn products<S: Simd>(&self, simd: S, p: usize, rows: &[T], out: &mut [T]) {
        let edges = self.graph.row(p);
        assert!(self.edges.start <= edges.start && edges.end <= self.edges.end);
        let (count, lanes) = (self.edges.len(), T::count::<S>());
        let (gather, zero) = (self.gather, T::splat(simd, T::zero()));
        for (edge, out) in edges.zip(out) {
            let place = edge - self.edges.start;
            let q = self.graph.neighbours()[edge] as usize;
            let features = &self.x[q * gather.dimension..][..gather.dimension];
            let mut sum = zero;
            for block in &gather.blocks {
                for first in (0..block.channels).step_by(lanes) {
                    let width = lanes.min(block.channels - first);
                    let load = |values: &[T], at: usize| T::load(simd, &values[at..][..width]);
                    let weighted = |at: usize| {
                        let mut total = zero;
                        for (index, row) in gather.rows.iter().enumerate() {
                            let weight = T::splat(simd, self.weights[index * count + place]);
                            let values = load(rows, row.destination + at);
                            total = T::times_plus(simd, weight, values, total);
                        }
                        total
                    };
                    let cosine = block.start + first;
                    let u = load(features, cosine);
                    if block.order == 0 {
                        sum = T::times_plus(simd, u, weighted(cosine), sum);
                        continue;
                    }
                    let sine = cosine + block.channels;
                    let turn = (block.order - 1) * 2 * count + place;
                    let c = T::splat(simd, self.rotations[turn]);
                    let s = T::splat(simd, self.rotations[turn + count]);
                    let v = load(features, sine);
                    let turned_u = T::minus_times(simd, s, v, T::times(simd, c, u));
                    let turned_v = T::times_plus(simd, s, u, T::times(simd, c, v));
                    sum = T::times_plus(simd, turned_u, weighted(cosine), sum);
                    sum = T::times_plus(simd, turned_v, weighted(sine), sum);
                }
            }
            let mut parts = [T::zero(); MOST_LANES];
            T::store(simd, &mut parts[..lanes], sum);
            *out = parts.into_iter().sum();
        }
    }
}
