//! A spatial index of points: nearest neighbours and neighbours within a radius.
//!
//! The index is a k-d tree that splits at the median rank, so coincident, coplanar and collinear
//! points need no special treatment. Ties in distance go to the lower index, so results are
//! reproducible.

use glam::DVec3;

/// Maximum number of points in a leaf, which is scanned linearly.
const LEAF: usize = 16;
/// Minimum number of points of a subtree that is built in parallel.
const PARALLEL: usize = 1 << 13;

/// A k-d tree over a list of points.
///
/// ```
/// use gemcnn_mesh::{DVec3, PointIndex};
/// let index = PointIndex::new(&[DVec3::ZERO, DVec3::X, DVec3::X * 3.0]);
/// assert_eq!(index.nearest(DVec3::X * 1.4).unwrap().point, 1);
/// let mut found = Vec::new();
/// index.within(DVec3::ZERO, 2.0, usize::MAX, &mut found);
/// assert_eq!(found.iter().map(|f| f.point).collect::<Vec<_>>(), [0, 1]);
/// ```
#[derive(Debug, Clone)]
pub struct PointIndex {
    /// Points in tree order; each node splits its range at the middle.
    points: Vec<DVec3>,
    /// Original index of each point.
    original: Vec<u32>,
    /// Split axis of the node with its middle at this position.
    axes: Vec<u8>,
}

/// A point found by a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Squared distance to the query point.
    pub squared_distance: f64,
    /// Index of the point in the list passed to [`PointIndex::new`].
    pub point: u32,
}

impl Neighbour {
    /// Ordering by distance, then by index.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.squared_distance.total_cmp(&other.squared_distance).then(self.point.cmp(&other.point))
    }
}

impl PointIndex {
    /// Builds the index. The points must be finite and fewer than `u32::MAX`, as in a
    /// [`Mesh`](crate::Mesh).
    pub fn new(points: &[DVec3]) -> Self {
        let mut original: Vec<u32> = (0..points.len() as u32).collect();
        let mut axes = vec![0; points.len()];
        build(points, &mut original, &mut axes);
        Self { points: original.iter().map(|&i| points[i as usize]).collect(), original, axes }
    }

    /// The point nearest to `centre`; `None` if the index is empty.
    pub fn nearest(&self, centre: DVec3) -> Option<Neighbour> {
        let mut found = Vec::with_capacity(2);
        self.within(centre, f64::INFINITY, 1, &mut found);
        found.pop()
    }

    /// Replaces the contents of `found` by the points at most `radius` away from `centre`, nearest
    /// first. At most `limit` points are returned.
    pub fn within(&self, centre: DVec3, radius: f64, limit: usize, found: &mut Vec<Neighbour>) {
        found.clear();
        if limit == 0 || radius.is_nan() || radius < 0.0 {
            return;
        }
        let mut query = Query { index: self, centre, bound: radius * radius, limit, found };
        query.visit(0, self.points.len());
        if limit == usize::MAX {
            found.sort_unstable_by(Neighbour::order);
        }
    }
}

/// Puts `order` into the order of the tree: each part is split at its middle, across its longest side, which is noted
/// in `axes`.
fn build(points: &[DVec3], order: &mut [u32], axes: &mut [u8]) {
    if order.len() <= LEAF {
        return;
    }
    let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
    for &i in order.iter() {
        low = low.min(points[i as usize]);
        high = high.max(points[i as usize]);
    }
    let axis = (high - low).max_position();
    let middle = order.len() / 2;
    order.select_nth_unstable_by(middle, |&a, &b| {
        points[a as usize][axis].total_cmp(&points[b as usize][axis]).then(a.cmp(&b))
    });
    axes[middle] = axis as u8;
    let (left, rest) = order.split_at_mut(middle);
    let (left_axes, rest_axes) = axes.split_at_mut(middle);
    let mut left = || build(points, left, left_axes);
    let mut right = || build(points, &mut rest[1..], &mut rest_axes[1..]);
    if middle >= PARALLEL {
        rayon::join(left, right);
    } else {
        left();
        right();
    }
}

/// A search in progress.
struct Query<'a> {
    index: &'a PointIndex,
    centre: DVec3,
    /// Squared distance beyond which points are ignored.
    bound: f64,
    limit: usize,
    /// Sorted by distance if there is a limit.
    found: &'a mut Vec<Neighbour>,
}

impl Query<'_> {
    /// Offers the points of the node with these places, unless they are too far away.
    fn visit(&mut self, start: usize, end: usize) {
        if end - start <= LEAF {
            for at in start..end {
                self.offer(at);
            }
            return;
        }
        let middle = start + (end - start) / 2;
        let axis = self.index.axes[middle] as usize;
        let delta = self.centre[axis] - self.index.points[middle][axis];
        let (near, far) =
            if delta < 0.0 { ((start, middle), (middle + 1, end)) } else { ((middle + 1, end), (start, middle)) };
        self.visit(near.0, near.1);
        self.offer(middle);
        if delta * delta <= self.bound {
            self.visit(far.0, far.1);
        }
    }

    /// Keeps the point at a place if it is near enough.
    fn offer(&mut self, at: usize) {
        let candidate = Neighbour {
            squared_distance: self.centre.distance_squared(self.index.points[at]),
            point: self.index.original[at],
        };
        if candidate.squared_distance > self.bound {
            return;
        }
        if self.limit == usize::MAX {
            self.found.push(candidate);
            return;
        }
        let place = self.found.partition_point(|kept| kept.order(&candidate).is_lt());
        if place < self.limit {
            if self.found.len() == self.limit {
                self.found.pop();
            }
            self.found.insert(place, candidate);
            if self.found.len() == self.limit {
                self.bound = self.found[self.limit - 1].squared_distance;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn brute_force(points: &[DVec3], centre: DVec3, radius: f64, limit: usize) -> Vec<Neighbour> {
        let mut all: Vec<Neighbour> = points
            .iter()
            .enumerate()
            .map(|(i, p)| Neighbour { squared_distance: centre.distance_squared(*p), point: i as u32 })
            .filter(|f| f.squared_distance <= radius * radius)
            .collect();
        all.sort_by(Neighbour::order);
        all.truncate(limit);
        all
    }

    #[test]
    fn queries_equal_a_full_scan() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for (count, flat, steps) in [
            (0, false, 50.0),
            (1, false, 50.0),
            (16, false, 50.0),
            (17, true, 50.0),
            (700, false, 1e9),
            (700, true, 4.0),
            (20_000, true, 9.0),
        ] {
            // Coordinates on a lattice of `steps` values: few steps give many coincident points.
            let mut draw = || (rng.random::<f64>() * steps).floor() / steps;
            let points: Vec<DVec3> =
                (0..count).map(|_| DVec3::new(draw(), draw(), if flat { 0.25 } else { draw() })).collect();
            let index = PointIndex::new(&points);
            let mut found = Vec::new();
            for (radius, limit) in
                [(0.3, usize::MAX), (0.3, 7), (f64::INFINITY, 3), (0.0, usize::MAX), (0.0, 2), (-1.0, 5), (1.0, 0)]
            {
                let centre = DVec3::new(draw(), draw(), 0.25);
                index.within(centre, radius, limit, &mut found);
                let expected = if radius < 0.0 { vec![] } else { brute_force(&points, centre, radius, limit) };
                assert_eq!(found, expected, "{count} points, radius {radius}, limit {limit}");
            }
        }
    }
}
