//! SHOT: signatures of histograms of orientations (Tombari, Salti and Di Stefano, *Unique Signatures
//! of Histograms for Local Surface Description*, 2010).
//!
//! Every vertex is described by the vertices within a radius: they give it a local reference frame
//! ([`frames`]), in which a histogram of their normals is taken ([`descriptors`], 352 scalars). Both
//! follow the mesh under rigid motion as long as the frame is unambiguous: where the surface around a
//! vertex has a symmetry, as on an icosahedron, no frame can be, and the result depends on rounding;
//! [`ShotFrame::reliability`] tells.

mod eigen;
mod frame;
mod histogram;

pub use frame::ShotFrame;
pub use histogram::DESCRIPTOR_LENGTH;

use super::FeatureField;
use crate::defects::degeneracy_and_area;
use crate::geometry::of_moderate_size;
use crate::{
    DVec3, Found, Gauge, GeometryError, Mesh, NormalWeighting, PointIndex, vertex_normals,
};
use histogram::histogram;
use rayon::prelude::*;

/// Default radius in units of the square root of the surface area.
const RADIUS_IN_ROOT_AREAS: f64 = 0.1;
/// Least default radius in units of the mean length of the faces' sides.
const RADIUS_IN_SIDES: f64 = 3.0;
/// A first frame axis whose tangent part is shorter than this is no direction to lay a gauge along.
const STEEP: f64 = 1e-3;

/// How to compute SHOT frames and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ShotOptions {
    /// Radius of the support; `None` for [`default_radius`].
    pub radius: Option<f64>,
    /// Weights in the vertex normals, which the histograms count.
    pub normals: NormalWeighting,
}

/// The radius of the support when none is given: a tenth of the square root of the surface area, and at
/// least three times the mean length of the faces' sides.
///
/// Area, unlike edge length, does not depend on how finely a shape is meshed, nor on its pose; a body of
/// 6,890 vertices has some 200 of them in such a ball. The second rule holds for coarse meshes, of
/// under about a thousand vertices, which would have too few.
pub fn default_radius(mesh: &Mesh) -> f64 {
    if let Some((moderate, scale)) = of_moderate_size(mesh) {
        return (default_radius(&moderate) / scale).min(f64::MAX);
    }
    let (mut area, mut length, mut sides) = (0.0, 0.0, 0.0f64);
    for (face, corners) in mesh.faces().iter().enumerate() {
        area += degeneracy_and_area(mesh, face).1;
        let next = corners.iter().cycle().skip(1);
        for (&from, &to) in corners.iter().zip(next) {
            length += mesh.vertices()[from as usize].distance(mesh.vertices()[to as usize]);
            sides += 1.0;
        }
    }
    (RADIUS_IN_ROOT_AREAS * area.sqrt()).max(RADIUS_IN_SIDES * length / sides.max(1.0))
}

/// The local reference frame of every vertex.
///
/// The axes are the eigenvectors of the covariance of the support about the vertex, weighted by
/// `radius - distance`: `x` for the largest eigenvalue, `z` for the smallest, `y = z x x`. The signs of
/// `x` and `z` are those on whose side more of the support lies; in a tie, on whose side its weighted
/// mean lies, and for `z` at last the side of the vertex normal.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::shapes;
/// let frames = shot::frames(&shapes::icosahedron(), &ShotOptions::default())?;
/// // Five neighbours all alike: nothing tells x from y.
/// assert!(frames.iter().all(|frame| frame.reliability < 1e-12));
/// # Ok::<(), gemcnn_mesh::GeometryError>(())
/// ```
///
/// # Errors
/// A radius that is negative or not finite, or a vertex without a normal.
pub fn frames(mesh: &Mesh, options: &ShotOptions) -> Result<Vec<ShotFrame>, GeometryError> {
    let surroundings = Surroundings::new(mesh, options)?;
    Ok((0..mesh.vertex_count())
        .into_par_iter()
        .map_init(Support::default, |support, vertex| {
            surroundings.gather(vertex, support);
            ShotFrame::new(&support.points, surroundings.normals[vertex])
        })
        .collect())
}

