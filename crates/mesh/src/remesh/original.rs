//! The original surface of a remesher: nearest points on its triangles.

use glam::DVec3;

use crate::classes::bucket;
use crate::mesh::Mesh;
use crate::triangulate::triangle_corners;

use super::SurfacePoint;

/// Maximum number of triangles visited by a walk to the nearest point.
const WALK: usize = 64;

/// A point of the original surface: a triangle and barycentric weights of its corners.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) triangle: u32,
    pub(crate) weights: [f64; 3],
}

/// The triangles of a mesh, with the triangles around each vertex.
pub(crate) struct Original<'a> {
    pub(crate) positions: &'a [DVec3],
    pub(crate) triangles: Vec<[u32; 3]>,
    /// Area-weighted normal of each vertex, of unit length or zero.
    normals: Vec<DVec3>,
    /// Start of the triangles of each vertex in `incident`.
    offsets: Vec<u32>,
    incident: Vec<u32>,
}

impl<'a> Original<'a> {
    pub(crate) fn new(mesh: &'a Mesh) -> Self {
        let positions = mesh.vertices();
        let triangles = triangle_corners(mesh);
        let corners = triangles.as_flattened().iter().enumerate();
        let (offsets, incident) = bucket(positions.len(), corners.map(|(corner, &vertex)| (vertex, corner as u32 / 3)));
        let mut normals = vec![DVec3::ZERO; positions.len()];
        for triangle in &triangles {
            let area = twice_area(triangle.map(|v| positions[v as usize]));
            for &vertex in triangle {
                normals[vertex as usize] += area;
            }
        }
        for normal in &mut normals {
            *normal = normal.normalize_or_zero();
        }
        Self { positions, triangles, normals, offsets, incident }
    }

    /// Sum of the areas of the triangles.
    pub(crate) fn area(&self) -> f64 {
        let triangles = 0..self.triangles.len() as u32;
        let twice = triangles.map(|t| twice_area(self.corners(t)).length());
        0.5 * twice.sum::<f64>()
    }

    /// Mean length of the sides of all triangles; 0 without triangles.
    pub(crate) fn mean_side(&self) -> f64 {
        let sides = self.triangles.len() * 3;
        let triangles = (0..self.triangles.len() as u32).map(|t| self.corners(t));
        let total: f64 = triangles.map(|[a, b, c]| a.distance(b) + b.distance(c) + c.distance(a)).sum();
        total / sides.max(1) as f64
    }

    pub(crate) fn corners(&self, triangle: u32) -> [DVec3; 3] {
        self.triangles[triangle as usize].map(|v| self.positions[v as usize])
    }

    /// The triangles around a vertex.
    pub(crate) fn around(&self, vertex: u32) -> &[u32] {
        let [from, to] = [vertex, vertex + 1].map(|v| self.offsets[v as usize] as usize);
        &self.incident[from..to]
    }

    /// Position of a place.
    pub(crate) fn position(&self, place: Place) -> DVec3 {
        blend(self.corners(place.triangle), place.weights)
    }

    /// Interpolated normal at a place, of unit length or zero.
    pub(crate) fn normal(&self, place: Place) -> DVec3 {
        let normals = self.triangles[place.triangle as usize].map(|v| self.normals[v as usize]);
        blend(normals, place.weights).normalize_or_zero()
    }

    /// The place as it is reported.
    pub(crate) fn surface_point(&self, place: Place) -> SurfacePoint {
        SurfacePoint { corners: self.triangles[place.triangle as usize], weights: place.weights }
    }

    /// True if one triangle has all corners of a point that have a positive weight.
    pub(crate) fn has_triangle(&self, point: &SurfacePoint) -> bool {
        let corners = || {
            let weighted = point.corners.iter().zip(&point.weights);
            weighted.filter(|&(_, &weight)| weight > 0.0)
        };
        let around = self.around(point.nearest_corner()).iter();
        around
            .map(|&t| self.triangles[t as usize])
            .any(|triangle| corners().all(|(corner, _)| triangle.contains(corner)))
            || corners().count() == 1
    }

    /// The nearest point of a triangle, and its squared distance.
    pub(crate) fn nearest_on(&self, triangle: u32, point: DVec3) -> (Place, f64) {
        let corners = self.corners(triangle);
        let weights = nearest_weights(corners, point);
        let distance = blend(corners, weights).distance_squared(point);
        (Place { triangle, weights }, distance)
    }

    /// The nearest point in the surroundings of a triangle, and its squared distance. The walk goes
    /// from triangle to triangle across the edge or corner where the nearest point so far lies, as
    /// long as that brings it closer.
    pub(crate) fn walk(&self, near: u32, point: DVec3) -> (Place, f64) {
        let mut best = self.nearest_on(near, point);
        for _ in 0..WALK {
            let triangle = self.triangles[best.0.triangle as usize];
            let weights = best.0.weights;
            // The corners that span the nearest point: one or two of them at a corner or an edge.
            let spans = |corner: &usize| weights[*corner] > 0.0;
            let Some(first) = (0..3).find(spans) else { break };
            let second = (first + 1..3).find(spans);
            if (0..3).filter(spans).count() == 3 {
                break;
            }
            let mut closer = best;
            for &candidate in self.around(triangle[first]) {
                let corners = self.triangles[candidate as usize];
                if candidate == best.0.triangle || second.is_some_and(|second| !corners.contains(&triangle[second])) {
                    continue;
                }
                let found = self.nearest_on(candidate, point);
                if found.1 < closer.1 {
                    closer = found;
                }
            }
            // Differences within rounding would make the walk run in circles.
            if closer.1.is_nan() || closer.1 >= best.1 * (1.0 - 1e-12) {
                break;
            }
            best = closer;
        }
        best
    }
}

