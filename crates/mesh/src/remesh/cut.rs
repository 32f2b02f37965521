//! Working copy of any mesh for edits: an oriented manifold with borders.
//!
//! The mesh is cut along edges with more than two sides, along edges whose two faces have
//! inconsistent orientations, and at pinched vertices, so that the triangles around each vertex form
//! one fan. Vertices at a cut are locked: they neither move nor disappear, and the cut edges are not
//! edited. The copies of a cut vertex are therefore still at one place after any edits, and are
//! joined again at the end.

use crate::classes::bucket;
use crate::mesh::{Faces, Mesh};
use crate::triangulate::triangle_corners;

use super::triangulation::{NONE, Triangulation, next};

/// A mesh cut into an oriented manifold with borders.
pub(crate) struct Cut {
    pub(crate) surface: Triangulation,
    /// Vertex of the mesh for each vertex of the surface. The first vertices of the surface are
    /// those of the mesh, followed by the copies of cut vertices.
    pub(crate) origin: Vec<u32>,
    /// For each vertex of the surface, true if it lies at a cut.
    pub(crate) locked: Vec<bool>,
}

impl Cut {
    /// Triangulates and cuts a mesh. Half-edge `3 * t + i` starts at corner `i` of triangle `t` of
    /// [`triangle_corners`].
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let start = triangle_corners(mesh).into_flattened();
        let vertices = mesh.vertex_count();
        let mut locked = vec![false; vertices];
        let twin = twins(&start, &mut locked);
        let mut cut = Self {
            surface: Triangulation {
                positions: mesh.vertices().to_vec(),
                outgoing: vec![NONE; vertices],
                border: vec![false; vertices],
                removed_vertices: 0,
                start,
                twin,
            },
            origin: (0..vertices as u32).collect(),
            locked,
        };
        cut.separate_fans();
        let used = cut.surface.outgoing.iter().filter(|&&h| h != NONE).count();
        cut.surface.removed_vertices = cut.surface.positions.len() - used;
        cut
    }

    /// A closed surface, which needs no cuts.
    pub(crate) fn of_closed(surface: Triangulation) -> Self {
        let vertices = surface.positions.len();
        Self { surface, origin: (0..vertices as u32).collect(), locked: vec![false; vertices] }
    }

    /// Gives every fan of triangles its own vertex.
    fn separate_fans(&mut self) {
        let surface = &mut self.surface;
        let mut seen = vec![false; surface.start.len()];
        for half_edge in 0..surface.start.len() as u32 {
            if seen[half_edge as usize] {
                continue;
            }
            let mut first = half_edge;
            let open = loop {
                let twin = surface.twin[first as usize];
                if twin == NONE {
                    break true;
                }
                first = next(twin);
                if first == half_edge {
                    break false;
                }
            };
            let mut vertex = surface.start[half_edge as usize];
            if surface.outgoing[vertex as usize] != NONE {
                let origin = vertex;
                vertex = surface.positions.len() as u32;
                surface.positions.push(surface.positions[origin as usize]);
                surface.outgoing.push(NONE);
                surface.border.push(false);
                self.origin.push(origin);
                self.locked[origin as usize] = true;
                self.locked.push(true);
            }
            surface.outgoing[vertex as usize] = first;
            surface.border[vertex as usize] = open;
            let fan: Vec<u32> = surface.around(vertex).collect();
            for slot in fan {
                seen[slot as usize] = true;
                surface.start[slot as usize] = vertex;
            }
        }
    }

    /// Number of additional vertices that the cuts made.
    pub(crate) fn copies(&self) -> usize {
        let vertices = self.origin.iter().enumerate();
        vertices.filter(|&(v, &origin)| v as u32 != origin).count()
    }

    /// The mesh of a surface that was edited without removing vertices: vertices of the original
    /// mesh keep their indices. Also returns the vertex of the surface for each vertex of the mesh.
    pub(crate) fn keeping_vertices(&self) -> (Vec<u32>, Faces) {
        let originals = self.origin.iter().enumerate();
        let mut kept: Vec<u32> = originals.filter(|&(v, &origin)| v as u32 == origin).map(|(v, _)| v as u32).collect();
        let copies = self.origin.len() - kept.len();
        kept.extend(self.origin.len() as u32..self.surface.positions.len() as u32);
        let faces = faces(&self.surface, |vertex| match self.origin.get(vertex as usize) {
            Some(&origin) => origin,
            None => vertex - copies as u32,
        });
        (kept, faces)
    }
}

