//! Remeshing: other triangulations of the same surface, with the place of every new vertex on the
//! original.
//!
//! Each remesher returns a [`Remeshed`]: the new mesh, and for every new vertex a [`SurfacePoint`] on
//! the original mesh, so that fields and labels can be carried over. Results depend on the
//! arguments alone; the same seed gives the same mesh on any number of threads.
//!
//! Any [`Mesh`] is accepted. Polygons are triangulated first, and faces that repeat a vertex are
//! dropped. Where the mesh is not an oriented manifold (edges with more than two faces, pinched
//! vertices, inconsistent orientations), the edits are skipped: those vertices stay.
//!
//! ```
//! use gemcnn_mesh::remesh::{Isotropic, MeshSize, carry_values, remesh};
//! use gemcnn_mesh::shapes::icosphere;
//! let sphere = icosphere(3)?;
//! let even = Isotropic { size: MeshSize::Vertices(400), ..Default::default() };
//! let remeshed = remesh(&sphere, &even, 7)?;
//! assert_eq!(remeshed.mesh.vertex_count(), 400);
//! let heights: Vec<f64> = sphere.vertices().iter().map(|v| v.z).collect();
//! let carried = carry_values(&remeshed.sources, 1, &heights);
//! assert!((carried[0] - remeshed.mesh.vertices()[0].z).abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod boxes;
pub(crate) mod cut;
pub(crate) mod isosurface;
mod nearest;
mod original;
mod quadric;
pub(crate) mod remesher;
mod sample;
mod size;
pub(crate) mod triangulation;

pub use nearest::{nearest_faces, nearest_points};
pub use sample::sample;
pub use size::MeshSize;
pub use subdivide::SubdivisionRule;

use glam::DVec3;
use serde::{Deserialize, Serialize};

use self::original::{Original, blend};
use self::triangulation::{NONE, Triangulation};
use crate::attribute::AttributeValues;
use crate::mesh::{Mesh, MeshError};
use crate::triangulate::triangle_corners;

/// A remesher with its settings.
pub trait Remesh {
    /// Remeshes a surface.
    ///
    /// # Errors
    /// A setting is out of range, or the remesher cannot treat the surface.
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError>;
}

/// Declares the remeshers. Each is a module with the name that stands in configurations, and a struct of its settings
/// that implements [`Remesh`].
macro_rules! remeshers {
    ($($module:ident: $settings:ident,)*) => {
        $(mod $module;
        pub use $module::$settings;)*

        /// A remesher with its settings, as it stands in a configuration: the field `kind` names the remesher
        /// in snake case, and the others are its settings.
        ///
        /// ```
        /// use gemcnn_mesh::remesh::{MeshSize, RemeshKind, Simplify, remesh};
        /// use gemcnn_mesh::shapes::icosphere;
        /// let kind = RemeshKind::from(Simplify { size: MeshSize::Ratio(0.5) });
        /// let simplified = remesh(&icosphere(2)?, &kind, 0)?;
        /// assert_eq!(simplified.mesh.vertex_count(), 81);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum RemeshKind {
            $(#[doc = concat!("[`", stringify!($settings), "`]")]
            $settings($settings),)*
        }

        impl RemeshKind {
            /// Names of all remeshers, as in configurations.
            pub const NAMES: &[&str] = &[$(stringify!($module)),*];
        }

        // The text is a part of the keys of cached meshes.
        impl std::fmt::Debug for RemeshKind {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$settings(settings) => settings.fmt(formatter),)*
                }
            }
        }

        impl Remesh for RemeshKind {
            fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
                match self {
                    $(Self::$settings(settings) => settings.remesh(mesh, seed),)*
                }
            }
        }

        $(impl From<$settings> for RemeshKind {
            fn from(settings: $settings) -> Self {
                Self::$settings(settings)
            }
        })*
    };
}

remeshers! {
    isotropic: Isotropic,
    simplify: Simplify,
    subdivide: Subdivide,
    refine_locally: RefineLocally,
    flip_randomly: FlipRandomly,
    jitter: Jitter,
    crop: Crop,
    resample: Resample,
    renumber: Renumber,
    sequence: Sequence,
}

/// Remeshes a surface.
///
/// # Errors
/// A setting is out of range, or the remesher cannot treat the surface.
pub fn remesh(mesh: &Mesh, remesher: &impl Remesh, seed: u64) -> Result<Remeshed, RemeshError> {
    remesher.remesh(mesh, seed)
}

/// Maximum number of vertices of a remeshed surface.
const MAX_VERTICES: f64 = (1 << 26) as f64;

