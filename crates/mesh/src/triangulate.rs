//! Triangulation of polygons.

use glam::{DVec2, DVec3};

use crate::defects::{has_repeated_corner, is_collapsed};
use crate::mesh::Mesh;
use crate::polygon::vector_area;

/// Maximum number of corners for ear clipping, which takes at least quadratic time. Larger polygons
/// are fanned.
const MAX_CORNERS_CLIPPED: usize = 256;

/// Triangulates a polygon with the given vector area. Each triangle has the orientation of the
/// polygon and is given by indices into `corners`. Convex polygons are fanned from their first
/// corner, others are ear-clipped. A keyhole polygon, which runs along an edge twice to reach a hole,
/// is triangulated without the hole. The triangles of a self-intersecting polygon are arbitrary.
pub fn triangulate(corners: &[DVec3], area: DVec3, triangles: &mut Vec<[usize; 3]>) {
    triangles.clear();
    if corners.len() > 3 && corners.len() <= MAX_CORNERS_CLIPPED {
        let flat = flatten(corners, area);
        let turns_left = |i: usize| {
            let n = flat.len();
            turn(flat[(i + n - 1) % n], flat[i], flat[(i + 1) % n]) >= 0.0
        };
        if !(0..flat.len()).all(turns_left) || has_repeated_position(&flat) {
            clip_ears(&flat, triangles);
            return;
        }
    }
    triangles.extend((1..corners.len().saturating_sub(1)).map(|i| [0, i, i + 1]));
}

/// Triangles of all faces of a mesh, by vertex. Faces with a repeated vertex are left out, except
/// keyhole polygons.
pub(crate) fn triangle_corners(mesh: &Mesh) -> Vec<[u32; 3]> {
    let mut triangles = Vec::with_capacity(mesh.face_count());
    each_triangle(mesh, |_, triangle| triangles.push(triangle));
    triangles
}