/// The faces of a surface with renumbered vertices. Faces that then repeat a vertex are left out.
pub(crate) fn faces(surface: &Triangulation, place: impl Fn(u32) -> u32) -> Faces {
    let triangles = surface.triangles().map(|triangle| triangle.map(&place));
    triangles.filter(|[a, b, c]| a != b && b != c && c != a).collect()
}

/// Opposite half-edge of every half-edge on an edge with exactly two sides in opposite directions.
/// The ends of edges with more sides, or with two in the same direction, are locked.
fn twins(start: &[u32], locked: &mut [bool]) -> Vec<u32> {
    let end = |half_edge: u32| start[next(half_edge) as usize];
    let by_lower = (0..start.len() as u32).map(|h| (start[h as usize].min(end(h)), h));
    let (groups, mut grouped) = bucket(locked.len(), by_lower);
    let mut twin = vec![NONE; start.len()];
    let higher = |h: u32| start[h as usize].max(end(h));
    for bounds in groups.windows(2) {
        let group = &mut grouped[bounds[0] as usize..bounds[1] as usize];
        group.sort_unstable_by_key(|&h| (higher(h), h));
        for sides in group.chunk_by(|&a, &b| higher(a) == higher(b)) {
            match *sides {
                [_] => {}
                [a, b] if start[a as usize] == end(b) => {
                    twin[a as usize] = b;
                    twin[b as usize] = a;
                }
                _ => {
                    let side = sides[0];
                    locked[start[side as usize] as usize] = true;
                    locked[end(side) as usize] = true;
                }
            }
        }
    }
    twin
}

#[cfg(test)]
mod tests {
    use super::*;
    use glam::DVec3;

    fn complex(vertices: usize, faces: &[[u32; 3]]) -> Mesh {
        let points = (0..vertices).map(|i| DVec3::new(i as f64, (i * i) as f64, 1.0));
        Mesh::new(points.collect(), faces.iter().collect()).unwrap()
    }

    #[test]
    fn nonmanifold_edges_and_vertices_are_cut_and_joined_again() {
        for (mesh, copies, locked) in [
            (complex(5, &[[0, 1, 2], [0, 1, 3], [1, 0, 4]]), 4, 2),
            (complex(5, &[[0, 1, 2], [0, 3, 4]]), 1, 1),
            // Two triangles with inconsistent orientations, and an unused vertex.
            (complex(5, &[[0, 1, 2], [0, 1, 3]]), 2, 2),
            (complex(4, &[[0, 1, 2], [1, 0, 3]]), 0, 0),
        ] {
            let cut = Cut::new(&mesh);
            assert_eq!(cut.copies(), copies);
            let originals = cut.locked[..mesh.vertex_count()].iter();
            assert_eq!(originals.filter(|&&locked| locked).count(), locked);
            let (kept, faces) = cut.keeping_vertices();
            assert_eq!(kept, (0..mesh.vertex_count() as u32).collect::<Vec<_>>());
            assert_eq!(&faces, mesh.faces());
            assert!(cut.surface.positions.iter().enumerate().all(|(v, _)| {
                let used = cut.surface.neighbours(v as u32).count() > 0;
                used == mesh.faces().corners().contains(&cut.origin[v])
            }));
        }
    }
}
