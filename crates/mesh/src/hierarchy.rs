//! Graph hierarchies: increasingly coarse gauge graphs of a mesh, and the clusters that map each
//! level to the next.
//!
//! A coarser level keeps some vertices of the previous level, chosen by farthest-point sampling,
//! together with their frames. Its neighbourhoods are balls in space, because a coarser level has
//! no faces. Every vertex of the previous level belongs to the cluster of its nearest
//! representative and stores the parallel transport to it.

use crate::classes::bucket;
use crate::farthest::farthest_points;
use crate::geometry::atan2;
use crate::{Adjacency, DVec3, Frame, GaugeGraph, GeometryError, GeometryOptions, Mesh, NeighbourWeights, PointIndex};

/// Tolerance in `ratio * count`, so that 0.1 of 30 vertices is 3 despite rounding.
const ROUNDING: f64 = 1e-9;

/// Options of a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchyOptions {
    /// Geometry of the finest level, which contains all vertices of the mesh. All levels use its
    /// frames and its weights of neighbours.
    pub geometry: GeometryOptions,
    /// For each coarser level, the fraction of the vertices of the previous level to keep, in (0,
    /// 1]. The number of vertices is rounded up.
    pub ratios: Vec<f64>,
    /// Neighbourhood radius of each coarser level, in the units of the mesh.
    pub radii: Vec<f64>,
    /// Maximum number of neighbours on the coarser levels, as in
    /// [`Neighbourhood::Radius`](crate::Neighbourhood::Radius).
    pub neighbour_limit: usize,
}

impl Default for HierarchyOptions {
    /// Only the finest level, and no neighbour limit.
    fn default() -> Self {
        Self {
            geometry: GeometryOptions::default(),
            ratios: Vec::new(),
            radii: Vec::new(),
            neighbour_limit: usize::MAX,
        }
    }
}

/// Error of the functions that build a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HierarchyError {
    /// The mesh has no vertices.
    #[error("a mesh without vertices has no hierarchy")]
    NoVertices,
    /// The numbers of ratios and radii differ.
    #[error("{ratios} ratio(s) and {radii} radius(es) given; each coarser level needs one of each")]
    Unpaired {
        /// Number of ratios.
        ratios: usize,
        /// Number of radii.
        radii: usize,
    },
    /// A ratio is outside (0, 1].
    #[error("the ratio of level {level} is {ratio}, but must be above 0 and at most 1")]
    BadRatio {
        /// Level index; 0 is the finest level.
        level: usize,
        /// The invalid ratio.
        ratio: f64,
    },
    /// The number of positions differs from the number of vertices of the graph.
    #[error("the graph has {vertices} vertices, but {positions} positions were given")]
    Positions {
        /// Number of vertices of the graph.
        vertices: usize,
        /// Number of positions.
        positions: usize,
    },
    /// The gauge geometry of a level cannot be computed.
    #[error("level {level}: {source}")]
    Geometry {
        /// Level index; 0 is the finest level.
        level: usize,
        /// Error of the geometry of that level.
        source: GeometryError,
    },
    /// Levels or clusters given as parts are inconsistent.
    #[error("inconsistent levels: {problem}")]
    BadLevels {
        /// The inconsistency and its location.
        problem: String,
    },
}

/// One level of a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Gauge graph of the vertices of this level.
    pub graph: GaugeGraph,
    /// Indices of these vertices in the mesh, in ascending order.
    pub vertices: Vec<u32>,
    /// Clusters of the vertices of the previous level; `None` on the finest level.
    pub clusters: Option<Clusters>,
}

/// Clusters of the vertices of a finer level, one for each vertex of the coarser level.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    offsets: Vec<u32>,
    members: Vec<u32>,
    cluster_of: Vec<u32>,
    transport: Vec<f64>,
}

/// A hierarchy of gauge graphs of a mesh, from fine to coarse.
///
/// ```
/// use gemcnn_mesh::{Hierarchy, HierarchyOptions, shapes};
/// let options = HierarchyOptions {
///     ratios: vec![0.25, 0.25],
///     radii: vec![0.5, 1.0],
///     ..Default::default()
/// };
/// let hierarchy = Hierarchy::new(&shapes::icosphere(3)?, &options)?;
/// let sizes: Vec<usize> = hierarchy.levels().iter().map(|level| level.vertices.len()).collect();
/// assert_eq!(sizes, [642, 161, 41]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Hierarchy {
    levels: Vec<Level>,
}

