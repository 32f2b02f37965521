//! The torus.

use std::f64::consts::TAU;

use glam::DVec3;

use super::{Cells, ShapeError, product, require, require_size};
use crate::{Faces, Mesh};

/// A torus around the z axis: closed, of genus 1, oriented outwards.
///
/// The vertex `i` segments around the axis and `j` segments around the tube has index `i *
/// minor_segments + j`. Vertex 0 is on the x axis, at the largest distance from the origin.
/// `major_radius` is the distance of the centre of the tube from the axis, `minor_radius` the
/// radius of the tube.
///
/// # Errors
/// There are fewer than three segments, the radii violate `0 < minor_radius < major_radius`, or
/// there are more cells than 32-bit indices can address.
pub fn torus(
    major_segments: usize,
    minor_segments: usize,
    major_radius: f64,
    minor_radius: f64,
    cells: Cells,
) -> Result<Mesh, ShapeError> {
    require(major_segments >= 3, "major_segments", major_segments, "at least 3")?;
    require(minor_segments >= 3, "minor_segments", minor_segments, "at least 3")?;
    require(major_radius > 0.0 && major_radius.is_finite(), "major_radius", major_radius, "a finite number over 0")?;
    require(
        minor_radius > 0.0 && minor_radius < major_radius,
        "minor_radius",
        minor_radius,
        "over 0 and under major_radius",
    )?;
    let count = product(&[major_segments, minor_segments]);
    require_size(count, count.saturating_mul(cells.corners()))?;

    let mut vertices = Vec::with_capacity(major_segments * minor_segments);
    for i in 0..major_segments {
        let (sin_around, cos_around) = (TAU * i as f64 / major_segments as f64).sin_cos();
        vertices.extend((0..minor_segments).map(|j| {
            let (sin_tube, cos_tube) = (TAU * j as f64 / minor_segments as f64).sin_cos();
            let from_axis = major_radius + minor_radius * cos_tube;
            DVec3::new(from_axis * cos_around, from_axis * sin_around, minor_radius * sin_tube)
        }));
    }
    let corner_count = vertices.len() * cells.corners() as usize;
    let mut faces = Faces::with_capacity(corner_count / 3, corner_count);
    for i in 0..major_segments {
        for j in 0..minor_segments {
            let (next_i, next_j) = ((i + 1) % major_segments, (j + 1) % minor_segments);
            let cell = [(i, j), (next_i, j), (next_i, next_j), (i, next_j)];
            cells.push(&mut faces, cell.map(|(i, j)| (i * minor_segments + j) as u32));
        }
    }
    Ok(Mesh::new(vertices, faces)?)
}
