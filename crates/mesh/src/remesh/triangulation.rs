//! An editable triangle mesh: edges can be flipped, split and collapsed.
//!
//! Half-edges are stored in groups of three, one group per triangle, so that only their start
//! vertices and twins are needed. If `a -> b` is a half-edge of the triangle `a b c`, its twin `b
//! -> a` belongs to the triangle `b a d`. A half-edge at the border has no twin.

use glam::DVec3;

/// Marks a removed element, or the missing twin of a half-edge at the border.
pub(crate) const NONE: u32 = u32::MAX;

/// An oriented manifold of triangles under construction, closed or with borders. The triangles
/// around a vertex form one fan.
pub(crate) struct Triangulation {
    pub(crate) positions: Vec<DVec3>,
    /// Start vertex of each half-edge.
    pub(super) start: Vec<u32>,
    pub(super) twin: Vec<u32>,
    /// One outgoing half-edge of each vertex; at the border the first one counterclockwise.
    pub(super) outgoing: Vec<u32>,
    /// For each vertex, true if it lies on a border.
    pub(super) border: Vec<bool>,
    pub(super) removed_vertices: usize,
}

impl Triangulation {
    /// Creates a triangulation from a closed manifold. Every edge must have exactly two sides in
    /// opposite directions.
    pub(crate) fn new(positions: Vec<DVec3>, triangles: &[[u32; 3]]) -> Self {
        let start: Vec<u32> = triangles.as_flattened().to_vec();
        let mut outgoing = vec![NONE; positions.len()];
        let mut by_ends: Vec<(u32, u32, u32)> = Vec::with_capacity(start.len());
        for half_edge in 0..start.len() as u32 {
            let (from, to) = (start[half_edge as usize], start[next(half_edge) as usize]);
            outgoing[from as usize] = half_edge;
            by_ends.push((from.min(to), from.max(to), half_edge));
        }
        by_ends.sort_unstable();
        let mut twin = vec![NONE; start.len()];
        for pair in by_ends.chunks_exact(2) {
            twin[pair[0].2 as usize] = pair[1].2;
            twin[pair[1].2 as usize] = pair[0].2;
        }
        Self { border: vec![false; positions.len()], positions, start, twin, outgoing, removed_vertices: 0 }
    }

    /// True if the edge lies on a border.
    pub(crate) fn is_border(&self, half_edge: u32) -> bool {
        self.twin[half_edge as usize] == NONE
    }

    /// True if the vertex lies on a border.
    pub(crate) fn on_border(&self, vertex: u32) -> bool {
        self.border[vertex as usize]
    }

    /// Number of remaining vertices.
    pub(crate) fn vertex_count(&self) -> usize {
        self.positions.len() - self.removed_vertices
    }

