//! Elements of meshes that targets and predictions are for: vertices, faces, edges, or whole meshes.

use gemcnn_mesh::remesh::{RemeshError, nearest_faces};
use gemcnn_mesh::{DVec3, Mesh, vector_area};
use gemcnn_nn::{Elements, NnError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a row of a target or of a prediction belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// A vertex.
    #[default]
    Vertex,
    /// A face.
    Face,
    /// An edge: two vertices that follow each other around a face. Edges are numbered in the order in which they first
    /// appear around the faces, as in files of MeshCNN.
    Edge,
    /// The whole mesh.
    Mesh,
}

impl Element {
    /// Number of these elements of a mesh.
    pub fn count(self, mesh: &Mesh) -> usize {
        match self {
            Self::Vertex => mesh.vertex_count(),
            Self::Face => mesh.face_count(),
            Self::Edge => edges(mesh).len(),
            Self::Mesh => 1,
        }
    }

    /// The word for one, and for several.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Self::Vertex => ["vertex", "vertices"],
            Self::Face => ["face", "faces"],
            Self::Edge => ["edge", "edges"],
            Self::Mesh => ["mesh", "meshes"],
        }
    }
}

/// The faces of a mesh, or its edges for any other element, with their areas. The area of a face is shared equally by
/// its edges.
///
/// # Errors
/// More corners than 32-bit indices can address.
pub(crate) fn elements_of(per: Element, mesh: &Mesh) -> Result<Elements<f32>, NnError> {
    let faces = mesh.faces();
    let area = |face: usize| vector_area(mesh.face_positions(face)).length();
    if per == Element::Face {
        let areas = (0..faces.len()).map(|face| area(face) as f32).collect();
        return Elements::new(mesh.vertex_count(), faces.offsets(), faces.corners(), areas);
    }
    let edges = edges(mesh);
    let numbers = numbers(&edges);
    let mut areas = vec![0.0; edges.len()];
    for (face, corners) in faces.iter().enumerate() {
        let share = area(face) / corners.len() as f64;
        for number in sides(corners).filter_map(|side| numbers.get(&side)) {
            areas[*number as usize] += share as f32;
        }
    }
    let offsets: Vec<u32> = (0..=edges.len() as u32).map(|edge| 2 * edge).collect();
    Elements::new(mesh.vertex_count(), &offsets, edges.as_flattened(), areas)
}

/// The edges of a mesh in the order in which they first appear around its faces. Each has its smaller vertex first.
pub fn edges(mesh: &Mesh) -> Vec<[u32; 2]> {
    let mut met = std::collections::HashSet::new();
    let all = mesh.faces().iter().flat_map(sides);
    all.filter(|&side| met.insert(side)).collect()
}

fn numbers(edges: &[[u32; 2]]) -> HashMap<[u32; 2], u32> {
    edges.iter().copied().zip(0..).collect()
}

/// The sides of a face, without those of no length.
pub(crate) fn sides(corners: &[u32]) -> impl Iterator<Item = [u32; 2]> {
    let next = corners.iter().cycle().skip(1);
    let pairs = corners.iter().zip(next).filter(|(a, b)| a != b);
    pairs.map(|(&a, &b)| [a.min(b), a.max(b)])
}

/// For each face or edge of a mesh, the nearest one of the mesh that it is a remeshing of. Empty for vertices and whole
/// meshes.
pub(crate) fn origins(per: Element, original: &Mesh, mesh: &Mesh) -> Result<Vec<u32>, RemeshError> {
    match per {
        Element::Vertex | Element::Mesh => Ok(Vec::new()),
        Element::Face => {
            let centre = |face| {
                let corners = mesh.face_positions(face);
                let count = corners.len() as f64;
                corners.sum::<DVec3>() / count
            };
            let centres: Vec<DVec3> = (0..mesh.face_count()).map(centre).collect();
            nearest_faces(original, &centres)
        }
        Element::Edge => {
            let at = |mesh: &Mesh, edge: [u32; 2]| edge.map(|v| mesh.vertices()[v as usize]);
            let middle = |&edge| {
                let [a, b] = at(mesh, edge);
                a.midpoint(b)
            };
            let middles: Vec<DVec3> = edges(mesh).iter().map(middle).collect();
            let numbers = numbers(&edges(original));
            let nearest_side = |(face, point): (u32, &DVec3)| {
                let distance = |side: &[u32; 2]| distance(at(original, *side), *point);
                let sides = sides(original.face(face as usize));
                let nearest = sides.min_by(|a, b| distance(a).total_cmp(&distance(b)));
                nearest.and_then(|side| numbers.get(&side).copied())
            };
            let faces = nearest_faces(original, &middles)?;
            let found = faces.into_iter().zip(&middles).map(nearest_side);
            Ok(found.map(Option::unwrap_or_default).collect())
        }
    }
}

/// Distance of a point from a segment.
fn distance([a, b]: [DVec3; 2], point: DVec3) -> f64 {
    let along = b - a;
    let share = (point - a).dot(along) / along.length_squared();
    // An edge without length has no direction.
    let share = if share.is_nan() { 0.0 } else { share };
    point.distance(a + along * share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::remesh::{Subdivide, remesh};
    use gemcnn_mesh::shapes;

    #[test]
    fn edges_are_in_the_order_of_their_first_appearance() {
        let vertices = vec![DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::X + DVec3::Y];
        let mesh = Mesh::new(vertices, [[2, 0, 1], [1, 3, 2]].iter().collect()).unwrap();
        assert_eq!(edges(&mesh), [[0, 2], [0, 1], [1, 2], [1, 3], [2, 3]]);
        let elements = elements_of(Element::Edge, &mesh).unwrap();
        let sixth = 1.0 / 6.0;
        for (area, expected) in elements.areas.iter().zip([1.0, 1.0, 2.0, 1.0, 1.0]) {
            assert!((area - expected * sixth).abs() < 1e-6);
        }
        let faces = elements_of(Element::Face, &mesh).unwrap();
        assert_eq!((faces.count(), &faces.areas[..]), (2, &[0.5; 2][..]));
    }

    #[test]
    fn the_elements_of_a_finer_mesh_come_from_those_around_them() {
        let sphere = shapes::icosphere(1).unwrap();
        let finer = remesh(&sphere, &Subdivide::default(), 0).unwrap().mesh;
        let mut parts = vec![0; sphere.face_count()];
        for origin in origins(Element::Face, &sphere, &finer).unwrap() {
            parts[origin as usize] += 1;
        }
        assert_eq!(parts, vec![4; 80]);
        // Each edge keeps its two halves; the others are inside of faces.
        let mut halves = vec![0; edges(&sphere).len()];
        for (edge, origin) in edges(&finer).iter().zip(origins(Element::Edge, &sphere, &finer).unwrap()) {
            if edge[0] < sphere.vertex_count() as u32 {
                assert!(edges(&sphere)[origin as usize].contains(&edge[0]));
                halves[origin as usize] += 1;
            }
        }
        assert_eq!(halves, vec![2; 120]);
        for per in [Element::Face, Element::Edge] {
            let same = origins(per, &sphere, &sphere).unwrap();
            assert!(same.into_iter().eq(0..per.count(&sphere) as u32), "{per:?}");
        }
    }
}