impl Hierarchy {
    /// Computes the finest level from the mesh and each coarser level from the previous one.
    ///
    /// # Errors
    /// The mesh has no vertices, a ratio is outside (0, 1], the numbers of radii and ratios differ,
    /// or the geometry of a level cannot be computed.
    pub fn new(mesh: &Mesh, options: &HierarchyOptions) -> Result<Self, HierarchyError> {
        let graph =
            GaugeGraph::new(mesh, &options.geometry).map_err(|source| HierarchyError::Geometry { level: 0, source })?;
        Self::over(graph, mesh.vertices(), options)
    }

    /// Uses a given graph with any frames, and the positions of its vertices, as the finest level,
    /// and computes each coarser level from the previous one. `options.geometry` is ignored.
    ///
    /// # Errors
    /// As [`new`](Self::new), or the numbers of positions and vertices differ.
    pub fn over(graph: GaugeGraph, points: &[DVec3], options: &HierarchyOptions) -> Result<Self, HierarchyError> {
        if points.is_empty() {
            return Err(HierarchyError::NoVertices);
        }
        options.check()?;
        if points.len() != graph.vertex_count() {
            return Err(HierarchyError::Positions { vertices: graph.vertex_count(), positions: points.len() });
        }
        let mut points = points.to_vec();
        let mut levels = Self::from(graph).levels;
        for (index, (&ratio, &radius)) in options.ratios.iter().zip(&options.radii).enumerate() {
            let finer = &levels[index];
            let (level, kept) = coarsen(finer, &points, ratio, radius, options.neighbour_limit)
                .map_err(|source| HierarchyError::Geometry { level: index + 1, source })?;
            points = kept;
            levels.push(level);
        }
        Ok(Self { levels })
    }

    /// Creates a hierarchy from its levels, as computed by [`new`](Self::new) or read from a file.
    ///
    /// # Errors
    /// [`HierarchyError::NoVertices`] if there are no levels, [`HierarchyError::BadLevels`] if a
    /// level is inconsistent with the previous one.
    pub fn from_levels(levels: Vec<Level>) -> Result<Self, HierarchyError> {
        let bad = |level: usize, what: &str| HierarchyError::BadLevels { problem: format!("level {level} {what}") };
        let Some(finest) = levels.first() else { return Err(HierarchyError::NoVertices) };
        let all = 0..finest.graph.vertex_count() as u32;
        if finest.clusters.is_some() || !finest.vertices.iter().copied().eq(all) {
            return Err(bad(0, "does not contain all vertices"));
        }
        for (index, level) in levels.iter().enumerate() {
            if level.vertices.is_empty() {
                return Err(HierarchyError::NoVertices);
            }
            if level.vertices.len() != level.graph.vertex_count() {
                return Err(bad(index, "has a graph with a different number of vertices"));
            }
        }
        for (index, pair) in levels.windows(2).enumerate() {
            let [finer, coarser] = pair else { continue };
            let level = index + 1;
            let rising = coarser.vertices.is_sorted_by(|a, b| a < b);
            let kept = |vertex| finer.vertices.binary_search(vertex).is_ok();
            if !rising || !coarser.vertices.iter().all(kept) {
                return Err(bad(level, "has vertices that the previous level does not have"));
            }
            let fits = coarser.clusters.as_ref().is_some_and(|clusters| {
                clusters.len() == coarser.vertices.len() && clusters.cluster_of.len() == finer.vertices.len()
            });
            if !fits {
                return Err(bad(level, "has no clusters of the previous level"));
            }
        }
        Ok(Self { levels })
    }

    /// The levels from fine to coarse; there is at least one.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The same, owned.
    pub fn into_levels(self) -> Vec<Level> {
        self.levels
    }

    /// The graph of the finest level.
    pub fn graph(&self) -> &GaugeGraph {
        &self.levels[0].graph
    }
}

impl From<GaugeGraph> for Hierarchy {
    /// A hierarchy of one level.
    fn from(graph: GaugeGraph) -> Self {
        let vertices = (0..graph.vertex_count() as u32).collect();
        Self { levels: vec![Level { graph, vertices, clusters: None }] }
    }
}

impl HierarchyOptions {
    fn check(&self) -> Result<(), HierarchyError> {
        let (ratios, radii) = (&self.ratios, &self.radii);
        if ratios.len() != radii.len() {
            return Err(HierarchyError::Unpaired { ratios: ratios.len(), radii: radii.len() });
        }
        if let Some(at) = ratios.iter().position(|&ratio| !(ratio > 0.0 && ratio <= 1.0)) {
            return Err(HierarchyError::BadRatio { level: at + 1, ratio: ratios[at] });
        }
        Ok(())
    }
}