/// Normal of a triangle, with twice its area as length.
pub(crate) fn twice_area([a, b, c]: [DVec3; 3]) -> DVec3 {
    (b - a).cross(c - a)
}

/// Shape of a triangle: twice its area divided by the square of its longest side. It is 0.87 for an
/// equilateral triangle, and about the smallest angle in radians for a thin one.
pub(crate) fn shape([a, b, c]: [DVec3; 3]) -> f64 {
    let longest = (b - a).length_squared().max((c - b).length_squared()).max((a - c).length_squared());
    let area = twice_area([a, b, c]).length();
    if longest > 0.0 { area / longest } else { 0.0 }
}

/// Weighted sum of three vectors.
pub(crate) fn blend([a, b, c]: [DVec3; 3], [u, v, w]: [f64; 3]) -> DVec3 {
    u * a + v * b + w * c
}

/// Barycentric weights of the point of a triangle that is nearest to `point` (Ericson, *Real-Time
/// Collision Detection*, 2005).
fn nearest_weights([a, b, c]: [DVec3; 3], point: DVec3) -> [f64; 3] {
    let (ab, ac, ap) = (b - a, c - a, point - a);
    let (d1, d2) = (ab.dot(ap), ac.dot(ap));
    if d1 <= 0.0 && d2 <= 0.0 {
        return [1.0, 0.0, 0.0];
    }
    let bp = point - b;
    let (d3, d4) = (ab.dot(bp), ac.dot(bp));
    if d3 >= 0.0 && d4 <= d3 {
        return [0.0, 1.0, 0.0];
    }
    let vc = d1 * d4 - d3 * d2;
    // An edge without length is left to the others.
    if vc <= 0.0 && d1 >= 0.0 && d3 <= 0.0 && d1 > d3 {
        let v = d1 / (d1 - d3);
        return [1.0 - v, v, 0.0];
    }
    let cp = point - c;
    let (d5, d6) = (ab.dot(cp), ac.dot(cp));
    if d6 >= 0.0 && d5 <= d6 {
        return [0.0, 0.0, 1.0];
    }
    let vb = d5 * d2 - d1 * d6;
    if vb <= 0.0 && d2 >= 0.0 && d6 <= 0.0 && d2 > d6 {
        let w = d2 / (d2 - d6);
        return [1.0 - w, 0.0, w];
    }
    let va = d3 * d6 - d5 * d4;
    let (from_b, from_c) = (d4 - d3, d5 - d6);
    if va <= 0.0 && from_b >= 0.0 && from_c >= 0.0 && from_b + from_c > 0.0 {
        let w = from_b / (from_b + from_c);
        return [0.0, 1.0 - w, w];
    }
    let total = va + vb + vc;
    let (v, w) = (vb / total, vc / total);
    // No area up to rounding, or overflow of very large coordinates.
    if !(v >= 0.0 && w >= 0.0 && v + w <= 1.0 + 1e-9) {
        return [1.0, 0.0, 0.0];
    }
    [(1.0 - v - w).max(0.0), v, w]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Uniform;
    use crate::shapes::icosphere;

    #[test]
    fn nearest_weights_beat_a_fine_scan_of_the_triangle() {
        let mut uniform = Uniform::new(5);
        let mut vector = || DVec3::from(std::array::from_fn(|_| uniform.signed()));
        for _ in 0..300 {
            let corners = [vector(), vector(), vector()];
            let point = 2.0 * vector();
            let nearest = blend(corners, nearest_weights(corners, point)).distance(point);
            let steps = 40;
            for i in 0..=steps {
                for j in 0..=steps - i {
                    let (u, v) = (f64::from(i) / 40.0, f64::from(j) / 40.0);
                    let other = blend(corners, [1.0 - u - v, u, v]).distance(point);
                    assert!(nearest <= other + 1e-12);
                }
            }
        }
        let flat = [DVec3::ZERO, DVec3::ZERO, DVec3::X];
        let weights = nearest_weights(flat, DVec3::new(0.25, 1.0, 0.0));
        assert_eq!(blend(flat, weights), 0.25 * DVec3::X);
    }

    #[test]
    fn a_walk_reaches_the_nearest_triangle_of_a_sphere() {
        let sphere = icosphere(3).unwrap();
        let original = Original::new(&sphere);
        let mut uniform = Uniform::new(6);
        for _ in 0..200 {
            let direction = DVec3::from(std::array::from_fn(|_| uniform.signed()));
            let point = 1.02 * direction.normalize();
            // From any triangle of the same hemisphere.
            let near = (0..1280).find(|&t| original.corners(t)[0].dot(point) > 0.3).unwrap();
            let (place, distance) = original.walk(near, point);
            let all = (0..1280).map(|t| original.nearest_on(t, point).1);
            assert!(distance <= all.fold(f64::INFINITY, f64::min) + 1e-12);
            assert!(original.position(place).distance(point) < 0.04);
            assert!(original.normal(place).dot(point) > 0.99);
        }
    }
}