/// Error of the remeshers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RemeshError {
    /// A parameter is out of range.
    #[error("{parameter} is {value}, but must be {allowed}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The given value.
        value: String,
        /// Description of the allowed values.
        allowed: &'static str,
    },
    /// Resampling needs a closed surface, on which inside and outside are defined.
    #[error(
        "the surface has {boundary_edges} edge(s) with an odd number of faces, so it has no inside: resampling needs a closed surface"
    )]
    Open {
        /// Number of edges with an odd number of faces.
        boundary_edges: usize,
    },
    /// Resampling finds nothing inside the surface.
    #[error(
        "no point of a lattice with {resolution} cells lies inside the surface: use a higher resolution, or another remesher for a surface without volume"
    )]
    TooThin {
        /// Lattice cells along the longest side of the bounding box.
        resolution: usize,
    },
    /// The result would have too many vertices.
    #[error("the result would have about {vertices:.0} vertices, more than {}: use a coarser setting", MAX_VERTICES)]
    TooLarge {
        /// Expected number of vertices.
        vertices: f64,
    },
    /// The result is not a valid mesh, because coordinates overflow.
    #[error("the result is not a valid mesh: {0}")]
    Mesh(#[from] MeshError),
}

/// A remeshed surface.
#[derive(Debug, Clone, PartialEq)]
pub struct Remeshed {
    /// The new mesh, with triangular faces.
    pub mesh: Mesh,
    /// Where each vertex of the new mesh lies on the original: the vertex itself, or the point
    /// nearest to it if the remesher moves vertices off the surface.
    pub sources: Vec<SurfacePoint>,
}

/// A point of the original surface: barycentric weights of three of its vertices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurfacePoint {
    /// Vertices of the original mesh, in general the corners of a triangle. A corner with weight 0
    /// may repeat another one.
    pub corners: [u32; 3],
    /// Barycentric weights of the corners: not negative, with sum 1 up to rounding.
    pub weights: [f64; 3],
}

impl SurfacePoint {
    /// A vertex of the original mesh.
    pub fn vertex(vertex: u32) -> Self {
        Self { corners: [vertex; 3], weights: [1.0, 0.0, 0.0] }
    }

    /// Position of the point, given the vertices of the original mesh.
    ///
    /// # Panics
    /// If a corner is not among the vertices.
    pub fn position(&self, vertices: &[DVec3]) -> DVec3 {
        blend(self.corners.map(|v| vertices[v as usize]), self.weights)
    }

    /// The corner with the largest weight; the first one of several.
    pub fn nearest_corner(&self) -> u32 {
        let heaviest = (1..3).fold(0, |best, i| if self.weights[i] > self.weights[best] { i } else { best });
        self.corners[heaviest]
    }

    /// The midpoint of two points of the same triangle.
    fn midpoint(&self, other: &Self) -> Self {
        weighted(&[(0.5, *self), (0.5, *other)]).unwrap_or(*self)
    }
}

/// The weighted mean of points of the same triangle; `None` if they have more than three corners
/// with a positive weight in common.
fn weighted(points: &[(f64, SurfacePoint)]) -> Option<SurfacePoint> {
    let mut corners = [NONE; 3];
    let mut weights = [0.0; 3];
    for (share, point) in points {
        for (&corner, &weight) in point.corners.iter().zip(&point.weights) {
            if share * weight <= 0.0 {
                continue;
            }
            let slot = (0..3).find(|&i| corners[i] == corner || corners[i] == NONE)?;
            corners[slot] = corner;
            weights[slot] += share * weight;
        }
    }
    let first = corners[0];
    (first != NONE)
        .then(|| SurfacePoint { corners: corners.map(|corner| if corner == NONE { first } else { corner }), weights })
}

/// Interpolates a field on the original mesh at the vertices of a remeshed one, given their sources.
/// `values` has `width` numbers for every vertex of the original mesh, and so has the result for every
/// source.
///
/// # Panics
/// If there are fewer than `width` values per vertex of the original mesh.
pub fn carry_values(sources: &[SurfacePoint], width: usize, values: &[f64]) -> Vec<f64> {
    let mut carried = Vec::with_capacity(width * sources.len());
    for source in sources {
        let rows = source.corners.map(|v| &values[v as usize * width..(v as usize + 1) * width]);
        let [u, v, w] = source.weights;
        carried.extend((0..width).map(|i| u * rows[0][i] + v * rows[1][i] + w * rows[2][i]));
    }
    carried
}

/// Carries one label per vertex of the original mesh to the vertices of a remeshed one, given their
/// sources: each takes the label of the corner with the largest weight.
///
/// # Panics
/// If there are fewer labels than vertices of the original mesh.
pub fn carry_labels<L: Copy>(sources: &[SurfacePoint], labels: &[L]) -> Vec<L> {
    sources.iter().map(|source| labels[source.nearest_corner() as usize]).collect()
}

/// Carries a column of values to the vertices of a remeshed mesh, given their sources: numbers with a fraction are
/// interpolated, integers are labels.
///
/// # Panics
/// If there are fewer values than vertices of the original mesh.
pub fn carry_attribute(sources: &[SurfacePoint], values: &AttributeValues) -> AttributeValues {
    let interpolated = || {
        let values: Vec<f64> = values.iter_f64().collect();
        carry_values(sources, 1, &values)
    };
    match values {
        AttributeValues::F64(_) => AttributeValues::F64(interpolated()),
        AttributeValues::F32(_) => AttributeValues::F32(interpolated().iter().map(|&value| value as f32).collect()),
        labels => {
            let corners: Vec<u32> = sources.iter().map(SurfacePoint::nearest_corner).collect();
            labels.gather(&corners)
        }
    }
}

