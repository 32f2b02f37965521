//! Quadrics: sums of squared distances to planes (Garland and Heckbert, 1997).

use glam::{DMat3, DVec3};

/// A quadratic function of a point, `x A x + 2 b x + c` with a symmetric matrix `A`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quadric {
    /// Diagonal of `A`, and its entries `yz`, `xz`, `xy`.
    diagonal: DVec3,
    mixed: DVec3,
    linear: DVec3,
    constant: f64,
}

impl Quadric {
    /// `weight` times the squared distance to the plane through `point` with a unit normal.
    pub(super) fn of_plane(normal: DVec3, point: DVec3, weight: f64) -> Self {
        let offset = -normal.dot(point);
        let [x, y, z] = normal.to_array();
        Self {
            diagonal: weight * normal * normal,
            mixed: weight * DVec3::new(y * z, x * z, x * y),
            linear: weight * offset * normal,
            constant: weight * offset * offset,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.diagonal += other.diagonal;
        self.mixed += other.mixed;
        self.linear += other.linear;
        self.constant += other.constant;
    }

    fn times(&self, p: DVec3) -> DVec3 {
        let (d, m) = (self.diagonal, self.mixed);
        DVec3::new(
            d.x * p.x + m.z * p.y + m.y * p.z,
            m.z * p.x + d.y * p.y + m.x * p.z,
            m.y * p.x + m.x * p.y + d.z * p.z,
        )
    }

    /// Value at a point; rounding can make it slightly negative, which counts as 0.
    pub(super) fn value(&self, p: DVec3) -> f64 {
        (p.dot(self.times(p) + 2.0 * self.linear) + self.constant).max(0.0)
    }

    /// The point with the least value; `None` if it is not well defined, as on flat surfaces.
    pub(super) fn minimum(&self) -> Option<DVec3> {
        let columns = [DVec3::X, DVec3::Y, DVec3::Z].map(|axis| self.times(axis));
        let matrix = DMat3::from_cols(columns[0], columns[1], columns[2]);
        let scale = self.diagonal.element_sum() / 3.0;
        let determinant = matrix.determinant();
        // The smallest singular value relative to the others.
        (determinant > 1e-6 * scale.powi(3)).then(|| {
            let [x, y, z] = columns;
            let inverse = DMat3::from_cols(y.cross(z), z.cross(x), x.cross(y)).transpose();
            inverse * -self.linear / determinant
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_three_planes_is_their_common_point() {
        let corner = DVec3::new(0.3, -2.0, 5.0);
        let normals = [DVec3::X, DVec3::new(0.6, 0.8, 0.0), DVec3::new(0.0, -0.6, 0.8)];
        let mut sum = Quadric::default();
        for (i, &normal) in normals.iter().enumerate() {
            let plane = Quadric::of_plane(normal, corner, 1.0 + i as f64);
            let away = corner + DVec3::new(0.1, 0.2, -0.4);
            let distance = normal.dot(away - corner);
            assert!((plane.value(away) - (1.0 + i as f64) * distance.powi(2)).abs() < 1e-12);
            assert_eq!(plane.minimum(), None);
            sum.add(&plane);
        }
        assert!(sum.minimum().unwrap().distance(corner) < 1e-12);
        assert!(sum.value(corner) < 1e-12);
    }
}
