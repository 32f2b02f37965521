//! Triangles by the lengths of their sides.

use crate::DVec3;

/// Least excess of two sides of a triangle over the third, as a fraction of the mean side.
const MIN_SLACK: f64 = 1e-5;

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
/// third by at least `MIN_SLACK` of the mean side (intrinsic mollification; Sharp and Crane,
/// *A Laplacian for Nonmanifold Triangle Meshes*, 2020).
pub(super) fn mollification(sides: &[[f64; 3]], mean: f64) -> f64 {
    let lacking = |sides: &[f64; 3]| {
        let longest = sides.iter().copied().fold(0.0, f64::max);
        MIN_SLACK * mean - (sides.iter().sum::<f64>() - 2.0 * longest)
    };
    sides.iter().map(lacking).fold(0.0, f64::max)
}

/// Area of a triangle by the lengths of its sides: Kahan's form of Heron's formula, which is
/// stable for thin triangles.
pub(super) fn heron_area(sides: [f64; 3]) -> f64 {
    let mut sorted = sides;
    sorted.sort_by(|x, y| y.total_cmp(x));
    let [l, m, s] = sorted;
    let product = (l + (m + s)) * (s - (l - m)) * (s + (l - m)) * (l + (m - s));
    0.25 * product.max(0.0).sqrt()
}
