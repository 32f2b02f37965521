//! Tangent frames and the transport between two of them.

use super::{Adjacency, Gauge, GeometryError};
use bytemuck::{Pod, Zeroable};
use glam::DVec3;
use rayon::prelude::*;

/// An edge whose part in the tangent plane is shorter than this fraction of its length has no
/// direction there.
const PARALLEL_TO_NORMAL: f64 = 1e-10;
/// Normals whose sum is shorter than this are taken as opposite.
const OPPOSITE: f64 = 1e-10;

/// An orthonormal, right-handed frame at a vertex: two tangent axes and the normal.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Frame {
    /// First tangent axis, where angles are zero.
    pub e1: DVec3,
    /// Second tangent axis, `normal x e1`.
    pub e2: DVec3,
    /// Unit normal.
    pub normal: DVec3,
}

impl Frame {
    /// The frame with normal `normal` (of unit length) and first axis along the tangent part of
    /// `direction`; `None` if that part is nothing but rounding.
    pub fn towards(normal: DVec3, direction: DVec3) -> Option<Self> {
        let tangent = direction.reject_from_normalized(normal);
        if is_along_normal(tangent.length_squared(), direction) {
            return None;
        }
        // A second projection restores the right angle that a steep direction loses to rounding.
        let e1 = tangent
            .normalize()
            .reject_from_normalized(normal)
            .normalize();
        Some(Self {
            e1,
            e2: normal.cross(e1),
            normal,
        })
    }

    /// A frame for a vertex that no neighbour gives a direction to: the first axis is the tangent
    /// part of the coordinate axis that is furthest from the normal.
    fn anyhow(normal: DVec3) -> Self {
        let axis = DVec3::AXES[normal.abs().min_position()];
        Self::towards(normal, axis).unwrap_or(Self {
            e1: DVec3::X,
            e2: DVec3::Y,
            normal: DVec3::Z,
        })
    }

    /// The frame turned by `angle` about its normal, from `e1` towards `e2`.
    pub fn turned(&self, angle: f64) -> Self {
        let (sine, cosine) = angle.sin_cos();
        Self {
            e1: cosine * self.e1 + sine * self.e2,
            e2: cosine * self.e2 - sine * self.e1,
            normal: self.normal,
        }
    }

    /// Coefficients of a vector of space in the two tangent axes.
    pub fn coefficients(&self, vector: DVec3) -> [f64; 2] {
        [self.e1.dot(vector), self.e2.dot(vector)]
    }

    /// The tangent vector of space with the given coefficients.
    pub fn vector(&self, [x, y]: [f64; 2]) -> DVec3 {
        x * self.e1 + y * self.e2
    }

    /// `(cos g, sin g)` of the transport angle `g`: a tangent vector with coefficients `v` in `source`
    /// has coefficients `R2(g) v` here, after the smallest rotation that takes the one normal to the
    /// other.
    ///
    /// Opposite normals have no smallest rotation. Then it is the half turn about the tangent axis
    /// at right angles to `edge`, the vector between the two vertices in either direction: the limit
    /// of a sheet that bends along the edge. Transport back is its inverse.
    pub fn transport_from(&self, source: &Frame, edge: DVec3) -> [f64; 2] {
        let sum = self.normal + source.normal;
        let squared = sum.length_squared();
        let moved = if squared > OPPOSITE * OPPOSITE {
            // R = (2 h h^T - 1)(2 n n^T - 1), h the unit bisector of the normals, n the source's.
            source.e1 - sum * (2.0 * self.normal.dot(source.e1) / squared)
        } else {
            let across =
                Self::towards(self.normal, edge).unwrap_or_else(|| Self::anyhow(self.normal));
            let axis = across.e2;
            2.0 * axis.dot(source.e1) * axis - source.e1
        };
        self.coefficients(moved)
    }
}

/// Whether a vector has no direction in the tangent plane, given the squared length of its part
/// there: it is along the normal, or zero.
pub(super) fn is_along_normal(squared_tangent_length: f64, vector: DVec3) -> bool {
    squared_tangent_length <= PARALLEL_TO_NORMAL * PARALLEL_TO_NORMAL * vector.length_squared()
}

/// Frames of all vertices; `Gauge::Angles` is left to [`super::GaugeGraph::gauge_transform`].
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
                    towards(reference)
                        .ok_or(GeometryError::ReferenceWithoutDirection { vertex, reference })
                }
                Gauge::Directions(directions) if !neighbours.is_empty() => {
                    Frame::towards(normal, directions[vertex].normalize_or_zero())
                        .ok_or(GeometryError::NoTangentDirection { vertex })
                }
                _ => Ok(neighbours
                    .iter()
                    .find_map(|&q| towards(q))
                    .unwrap_or_else(|| Frame::anyhow(normal))),
            }
        })
        .collect()
}
