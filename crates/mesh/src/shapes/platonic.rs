//! Icosahedron and icosphere.

use glam::DVec3;

use super::{ShapeError, require, require_size};
use crate::{Faces, Mesh};

/// More subdivisions need more corners (60 * 4^s) than 32-bit indices can address.
const MAX_SUBDIVISIONS: u32 = 13;

/// The icosahedron with 12 vertices on the unit sphere and 20 triangles, oriented outwards.
pub fn icosahedron() -> Mesh {
    Mesh::new(corner_positions(), TRIANGLES.iter().collect::<Faces>())
        .expect("the constants of this file form a valid mesh")
}

/// The icosahedron with every triangle split into four `subdivisions` times and new vertices
/// projected onto the unit sphere: `10 * 4^subdivisions + 2` vertices, `20 * 4^subdivisions`
/// triangles.
///
/// The first vertices of a finer icosphere are those of the coarser ones, in the same order.
///
/// # Errors
/// There are more than 13 subdivisions, or the mesh does not fit in memory.
pub fn icosphere(subdivisions: u32) -> Result<Mesh, ShapeError> {
    require(subdivisions <= MAX_SUBDIVISIONS, "subdivisions", subdivisions, "at most 13 (671,088,642 vertices)")?;
    let triangle_count = TRIANGLES.len() << (2 * subdivisions);
    let vertex_count = triangle_count / 2 + 2;
    require_size(vertex_count as u128, 3 * triangle_count as u128)?;
    let mut vertices = corner_positions();
    vertices.reserve_exact(vertex_count - vertices.len());
    let mut triangles = TRIANGLES.to_vec();
    for _ in 0..subdivisions {
        triangles = split(&mut vertices, &triangles);
    }
    let mut faces = Faces::with_capacity(triangles.len(), 3 * triangles.len());
    for triangle in &triangles {
        faces.push(triangle);
    }
    Ok(Mesh::new(vertices, faces)?)
}

/// Splits every triangle into four at the midpoints of its edges, projected onto the sphere.
fn split(vertices: &mut Vec<DVec3>, triangles: &[[u32; 3]]) -> Vec<[u32; 3]> {
    /// Marks an empty slot.
    const FREE: (u32, u32) = (u32::MAX, u32::MAX);
    // For each lower end of an edge: the upper end and the midpoint. A vertex of an icosphere has
    // at most six edges.
    let mut midpoints = vec![[FREE; 6]; vertices.len()];
    let mut midpoint = |a: u32, b: u32| {
        let (lower, upper) = (a.min(b), a.max(b));
        let slots = &mut midpoints[lower as usize];
        for slot in slots.iter_mut() {
            if slot.0 == upper {
                return slot.1;
            }
            if *slot == FREE {
                *slot = (upper, vertices.len() as u32);
                break;
            }
        }
        let index = vertices.len() as u32;
        vertices.push((vertices[lower as usize] + vertices[upper as usize]).normalize());
        index
    };
    let mut finer = Vec::with_capacity(4 * triangles.len());
    for &[a, b, c] in triangles {
        let [ab, bc, ca] = [midpoint(a, b), midpoint(b, c), midpoint(c, a)];
        finer.extend([[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]]);
    }
    finer
}

/// Corners of three golden rectangles in the coordinate planes, on the unit sphere.
fn corner_positions() -> Vec<DVec3> {
    let golden = 0.5 * (1.0 + 5.0_f64.sqrt());
    [
        (-1.0, golden, 0.0),
        (1.0, golden, 0.0),
        (-1.0, -golden, 0.0),
        (1.0, -golden, 0.0),
        (0.0, -1.0, golden),
        (0.0, 1.0, golden),
        (0.0, -1.0, -golden),
        (0.0, 1.0, -golden),
        (golden, 0.0, -1.0),
        (golden, 0.0, 1.0),
        (-golden, 0.0, -1.0),
        (-golden, 0.0, 1.0),
    ]
    .map(|(x, y, z)| DVec3::new(x, y, z).normalize())
    .to_vec()
}

/// Corners of the triangles, counterclockwise as seen from outside.
const TRIANGLES: &[[u32; 3]] = [
    0u32, 11, 5, 0, 5, 1, 0, 1, 7, 0, 7, 10, 0, 10, 11, 1, 5, 9, 5, 11, 4, 11, 10, 2, 10, 7, 6, 7, 1, 8, 3, 9, 4, 3, 4,
    2, 3, 2, 6, 3, 6, 8, 3, 8, 9, 4, 9, 5, 2, 4, 11, 6, 2, 10, 8, 6, 7, 9, 8, 1,
]
.as_chunks()
.0;