/// The SHOT descriptor of every vertex, `352x0`, of unit length.
///
/// In the [frame](frames) of the vertex the ball is cut into 8 sectors of azimuth, 2 of elevation
/// and 2 shells; each of the 32 parts holds a histogram of 11 bins over the cosine between the frame's
/// `z` axis and the normals of the vertices there. A vertex adds to the two nearest bins in each of the
/// four dimensions, with weights linear in azimuth, elevation, distance and cosine. Part
/// `(azimuth * 2 + elevation) * 2 + shell` has the scalars from `11 * part`. A vertex with nothing
/// around it has zeros.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::shapes;
/// let field = shot::descriptors(&shapes::icosphere(2)?, &ShotOptions::default())?;
/// assert_eq!(field.kind, [(352, 0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`frames`].
pub fn descriptors(mesh: &Mesh, options: &ShotOptions) -> Result<FeatureField, GeometryError> {
    let surroundings = Surroundings::new(mesh, options)?;
    let mut values = vec![0.0; DESCRIPTOR_LENGTH * mesh.vertex_count()];
    values
        .par_chunks_exact_mut(DESCRIPTOR_LENGTH)
        .enumerate()
        .for_each_init(Support::default, |support, (vertex, row)| {
            surroundings.gather(vertex, support);
            let frame = ShotFrame::new(&support.points, surroundings.normals[vertex]);
            histogram(&frame, &support.points, row);
        });
    Ok(FeatureField {
        kind: vec![(DESCRIPTOR_LENGTH, 0)],
        values,
    })
}

/// The gauge of SHOT frames: the first axis of every vertex lies along the tangent part of its SHOT `x`
/// axis, or of its `y` axis where `x` is along the normal.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let gauge = shot::gauge(&mesh, &ShotOptions::default())?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions { gauge, ..Default::default() })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`frames`].
pub fn gauge(mesh: &Mesh, options: &ShotOptions) -> Result<Gauge, GeometryError> {
    let normals = vertex_normals(mesh, options.normals)?;
    let direction = |(frame, normal): (ShotFrame, DVec3)| {
        let is_steep = frame.x.reject_from_normalized(normal).length() < STEEP;
        if is_steep { frame.y } else { frame.x }
    };
    let frames = frames(mesh, options)?;
    Ok(Gauge::Directions(
        frames.into_iter().zip(normals).map(direction).collect(),
    ))
}

/// Where the support of any vertex is found.
struct Surroundings {
    points: Vec<DVec3>,
    normals: Vec<DVec3>,
    /// Whether a vertex belongs to a face: others have no normal and are in no support.
    used: Vec<bool>,
    radius: f64,
    index: PointIndex,
}

/// The vertices around one vertex.
#[derive(Default)]
struct Support {
    found: Vec<Found>,
    points: Vec<SupportPoint>,
}

/// A vertex of the support, off the centre.
struct SupportPoint {
    /// From the centre, in units of the radius.
    offset: DVec3,
    /// Length of the offset, over 0 and at most 1.
    distance: f64,
    normal: DVec3,
}

impl Surroundings {
    fn new(mesh: &Mesh, options: &ShotOptions) -> Result<Self, GeometryError> {
        let radius = options.radius.unwrap_or_else(|| default_radius(mesh));
        if !(radius.is_finite() && radius >= 0.0) {
            return Err(GeometryError::BadRadius { radius });
        }
        let normals = vertex_normals(mesh, options.normals)?;
        let (points, radius) = match of_moderate_size(mesh) {
            Some((moderate, scale)) => (moderate.into_parts().0, radius * scale),
            None => (mesh.vertices().to_vec(), radius),
        };
        let mut used = vec![false; points.len()];
        for &vertex in mesh.faces().corners() {
            used[vertex as usize] = true;
        }
        Ok(Self {
            index: PointIndex::new(&points),
            points,
            normals,
            used,
            radius,
        })
    }

    /// Replaces the content of `support` with the vertices around `vertex`.
    fn gather(&self, vertex: usize, support: &mut Support) {
        let centre = self.points[vertex];
        self.index
            .within(centre, self.radius, usize::MAX, &mut support.found);
        support.points.clear();
        for found in &support.found {
            let point = found.point as usize;
            let offset = (self.points[point] - centre) / self.radius;
            let distance = offset.length();
            if self.used[point] && distance > 0.0 {
                support.points.push(SupportPoint {
                    offset,
                    distance: distance.min(1.0),
                    normal: self.normals[point],
                });
            }
        }
    }
}