    /// Iterates over the remaining half-edges.
    pub(crate) fn half_edges(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.start.len() as u32).filter(|&half_edge| self.start[half_edge as usize] != NONE)
    }

    /// Iterates over the edges: one half-edge of each.
    pub(crate) fn edges(&self) -> impl Iterator<Item = u32> + '_ {
        self.half_edges().filter(|&half_edge| half_edge < self.twin[half_edge as usize])
    }

    /// Number of half-edge slots, including removed ones. It grows with every split.
    pub(crate) fn half_edge_slots(&self) -> u32 {
        self.start.len() as u32
    }

    /// True if this is the first half-edge of an edge and has not been removed.
    pub(crate) fn is_edge(&self, half_edge: u32) -> bool {
        self.start[half_edge as usize] != NONE && half_edge < self.twin[half_edge as usize]
    }

    /// Start and end vertex of a half-edge.
    pub(crate) fn ends(&self, half_edge: u32) -> [u32; 2] {
        [half_edge, next(half_edge)].map(|h| self.start[h as usize])
    }

    /// Positions of the start and end vertex.
    pub(crate) fn segment(&self, half_edge: u32) -> [DVec3; 2] {
        self.ends(half_edge).map(|v| self.positions[v as usize])
    }

    /// Vertices opposite the edge, in the triangles of this half-edge and of its twin. They are
    /// equal at the border, where there is one triangle.
    pub(crate) fn opposite(&self, half_edge: u32) -> [u32; 2] {
        let twin = self.twin[half_edge as usize];
        let other = if twin == NONE { half_edge } else { twin };
        [half_edge, other].map(|h| self.start[previous(h) as usize])
    }

    /// Corners of the triangle of a half-edge, starting with those of the half-edge.
    pub(crate) fn triangle(&self, half_edge: u32) -> [u32; 3] {
        around_triangle(half_edge).map(|h| self.start[h as usize])
    }

    /// The half-edge that stands for its edge: the first one of the two.
    pub(crate) fn first_side(&self, half_edge: u32) -> u32 {
        half_edge.min(self.twin[half_edge as usize])
    }

    /// The half-edge before a half-edge in its triangle.
    pub(crate) fn incoming(&self, half_edge: u32) -> u32 {
        previous(half_edge)
    }

    /// Half-edges that start at a vertex, counterclockwise; empty if the vertex has been removed.
    /// There is one for each triangle around the vertex.
    pub(crate) fn around(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.outgoing[vertex as usize];
        let mut current = first;
        std::iter::from_fn(move || {
            if current == NONE {
                return None;
            }
            let here = current;
            current = self.twin[previous(here) as usize];
            if current == first {
                current = NONE;
            }
            Some(here)
        })
    }

    /// The neighbours of a vertex, counterclockwise.
    pub(crate) fn neighbours(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.outgoing[vertex as usize];
        let mut current = first;
        // The end of an open fan.
        let mut last = None;
        std::iter::from_fn(move || {
            if current == NONE {
                return last.take();
            }
            let here = current;
            let incoming = previous(here);
            current = self.twin[incoming as usize];
            if current == NONE {
                last = Some(self.start[incoming as usize]);
            } else if current == first {
                current = NONE;
            }
            Some(self.start[next(here) as usize])
        })
    }

    /// Number of neighbours of a vertex.
    pub(crate) fn degree(&self, vertex: u32) -> usize {
        self.around(vertex).count()
    }

    fn are_neighbours(&self, a: u32, b: u32) -> bool {
        self.neighbours(a).any(|neighbour| neighbour == b)
    }

    /// True if the edge can be flipped within its two triangles.
    pub(crate) fn can_flip(&self, half_edge: u32) -> bool {
        let [a, b] = self.ends(half_edge);
        let [c, d] = self.opposite(half_edge);
        // The edge itself is not part of the border, so two neighbours suffice there.
        let can_lose = |v: u32| self.degree(v) > if self.on_border(v) { 2 } else { 3 };
        c != d && can_lose(a) && can_lose(b) && !self.are_neighbours(c, d)
    }

    /// Replaces the edge `a b` of the triangles `a b c` and `b a d` by `c d`.
    pub(crate) fn flip(&mut self, half_edge: u32) {
        let [h0, h1, h2] = around_triangle(half_edge);
        let [t0, t1, t2] = around_triangle(self.twin[half_edge as usize]);
        let ([a, b], [c, d]) = (self.ends(h0), self.opposite(h0));
        let [bc, ca, ad, db] = [h1, h2, t1, t2].map(|h| self.twin[h as usize]);
        // The triangle d c a replaces a b c, and c d b replaces b a d.
        for (slot, start) in [(h0, d), (h1, c), (h2, a), (t0, c), (t1, d), (t2, b)] {
            self.start[slot as usize] = start;
            self.outgoing[start as usize] = slot;
        }
        for (slot, twin) in [(h1, ca), (h2, ad), (t1, db), (t2, bc)] {
            self.pair(slot, twin);
        }
        [a, b, c, d].into_iter().for_each(|v| self.rewind(v));
    }

    /// Inserts a new vertex on the edge, which splits its triangles. Returns the vertex.
    pub(crate) fn split(&mut self, half_edge: u32, position: DVec3) -> u32 {
        if self.is_border(half_edge) {
            return self.split_border(half_edge, position);
        }
        let [h0, h1, h2] = around_triangle(half_edge);
        let [t0, t1, t2] = around_triangle(self.twin[half_edge as usize]);
        let ([a, b], [c, d]) = (self.ends(h0), self.opposite(h0));
        let [bc, ad] = [h1, t1].map(|h| self.twin[h as usize]);
        let middle = self.positions.len() as u32;
        self.positions.push(position);
        self.outgoing.push(NONE);
        self.border.push(false);
        // a m c and b m d keep their slots; m b c and m a d are new.
        let new = self.start.len() as u32;
        self.start.extend([middle, b, c, middle, a, d]);
        self.twin.extend([NONE; 6]);
        self.start[h1 as usize] = middle;
        self.start[t1 as usize] = middle;
        for (slot, twin) in [(h0, new + 3), (t0, new), (h1, new + 2), (t1, new + 5), (new + 1, bc), (new + 4, ad)] {
            self.pair(slot, twin);
        }
        for (vertex, slot) in [(middle, new), (a, h0), (b, t0), (c, h2), (d, t2)] {
            self.outgoing[vertex as usize] = slot;
            self.rewind(vertex);
        }
        middle
    }

    /// Splits a border edge `a b` and its only triangle `a b c`.
    fn split_border(&mut self, half_edge: u32, position: DVec3) -> u32 {
        let [h0, h1, h2] = around_triangle(half_edge);
        let [a, b, c] = self.triangle(half_edge);
        let bc = self.twin[h1 as usize];
        let middle = self.positions.len() as u32;
        self.positions.push(position);
        self.outgoing.push(NONE);
        self.border.push(true);
        // a m c keeps its slots; m b c is new.
        let new = self.start.len() as u32;
        self.start.extend([middle, b, c]);
        self.twin.extend([NONE; 3]);
        self.start[h1 as usize] = middle;
        self.pair(h1, new + 2);
        self.pair(new + 1, bc);
        for (vertex, slot) in [(middle, new), (a, h0), (b, new + 1), (c, h2)] {
            self.outgoing[vertex as usize] = slot;
            self.rewind(vertex);
        }
        middle
    }

    /// True if the surface stays a manifold when the edge is collapsed: its ends have no common
    /// neighbours except the opposite vertices, those keep a fan, and no two borders meet.
    pub(crate) fn can_collapse(&self, half_edge: u32) -> bool {
        let [a, b] = self.ends(half_edge);
        let [c, d] = self.opposite(half_edge);
        let at_border = self.is_border(half_edge);
        if !at_border && self.on_border(a) && self.on_border(b) {
            return false;
        }
        let common = self.neighbours(a).filter(|&v| self.are_neighbours(b, v)).count();
        let can_lose = |v: u32| self.degree(v) > if self.on_border(v) { 2 } else { 3 };
        common == if at_border { 1 } else { 2 } && can_lose(c) && can_lose(d)
    }

    /// Collapses the edge `a b` to the vertex `a`, which moves to `position`; `b` is removed.
    pub(crate) fn collapse(&mut self, half_edge: u32, position: DVec3) {
        let [a, b] = self.ends(half_edge);
        let sides = [half_edge, self.twin[half_edge as usize]];
        let fan: Vec<u32> = self.around(b).chain(self.around(a)).collect();
        for &slot in &fan {
            self.start[slot as usize] = a;
        }
        let first_side = self.twin[previous(half_edge) as usize];
        let sides = sides.into_iter().filter(|&side| side != NONE);
        for side in sides.clone() {
            // The triangle x y z of the side x y disappears, and its two other edges become one.
            let [_, yz, zx] = around_triangle(side);
            let z = self.start[zx as usize];
            let [zy, xz] = [yz, zx].map(|h| self.twin[h as usize]);
            self.pair(zy, xz);
            self.outgoing[z as usize] = if zy == NONE { next(xz) } else { zy };
            self.rewind(z);
        }
        for slot in sides.flat_map(around_triangle) {
            self.start[slot as usize] = NONE;
        }
        self.border[a as usize] |= self.border[b as usize];
        let remaining =
            std::iter::once(first_side).chain(fan).find(|&slot| slot != NONE && self.start[slot as usize] != NONE);
        self.outgoing[a as usize] = remaining.unwrap_or(NONE);
        self.outgoing[b as usize] = NONE;
        self.rewind(a);
        self.positions[a as usize] = position;
        self.removed_vertices += 1;
    }

    fn pair(&mut self, a: u32, b: u32) {
        if a != NONE {
            self.twin[a as usize] = b;
        }
        if b != NONE {
            self.twin[b as usize] = a;
        }
    }

    /// Moves the outgoing half-edge of a border vertex to the start of its fan.
    fn rewind(&mut self, vertex: u32) {
        if !self.border[vertex as usize] {
            return;
        }
        let here = self.outgoing[vertex as usize];
        let mut first = here;
        while first != NONE && self.twin[first as usize] != NONE {
            first = next(self.twin[first as usize]);
            if first == here {
                break;
            }
        }
        self.outgoing[vertex as usize] = first;
    }

    /// Corners of every remaining triangle.
    pub(crate) fn triangles(&self) -> impl Iterator<Item = [u32; 3]> + '_ {
        self.start.as_chunks::<3>().0.iter().filter(|triangle| triangle[0] != NONE).copied()
    }

    /// Removes unused slots; vertices and triangles keep their order.
    pub(crate) fn compacted(self) -> Self {
        let mut place = vec![NONE; self.positions.len()];
        let mut positions = Vec::with_capacity(self.vertex_count());
        for (vertex, &position) in self.positions.iter().enumerate() {
            if self.outgoing[vertex] != NONE {
                place[vertex] = positions.len() as u32;
                positions.push(position);
            }
        }
        let triangles: Vec<[u32; 3]> = self.triangles().map(|triangle| triangle.map(|v| place[v as usize])).collect();
        Self::new(positions, &triangles)
    }
}

