//! The capsule: a tube with a half sphere at each end.

use std::f64::consts::{FRAC_PI_2, TAU};

use glam::DVec3;

use super::{Cells, ShapeError, product, require, require_size};
use crate::{Faces, Mesh};

/// A capsule along the z axis, centred at the origin: closed, of genus 0, oriented outwards.
///
/// There are `segments` segments around the axis. Each cap has `cap_bands` bands of latitude; the
/// tube between the caps, of the given `radius` and `length`, has `tube_bands` bands. The bands at
/// the poles consist of triangles, all others of `cells`.
///
/// Vertex 0 is the south pole (lowest z). The rings follow from south to north; each starts on the
/// side of the x axis and runs towards y. The north pole is last. There are `segments * (2 *
/// cap_bands + tube_bands - 1) + 2` vertices.
///
/// # Errors
/// There are fewer than three segments or no bands, the radius or length is not finite or not
/// greater than 0, or there are more cells than 32-bit indices can address.
pub fn capsule(
    segments: usize,
    cap_bands: usize,
    tube_bands: usize,
    radius: f64,
    length: f64,
    cells: Cells,
) -> Result<Mesh, ShapeError> {
    require(segments >= 3, "segments", segments, "at least 3")?;
    require(cap_bands >= 1, "cap_bands", cap_bands, "at least 1")?;
    require(tube_bands >= 1, "tube_bands", tube_bands, "at least 1")?;
    for (parameter, value) in [("radius", radius), ("length", length)] {
        require(value > 0.0 && value.is_finite(), parameter, value, "a finite number over 0")?;
    }
    let ring_count = 2 * cap_bands as u128 + tube_bands as u128 - 1;
    let vertex_count = ring_count.saturating_mul(segments as u128).saturating_add(2);
    require_size(
        vertex_count,
        (ring_count - 1)
            .saturating_mul(segments as u128)
            .saturating_mul(cells.corners())
            .saturating_add(product(&[6, segments])),
    )?;

    // Distance from the axis and height of every ring, from south to north.
    let cap_ring = |band: usize| {
        let (sin, cos) = (FRAC_PI_2 * band as f64 / cap_bands as f64).sin_cos();
        (radius * cos, 0.5 * length + radius * sin)
    };
    let south = (0..cap_bands).rev().map(|band| {
        let (from_axis, height) = cap_ring(band);
        (from_axis, -height)
    });
    let tube = (1..tube_bands).map(|band| (radius, length * (band as f64 / tube_bands as f64 - 0.5)));
    let rings = south.chain(tube).chain((0..cap_bands).map(cap_ring));

    let pole = 0.5 * length + radius;
    let mut vertices = Vec::with_capacity(vertex_count as usize);
    vertices.push(DVec3::new(0.0, 0.0, -pole));
    for (from_axis, height) in rings {
        vertices.extend((0..segments).map(|segment| {
            let (sin, cos) = (TAU * segment as f64 / segments as f64).sin_cos();
            DVec3::new(from_axis * cos, from_axis * sin, height)
        }));
    }
    vertices.push(DVec3::new(0.0, 0.0, pole));

    let ring_count = ring_count as usize;
    let north_pole = (vertices.len() - 1) as u32;
    let index = |ring: usize, segment: usize| (1 + ring * segments + segment % segments) as u32;
    let mut faces = Faces::new();
    for segment in 0..segments {
        faces.push(&[0, index(0, segment + 1), index(0, segment)]);
    }
    for ring in 0..ring_count - 1 {
        for segment in 0..segments {
            let cell = [
                index(ring, segment),
                index(ring, segment + 1),
                index(ring + 1, segment + 1),
                index(ring + 1, segment),
            ];
            cells.push(&mut faces, cell);
        }
    }
    for segment in 0..segments {
        let ring = ring_count - 1;
        faces.push(&[north_pole, index(ring, segment), index(ring, segment + 1)]);
    }
    Ok(Mesh::new(vertices, faces)?)
}
