//! Nearest points of a surface.

use glam::DVec3;
use rayon::prelude::*;

use super::boxes::BoxTree;
use super::original::Original;
use super::{RemeshError, SurfacePoint, require};
use crate::mesh::Mesh;

/// The nearest point of a surface to each of some points, and its distance.
///
/// # Errors
/// A surface without faces.
pub fn nearest_points(
    surface: &Mesh,
    points: &[DVec3],
) -> Result<Vec<(SurfacePoint, f64)>, RemeshError> {
    let original = Original::new(surface);
    let faces = original.triangles.len();
    require(faces > 0, "number of faces", faces, "at least 1")?;
    let tree = BoxTree::new(&original);
    let nearest = |&point: &DVec3| {
        let (place, squared) = tree.nearest(point, original.nearest_on(0, point));
        (original.surface_point(place), squared.sqrt())
    };
    Ok(points.par_iter().map(nearest).collect())
}
