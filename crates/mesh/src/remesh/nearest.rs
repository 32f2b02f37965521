//! Nearest points of a surface.

use glam::DVec3;
use rayon::prelude::*;

use super::boxes::BoxTree;
use super::original::{Original, Place};
use super::{RemeshError, SurfacePoint, require};
use crate::mesh::Mesh;
use crate::triangulate::each_triangle;

/// The nearest point of a surface to each of some points, and its distance.
///
/// # Errors
/// A surface without faces.
pub fn nearest_points(surface: &Mesh, points: &[DVec3]) -> Result<Vec<(SurfacePoint, f64)>, RemeshError> {
    let found = |original: &Original, place: Place, squared: f64| (original.surface_point(place), squared.sqrt());
    nearest(surface, points, found)
}

/// The face of a surface that is nearest to each of some points.
///
/// # Errors
/// A surface without faces.
pub fn nearest_faces(surface: &Mesh, points: &[DVec3]) -> Result<Vec<u32>, RemeshError> {
    let mut faces = Vec::with_capacity(surface.face_count());
    each_triangle(surface, |face, _| faces.push(face));
    nearest(surface, points, |_, place, _| faces[place.triangle as usize])
}

/// What `found` makes of the nearest place to each point and its squared distance.
fn nearest<R: Send>(
    surface: &Mesh,
    points: &[DVec3],
    found: impl Fn(&Original, Place, f64) -> R + Sync,
) -> Result<Vec<R>, RemeshError> {
    let original = Original::new(surface);
    let faces = original.triangles.len();
    require(faces > 0, "number of faces", faces, "at least 1")?;
    let tree = BoxTree::new(&original);
    let nearest = |&point: &DVec3| {
        let (place, squared) = tree.nearest(point, original.nearest_on(0, point));
        found(&original, place, squared)
    };
    Ok(points.par_iter().map(nearest).collect())
}
