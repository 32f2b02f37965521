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
//! A tangent vector with coefficients `v` at `q` has coefficients `R2(g_pq) v` at `p`. If frames
//! rotate by angles `a_p`, `theta_pq` becomes `theta_pq - a_p` and `g_pq` becomes `g_pq - a_p +
//! a_q`.

mod adjacency;
mod angles;
mod error;
mod frames;
mod graph;
mod normals;
mod store;
mod subgraph;
mod weights;

pub use adjacency::Adjacency;
pub(crate) use angles::atan2;
pub use error::{GeometryError, NormalTrouble};
pub use frames::Frame;
pub use graph::GaugeGraph;
pub(crate) use graph::check_length;
pub use normals::vertex_normals;
pub(crate) use normals::{estimated_normals, of_moderate_size};
pub use store::StoreError;
pub(crate) use weights::{MIN_COSINE, fit_jets};
pub use weights::{NeighbourWeights, vertex_areas};

use glam::DVec3;

/// Weights of the face normals in a vertex normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormalWeighting {
    /// Area of the face.
    #[default]
    Area,
    /// Angle of the face at the vertex, as in the published implementation.
    CornerAngle,
}

/// Definition of the neighbours of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Neighbourhood {
    /// Vertices that share an edge.
    #[default]
    OneRing,
    /// Vertices at most `radius` apart in space, whether or not a face connects them.
    Radius {
        /// Largest distance between neighbours, in the units of the mesh.
        radius: f64,
        /// Maximum number of neighbours of a vertex. Two vertices are neighbours if each is among
        /// the `limit` nearest of the other, so that the relation is symmetric.
        limit: usize,
    },
    /// Vertices at most two edges apart, and vertices at most `radius` apart in space. Its extent
    /// follows the radius where the mesh is finer than the radius, and the mesh where it is coarser. Edges of
    /// a vertex with more than 64 neighbours do not count towards the second ring.
    Patch {
        /// Distance up to which vertices are neighbours, in the units of the mesh.
        radius: f64,
        /// Maximum number of neighbours of a vertex beyond its one-ring, as in
        /// [`Radius`](Self::Radius).
        limit: usize,
    },
}

impl Neighbourhood {
    /// The radius, if there is one.
    fn radius_mut(&mut self) -> Option<&mut f64> {
        match self {
            Self::OneRing => None,
            Self::Radius { radius, .. } | Self::Patch { radius, .. } => Some(radius),
        }
    }
}

/// Choice of the first frame axis at every vertex.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Gauge {
    /// Towards the first neighbour, in stored order, that has a direction in the tangent plane.
    #[default]
    FirstNeighbour,
    /// Towards the given neighbour of each vertex. Ignored at vertices without neighbours.
    Neighbours(Vec<u32>),
    /// The frame of [`Gauge::FirstNeighbour`], rotated by one angle per vertex.
    Angles(Vec<f64>),
    /// Along the tangent component of the given direction of each vertex, such as those of
    /// [`shot::gauge`](crate::features::shot::gauge). Ignored at vertices without neighbours.
    Directions(Vec<DVec3>),
}

/// Options of [`GaugeGraph::new`]. The defaults are those of the paper.
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
    /// Weights of the vertex normals.
    pub normals: NormalWeighting,
    /// Definition of the neighbours.
    pub neighbourhood: Neighbourhood,
    /// Weights of the neighbours in convolutions.
    pub weights: NeighbourWeights,
    /// Choice of the first frame axis.
    pub gauge: Gauge,
    /// Gives a vertex without a tangent plane, whose faces have no area or cancel, the mean normal of its neighbours
    /// (default false: such a vertex is an error). A piece of the mesh without any area has the normal z.
    pub estimate_normals: bool,
}
