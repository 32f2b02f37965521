//! Vertex normals.

use super::adjacency::CornerTable;
use super::{GeometryError, NormalTrouble, NormalWeighting};
use crate::Mesh;
use crate::points::PointIndex;
use crate::polygon::{is_negligible_area, vector_area};
use glam::DVec3;
use rayon::prelude::*;

/// Number of vertices named in an error.
const EXAMPLES: usize = 8;
/// A sum of face normals has no direction if it is shorter than this fraction of their total
/// length.
const CANCELLED: f64 = 1e-12;

/// Unit normals of all vertices.
///
/// A vertex that no face uses gets the normal of the nearest vertex that has one; if there is none, the z axis.
///
/// # Errors
/// [`GeometryError::NoTangentPlane`] with the vertices whose faces all have zero area or cancel.
pub fn vertex_normals(mesh: &Mesh, weighting: NormalWeighting) -> Result<Vec<DVec3>, GeometryError> {
    normals(mesh, weighting, false)
}

/// As [`vertex_normals`], with the mean normal of the neighbours where the faces of a vertex have none.
pub(crate) fn estimated_normals(mesh: &Mesh, weighting: NormalWeighting) -> Result<Vec<DVec3>, GeometryError> {
    normals(mesh, weighting, true)
}

fn normals(mesh: &Mesh, weighting: NormalWeighting, estimates: bool) -> Result<Vec<DVec3>, GeometryError> {
    let moderate = of_moderate_size(mesh);
    let mesh = moderate.as_ref().map_or(mesh, |(mesh, _)| mesh);
    normals_from_corners(mesh, &CornerTable::new(mesh), weighting, estimates)
}

/// A copy of the mesh scaled by a power of two, and that scale, if areas or squared lengths would
/// overflow or underflow. Directions and angles are bit-identical.
pub(crate) fn of_moderate_size(mesh: &Mesh) -> Option<(Mesh, f64)> {
    const MODERATE: std::ops::Range<f64> = 1e-75..1e75;
    let largest = mesh.vertices().iter().map(|v| v.abs().max_element());
    let largest = largest.fold(0.0, f64::max);
    if largest == 0.0 || MODERATE.contains(&largest) {
        return None;
    }
    // Stay in the exponent range of normal numbers, so that the scale and its inverse are exact.
    let scale = 2f64.powi((-largest.log2().floor() as i32).clamp(-1020, 1020));
    let scaled = mesh.map_vertices(|v| v * scale).ok()?;
    Some((scaled, scale))
}

/// Face normals. The length of a normal is its weight: the area, or 1 for corner-angle weighting. A
/// face without area has a zero normal.
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
    estimates: bool,
) -> Result<Vec<DVec3>, GeometryError> {
    let face_normals = face_normals(mesh, weighting);
    let mut normals = vec![DVec3::ZERO; mesh.vertex_count()];
    normals.par_iter_mut().with_min_len(1024).enumerate().for_each(|(vertex, normal)| {
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
        // If only rounding remains, the sum stays zero, which marks a vertex without a normal.
        if sum.length() > CANCELLED * total {
            *normal = sum.normalize();
        }
    });
    if estimates {
        estimate(mesh, table, &mut normals);
    }
    adopt(mesh, table, &mut normals);
    let mut count = 0;
    let mut examples = Vec::new();
    for (vertex, normal) in normals.iter_mut().enumerate() {
        if *normal != DVec3::ZERO {
            continue;
        }
        count += 1;
        if examples.len() < EXAMPLES {
            let flat = table.corners_of(vertex).all(|corner| face_normals[table.face_of(corner)] == DVec3::ZERO);
            examples.push((
                vertex as u32,
                if flat { NormalTrouble::DegenerateFaces } else { NormalTrouble::CancellingFaces },
            ));
        }
    }
    if count > 0 {
        return Err(GeometryError::NoTangentPlane { count, examples });
    }
    Ok(normals)
}

/// Gives vertices without a normal the mean normal of their neighbours, from those with a normal inwards, and z where
/// no neighbour has any.
fn estimate(mesh: &Mesh, table: &CornerTable, normals: &mut [DVec3]) {
    let mut missing: Vec<usize> =
        (0..normals.len()).filter(|&v| normals[v] == DVec3::ZERO && table.corners_of(v).len() > 0).collect();
    while !missing.is_empty() {
        let found: Vec<(usize, DVec3)> = (missing.iter())
            .map(|&vertex| {
                let corners = table.corners_of(vertex).flat_map(|corner| {
                    let (previous, next) = table.around(mesh, corner);
                    [previous, next]
                });
                let sum: DVec3 = corners.map(|v| normals[v as usize]).sum();
                (vertex, sum.normalize_or_zero())
            })
            .filter(|(_, normal)| *normal != DVec3::ZERO)
            .collect();
        if found.is_empty() {
            missing.iter().for_each(|&vertex| normals[vertex] = DVec3::Z);
            return;
        }
        for (vertex, normal) in found {
            normals[vertex] = normal;
        }
        missing.retain(|&vertex| normals[vertex] == DVec3::ZERO);
    }
}

/// Gives vertices without faces the normal of the nearest vertex that has one, so that it rotates with the mesh. If
/// there is none it is the z axis.
fn adopt(mesh: &Mesh, table: &CornerTable, normals: &mut [DVec3]) {
    let is_unused = |&vertex: &usize| table.corners_of(vertex).len() == 0;
    let unused: Vec<usize> = (0..normals.len()).filter(is_unused).collect();
    if unused.is_empty() {
        return;
    }
    let known: Vec<usize> = (0..normals.len()).filter(|&vertex| normals[vertex] != DVec3::ZERO).collect();
    let position = |&vertex: &usize| mesh.vertices()[vertex];
    let index = PointIndex::new(&known.iter().map(position).collect::<Vec<_>>());
    for vertex in unused {
        let nearest = index.nearest(position(&vertex));
        normals[vertex] = nearest.map_or(DVec3::Z, |found| normals[known[found.point as usize]]);
    }
}

/// Interior angle of a corner in [0, 2 pi), seen from the side that `normal` points to. It is
/// greater than pi at a reflex corner.
fn corner_angle(mesh: &Mesh, table: &CornerTable, corner: usize, normal: DVec3) -> f64 {
    let at = mesh.vertices()[mesh.faces().corners()[corner] as usize];
    let (previous, next) = table.around(mesh, corner);
    let to_next = mesh.vertices()[next as usize] - at;
    let to_previous = mesh.vertices()[previous as usize] - at;
    let cross = to_next.cross(to_previous);
    let angle = cross.length().atan2(to_next.dot(to_previous));
    if cross.dot(normal) < 0.0 { std::f64::consts::TAU - angle } else { angle }
}
