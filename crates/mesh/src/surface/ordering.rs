//! Elimination order by nested dissection, which keeps the factors of matrices on surfaces sparse.

use crate::DVec3;
use crate::classes::bucket;

/// Parts of at most this many vertices are not cut further.
const LEAF: usize = 24;

/// All vertices in an order of elimination. The points are halved at their median along the longest
/// side of their box; the vertices of the one half that have an edge to the other separate the two and
/// come last; both halves are ordered likewise.
pub(super) fn dissection_order(points: &[DVec3], edges: &[[u32; 2]]) -> Vec<u32> {
    let both_ways = edges.iter().flat_map(|&[a, b]| [(a, b), (b, a)]);
    let (offsets, neighbours) = bucket(points.len(), both_ways);
    let mut vertices: Vec<u32> = (0..points.len() as u32).collect();
    let mut dissection = Dissection { points, offsets, neighbours, half: vec![0; points.len()], cuts: 0 };
    dissection.order(&mut vertices);
    vertices
}

struct Dissection<'a> {
    points: &'a [DVec3],
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    /// The last cut that put a vertex in its upper half.
    half: Vec<u32>,
    cuts: u32,
}

impl Dissection<'_> {
    /// Brings the vertices into order: lower half, upper half, separator.
    fn order(&mut self, vertices: &mut [u32]) {
        if vertices.len() <= LEAF {
            vertices.sort_unstable();
            return;
        }
        let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
        for &vertex in vertices.iter() {
            low = low.min(self.points[vertex as usize]);
            high = high.max(self.points[vertex as usize]);
        }
        let axis = (high - low).max_position();
        let middle = vertices.len() / 2;
        vertices.select_nth_unstable_by(middle, |&a, &b| {
            let [x, y] = [a, b].map(|vertex| self.points[vertex as usize][axis]);
            x.total_cmp(&y).then(a.cmp(&b))
        });
        self.cuts += 1;
        let (lower, upper) = vertices.split_at(middle);
        for &vertex in upper {
            self.half[vertex as usize] = self.cuts;
        }
        let (separator, inner): (Vec<u32>, Vec<u32>) = lower.iter().partition(|&&vertex| self.touches_upper(vertex));
        let upper = upper.to_vec();
        let (inner_place, rest) = vertices.split_at_mut(inner.len());
        let (upper_place, separator_place) = rest.split_at_mut(upper.len());
        inner_place.copy_from_slice(&inner);
        upper_place.copy_from_slice(&upper);
        separator_place.copy_from_slice(&separator);
        separator_place.sort_unstable();
        self.order(inner_place);
        self.order(upper_place);
    }

    /// Whether a vertex has a neighbour in the upper half of the last cut.
    fn touches_upper(&self, vertex: u32) -> bool {
        let row = self.offsets[vertex as usize] as usize..self.offsets[vertex as usize + 1] as usize;
        let upper = |&neighbour: &u32| self.half[neighbour as usize] == self.cuts;
        self.neighbours[row].iter().any(upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_contains_every_vertex_once() {
        let scattered: Vec<DVec3> = (0..200).map(|i| DVec3::new(f64::from(i % 7), f64::from(i % 11), 0.0)).collect();
        for points in [scattered, vec![DVec3::ONE; 200]] {
            let complete: Vec<[u32; 2]> = (0..200u32).flat_map(|b| (0..b).map(move |a| [a, b])).collect();
            for edges in [&complete[..], &[]] {
                let mut order = dissection_order(&points, edges);
                order.sort_unstable();
                assert_eq!(order, (0..200).collect::<Vec<u32>>());
            }
        }
    }
}
