//! Area and degeneracy of a polygon. The report, the repairs and the geometry share these
//! definitions.

use glam::DVec3;

/// Vector area of a polygon. Its direction is the normal, by the right-hand rule over the corner
/// order; its length is the area. For a non-planar polygon it is the vector area of the boundary,
/// which does not depend on a triangulation.
///
/// The polygon is fanned from its first corner. Differences are computed before products, so that a
/// small polygon far from the origin does not lose precision.
pub fn vector_area(corners: impl IntoIterator<Item = DVec3>) -> DVec3 {
    let mut corners = corners.into_iter();
    let (Some(first), Some(second)) = (corners.next(), corners.next()) else { return DVec3::ZERO };
    let mut previous = second - first;
    let mut twice_area = DVec3::ZERO;
    for corner in corners {
        let next = corner - first;
        twice_area += previous.cross(next);
        previous = next;
    }
    0.5 * twice_area
}

/// True if an area vector is within the rounding error of the corner coordinates, so that it has no
/// direction: it is zero, or no larger than a change of one unit in the last place of each
/// coordinate can produce.
pub(crate) fn is_negligible_area(area: DVec3, corners: impl IntoIterator<Item = DVec3>) -> bool {
    let mut corners = corners.into_iter();
    let Some(first) = corners.next() else { return true };
    let mut extent: f64 = 0.0;
    let mut magnitude = first.abs().max_element();
    for corner in corners {
        extent = extent.max((corner - first).abs().max_element());
        magnitude = magnitude.max(corner.abs().max_element());
    }
    // Each edge has an error of about eps * magnitude, so the area has that times the extent.
    area.length() <= 4.0 * f64::EPSILON * magnitude * extent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_of_polygons() {
        let square = [DVec3::ZERO, DVec3::X, DVec3::X + DVec3::Y, DVec3::Y];
        assert_eq!(vector_area(square), DVec3::Z);
        let reversed = square.iter().rev().copied();
        assert_eq!(vector_area(reversed), -DVec3::Z);
        // An L shape: the fan from the first corner leaves the polygon, but signed areas still add
        // up.
        let l = [(0.0, 0.0), (2.0, 0.0), (2.0, 1.0), (1.0, 1.0), (1.0, 2.0), (0.0, 2.0)]
            .map(|(x, y)| DVec3::new(x, y, 5.0));
        for start in 0..6 {
            let mut turned = l;
            turned.rotate_left(start);
            assert!((vector_area(turned) - 3.0 * DVec3::Z).length() < 1e-15);
        }
    }

    #[test]
    fn collinear_corners_have_no_direction() {
        let line = [0.1, 0.3, 0.7].map(|t| DVec3::new(1.0, 3.0, 0.1) * t + DVec3::new(9.0, 7.0, 3.0));
        let area = vector_area(line);
        assert!(area != DVec3::ZERO, "the rounded area should not be exactly zero here");
        assert!(is_negligible_area(area, line));
        let sliver = [DVec3::ZERO, DVec3::X, DVec3::new(0.5, 1e-9, 0.0)];
        assert!(!is_negligible_area(vector_area(sliver), sliver));
        assert!(is_negligible_area(DVec3::ZERO, [DVec3::ZERO; 3]));
    }
}