pub(super) fn next(half_edge: u32) -> u32 {
    if half_edge % 3 == 2 { half_edge - 2 } else { half_edge + 1 }
}

pub(super) fn previous(half_edge: u32) -> u32 {
    if half_edge.is_multiple_of(3) { half_edge + 2 } else { half_edge - 1 }
}

fn around_triangle(half_edge: u32) -> [u32; 3] {
    [half_edge, next(half_edge), previous(half_edge)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Uniform;
    use crate::remesh::cut::Cut;
    use crate::shapes::{Cells, grid, icosphere};
    use crate::{Mesh, MeshReport};

    fn sphere() -> Triangulation {
        let (vertices, faces) = icosphere(2).unwrap().into_parts();
        let triangles: Vec<[u32; 3]> = faces.corners().as_chunks().0.to_vec();
        Triangulation::new(vertices, &triangles)
    }

    fn report(surface: &Triangulation) -> MeshReport {
        for half_edge in surface.half_edges() {
            let twin = surface.twin[half_edge as usize];
            let [from, to] = surface.ends(half_edge);
            assert!(surface.around(from).any(|h| h == half_edge));
            if twin == NONE {
                assert!(surface.on_border(from) && surface.on_border(to));
                assert_eq!(surface.outgoing[from as usize], half_edge);
                continue;
            }
            assert_eq!(surface.twin[twin as usize], half_edge);
            assert_eq!(surface.ends(twin), [to, from]);
        }
        let faces = surface.triangles().collect();
        MeshReport::new(&Mesh::new(surface.positions.clone(), faces).unwrap())
    }

    #[test]
    fn every_edit_keeps_a_closed_oriented_sphere() {
        let mut surface = sphere();
        let first = report(&surface);
        let edge = surface.edges().nth(17).unwrap();
        let [from, to] = surface.segment(edge);

        let middle = surface.split(edge, from.midpoint(to));
        assert_eq!((surface.vertex_count(), surface.degree(middle)), (163, 4));
        assert_eq!(report(&surface).faces, first.faces + 2);

        let edge = surface.edges().nth(40).unwrap();
        let [old, new] = [surface.ends(edge), surface.opposite(edge)];
        assert!(surface.can_flip(edge));
        surface.flip(edge);
        assert!(!surface.are_neighbours(old[0], old[1]) && surface.are_neighbours(new[0], new[1]));
        assert_eq!(report(&surface).edges, first.edges + 3);

        while surface.vertex_count() > 20 {
            let edge = surface.edges().find(|&edge| surface.can_collapse(edge)).unwrap();
            let [from, to] = surface.segment(edge);
            surface.collapse(edge, from.midpoint(to));
        }
        let last = report(&surface.compacted());
        assert_eq!((last.vertices, last.faces, last.genus), (20, 36, Some(0)));
        assert!(last.closed && last.manifold && last.consistently_oriented);
        assert_eq!(last.isolated_vertices, 0);
    }

    #[test]
    fn random_edits_keep_an_open_oriented_surface() {
        let mesh = grid(6, 6, Cells::Triangles).unwrap();
        let mut uniform = Uniform::new(4);
        let mut surface = Cut::new(&mesh).surface;
        let mut counts = [0; 6];
        for _ in 0..2000 {
            let edges: Vec<u32> = surface.edges().collect();
            let edge = edges[uniform.below(edges.len())];
            let at_border = usize::from(surface.is_border(edge));
            let before = surface.vertex_count();
            let [from, to] = surface.segment(edge);
            let edit = uniform.below(3);
            match edit {
                0 if surface.can_flip(edge) => surface.flip(edge),
                1 if before < 60 => {
                    let middle = surface.split(edge, from.midpoint(to));
                    assert_eq!(surface.on_border(middle), at_border == 1);
                }
                2 if before > 12 && surface.can_collapse(edge) => {
                    surface.collapse(edge, from.midpoint(to));
                    assert_eq!(surface.vertex_count(), before - 1);
                }
                _ => continue,
            }
            counts[2 * edit + at_border] += 1;
            let report = report(&surface);
            assert!(report.manifold && report.consistently_oriented);
            assert_eq!((report.euler, report.boundary_loops), (1, 1));
        }
        // Border edges cannot be flipped; all other edits occur.
        assert_eq!(counts.map(|count| count > 20), [true, false, true, true, true, true]);
    }

    #[test]
    fn a_tetrahedron_can_neither_flip_nor_collapse() {
        let corners = vec![DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z];
        let triangles = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]];
        let surface = Triangulation::new(corners, &triangles);
        for edge in surface.edges() {
            assert!(!surface.can_flip(edge) && !surface.can_collapse(edge));
        }
    }
}
