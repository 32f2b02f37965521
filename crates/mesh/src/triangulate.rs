//! Triangulation of polygons.

use glam::{DVec2, DVec3};

use crate::defects::has_repeated_corner;
use crate::mesh::Mesh;
use crate::polygon::vector_area;

/// Maximum number of corners for ear clipping, which takes at least quadratic time. Larger polygons
/// are fanned.
const MOST_CORNERS_CLIPPED: usize = 256;

/// Triangulates a polygon with the given vector area. Each triangle has the orientation of the
/// polygon and is given by indices into `corners`. Convex polygons are fanned from their first
/// corner, others are ear-clipped. The triangles of a self-intersecting polygon are arbitrary.
pub fn triangulate(corners: &[DVec3], area: DVec3, triangles: &mut Vec<[usize; 3]>) {
    triangles.clear();
    if corners.len() > 3 && corners.len() <= MOST_CORNERS_CLIPPED {
        let flat = flatten(corners, area);
        let turns_left = |i: usize| {
            let n = flat.len();
            turn(flat[(i + n - 1) % n], flat[i], flat[(i + 1) % n]) >= 0.0
        };
        if !(0..flat.len()).all(turns_left) {
            clip_ears(&flat, triangles);
            return;
        }
    }
    triangles.extend((1..corners.len().saturating_sub(1)).map(|i| [0, i, i + 1]));
}

/// Triangles of all faces of a mesh, by vertex. Faces with a repeated vertex are left out.
pub(crate) fn triangle_corners(mesh: &Mesh) -> Vec<[u32; 3]> {
    let mut triangles = Vec::with_capacity(mesh.face_count());
    let mut cuts = Vec::new();
    for (face, corners) in mesh.faces().iter().enumerate() {
        if has_repeated_corner(corners) {
            continue;
        }
        if let &[a, b, c] = corners {
            triangles.push([a, b, c]);
            continue;
        }
        let positions: Vec<_> = mesh.face_positions(face).collect();
        let area = vector_area(positions.iter().copied());
        triangulate(&positions, area, &mut cuts);
        triangles.extend(cuts.iter().map(|cut| cut.map(|place| corners[place])));
    }
    triangles
}

/// Projects the polygon onto the coordinate plane most parallel to it, counterclockwise.
fn flatten(corners: &[DVec3], area: DVec3) -> Vec<DVec2> {
    let size = area.abs();
    let plane: fn(DVec3) -> (f64, f64, f64) = if size.x >= size.y && size.x >= size.z {
        |v| (v.y, v.z, v.x)
    } else if size.y >= size.z {
        |v| (v.z, v.x, v.y)
    } else {
        |v| (v.x, v.y, v.z)
    };
    let mirror = if plane(area).2 < 0.0 { -1.0 } else { 1.0 };
    corners
        .iter()
        .map(|&corner| {
            let (x, y, _) = plane(corner);
            DVec2::new(mirror * x, y)
        })
        .collect()
}

/// Ear clipping: repeatedly cuts off a convex corner whose triangle contains no other corner.
fn clip_ears(flat: &[DVec2], triangles: &mut Vec<[usize; 3]>) {
    let mut left: Vec<usize> = (0..flat.len()).collect();
    while left.len() > 3 {
        let n = left.len();
        let ear = (0..n).find(|&i| {
            let [a, b, c] = [left[(i + n - 1) % n], left[i], left[(i + 1) % n]];
            turn(flat[a], flat[b], flat[c]) > 0.0
                && left.iter().all(|&other| {
                    [a, b, c].contains(&other) || !inside(flat[other], [flat[a], flat[b], flat[c]])
                })
        });
        // A self-intersecting polygon may have no ear left; any corner is cut off then.
        let i = ear.unwrap_or(1);
        triangles.push([left[(i + n - 1) % n], left[i], left[(i + 1) % n]]);
        left.remove(i);
    }
    triangles.push([left[0], left[1], left[2]]);
}

/// Twice the signed area of a triangle; positive if `a`, `b`, `c` are counterclockwise.
fn turn(a: DVec2, b: DVec2, c: DVec2) -> f64 {
    (b - a).perp_dot(c - a)
}

/// True if a point lies inside a counterclockwise triangle or on its border.
fn inside(point: DVec2, [a, b, c]: [DVec2; 3]) -> bool {
    turn(a, b, point) >= 0.0 && turn(b, c, point) >= 0.0 && turn(c, a, point) >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concave_polygons_are_covered_once() {
        // A star with eight corners, seen from both sides, starting at any corner.
        let star: Vec<DVec3> = (0..8)
            .map(|i| {
                let (sin, cos) = (f64::from(i) * std::f64::consts::FRAC_PI_4).sin_cos();
                let radius = if i % 2 == 0 { 3.0 } else { 0.7 };
                DVec3::new(2.0, radius * cos, radius * sin)
            })
            .collect();
        for reversed in [false, true] {
            for start in 0..8 {
                let mut corners = star.clone();
                if reversed {
                    corners.reverse();
                }
                corners.rotate_left(start);
                let area = vector_area(corners.iter().copied());
                let mut triangles = Vec::new();
                triangulate(&corners, area, &mut triangles);
                assert_eq!(triangles.len(), 6);
                // No triangle is inverted, and their areas add up to the area of the star.
                let areas = triangles
                    .iter()
                    .map(|t| vector_area(t.map(|i| corners[i])).dot(area.normalize()));
                assert!(areas.clone().all(|area| area > 0.0));
                assert!((areas.sum::<f64>() - area.length()).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn any_polygon_gives_two_triangles_fewer_than_corners() {
        let crossing = [
            DVec3::ZERO,
            DVec3::new(1.0, 1.0, 0.0),
            DVec3::X,
            DVec3::Y,
            DVec3::new(0.5, 3.0, 0.0),
        ];
        for corners in [
            &crossing[..],
            &crossing[..4],
            &crossing[..3],
            &[DVec3::ONE; 6],
        ] {
            let mut triangles = Vec::new();
            triangulate(
                corners,
                vector_area(corners.iter().copied()),
                &mut triangles,
            );
            assert_eq!(triangles.len(), corners.len() - 2);
        }
    }
}
