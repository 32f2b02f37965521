//! Tangent frames and the parallel transport between them.

use super::{Adjacency, Gauge, GeometryError};
use bytemuck::{Pod, Zeroable};
use glam::DVec3;
use rayon::prelude::*;

/// An edge has no direction in the tangent plane if its tangent component is shorter than this
/// fraction of its length.
const PARALLEL_TO_NORMAL: f64 = 1e-10;
/// Normals are treated as opposite if their sum is shorter than this.
const OPPOSITE: f64 = 1e-10;

/// An orthonormal, right-handed frame at a vertex: two tangent axes and the normal.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Frame {
    /// First tangent axis, the direction of angle zero.
    pub e1: DVec3,
    /// Second tangent axis, `normal x e1`.
    pub e2: DVec3,
    /// Unit normal.
    pub normal: DVec3,
}

impl Frame {
    /// The frame with unit normal `normal` and first axis along the tangent component of
    /// `direction`. `None` if that component is zero up to rounding.
    pub fn towards(normal: DVec3, direction: DVec3) -> Option<Self> {
        let tangent = direction.reject_from_normalized(normal);
        if is_along_normal(tangent.length_squared(), direction) {
            return None;
        }
        // A second projection restores orthogonality, which rounding destroys for steep directions.
        let e1 = tangent.normalize().reject_from_normalized(normal).normalize();
        Some(Self { e1, e2: normal.cross(e1), normal })
    }

    /// A frame for a vertex without a direction to any neighbour. The first axis is the tangent
    /// component of the coordinate axis farthest from the normal.
    fn arbitrary(normal: DVec3) -> Self {
        let axis = DVec3::AXES[normal.abs().min_position()];
        Self::towards(normal, axis).unwrap_or(Self { e1: DVec3::X, e2: DVec3::Y, normal: DVec3::Z })
    }

    /// The frame rotated by `angle` about its normal, from `e1` towards `e2`.
    pub fn turned(&self, angle: f64) -> Self {
        let (sine, cosine) = angle.sin_cos();
        Self { e1: cosine * self.e1 + sine * self.e2, e2: cosine * self.e2 - sine * self.e1, normal: self.normal }
    }

    /// Coefficients of a vector in space with respect to the two tangent axes.
    pub fn coefficients(&self, vector: DVec3) -> [f64; 2] {
        [self.e1.dot(vector), self.e2.dot(vector)]
    }

    /// The tangent vector in space with the given coefficients.
    pub fn vector(&self, [x, y]: [f64; 2]) -> DVec3 {
        x * self.e1 + y * self.e2
    }

    /// Parallel transport from `source` to this frame, as `(cos g, sin g)` of the transport angle
    /// `g`. A tangent vector with coefficients `v` in `source` has coefficients `R2(g) v` here,
    /// after the smallest rotation that maps the normal of `source` to this normal.
    ///
    /// Opposite normals have no unique smallest rotation. Then the rotation is by pi about the
    /// tangent axis perpendicular to `edge`, the vector between the two vertices in either
    /// direction: the limit of a sheet that bends along the edge. Transport in the reverse
    /// direction is the inverse.
    pub fn transport_from(&self, source: &Frame, edge: DVec3) -> [f64; 2] {
        let sum = self.normal + source.normal;
        let squared = sum.length_squared();
        let moved = if squared > OPPOSITE * OPPOSITE {
            // R = (2 h h^T - 1)(2 n n^T - 1); h is the unit bisector of the normals, n the source
            // normal.
            source.e1 - sum * (2.0 * self.normal.dot(source.e1) / squared)
        } else {
            let across = Self::towards(self.normal, edge).unwrap_or_else(|| Self::arbitrary(self.normal));
            let axis = across.e2;
            2.0 * axis.dot(source.e1) * axis - source.e1
        };
        self.coefficients(moved)
    }
}

/// True if a vector has no direction in the tangent plane: it is zero or parallel to the normal.
/// The first argument is the squared length of its tangent component.
pub(super) fn is_along_normal(squared_tangent_length: f64, vector: DVec3) -> bool {
    squared_tangent_length <= PARALLEL_TO_NORMAL * PARALLEL_TO_NORMAL * vector.length_squared()
}

/// Frames of all vertices. [`super::GaugeGraph::gauge_transform`] applies `Gauge::Angles`.
pub(super) fn frames(
    points: &[DVec3],
    normals: &[DVec3],
    adjacency: &Adjacency,
    gauge: &Gauge,
) -> Result<Vec<Frame>, GeometryError> {
    (0..points.len())
        .into_par_iter()
        .with_min_len(1024)
        .map(|vertex| {
            let normal = normals[vertex];
            let towards = |q: u32| Frame::towards(normal, points[q as usize] - points[vertex]);
            let neighbours = adjacency.neighbours_of(vertex);
            match gauge {
                Gauge::Neighbours(references) if !neighbours.is_empty() => {
                    let reference = references[vertex];
                    if !neighbours.contains(&reference) {
                        return Err(GeometryError::NotANeighbour { vertex, reference });
                    }
                    towards(reference).ok_or(GeometryError::ReferenceWithoutDirection { vertex, reference })
                }
                Gauge::Directions(directions) if !neighbours.is_empty() => {
                    Frame::towards(normal, directions[vertex].normalize_or_zero())
                        .ok_or(GeometryError::NoTangentDirection { vertex })
                }
                _ => Ok(neighbours.iter().find_map(|&q| towards(q)).unwrap_or_else(|| Frame::arbitrary(normal))),
            }
        })
        .collect()
}
