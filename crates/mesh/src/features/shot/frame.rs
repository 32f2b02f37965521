//! The SHOT local reference frame of a vertex.

use super::SupportPoint;
use crate::DVec3;
use crate::symmetric::symmetric_eigen;
use glam::DMat3;

/// Points closer to the dividing plane than this fraction of the radius are on neither side.
const ON_THE_PLANE: f64 = 1e-9;

/// A local reference frame: right-handed orthonormal axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShotFrame {
    /// Axis of the largest spread of the support.
    pub x: DVec3,
    /// `cross(z, x)`.
    pub y: DVec3,
    /// Axis of the smallest spread of the support. It is close to the normal if the surface is
    /// smooth on the scale of the radius.
    pub z: DVec3,
    /// Distance of the frame from ambiguity, from 0 to 1: the minimum of the gaps `(l1 - l2) / l1`
    /// and `(l2 - l3) / l1` between the eigenvalues and of the majorities `|n+ - n-| / (n+ + n-)`
    /// that decide the signs of `x` and `z`. For values near rounding (1e-12) the frame is
    /// arbitrary.
    pub reliability: f64,
}

impl ShotFrame {
    pub(super) fn new(support: &[SupportPoint], normal: DVec3) -> Self {
        let mut covariance = DMat3::ZERO;
        let mut mean = DVec3::ZERO;
        for point in support {
            let weight = 1.0 - point.distance;
            let weighted = weight * point.offset;
            mean += weighted;
            covariance +=
                DMat3::from_cols(point.offset.x * weighted, point.offset.y * weighted, point.offset.z * weighted);
        }
        let (values, axes) = symmetric_eigen(covariance);
        let (x, x_majority) = oriented(axes[0], support, mean, DVec3::ZERO);
        let (z, z_majority) = oriented(axes[2], support, mean, normal);
        let gap = |larger: f64, smaller: f64| {
            if values[0] > 0.0 { (larger - smaller) / values[0] } else { 0.0 }
        };
        Self {
            x,
            y: z.cross(x),
            z,
            reliability: [gap(values[0], values[1]), gap(values[1], values[2]), x_majority, z_majority]
                .into_iter()
                .fold(1.0, f64::min),
        }
    }

    /// Coordinates of a vector in the frame.
    pub fn coordinates(&self, vector: DVec3) -> [f64; 3] {
        [self.x.dot(vector), self.y.dot(vector), self.z.dot(vector)]
    }
}

/// The axis, oriented towards the side that contains more of the support, and that majority. In a
/// tie the side of the mean decides, then that of `last_resort`.
fn oriented(axis: DVec3, support: &[SupportPoint], mean: DVec3, last_resort: DVec3) -> (DVec3, f64) {
    let (mut above, mut below) = (0u32, 0u32);
    for point in support {
        let height = axis.dot(point.offset);
        above += u32::from(height > ON_THE_PLANE);
        below += u32::from(height < -ON_THE_PLANE);
    }
    let mean_height = axis.dot(mean);
    let turn_over = if above != below {
        above < below
    } else if mean_height.abs() > ON_THE_PLANE {
        mean_height < 0.0
    } else {
        axis.dot(last_resort) < 0.0
    };
    let majority = f64::from(above.abs_diff(below)) / f64::from((above + below).max(1));
    (if turn_over { -axis } else { axis }, majority)
}
