//! Bounding boxes in a binary tree: the point of a surface nearest to any point of space.

use glam::DVec3;

use super::original::{Original, Place};

/// Maximum number of triangles in a leaf.
const LEAF: usize = 4;

/// A tree of bounding boxes over the triangles of a surface.
///
/// The tree is complete in its ranges: a node has a range of triangles and is either a leaf or
/// splits the range at the middle. Its nodes are stored in preorder.
pub(super) struct BoxTree<'a> {
    original: &'a Original<'a>,
    /// Triangles in the order of the leaves.
    order: Vec<u32>,
    /// Bounding box of each node.
    boxes: Vec<[DVec3; 2]>,
    /// Number of nodes of the subtree of each node, itself included.
    sizes: Vec<u32>,
}

impl<'a> BoxTree<'a> {
    pub(super) fn new(original: &'a Original<'a>) -> Self {
        let count = original.triangles.len();
        let mut tree = Self {
            original,
            order: (0..count as u32).collect(),
            boxes: Vec::with_capacity(count),
            sizes: Vec::with_capacity(count),
        };
        let centres: Vec<DVec3> =
            (0..count as u32).map(|triangle| original.corners(triangle).iter().sum::<DVec3>() / 3.0).collect();
        let mut order = std::mem::take(&mut tree.order);
        tree.build(&mut order, &centres);
        tree.order = order;
        tree
    }

    fn build(&mut self, order: &mut [u32], centres: &[DVec3]) {
        let node = self.boxes.len();
        let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
        let (mut first, mut last) = (low, high);
        for &triangle in order.iter() {
            for corner in self.original.corners(triangle) {
                (low, high) = (low.min(corner), high.max(corner));
            }
            let centre = centres[triangle as usize];
            (first, last) = (first.min(centre), last.max(centre));
        }
        self.boxes.push([low, high]);
        self.sizes.push(1);
        if order.len() > LEAF {
            let axis = (last - first).max_position();
            let middle = order.len() / 2;
            order.select_nth_unstable_by(middle, |&a, &b| {
                centres[a as usize][axis].total_cmp(&centres[b as usize][axis]).then(a.cmp(&b))
            });
            let (left, right) = order.split_at_mut(middle);
            self.build(left, centres);
            self.build(right, centres);
            self.sizes[node] = (self.boxes.len() - node) as u32;
        }
    }

    /// The nearest point of the surface and its squared distance, no farther than that of `near`.
    pub(super) fn nearest(&self, point: DVec3, near: (Place, f64)) -> (Place, f64) {
        let mut best = near;
        if !self.order.is_empty() {
            self.visit(0, 0, self.order.len(), point, &mut best);
        }
        best
    }

    fn visit(&self, node: usize, start: usize, end: usize, point: DVec3, best: &mut (Place, f64)) {
        if end - start <= LEAF {
            for &triangle in &self.order[start..end] {
                let found = self.original.nearest_on(triangle, point);
                if found.1 < best.1 {
                    *best = found;
                }
            }
            return;
        }
        let middle = start + (end - start) / 2;
        let left = node + 1;
        let right = left + self.sizes[left] as usize;
        let [to_left, to_right] = [left, right].map(|child| self.squared_distance(child, point));
        let mut children = [(to_left, left, start, middle), (to_right, right, middle, end)];
        if to_right < to_left {
            children.reverse();
        }
        for (distance, child, start, end) in children {
            if distance < best.1 {
                self.visit(child, start, end, point, best);
            }
        }
    }

    /// Squared distance from a point to the box of a node.
    fn squared_distance(&self, node: usize, point: DVec3) -> f64 {
        let [low, high] = self.boxes[node];
        point.distance_squared(point.max(low).min(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Uniform;
    use crate::shapes::{Cells, torus};

    #[test]
    fn the_tree_finds_what_a_full_scan_finds() {
        let mesh = torus(20, 9, 1.0, 0.4, Cells::Triangles).unwrap();
        let original = Original::new(&mesh);
        let tree = BoxTree::new(&original);
        let mut uniform = Uniform::new(2);
        for _ in 0..300 {
            let point = DVec3::from(std::array::from_fn(|_| 1.5 * uniform.signed()));
            let (place, distance) = tree.nearest(point, original.nearest_on(0, point));
            let all = (0..360).map(|t| original.nearest_on(t, point).1);
            assert_eq!(distance, all.fold(f64::INFINITY, f64::min));
            let again = original.position(place).distance_squared(point);
            assert_eq!(again, distance);
        }
    }
}
