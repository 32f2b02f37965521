//! Edge table of a mesh: every undirected edge once, with its face sides.

use crate::classes::bucket;
use crate::defects::is_collapsed;
use crate::mesh::Mesh;

/// One side of a face: a directed edge from one corner to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// The face.
    pub(crate) face: u32,
    /// Corner at which the side starts, as an index into the corners of all faces.
    pub(crate) tail: u32,
    /// Corner at which the side ends.
    pub(crate) head: u32,
    /// True if the side runs from the lower to the higher vertex index.
    pub(crate) forward: bool,
}

impl Side {
    /// Corners of the side at the lower and at the higher vertex of the edge.
    pub(crate) fn corners(&self) -> [u32; 2] {
        if self.forward { [self.tail, self.head] } else { [self.head, self.tail] }
    }
}

/// All edges of the faces without repeated vertices and of keyhole polygons, sorted by their vertices.
pub(crate) struct EdgeTable {
    /// For each face, true if it is not collapsed.
    takes_part: Vec<bool>,
    /// The lower and the higher vertex of each edge.
    ends: Vec<[u32; 2]>,
    /// Start of each edge in `sides`, followed by the length of `sides`.
    offsets: Vec<u32>,
    sides: Vec<Side>,
}

impl EdgeTable {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let faces = mesh.faces();
        let corners = faces.corners();
        let takes_part: Vec<bool> = faces.iter().map(|f| !is_collapsed(f)).collect();

        // Sides are grouped by the lower vertex of their edge; each group is sorted by the higher
        // one.
        let sides_by_lower =
            faces.offsets().windows(2).enumerate().filter(|&(face, _)| takes_part[face]).flat_map(|(face, bounds)| {
                let (start, end) = (bounds[0], bounds[1]);
                (start..end).map(move |tail| {
                    let head = if tail + 1 == end { start } else { tail + 1 };
                    let (from, to) = (corners[tail as usize], corners[head as usize]);
                    let side = Side { face: face as u32, tail, head, forward: from < to };
                    (from.min(to), side)
                })
            });
        let (groups, mut sides) = bucket(mesh.vertex_count(), sides_by_lower);
        let higher = |side: &Side| corners[side.corners()[1] as usize];

        let mut ends = Vec::with_capacity(sides.len() / 2);
        let mut offsets = Vec::with_capacity(sides.len() / 2 + 1);
        offsets.push(0);
        for (lower, bounds) in groups.windows(2).enumerate() {
            let group = &mut sides[bounds[0] as usize..bounds[1] as usize];
            group.sort_unstable_by_key(|side| (higher(side), side.tail));
            for edge in group.chunk_by(|a, b| higher(a) == higher(b)) {
                ends.push([lower as u32, higher(&edge[0])]);
                offsets.push(offsets[offsets.len() - 1] + edge.len() as u32);
            }
        }
        Self { takes_part, ends, offsets, sides }
    }

    /// True if the face is part of the topology, that is, if it is not collapsed.
    pub(crate) fn takes_part(&self, face: usize) -> bool {
        self.takes_part[face]
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The lower and the higher vertex of every edge.
    pub(crate) fn ends(&self) -> &[[u32; 2]] {
        &self.ends
    }

    /// Iterates over the edges: the two vertices and the sides, in face order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u32; 2], &[Side])> {
        self.ends
            .iter()
            .zip(self.offsets.windows(2))
            .map(|(&ends, bounds)| (ends, &self.sides[bounds[0] as usize..bounds[1] as usize]))
    }

    /// Iterates over the edges with exactly two sides.
    pub(crate) fn two_sided(&self) -> impl Iterator<Item = ([u32; 2], &[Side; 2])> {
        self.iter().filter_map(|(ends, sides)| Some((ends, sides.try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glam::DVec3;

    #[test]
    fn every_edge_stands_once_with_its_sides() {
        // A square 0 1 2 3, a triangle on its side 1 2, and a face that repeats vertex 0.
        let faces = [vec![0, 1, 2, 3], vec![0, 0, 4], vec![4, 2, 1]];
        let mesh = Mesh::new(vec![DVec3::ZERO; 5], faces.iter().collect()).unwrap();
        let edges = EdgeTable::new(&mesh);
        assert_eq!(edges.ends(), [[0, 1], [0, 3], [1, 2], [1, 4], [2, 3], [2, 4]]);
        assert_eq!(edges.len(), 6);
        assert!(edges.takes_part(0) && !edges.takes_part(1) && edges.takes_part(2));
        let sides = edges.iter().find(|(ends, _)| *ends == [1, 2]).unwrap().1;
        assert_eq!(sides.len(), 2);
        assert_eq!((sides[0].face, sides[0].corners()), (0, [1, 2]));
        assert_eq!((sides[1].face, sides[1].corners()), (2, [9, 8]));
        assert!(sides[0].forward && !sides[1].forward);
        let shared: Vec<_> = edges.two_sided().map(|(ends, _)| ends).collect();
        assert_eq!(shared, [[1, 2]]);
        // The last side of the square runs from its last corner to its first.
        let closing = edges.iter().nth(1).unwrap().1[0];
        assert_eq!((closing.tail, closing.head, closing.forward), (3, 0, false));
    }
}