/// Computes the next level and the positions of its vertices.
fn coarsen(
    finer: &Level,
    points: &[DVec3],
    ratio: f64,
    radius: f64,
    neighbour_limit: usize,
) -> Result<(Level, Vec<DVec3>), GeometryError> {
    let count = (ratio * points.len() as f64 - ROUNDING).ceil().max(1.0) as usize;
    let mut representatives = farthest_points(points, count, 0);
    representatives.sort_unstable();
    let kept = select(points, &representatives);
    let frames = select(finer.graph.frames(), &representatives);
    let clusters = Clusters::nearest(points, finer.graph.frames(), &representatives);
    let adjacency = Adjacency::within_radius(&kept, radius, neighbour_limit)?;
    let graph = match finer.graph.weights() {
        NeighbourWeights::Count => GaugeGraph::with_frames(&kept, frames, adjacency)?,
        weights => {
            let mut areas = vec![0.0; kept.len()];
            for (&cluster, area) in clusters.cluster_of.iter().zip(finer.graph.areas()) {
                areas[cluster as usize] += area;
            }
            GaugeGraph::weighted(&kept, frames, adjacency, weights, areas, Some(radius))?
        }
    };
    let level = Level { graph, vertices: select(&finer.vertices, &representatives), clusters: Some(clusters) };
    Ok((level, kept))
}

/// Gathers the values of the given vertices.
fn select<T: Copy>(values: &[T], vertices: &[u32]) -> Vec<T> {
    vertices.iter().map(|&vertex| values[vertex as usize]).collect()
}

impl Clusters {
    /// Assigns every point to its nearest representative, the lower one in ties. A representative
    /// belongs to its own cluster even if another one has the same position, so that no cluster is
    /// empty.
    fn nearest(points: &[DVec3], frames: &[Frame], representatives: &[u32]) -> Self {
        let index = PointIndex::new(&select(points, representatives));
        let mut cluster_of: Vec<u32> =
            points.iter().map(|&point| index.nearest(point).map_or(0, |found| found.point)).collect();
        for (cluster, &representative) in representatives.iter().enumerate() {
            cluster_of[representative as usize] = cluster as u32;
        }
        let transport = |(fine, &cluster): (usize, &u32)| {
            let coarse = representatives[cluster as usize] as usize;
            if fine == coarse {
                return 0.0;
            }
            let edge = points[fine] - points[coarse];
            let [x, y] = frames[coarse].transport_from(&frames[fine], edge);
            atan2(y, x)
        };
        let transport = cluster_of.iter().enumerate().map(transport).collect();
        let by_cluster = cluster_of.iter().copied().zip(0u32..);
        let (offsets, members) = bucket(representatives.len(), by_cluster);
        Self { offsets, members, cluster_of, transport }
    }

    /// Creates clusters from the cluster index of each vertex of the finer level and the transport
    /// angle from that vertex to the representative.
    ///
    /// # Errors
    /// [`HierarchyError::BadLevels`] if a cluster index is out of range, a cluster is empty, or the
    /// transport is not one finite angle per vertex.
    pub fn new(count: usize, cluster_of: Vec<u32>, transport: Vec<f64>) -> Result<Self, HierarchyError> {
        let bad = |problem: String| Err(HierarchyError::BadLevels { problem });
        if let Some(other) = cluster_of.iter().find(|&&of| of as usize >= count) {
            return bad(format!("cluster index {other} is out of range: there are {count} clusters"));
        }
        if transport.len() != cluster_of.len() || !transport.iter().all(|t| t.is_finite()) {
            return bad("clusters need one finite transport angle per vertex".into());
        }
        let by_cluster = cluster_of.iter().copied().zip(0u32..);
        let (offsets, members) = bucket(count, by_cluster);
        if let Some(empty) = offsets.windows(2).position(|pair| pair[0] == pair[1]) {
            return bad(format!("cluster {empty} has no vertices"));
        }
        Ok(Self { offsets, members, cluster_of, transport })
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are no clusters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of each cluster in [`members`](Self::members), followed by the number of finer
    /// vertices.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Vertices of the finer level, grouped by cluster and ascending within each cluster.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Cluster of each vertex of the finer level.
    pub fn cluster_of(&self) -> &[u32] {
        &self.cluster_of
    }

    /// Transport angle from each vertex of the finer level to the representative of its cluster.
    pub fn transport(&self) -> &[f64] {
        &self.transport
    }
}
