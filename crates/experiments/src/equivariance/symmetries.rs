//! Orientation-preserving symmetries of a mesh, found from its faces.

use gemcnn_mesh::Mesh;
use std::collections::HashMap;

/// Largest relative difference of the lengths of an edge and its image.
const TOLERANCE: f64 = 1e-9;

/// Finds all permutations of the vertices that map faces to faces of the same orientation and preserve edge
/// lengths, including the identity. Vertex `v` moves to `permutation[v]`.
///
/// On a connected surface the image of one directed edge determines the permutation: the face on its left
/// maps to the face on the left of the image, and so on across all edges. Trying every edge as the image of the
/// first finds all of them, in time quadratic in the number of edges. The result is empty for a mesh without
/// faces, with vertices outside of its first component, or with two faces on the same side of an edge.
///
/// ```
/// use gemcnn_mesh::shapes;
/// use gemcnn_experiments::equivariance::rotational_symmetries;
/// assert_eq!(rotational_symmetries(&shapes::icosahedron()).len(), 60);
/// ```
pub fn rotational_symmetries(mesh: &Mesh) -> Vec<Vec<u32>> {
    let Some(surface) = Corners::new(mesh) else { return Vec::new() };
    let Some(&first) = surface.edges.first() else { return Vec::new() };
    let images = surface.edges.iter();
    images.filter_map(|&image| surface.extend(mesh, first, image)).collect()
}

type Edge = (u32, u32);

/// The vertex that follows each directed edge in the face on its left.
struct Corners {
    /// Every directed edge with a face on its left, face by face.
    edges: Vec<Edge>,
    next: HashMap<Edge, u32>,
}

impl Corners {
    /// `None` if two faces are on the same side of an edge.
    fn new(mesh: &Mesh) -> Option<Self> {
        let mut edges = Vec::new();
        let mut next = HashMap::new();
        for face in mesh.faces().iter() {
            let around = |place: usize| face[place % face.len()];
            for place in 0..face.len() {
                let edge = (around(place), around(place + 1));
                if next.insert(edge, around(place + 2)).is_some() {
                    return None;
                }
                edges.push(edge);
            }
        }
        Some(Self { edges, next })
    }

    /// The symmetry that maps one edge to another, if it exists.
    fn extend(&self, mesh: &Mesh, edge: Edge, image: Edge) -> Option<Vec<u32>> {
        let mut map = vec![None; mesh.vertex_count()];
        let mut met = vec![false; mesh.vertex_count()];
        let mut assign = |from: u32, to: u32| match &mut map[from as usize] {
            Some(known) => *known == to,
            unknown => {
                *unknown = Some(to);
                !std::mem::replace(&mut met[to as usize], true)
            }
        };
        if !(assign(edge.0, image.0) && assign(edge.1, image.1)) {
            return None;
        }
        let mut waiting = vec![(edge, image)];
        let mut done = HashMap::from([(edge, ())]);
        while let Some((from, to)) = waiting.pop() {
            let alike = length(mesh, from) - length(mesh, to);
            if alike.abs() > TOLERANCE * length(mesh, from) {
                return None;
            }
            let mut followers = vec![(flipped(from), flipped(to))];
            match (self.next.get(&from), self.next.get(&to)) {
                (None, None) => {}
                (Some(&third), Some(&image)) => {
                    if !assign(third, image) {
                        return None;
                    }
                    followers.push(((from.1, third), (to.1, image)));
                }
                _ => return None,
            }
            for (from, to) in followers {
                if done.insert(from, ()).is_none() {
                    waiting.push((from, to));
                }
            }
        }
        map.into_iter().collect()
    }
}

fn flipped((from, to): Edge) -> Edge {
    (to, from)
}

fn length(mesh: &Mesh, (from, to): Edge) -> f64 {
    mesh.vertices()[from as usize].distance(mesh.vertices()[to as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes::{self, Cells};
    use gemcnn_mesh::{DVec3, Faces};
    use std::collections::HashSet;

    #[test]
    fn the_icosahedron_has_a_group_of_sixty_isometries() {
        let mesh = shapes::icosahedron();
        let all = rotational_symmetries(&mesh);
        let set: HashSet<&Vec<u32>> = all.iter().collect();
        assert_eq!((all.len(), set.len()), (60, 60));
        assert!(set.contains(&(0..12).collect::<Vec<u32>>()));
        for a in &all {
            for b in &all {
                let both: Vec<u32> = a.iter().map(|&v| b[v as usize]).collect();
                assert!(set.contains(&both), "closed");
            }
            // Five of them fix any vertex.
            assert_eq!(all.iter().filter(|b| b[3] == a[3]).count(), 5);
            let at = |v: usize| mesh.vertices()[v];
            let image = |v: usize| mesh.vertices()[a[v] as usize];
            for p in 0..12 {
                for q in 0..12 {
                    let change = at(p).distance(at(q)) - image(p).distance(image(q));
                    assert!(change.abs() < 1e-12);
                }
            }
            // Rotations, not reflections.
            let volume = |at: &dyn Fn(usize) -> DVec3| at(0).dot(at(1).cross(at(5)));
            assert!(volume(&at) * volume(&image) > 0.0);
        }
    }

    #[test]
    fn other_meshes_have_their_symmetries() {
        let count = |mesh: &Mesh| rotational_symmetries(mesh).len();
        assert_eq!(count(&shapes::icosphere(1).unwrap()), 60);
        // Rotations of a rectangle by pi; of a square by pi/2; with its diagonals, by pi again.
        assert_eq!(count(&shapes::grid(3, 4, Cells::Quads).unwrap()), 2);
        assert_eq!(count(&shapes::grid(3, 3, Cells::Quads).unwrap()), 4);
        assert_eq!(count(&shapes::grid(3, 3, Cells::Triangles).unwrap()), 2);
        let stretched = shapes::icosahedron().map_vertices(|p| DVec3::new(p.x, 1.1 * p.y, 1.3 * p.z)).unwrap();
        assert_eq!(count(&stretched), 4);
        assert_eq!(count(&Mesh::new(vec![], Faces::new()).unwrap()), 0);
    }
}