/// Calls `push` with the face and the vertices of each triangle of [`triangle_corners`].
pub(crate) fn each_triangle(mesh: &Mesh, mut push: impl FnMut(u32, [u32; 3])) {
    let mut cuts = Vec::new();
    for (face, corners) in mesh.faces().iter().enumerate() {
        if is_collapsed(corners) {
            continue;
        }
        if let &[a, b, c] = corners {
            push(face as u32, [a, b, c]);
            continue;
        }
        let positions: Vec<_> = mesh.face_positions(face).collect();
        let area = vector_area(positions.iter().copied());
        triangulate(&positions, area, &mut cuts);
        let cuts = cuts.iter().map(|cut| cut.map(|place| corners[place]));
        for triangle in cuts.filter(|triangle| !has_repeated_corner(triangle)) {
            push(face as u32, triangle);
        }
    }
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

/// True if two corners are at the same position.
fn has_repeated_position(flat: &[DVec2]) -> bool {
    (1..flat.len()).any(|i| flat[..i].contains(&flat[i]))
}

/// Ear clipping: repeatedly cuts off a convex corner whose triangle the rest of the border does not
/// enter.
fn clip_ears(flat: &[DVec2], triangles: &mut Vec<[usize; 3]>) {
    let mut left: Vec<usize> = (0..flat.len()).collect();
    while left.len() > 3 {
        let n = left.len();
        let corners = |i: usize| [left[(i + n - 1) % n], left[i], left[(i + 1) % n]];
        let turn_at = |i: usize| {
            let [a, b, c] = corners(i).map(|corner| flat[corner]);
            turn(a, b, c)
        };
        let is_ear = |&i: &usize| {
            let ear = corners(i);
            turn_at(i) > 0.0
                && (0..n).all(|other| {
                    ear.contains(&left[other]) || !enters(corners(other).map(|c| flat[c]), ear.map(|c| flat[c]))
                })
        };
        // A self-intersecting polygon may have no ear left. A corner without area is cut off then,
        // such as the tip of a line that runs back on itself, or else any corner.
        let ear = (0..n).find(is_ear);
        let i = ear.or_else(|| (0..n).find(|&i| turn_at(i) == 0.0)).unwrap_or(1);
        triangles.push(corners(i));
        left.remove(i);
    }
    triangles.push([left[0], left[1], left[2]]);
}

/// True if the border enters the ear `a b c` at a point, given with the points before and after it:
/// the point is inside or on the cut `a c`, or on the other two sides and a neighbour is beyond them.
/// Borders that only touch those sides, as the two sides of a bridge do, do not enter.
fn enters([before, point, after]: [DVec2; 3], [a, b, c]: [DVec2; 3]) -> bool {
    let sides = [(a, b), (b, c), (c, a)];
    let [first, second, cut] = sides.map(|(from, to)| turn(from, to, point));
    if first < 0.0 || second < 0.0 || cut < 0.0 {
        return false;
    }
    if first > 0.0 && second > 0.0 {
        return true;
    }
    let goes_in = |to: DVec2| {
        let is_inside = |(side, here): ((DVec2, DVec2), f64)| here > 0.0 || turn(side.0, side.1, to) > 0.0;
        sides.into_iter().zip([first, second, cut]).all(is_inside)
    };
    goes_in(before) || goes_in(after)
}

/// Twice the signed area of a triangle; positive if `a`, `b`, `c` are counterclockwise.
fn turn(a: DVec2, b: DVec2, c: DVec2) -> f64 {
    (b - a).perp_dot(c - a)
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
                let areas = triangles.iter().map(|t| vector_area(t.map(|i| corners[i])).dot(area.normalize()));
                assert!(areas.clone().all(|area| area > 0.0));
                assert!((areas.sum::<f64>() - area.length()).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn any_polygon_gives_two_triangles_fewer_than_corners() {
        let crossing = [DVec3::ZERO, DVec3::new(1.0, 1.0, 0.0), DVec3::X, DVec3::Y, DVec3::new(0.5, 3.0, 0.0)];
        for corners in [&crossing[..], &crossing[..4], &crossing[..3], &[DVec3::ONE; 6]] {
            let mut triangles = Vec::new();
            triangulate(corners, vector_area(corners.iter().copied()), &mut triangles);
            assert_eq!(triangles.len(), corners.len() - 2);
        }
    }

    /// Triangulates a flat polygon from every start, in both orientations, and checks that no
    /// triangle is inverted and that the areas add up to `expected`.
    fn check_area(polygon: &[(f64, f64)], expected: f64, triangle_count: usize) {
        for reversed in [false, true] {
            for start in 0..polygon.len() {
                let mut corners: Vec<DVec3> = polygon.iter().map(|&(x, y)| DVec3::new(x, 7.0, y)).collect();
                if reversed {
                    corners.reverse();
                }
                corners.rotate_left(start);
                let area = vector_area(corners.iter().copied());
                assert!((area.length() - expected).abs() < 1e-12);
                let mut triangles = Vec::new();
                triangulate(&corners, area, &mut triangles);
                assert_eq!(triangles.len(), corners.len() - 2);
                let areas: Vec<f64> =
                    triangles.iter().map(|t| vector_area(t.map(|i| corners[i])).dot(area.normalize())).collect();
                assert!(areas.iter().all(|&area| area >= 0.0), "{start}: {areas:?}");
                let sound = areas.iter().filter(|&&area| area > 0.0).count();
                assert_eq!(sound, triangle_count, "{start}");
                assert!((areas.iter().sum::<f64>() - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn keyhole_polygons_are_covered_without_their_holes() {
        let (a, b, c, d) = ((0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0));
        let hole = [(1.0, 1.0), (1.0, 3.0), (3.0, 3.0), (3.0, 1.0)];
        let [e, f, g, h] = hole;
        check_area(&[a, b, c, d, a, e, f, g, h, e], 12.0, 8);
    }

    #[test]
    fn two_holes_and_a_line_into_the_face() {
        let outer = [(0.0, 0.0), (8.0, 0.0), (8.0, 4.0), (0.0, 4.0)];
        let [a, b, c, d] = outer;
        let left = [(1.0, 1.0), (1.0, 3.0), (3.0, 3.0), (3.0, 1.0)];
        let right = left.map(|(x, y)| (x + 4.0, y));
        let polygon = [&[a, b, c, d, a][..], &left, &right, &[right[0], left[3], left[0]]].concat();
        check_area(&polygon, 32.0 - 8.0, polygon.len() - 2);
        // The border runs into a square and back.
        let tip = (1.0, 2.0);
        check_area(&[(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0), (0.0, 0.0), tip], 16.0, 4);
    }
}
