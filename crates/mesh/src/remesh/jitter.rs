//! Random motion of vertices along the surface.

use glam::DVec3;
use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::original::{Original, Place, shape, twice_area};
use super::{Remesh, RemeshError, Remeshed, SurfacePoint, require};
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Minimum cosine between the normals of a triangle and of the original one.
const FACING: f64 = 0.3;
/// Shape of the thinnest triangles that a motion may make of thicker ones.
const THINNEST: f64 = 0.1;
/// Number of tries for a vertex, each with half the motion of the one before.
const TRIES: usize = 3;

/// Moves every vertex to a random point of the triangles around it. Faces stay.
///
/// With `amount` 1 a vertex moves at most half way to the opposite edge of its triangle; a smaller
/// amount scales the motion. A motion that would turn a triangle over or make it very thin is
/// halved, and at last skipped. Vertices at borders, at edges with more than two faces and at pinches stay. The new
/// vertices lie exactly on the original triangles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Amount of the motion, from 0 to 1.
    pub amount: f64,
}

impl Remesh for Jitter {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Self { amount } = *self;
        require((0.0..=1.0).contains(&amount), "amount", amount, "from 0 to 1")?;
        let original = Original::new(mesh);
        let cut = Cut::new(mesh);
        let mut positions = mesh.vertices().to_vec();
        let mut sources: Vec<SurfacePoint> = super::own_vertices(mesh).collect();
        let mut uniform = Uniform::new(seed);
        for vertex in 0..positions.len() as u32 {
            let around = original.around(vertex);
            let triangle = around.get(uniform.below(around.len())).copied();
            // The weights at the two other corners.
            let [s, t] = uniform.in_triangle();
            let fixed = cut.locked[vertex as usize] || cut.surface.on_border(vertex);
            let Some(triangle) = triangle.filter(|_| !fixed) else { continue };
            for attempt in 0..TRIES {
                let scale = 0.5 * amount * 0.5_f64.powi(attempt as i32);
                let place = moved(&original, vertex, triangle, scale * s, scale * t);
                let point = original.position(place);
                if keeps_orientation(&original, &positions, vertex, point) {
                    positions[vertex as usize] = point;
                    sources[vertex as usize] = original.surface_point(place);
                    break;
                }
            }
        }
        let faces = original.triangles.iter().collect();
        Ok(Remeshed { mesh: Mesh::new(positions, faces)?, sources })
    }
}

/// The point of a triangle with the given weights at the two corners that follow a vertex.
fn moved(original: &Original, vertex: u32, triangle: u32, s: f64, t: f64) -> Place {
    let corners = original.triangles[triangle as usize];
    let own = (0..3).find(|&i| corners[i] == vertex).unwrap_or(0);
    let mut weights = [0.0; 3];
    weights[own] = 1.0 - s - t;
    weights[(own + 1) % 3] = s;
    weights[(own + 2) % 3] = t;
    Place { triangle, weights }
}

/// True if the triangles around a vertex still face as the original ones, and are not much thinner,
/// after it moves.
fn keeps_orientation(original: &Original, positions: &[DVec3], vertex: u32, point: DVec3) -> bool {
    original.around(vertex).iter().all(|&triangle| {
        let corners = original.triangles[triangle as usize];
        let at = |v: u32| {
            if v == vertex { point } else { positions[v as usize] }
        };
        let (before, after) = (original.corners(triangle), corners.map(at));
        let [normal, new] = [before, after].map(twice_area);
        new.dot(normal) > FACING * new.length() * normal.length() && shape(after) > THINNEST.min(0.5 * shape(before))
    })
}

#[cfg(test)]
mod tests {
    use super::super::original::blend;
    use super::*;
    use crate::shapes::icosphere;

    #[test]
    fn moved_points_keep_most_of_their_vertex() {
        let sphere = icosphere(1).unwrap();
        let original = Original::new(&sphere);
        let corners = original.corners(7);
        for (own, &vertex) in original.triangles[7].iter().enumerate() {
            let place = moved(&original, vertex, 7, 0.2, 0.1);
            assert!((place.weights[own] - 0.7).abs() < 1e-12);
            assert_eq!(original.position(place), blend(corners, place.weights));
        }
    }
}
