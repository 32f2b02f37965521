//! Farthest-point sampling.
//!
//! Distances from the chosen points are kept in a tree of boxes. A new point changes distances only where its box is
//! nearer than the farthest point there, so the time for `m` of `n` points is about `n log m`.

use glam::DVec3;
use std::ops::Range;

/// Largest number of points of a leaf.
const LEAF: usize = 32;
/// Marks a chosen point; less than every squared distance.
const CHOSEN: f64 = -1.0;
/// A node without children.
const NONE: u32 = u32::MAX;

/// Farthest-point sampling: the indices of `count` points, or of all points if there are fewer. The
/// first sample is `start`, clamped to the last point; each further sample is the point farthest
/// from those chosen so far, the lower index in ties. No point is chosen twice, even if points
/// coincide.
///
/// ```
/// use gemcnn_mesh::{DVec3, farthest_points};
/// let points = [0.0, 1.0, 4.0, 9.0].map(|x| DVec3::new(x, 0.0, 0.0));
/// assert_eq!(farthest_points(&points, 3, 0), [0, 3, 2]);
/// ```
pub fn farthest_points(points: &[DVec3], count: usize, start: usize) -> Vec<u32> {
    let count = count.min(points.len());
    let mut chosen = Vec::with_capacity(count);
    if count == 0 {
        return chosen;
    }
    let mut tree = Tree::new(points);
    let mut next = start.min(points.len() - 1) as u32;
    loop {
        chosen.push(next);
        if chosen.len() == count {
            return chosen;
        }
        next = tree.choose(next);
    }
}

/// Points in the order of the leaves, with their distances from the chosen ones.
struct Tree {
    /// Index of the point in each place.
    order: Vec<u32>,
    /// Place of each point.
    places: Vec<u32>,
    points: Vec<DVec3>,
    squared_distances: Vec<f64>,
    /// Each node stands before its children; the first child follows it.
    nodes: Vec<Node>,
}

struct Node {
    places: Range<u32>,
    low: DVec3,
    high: DVec3,
    second: u32,
    farthest: Farthest,
}

/// A point of a node that is farthest from the chosen ones.
#[derive(Clone, Copy)]
struct Farthest {
    squared_distance: f64,
    point: u32,
}

impl Farthest {
    /// The farther of two, the lower index in ties.
    fn or(self, other: Self) -> Self {
        let is_farther = other.squared_distance > self.squared_distance;
        let is_first = other.squared_distance == self.squared_distance && other.point < self.point;
        if is_farther || is_first { other } else { self }
    }
}

impl Tree {
    fn new(points: &[DVec3]) -> Self {
        let mut order: Vec<u32> = (0..points.len() as u32).collect();
        let mut nodes = Vec::with_capacity(4 * points.len() / LEAF + 1);
        split(points, &mut order, 0, &mut nodes);
        let mut places = vec![0; points.len()];
        for (place, &point) in order.iter().enumerate() {
            places[point as usize] = place as u32;
        }
        Self {
            points: order.iter().map(|&point| points[point as usize]).collect(),
            squared_distances: vec![f64::INFINITY; points.len()],
            order,
            places,
            nodes,
        }
    }

    /// Chooses a point, and returns the farthest one after that.
    fn choose(&mut self, point: u32) -> u32 {
        let place = self.places[point as usize];
        self.squared_distances[place as usize] = CHOSEN;
        self.update(0, place, self.points[place as usize]);
        self.nodes[0].farthest.point
    }

    /// Updates the distances of a node after the point at `place` was chosen.
    fn update(&mut self, node: usize, place: u32, centre: DVec3) {
        let Node { places, low, high, second, farthest } = &self.nodes[node];
        let nearest = centre.clamp(*low, *high);
        // Rounding is monotonic, so no point of the box is nearer than this.
        let is_away = nearest.distance_squared(centre) >= farthest.squared_distance;
        if is_away && !places.contains(&place) {
            return;
        }
        let (places, second) = (places.clone(), *second);
        let farthest = if second == NONE {
            let range = places.start as usize..places.end as usize;
            let mut best = Farthest { squared_distance: f64::NEG_INFINITY, point: NONE };
            for place in range {
                let distance = &mut self.squared_distances[place];
                *distance = distance.min(self.points[place].distance_squared(centre));
                best = best.or(Farthest { squared_distance: *distance, point: self.order[place] });
            }
            best
        } else {
            self.update(node + 1, place, centre);
            self.update(second as usize, place, centre);
            let [first, second] = [node + 1, second as usize].map(|child| self.nodes[child].farthest);
            first.or(second)
        };
        self.nodes[node].farthest = farthest;
    }
}

/// Adds the nodes of some points, which are sorted so that each node has a range of places.
fn split(points: &[DVec3], order: &mut [u32], start: u32, nodes: &mut Vec<Node>) {
    let of = |&point: &u32| points[point as usize];
    let low = order.iter().map(of).fold(DVec3::INFINITY, DVec3::min);
    let high = order.iter().map(of).fold(DVec3::NEG_INFINITY, DVec3::max);
    let node = nodes.len();
    nodes.push(Node {
        places: start..start + order.len() as u32,
        low,
        high,
        second: NONE,
        farthest: Farthest { squared_distance: f64::INFINITY, point: order.iter().copied().min().unwrap_or(NONE) },
    });
    if order.len() <= LEAF {
        return;
    }
    let size = high - low;
    let axis = (0..3).fold(0, |best, axis| if size[axis] > size[best] { axis } else { best });
    let middle = order.len() / 2;
    order.select_nth_unstable_by(middle, |a, b| of(a)[axis].total_cmp(&of(b)[axis]));
    let (first, second) = order.split_at_mut(middle);
    split(points, first, start, nodes);
    nodes[node].second = nodes.len() as u32;
    split(points, second, start + middle as u32, nodes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Uniform;

    /// The plain algorithm, which looks at every point for every sample.
    fn plain(points: &[DVec3], count: usize, start: usize) -> Vec<u32> {
        let mut distances = vec![f64::INFINITY; points.len()];
        let (mut chosen, mut next) = (Vec::new(), start);
        while chosen.len() < count {
            chosen.push(next as u32);
            let centre = points[next];
            distances[next] = CHOSEN;
            let mut farthest = CHOSEN;
            for (index, (point, distance)) in points.iter().zip(&mut distances).enumerate() {
                *distance = distance.min(point.distance_squared(centre));
                if *distance > farthest {
                    (farthest, next) = (*distance, index);
                }
            }
        }
        chosen
    }

    #[test]
    fn samples_are_those_of_the_plain_algorithm() {
        let mut uniform = Uniform::new(3);
        let mut random = || DVec3::from(std::array::from_fn(|_| uniform.signed()));
        let cloud: Vec<DVec3> = (0..700).map(|_| random()).collect();
        // Ties and coincident points.
        let grid: Vec<DVec3> = (0..900).map(|n| DVec3::new(f64::from(n % 20), f64::from(n / 20 % 15), 0.0)).collect();
        let flat = vec![DVec3::ONE; 200];
        let huge: Vec<DVec3> = cloud.iter().map(|p| *p * 1e200).collect();
        for points in [cloud, grid, flat, huge] {
            let (count, start) = (points.len() / 2, points.len() / 3);
            assert_eq!(farthest_points(&points, count, start), plain(&points, count, start));
        }
    }
}
