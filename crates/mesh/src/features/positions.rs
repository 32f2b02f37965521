//! Vertex positions as features.

use super::{FeatureField, check_graph};
use crate::geometry::of_moderate_size;
use crate::surface::SurfaceError;
use crate::triangulate::triangle_corners;
use crate::{DVec3, GaugeGraph, Mesh};

/// The coordinates of every vertex as three scalars, `3x0`: the XYZ features of the paper. They are
/// not invariant under rigid motion.
pub fn positions(mesh: &Mesh) -> FeatureField {
    FeatureField { kind: vec![(3, 0)], values: bytemuck::cast_slice(mesh.vertices()).to_vec() }
}

/// Positions relative to the centroid of the area, in units of the square root of the area, as
/// features of type `2x0 + 1x1`: the normal component `x . n`, the distance `|x|` and the tangential
/// part of `x`. Invariant under rigid motions and scaling.
///
/// # Errors
/// The graph belongs to a mesh with another number of vertices, or no face has an area.
pub fn centroid_features(mesh: &Mesh, graph: &GaugeGraph) -> Result<FeatureField, SurfaceError> {
    check_graph(mesh, graph)?;
    let mut values = Vec::with_capacity(4 * mesh.vertex_count());
    for (x, frame) in centred(mesh)?.into_iter().zip(graph.frames()) {
        values.extend([x.dot(frame.normal), x.length()]);
        values.extend(frame.coefficients(x));
    }
    Ok(FeatureField { kind: vec![(2, 0), (1, 1)], values })
}

/// Positions relative to the centroid of the area, in units of the square root of the area.
///
/// # Errors
/// No face has an area.
pub fn centred(mesh: &Mesh) -> Result<Vec<DVec3>, SurfaceError> {
    if let Some((moderate, _)) = of_moderate_size(mesh) {
        return centred(&moderate);
    }
    let (mut area, mut moment) = (0.0, DVec3::ZERO);
    for corners in triangle_corners(mesh) {
        let [a, b, c] = corners.map(|corner| mesh.vertices()[corner as usize]);
        let own = 0.5 * (b - a).cross(c - a).length();
        area += own;
        moment += own / 3.0 * (a + b + c);
    }
    if area == 0.0 {
        return Err(SurfaceError::NoExtent { faces: mesh.face_count() });
    }
    let (centroid, scale) = (moment / area, area.sqrt().recip());
    let relative = |position: &DVec3| (*position - centroid) * scale;
    Ok(mesh.vertices().iter().map(relative).collect())
}
