//! Vertex normals.

use super::adjacency::CornerTable;
use super::{GeometryError, NormalTrouble, NormalWeighting};
use crate::Mesh;
use crate::polygon::{is_negligible_area, vector_area};
use glam::DVec3;
use rayon::prelude::*;

/// How many troubled vertices an error names.
const EXAMPLES: usize = 8;
/// A sum of face normals shorter than this fraction of their lengths has no direction left.
const CANCELLED: f64 = 1e-12;

/// Unit normals of all vertices.
///
/// A vertex that no face uses has no normal of its own and gets the z axis, so that it still has a
/// frame; it has no edges in a one-ring, and nothing depends on the choice.
///
/// # Errors
/// [`GeometryError::NoTangentPlane`] names the vertices whose faces all have zero area or cancel.
pub fn vertex_normals(
    mesh: &Mesh,
    weighting: NormalWeighting,
) -> Result<Vec<DVec3>, GeometryError> {
    let moderate = of_moderate_size(mesh);
    let mesh = moderate.as_ref().map_or(mesh, |(mesh, _)| mesh);
    normals_from_corners(mesh, &CornerTable::new(mesh), weighting)
}

/// A copy of the mesh scaled by a power of two, and that scale, if areas and squares of its lengths
/// would overflow or underflow. Directions and angles are the same to the bit.
pub(crate) fn of_moderate_size(mesh: &Mesh) -> Option<(Mesh, f64)> {
    const MODERATE: std::ops::Range<f64> = 1e-75..1e75;
    let largest = mesh.vertices().iter().map(|v| v.abs().max_element());
    let largest = largest.fold(0.0, f64::max);
    if largest == 0.0 || MODERATE.contains(&largest) {
        return None;
    }
    // Within the exponents of normal numbers, so that the scale and its inverse are exact.
    let scale = 2f64.powi((-largest.log2().floor() as i32).clamp(-1020, 1020));
    let scaled = mesh.map_vertices(|v| v * scale).ok()?;
    Some((scaled, scale))
}

/// Face normals, the length of each being its weight (area) or 1 (corner angle); zero for a face
/// without area.
fn face_normals(mesh: &Mesh, weighting: NormalWeighting) -> Vec<DVec3> {
    (0..mesh.face_count())
        .into_par_iter()
        .with_min_len(1024)
        .map(|face| {
            let corners = mesh.face_positions(face);
            let area = vector_area(corners.clone());
            if is_negligible_area(area, corners) {
                return DVec3::ZERO;
            }
            match weighting {
                NormalWeighting::Area => area,
                NormalWeighting::CornerAngle => area.normalize(),
            }
        })
        .collect()
}

pub(super) fn normals_from_corners(
    mesh: &Mesh,
    table: &CornerTable,
    weighting: NormalWeighting,
) -> Result<Vec<DVec3>, GeometryError> {
    let face_normals = face_normals(mesh, weighting);
    let mut normals = vec![DVec3::ZERO; mesh.vertex_count()];
    normals
        .par_iter_mut()
        .with_min_len(1024)
        .enumerate()
        .for_each(|(vertex, normal)| {
            let mut sum = DVec3::ZERO;
            let mut total = 0.0;
            for corner in table.corners_of(vertex) {
                let face = table.face_of(corner);
                let mut term = face_normals[face];
                if weighting == NormalWeighting::CornerAngle {
                    term *= corner_angle(mesh, table, corner, term);
                }
                sum += term;
                total += term.length();
            }
            // Left at zero, the mark of a vertex without a normal, if nothing but rounding is left.
            if sum.length() > CANCELLED * total {
                *normal = sum.normalize();
            }
        });
    let mut count = 0;
    let mut examples = Vec::new();
    for (vertex, normal) in normals.iter_mut().enumerate() {
        if *normal != DVec3::ZERO {
            continue;
        }
        if table.corners_of(vertex).len() == 0 {
            *normal = DVec3::Z;
            continue;
        }
        count += 1;
        if examples.len() < EXAMPLES {
            let flat = table
                .corners_of(vertex)
                .all(|corner| face_normals[table.face_of(corner)] == DVec3::ZERO);
            examples.push((
                vertex as u32,
                if flat {
                    NormalTrouble::DegenerateFaces
                } else {
                    NormalTrouble::CancellingFaces
                },
            ));
        }
    }
    if count > 0 {
        return Err(GeometryError::NoTangentPlane { count, examples });
    }
    Ok(normals)
}

/// Inner angle of a corner in [0, 2 pi), over pi where the polygon is reflex, seen from the side
/// that `normal` points to.
fn corner_angle(mesh: &Mesh, table: &CornerTable, corner: usize, normal: DVec3) -> f64 {
    let at = mesh.vertices()[mesh.faces().corners()[corner] as usize];
    let (previous, next) = table.around(mesh, corner);
    let to_next = mesh.vertices()[next as usize] - at;
    let to_previous = mesh.vertices()[previous as usize] - at;
    let cross = to_next.cross(to_previous);
    let angle = cross.length().atan2(to_next.dot(to_previous));
    if cross.dot(normal) < 0.0 {
        std::f64::consts::TAU - angle
    } else {
        angle
    }
}
