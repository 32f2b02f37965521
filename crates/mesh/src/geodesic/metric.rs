//! The triangles of a mesh by the lengths of their sides.

use super::GeodesicError;
use crate::Mesh;
use crate::triangulate::triangle_corners;
use glam::{DVec2, DVec3};

/// Two sides of a triangle are made longer together than the third by at least this part of the mean
/// side.
const LEAST_SLACK: f64 = 1e-5;

/// A triangle laid out in the plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triangle {
    pub(super) corners: [u32; 3],
    /// The side opposite to each corner, as the mesh has it.
    pub(super) sides: [f64; 3],
    pub(super) area: f64,
    /// For each corner the gradient of the function that is 1 there and 0 at the others, times the area.
    pub(super) gradients: [DVec2; 3],
}

/// All triangles, polygons cut, without the faces that repeat a vertex; and their mean side.
///
/// Where triangles are so thin that rounding would rule them, all sides of the mesh are lengthened by
/// the same little amount, which makes any triangle a proper one (intrinsic mollification of Sharp and
/// Crane, *A Laplacian for Nonmanifold Triangle Meshes*, 2020).
pub(super) fn intrinsic_triangles(mesh: &Mesh) -> Result<(Vec<Triangle>, f64), GeodesicError> {
    let corners = triangle_corners(mesh);
    let sides = side_lengths(mesh.vertices(), &corners);
    let mean = mean_side(&sides);
    if mean == 0.0 && mesh.face_count() > 0 {
        return Err(GeodesicError::NoExtent {
            faces: mesh.face_count(),
        });
    }
    let lengthening = mollification(&sides, mean);
    let triangles = corners
        .into_iter()
        .zip(sides)
        .map(|(corners, sides)| lay_out(corners, sides, lengthening))
        .collect();
    Ok((triangles, mean))
}

/// Lengths of the sides of triangles, each opposite to its corner.
pub(crate) fn side_lengths(points: &[DVec3], triangles: &[[u32; 3]]) -> Vec<[f64; 3]> {
    let sides = |corners: &[u32; 3]| {
        let [a, b, c] = corners.map(|corner| points[corner as usize]);
        [b.distance(c), c.distance(a), a.distance(b)]
    };
    triangles.iter().map(sides).collect()
}

/// Mean length of the sides of all triangles; 0 without triangles.
pub(crate) fn mean_side(sides: &[[f64; 3]]) -> f64 {
    sides.iter().flatten().sum::<f64>() / (3 * sides.len()).max(1) as f64
}

/// Length to add to every side, so that in each triangle two sides are together longer than the
/// third by at least `LEAST_SLACK` of the mean side.
pub(crate) fn mollification(sides: &[[f64; 3]], mean: f64) -> f64 {
    let lacking = |sides: &[f64; 3]| {
        let longest = sides.iter().copied().fold(0.0, f64::max);
        LEAST_SLACK * mean - (sides.iter().sum::<f64>() - 2.0 * longest)
    };
    sides.iter().map(lacking).fold(0.0, f64::max)
}

/// Area of a triangle by the lengths of its sides: Kahan's form of Heron's formula, which is
/// stable for thin triangles.
pub(crate) fn heron_area(sides: [f64; 3]) -> f64 {
    let mut sorted = sides;
    sorted.sort_by(|x, y| y.total_cmp(x));
    let [l, m, s] = sorted;
    let product = (l + (m + s)) * (s - (l - m)) * (s + (l - m)) * (l + (m - s));
    0.25 * product.max(0.0).sqrt()
}

/// Lays a triangle with lengthened sides out in the plane, counterclockwise: the first corner at the
/// origin, the second on the x axis.
fn lay_out(corners: [u32; 3], sides: [f64; 3], lengthening: f64) -> Triangle {
    let [a, b, c] = sides.map(|side| side + lengthening);
    let area = heron_area([a, b, c]);
    let apex = DVec2::new((b * b + c * c - a * a) / (2.0 * c), 2.0 * area / c);
    let places = [DVec2::ZERO, DVec2::new(c, 0.0), apex];
    Triangle {
        corners,
        sides,
        area,
        // A quarter turn of the opposite side, counterclockwise, points to the corner.
        gradients: [0, 1, 2].map(|i| 0.5 * (places[(i + 2) % 3] - places[(i + 1) % 3]).perp()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_those_of_the_hat_functions() {
        let triangle = lay_out([4, 2, 7], [3.5, 4.5, 2.5], 0.5);
        assert_eq!(triangle.corners, [4, 2, 7]);
        assert!((triangle.area - 6.0).abs() < 1e-14);
        let places = [DVec2::ZERO, DVec2::new(3.0, 0.0), DVec2::new(3.0, 4.0)];
        for (i, gradient) in triangle.gradients.into_iter().enumerate() {
            for (j, place) in places.into_iter().enumerate() {
                // From the corner opposite to each side: 1 at its own, 0 at the others.
                let value = gradient.dot(place - places[(i + 1) % 3]) / triangle.area;
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((value - expected).abs() < 1e-14, "{i} {j}: {value}");
            }
        }
    }
}
