//! Gauge geometry: normals, tangent frames, log map and parallel transport of a mesh.
//!
//! Conventions (vertex `p`, neighbour `q`, unit normal `n_p`, frame `e1_p, e2_p = n_p x e1_p`):
//!
//! | quantity | definition |
//! | --- | --- |
//! | radius | `r_pq = \|q - p\|` |
//! | neighbour angle | `theta_pq = atan2(e2_p . (q - p), e1_p . (q - p))`, the angle of the log map |
//! | transport | `g_pq = atan2(e2_p . R e1_q, e1_p . R e1_q)`, `R` the smallest rotation with `R n_q = n_p` |
//!
//! A tangent vector with coefficients `v` at `q` has coefficients `R2(g_pq) v` at `p`. When frames
//! turn by angles `a_p`, `theta_pq` becomes `theta_pq - a_p` and `g_pq` becomes `g_pq - a_p + a_q`.

mod adjacency;
mod angles;
mod error;
mod frames;
mod graph;
mod normals;
mod store;

pub use adjacency::Adjacency;
pub(crate) use angles::atan2;
pub use error::{GeometryError, NormalTrouble};
pub use frames::Frame;
pub use graph::GaugeGraph;
pub(crate) use graph::check_length;
pub(crate) use normals::of_moderate_size;
pub use normals::vertex_normals;
pub use store::StoreError;

use glam::DVec3;

/// How the normals of the faces around a vertex are weighted in its own normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormalWeighting {
    /// By the area of the face.
    #[default]
    Area,
    /// By the angle of the face's corner at the vertex, as the method's published code does.
    CornerAngle,
}

/// Which vertices are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Neighbourhood {
    /// Those that share an edge.
    #[default]
    OneRing,
    /// Those at most `radius` away in space, whatever the faces say.
    Radius {
        /// Largest distance of two neighbours.
        radius: f64,
        /// At most this many neighbours of one vertex: two vertices become neighbours when each is
        /// among the `limit` nearest of the other, so that the relation stays mutual.
        limit: usize,
    },
}

/// The choice of the first frame axis at every vertex.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Gauge {
    /// Towards the first neighbour in stored order whose direction is defined.
    #[default]
    FirstNeighbour,
    /// Towards the given neighbour of each vertex (ignored at vertices without neighbours).
    Neighbours(Vec<u32>),
    /// The frame of [`Gauge::FirstNeighbour`], turned by an angle for each vertex.
    Angles(Vec<f64>),
    /// Along the tangent part of the given direction of each vertex (ignored at vertices without
    /// neighbours), such as those of [`shot::gauge`](crate::features::shot::gauge).
    Directions(Vec<DVec3>),
}

/// All choices in the geometry of a mesh, with the defaults of the paper.
///
/// ```
/// use gemcnn_mesh::{shapes, GaugeGraph, GeometryOptions, NormalWeighting};
/// let options = GeometryOptions { normals: NormalWeighting::CornerAngle, ..Default::default() };
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &options)?;
/// assert_eq!(graph.edge_count(), 60);
/// # Ok::<(), gemcnn_mesh::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeometryOptions {
    /// Weights in the vertex normal.
    pub normals: NormalWeighting,
    /// Which vertices are neighbours.
    pub neighbourhood: Neighbourhood,
    /// First frame axis.
    pub gauge: Gauge,
}