impl Remeshed {
    /// The triangulated mesh itself: every vertex is its own source.
    fn identity(mesh: &Mesh) -> Result<Self, RemeshError> {
        let faces = triangle_corners(mesh).iter().collect();
        Ok(Self { mesh: Mesh::new(mesh.vertices().to_vec(), faces)?, sources: own_vertices(mesh).collect() })
    }

    /// Joins two remeshings: `self` from `original`, and `next` from `self.mesh`. The sources of the
    /// result are on `original`. They are exact if the vertices of the first mesh around a point
    /// lie in one triangle of the original, and otherwise the nearest points.
    ///
    /// ```
    /// use gemcnn_mesh::remesh::{MeshSize, Simplify, Subdivide, remesh};
    /// use gemcnn_mesh::shapes::icosphere;
    /// let sphere = icosphere(2)?;
    /// let finer = remesh(&sphere, &Subdivide::default(), 0)?;
    /// let next = remesh(&finer.mesh, &Simplify { size: MeshSize::Vertices(324) }, 0)?;
    /// let both = finer.then(&sphere, next);
    /// assert_eq!(both.sources.len(), 324);
    /// assert!(both.sources.iter().all(|s| s.corners.iter().all(|&v| v < 162)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If `next` is not a remeshing of `self.mesh`, or `self` not one of `original`.
    pub fn then(&self, original: &Mesh, next: Self) -> Self {
        let surface = Original::new(original);
        let source = |(point, &at): (&SurfacePoint, &DVec3)| {
            let corners: [(f64, SurfacePoint); 3] = std::array::from_fn(|i| {
                let corner = point.corners[i] as usize;
                (point.weights[i], self.sources[corner])
            });
            let nearest = self.sources[point.nearest_corner() as usize].nearest_corner();
            let mean = weighted(&corners);
            mean.filter(|mean| surface.has_triangle(mean))
                .or_else(|| {
                    let near = *surface.around(nearest).first()?;
                    Some(surface.surface_point(surface.walk(near, at).0))
                })
                .unwrap_or(SurfacePoint::vertex(nearest))
        };
        let sources = next.sources.iter().zip(next.mesh.vertices()).map(source);
        Self { sources: sources.collect(), mesh: next.mesh }
    }
}

/// Every vertex of a mesh as a point of its surface.
fn own_vertices(mesh: &Mesh) -> impl Iterator<Item = SurfacePoint> {
    (0..mesh.vertex_count() as u32).map(SurfacePoint::vertex)
}

/// Returns an error unless the parameter is `allowed`.
fn require(
    condition: bool,
    parameter: &'static str,
    value: impl ToString,
    allowed: &'static str,
) -> Result<(), RemeshError> {
    if condition {
        return Ok(());
    }
    Err(RemeshError::Parameter { parameter, value: value.to_string(), allowed })
}

/// Returns an error if a result would have too many vertices.
fn require_size(vertices: f64) -> Result<(), RemeshError> {
    if vertices <= MAX_VERTICES {
        return Ok(());
    }
    Err(RemeshError::TooLarge { vertices })
}

/// The mesh of an edited surface without its removed vertices. Copies of a cut vertex, which are
/// locked and have the same `origin`, become one vertex again.
fn finish(
    surface: &Triangulation,
    vertices: usize,
    locked: &[bool],
    origin: &[u32],
    source: impl Fn(usize) -> SurfacePoint,
) -> Result<Remeshed, RemeshError> {
    let mut joined = vec![NONE; vertices];
    let mut place = vec![NONE; surface.positions.len()];
    let mut positions = Vec::with_capacity(surface.vertex_count());
    let mut sources = Vec::with_capacity(surface.vertex_count());
    for (vertex, &position) in surface.positions.iter().enumerate() {
        if surface.outgoing[vertex] == NONE {
            continue;
        }
        let new = positions.len() as u32;
        place[vertex] = if locked[vertex] {
            let joined = &mut joined[origin[vertex] as usize];
            if *joined == NONE {
                *joined = new;
            }
            *joined
        } else {
            new
        };
        if place[vertex] == new {
            positions.push(position);
            sources.push(source(vertex));
        }
    }
    let faces = cut::faces(surface, |vertex| place[vertex as usize]);
    Ok(Remeshed { mesh: Mesh::new(positions, faces)?, sources })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_points_need_three_corners() {
        let point = |corners, weights| SurfacePoint { corners, weights };
        let a = point([4, 7, 9], [0.5, 0.5, 0.0]);
        let b = point([9, 4, 4], [1.0, 0.0, 0.0]);
        let mean = a.midpoint(&b);
        assert_eq!(mean, point([4, 7, 9], [0.25, 0.25, 0.5]));
        assert_eq!(mean.nearest_corner(), 9);
        let far = point([1, 2, 2], [0.5, 0.5, 0.0]);
        assert_eq!(weighted(&[(0.5, a), (0.5, far)]), None);
        assert_eq!(weighted(&[(1.0, a), (0.0, far)]), Some(point([4, 7, 4], [0.5, 0.5, 0.0])));
    }
}
