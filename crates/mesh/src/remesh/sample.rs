//! Random points of a surface.

use super::original::{Original, twice_area};
use super::{RemeshError, Remeshed, SurfacePoint, require, require_size};
use crate::mesh::{Faces, Mesh};
use crate::random::Uniform;

/// Draws random points of a surface, evenly by area. The result is a cloud of points without faces.
///
/// The area is divided into as many equal strips as there are points, triangle after triangle, with one random point in
/// each: no triangle has more than two points more or less than its share.
///
/// # Errors
/// No points, too many points, or a surface without area.
pub fn sample(mesh: &Mesh, points: usize, seed: u64) -> Result<Remeshed, RemeshError> {
    require(points > 0, "points", points, "at least 1")?;
    require_size(points as f64)?;
    let original = Original::new(mesh);
    let areas = (0..original.triangles.len() as u32).map(|t| twice_area(original.corners(t)).length());
    let ends: Vec<f64> = areas
        .scan(0.0, |sum, area| {
            *sum += area;
            Some(*sum)
        })
        .collect();
    let total = ends.last().copied().unwrap_or(0.0);
    require(total > 0.0 && total.is_finite(), "area", 0.5 * total, "positive and finite")?;
    let mut uniform = Uniform::new(seed);
    let sources: Vec<SurfacePoint> = (0..points)
        .map(|strip| {
            let area = total * (strip as f64 + uniform.unit()) / points as f64;
            let triangle = ends.partition_point(|&end| end <= area).min(ends.len() - 1);
            let [s, t] = uniform.in_triangle();
            SurfacePoint { corners: original.triangles[triangle], weights: [1.0 - s - t, s, t] }
        })
        .collect();
    let positions = sources.iter().map(|source| source.position(mesh.vertices()));
    Ok(Remeshed { mesh: Mesh::new(positions.collect(), Faces::default())?, sources })
}
