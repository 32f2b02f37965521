//! The tables of edges: scales, harmonics of angles or the coefficients that replace them, and rotations.

use super::{Direction, Gather};
use crate::{Aggregation, EdgePhases, GraphView, Real};
use std::ops::Range;

impl Gather {
    /// Columns `s t_k` of all harmonics, and of all rotations.
    #[inline(always)]
    pub(super) fn harmonics<T: Real>(
        &self,
        graph: GraphView<'_, T>,
        vertices: Range<usize>,
        harmonics: &mut [T],
        rotations: &mut [T],
        count: usize,
    ) {
        if self.columns > 1 {
            let first_edge = graph.row(vertices.start).start;
            self.given_harmonics(graph, first_edge, harmonics, rotations, count);
            return higher_harmonics(rotations, count, None);
        }
        self.first_harmonics(graph, vertices, harmonics, rotations, count);
        higher_harmonics(rotations, count, None);
        let (scales, harmonics) = harmonics.split_at_mut(count);
        higher_harmonics(harmonics, count, Some(scales));
    }

    /// The coefficients of each edge in place of harmonics, and `(cos, sin)` of the transport between the frames
    /// of its vertices. Backward, the coefficients are those of the reverse edge, transported to this vertex.
    #[inline(always)]
    fn given_harmonics<T: Real>(
        &self,
        graph: GraphView<'_, T>,
        first_edge: usize,
        harmonics: &mut [T],
        rotations: &mut [T],
        count: usize,
    ) {
        for place in 0..count {
            let edge = match self.direction {
                Direction::Forward => first_edge + place,
                Direction::Backward => graph.reverse()[first_edge + place] as usize,
            };
            let EdgePhases { angle, transport } = graph.phases()[edge];
            let mut turn = times(angle, transport);
            if self.direction == Direction::Backward {
                turn[1] = -turn[1];
            }
            if let Some(sine) = rotations.get_mut(count + place) {
                *sine = turn[1];
                rotations[place] = turn[0];
            }
            let values = &graph.coefficients()[edge * self.columns..][..self.columns];
            harmonics[place] = values[0];
            let mut power = [T::one(), T::zero()];
            for (pair, &[re, im]) in values[1..].as_chunks::<2>().0.iter().enumerate() {
                let value = match self.direction {
                    Direction::Forward => [re, im],
                    Direction::Backward => {
                        power = times(power, turn);
                        times([re, im], power)
                    }
                };
                harmonics[(2 * pair + 1) * count + place] = value[0];
                harmonics[(2 * pair + 2) * count + place] = value[1];
            }
        }
    }

    /// The scale of each edge and `(cos, sin)` of its angle and of its rotation, as far as there are
    /// columns for them.
    #[inline(always)]
    fn first_harmonics<T: Real>(
        &self,
        graph: GraphView<'_, T>,
        vertices: Range<usize>,
        harmonics: &mut [T],
        rotations: &mut [T],
        count: usize,
    ) {
        let first_edge = graph.row(vertices.start).start;
        let (scales, harmonics) = harmonics.split_at_mut(count);
        let mut turns = rotations.chunks_exact_mut(count.max(1));
        let (turn_cosines, turn_sines) = (turns.next(), turns.next());
        let mut angles = harmonics.chunks_exact_mut(count.max(1));
        let (angle_cosines, angle_sines) = (angles.next(), angles.next());
        let phases = graph.phases();
        match self.direction {
            Direction::Forward => {
                let phases = &phases[first_edge..][..count];
                if let (Some(cosines), Some(sines)) = (turn_cosines, turn_sines) {
                    for ((c, s), phases) in cosines.iter_mut().zip(sines).zip(phases) {
                        [*c, *s] = phases.transport;
                    }
                }
                if let (Some(cosines), Some(sines)) = (angle_cosines, angle_sines) {
                    for ((c, s), phases) in cosines.iter_mut().zip(sines).zip(phases) {
                        [*c, *s] = phases.angle;
                    }
                }
                if self.columns == 1 {
                    scales.copy_from_slice(&graph.coefficients()[first_edge..][..count]);
                } else if self.aggregation == Aggregation::Sum {
                    scales.fill(T::one());
                } else {
                    for p in vertices {
                        let row = graph.row(p);
                        let scale = self.aggregation.scale(row.len());
                        scales[row.start - first_edge..row.end - first_edge].fill(scale);
                    }
                }
            }
            Direction::Backward => {
                let reverse = &graph.reverse()[first_edge..][..count];
                if let (Some(cosines), Some(sines)) = (turn_cosines, turn_sines) {
                    for ((c, s), &edge) in cosines.iter_mut().zip(sines).zip(reverse) {
                        let [cosine, sine] = phases[edge as usize].angle;
                        [*c, *s] = [cosine, -sine];
                    }
                }
                if let (Some(cosines), Some(sines)) = (angle_cosines, angle_sines) {
                    for ((c, s), &edge) in cosines.iter_mut().zip(sines).zip(reverse) {
                        let [cosine, sine] = phases[edge as usize].transport;
                        [*c, *s] = [cosine, -sine];
                    }
                }
                if self.columns == 1 {
                    for (scale, &edge) in scales.iter_mut().zip(reverse) {
                        *scale = graph.coefficients()[edge as usize];
                    }
                } else if self.aggregation == Aggregation::Sum {
                    scales.fill(T::one());
                } else {
                    let targets = &graph.neighbours()[first_edge..][..count];
                    for (scale, &target) in scales.iter_mut().zip(targets) {
                        *scale = self.aggregation.scale(graph.row(target as usize).len());
                    }
                }
            }
        }
    }
}

/// The phase of the sum of two angles; a product of complex numbers.
#[inline(always)]
fn times<T: Real>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    [a[0] * b[0] - a[1] * b[1], a[1] * b[0] + a[0] * b[1]]
}

/// From the first pair of columns `(cos, sin)`, the pairs of the higher multiples by angle addition;
/// then every pair times `scales`.
#[inline(always)]
pub(crate) fn higher_harmonics<T: Real>(pairs: &mut [T], count: usize, scales: Option<&[T]>) {
    if count == 0 || pairs.is_empty() {
        return;
    }
    let (first, higher) = pairs.split_at_mut(2 * count);
    let (first_cosines, first_sines) = first.split_at_mut(count);
    let mut before: Option<(&[T], &[T])> = None;
    for pair in higher.chunks_exact_mut(2 * count) {
        let (cosines, sines) = pair.split_at_mut(count);
        let (c0, s0) = before.unwrap_or((first_cosines, first_sines));
        for i in 0..count {
            let (c, s) = (first_cosines[i], first_sines[i]);
            cosines[i] = c0[i] * c - s0[i] * s;
            sines[i] = s0[i] * c + c0[i] * s;
        }
        before = Some((cosines, sines));
    }
    if let Some(scales) = scales {
        for column in pairs.chunks_exact_mut(count) {
            for (value, &scale) in column.iter_mut().zip(scales) {
                *value *= scale;
            }
        }
    }
}
