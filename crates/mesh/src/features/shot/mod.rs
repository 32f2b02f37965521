//! SHOT: signatures of histograms of orientations (Tombari, Salti and Di Stefano, *Unique Signatures
//! of Histograms for Local Surface Description*, 2010).
//!
//! The support of a vertex is the set of vertices within a radius. It defines a local reference frame ([`frames`]) and,
//! in that frame, a histogram of normals ([`descriptors`], 352 scalars). Both are equivariant under rigid motion if the
//! frame is unambiguous. If the surface around a vertex is symmetric, as on an icosahedron, no frame is unique and the
//! result depends on rounding; [`ShotFrame::reliability`] measures this. A vertex whose faces have no area takes the
//! mean normal of its neighbours.

mod frame;
mod histogram;

pub use frame::ShotFrame;
pub use histogram::DESCRIPTOR_LENGTH;

use super::FeatureField;
use crate::defects::degeneracy_and_area;
use crate::geometry::{estimated_normals, of_moderate_size};
use crate::{DVec3, Gauge, GeometryError, Mesh, Neighbour, NormalWeighting, PointIndex};
use histogram::histogram;
use rayon::prelude::*;

/// Default radius in units of the square root of the surface area.
const RADIUS_IN_ROOT_AREAS: f64 = 0.1;
/// Minimum of the default radius in units of the mean side length of the faces.
const RADIUS_IN_SIDES: f64 = 3.0;
/// A frame axis with a shorter tangent component than this does not define a gauge.
const STEEP: f64 = 1e-3;

/// Options of SHOT frames and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ShotOptions {
    /// Radius of the support; `None` selects [`default_radius`].
    pub radius: Option<f64>,
    /// Weights of the vertex normals, which enter the histograms.
    pub normals: NormalWeighting,
}

/// Default radius of the support: a tenth of the square root of the surface area, and at least
/// three times the mean side length of the faces.
///
/// Unlike the edge length, the area does not depend on the resolution of the mesh or on the pose of
/// the shape. On a body of 6,890 vertices such a ball contains about 200 vertices. The second rule
/// applies to coarse meshes of under about a thousand vertices, where the ball would contain too
/// few.
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
/// `radius - distance`: `x` has the largest eigenvalue, `z` the smallest, and `y = cross(z, x)`.
/// The axes `x` and `z` point to the side that contains more of the support. In a tie they point to
/// the side of its weighted mean; the last criterion for `z` is the side of the vertex normal.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::shapes;
/// let frames = shot::frames(&shapes::icosahedron(), &ShotOptions::default())?;
/// // The five neighbours are equivalent: x and y are ambiguous.
/// assert!(frames.iter().all(|frame| frame.reliability < 1e-12));
/// # Ok::<(), gemcnn_mesh::GeometryError>(())
/// ```
///
/// # Errors
/// The radius is negative or not finite.
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
/// In the [frame](frames) of the vertex, the ball is divided into 8 sectors of azimuth, 2 of
/// elevation and 2 shells. Each of the 32 parts has a histogram of 11 bins over the cosine between
/// the `z` axis and the normals of the vertices in that part. A vertex contributes to the two
/// nearest bins in each of the four dimensions, with weights linear in azimuth, elevation, distance
/// and cosine. Part `(azimuth * 2 + elevation) * 2 + shell` starts at index `11 * part`. The
/// descriptor of a vertex with an empty support is zero.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::shapes;
/// let field = shot::descriptors(&shapes::icosphere(2)?, &ShotOptions::default())?;
/// assert_eq!(field.kind, [(352, 0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn descriptors(mesh: &Mesh, options: &ShotOptions) -> Result<FeatureField, GeometryError> {
    let surroundings = Surroundings::new(mesh, options)?;
    let mut values = vec![0.0; DESCRIPTOR_LENGTH * mesh.vertex_count()];
    values.par_chunks_exact_mut(DESCRIPTOR_LENGTH).enumerate().for_each_init(
        Support::default,
        |support, (vertex, row)| {
            surroundings.gather(vertex, support);
            let frame = ShotFrame::new(&support.points, surroundings.normals[vertex]);
            histogram(&frame, &support.points, row);
        },
    );
    Ok(FeatureField { kind: vec![(DESCRIPTOR_LENGTH, 0)], values })
}

/// The gauge of the SHOT frames: the first axis of every vertex is the tangent component of its
/// SHOT `x` axis, or of its `y` axis if `x` is parallel to the normal.
///
/// ```
/// use gemcnn_mesh::features::shot::{self, ShotOptions};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let gauge = shot::gauge(&mesh, &ShotOptions::default())?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions { gauge, ..Default::default() })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gauge(mesh: &Mesh, options: &ShotOptions) -> Result<Gauge, GeometryError> {
    let normals = estimated_normals(mesh, options.normals)?;
    let direction = |(frame, normal): (ShotFrame, DVec3)| {
        let is_steep = frame.x.reject_from_normalized(normal).length() < STEEP;
        if is_steep { frame.y } else { frame.x }
    };
    let frames = frames(mesh, options)?;
    Ok(Gauge::Directions(frames.into_iter().zip(normals).map(direction).collect()))
}

/// Spatial index that finds the support of a vertex.
struct Surroundings {
    points: Vec<DVec3>,
    normals: Vec<DVec3>,
    /// For each vertex, true if a face uses it. Others are not part of any support.
    used: Vec<bool>,
    radius: f64,
    index: PointIndex,
}

/// The support of one vertex.
#[derive(Default)]
struct Support {
    found: Vec<Neighbour>,
    points: Vec<SupportPoint>,
}

/// A vertex of the support other than the centre.
struct SupportPoint {
    /// Offset from the centre, in units of the radius.
    offset: DVec3,
    /// Length of the offset, in (0, 1].
    distance: f64,
    normal: DVec3,
}

impl Surroundings {
    fn new(mesh: &Mesh, options: &ShotOptions) -> Result<Self, GeometryError> {
        let radius = options.radius.unwrap_or_else(|| default_radius(mesh));
        if !(radius.is_finite() && radius >= 0.0) {
            return Err(GeometryError::BadRadius { radius });
        }
        let normals = estimated_normals(mesh, options.normals)?;
        let (points, radius) = match of_moderate_size(mesh) {
            Some((moderate, scale)) => (moderate.into_parts().0, radius * scale),
            None => (mesh.vertices().to_vec(), radius),
        };
        let mut used = vec![false; points.len()];
        for &vertex in mesh.faces().corners() {
            used[vertex as usize] = true;
        }
        Ok(Self { index: PointIndex::new(&points), points, normals, used, radius })
    }

    /// Replaces the contents of `support` by the support of `vertex`.
    fn gather(&self, vertex: usize, support: &mut Support) {
        let centre = self.points[vertex];
        self.index.within(centre, self.radius, usize::MAX, &mut support.found);
        support.points.clear();
        for found in &support.found {
            let point = found.point as usize;
            let offset = (self.points[point] - centre) / self.radius;
            let distance = offset.length();
            if self.used[point] && distance > 0.0 {
                support.points.push(SupportPoint { offset, distance: distance.min(1.0), normal: self.normals[point] });
            }
        }
    }
}
