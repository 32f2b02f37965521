//! Graph hierarchies: coarser and coarser gauge graphs of a mesh, with the clusters that lead from one
//! to the next.
//!
//! A coarser level keeps some vertices of the level before, chosen by farthest-point sampling, with
//! their frames. Its neighbourhoods are balls in space, since the faces are lost; every vertex of the
//! level before joins the cluster of its nearest representative, and knows the transport to it.

use crate::classes::bucket;
use crate::geometry::atan2;
use crate::{
    Adjacency, DVec3, Frame, GaugeGraph, GeometryError, GeometryOptions, Mesh, PointIndex,
};

/// Slack in `ratio * count`, so that 0.1 of 30 vertices is 3 whatever the rounding.
const ROUNDING: f64 = 1e-9;

/// How to make a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchyOptions {
    /// Geometry of the finest level, which has all vertices of the mesh; its frames are those of all
    /// levels.
    pub geometry: GeometryOptions,
    /// For each coarser level the part of the vertices of the level before that it keeps, above 0 and
    /// at most 1. The number of vertices is rounded up.
    pub ratios: Vec<f64>,
    /// Radius of the neighbourhoods on each coarser level.
    pub radii: Vec<f64>,
    /// Most neighbours on the coarser levels, as in
    /// [`Neighbourhood::Radius`](crate::Neighbourhood::Radius).
    pub neighbour_limit: usize,
}

impl Default for HierarchyOptions {
    /// The finest level only, and no limit.
    fn default() -> Self {
        Self {
            geometry: GeometryOptions::default(),
            ratios: Vec::new(),
            radii: Vec::new(),
            neighbour_limit: usize::MAX,
        }
    }
}

/// Why there is no hierarchy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HierarchyError {
    /// A mesh without vertices, where every level would be empty.
    #[error("a mesh without vertices has no hierarchy")]
    NoVertices,
    /// Not one radius for each ratio.
    #[error(
        "{ratios} ratio(s) and {radii} radius(es) were given; each coarser level needs one of each"
    )]
    Unpaired {
        /// How many ratios were given.
        ratios: usize,
        /// How many radii were given.
        radii: usize,
    },
    /// A ratio that is not above 0 and at most 1.
    #[error("the ratio of level {level} is {ratio}, but must be above 0 and at most 1")]
    BadRatio {
        /// The level; 0 is the finest.
        level: usize,
        /// The ratio that was given for it.
        ratio: f64,
    },
    /// Positions of other vertices than those of the graph.
    #[error("the graph has {vertices} vertices, but {positions} positions were given")]
    Positions {
        /// Vertices of the graph.
        vertices: usize,
        /// Positions that were given.
        positions: usize,
    },
    /// No geometry on one of the levels.
    #[error("level {level}: {source}")]
    Geometry {
        /// The level; 0 is the finest.
        level: usize,
        /// What is wrong there.
        source: GeometryError,
    },
    /// Levels or clusters, put together from parts, that do not fit.
    #[error("levels that do not fit together: {problem}")]
    BadLevels {
        /// What does not hold, and where.
        problem: String,
    },
}

/// One graph of a [`Hierarchy`].
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// The vertices of this level and their neighbourhoods.
    pub graph: GaugeGraph,
    /// Which vertices of the mesh they are, in rising order.
    pub vertices: Vec<u32>,
    /// How the vertices of the level before gather into those of this one; `None` on the finest level.
    pub clusters: Option<Clusters>,
}

/// Clusters of the vertices of a finer level, one for each vertex of the coarser one.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    offsets: Vec<u32>,
    members: Vec<u32>,
    cluster_of: Vec<u32>,
    transport: Vec<f64>,
}

/// Gauge graphs of a mesh from fine to coarse.
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
    /// Makes the finest level from the mesh, and each coarser one from the level before.
    ///
    /// # Errors
    /// No vertices, a ratio outside (0, 1], not as many radii as ratios, or no geometry.
    pub fn new(mesh: &Mesh, options: &HierarchyOptions) -> Result<Self, HierarchyError> {
        let graph = GaugeGraph::new(mesh, &options.geometry)
            .map_err(|source| HierarchyError::Geometry { level: 0, source })?;
        Self::over(graph, mesh.vertices(), options)
    }

    /// Takes a graph as the finest level, whatever its frames, with the positions of its vertices, and
    /// makes each coarser level from the one before. The geometry in `options` is not used.
    ///
    /// # Errors
    /// As [`new`](Self::new), or another number of positions than vertices.
    pub fn over(
        graph: GaugeGraph,
        points: &[DVec3],
        options: &HierarchyOptions,
    ) -> Result<Self, HierarchyError> {
        if points.is_empty() {
            return Err(HierarchyError::NoVertices);
        }
        options.check()?;
        if points.len() != graph.vertex_count() {
            return Err(HierarchyError::Positions {
                vertices: graph.vertex_count(),
                positions: points.len(),
            });
        }
        let mut points = points.to_vec();
        let mut levels = vec![Level {
            vertices: (0..graph.vertex_count() as u32).collect(),
            graph,
            clusters: None,
        }];
        for (index, (&ratio, &radius)) in options.ratios.iter().zip(&options.radii).enumerate() {
            let finer = &levels[index];
            let (level, kept) = coarsen(finer, &points, ratio, radius, options.neighbour_limit)
                .map_err(|source| HierarchyError::Geometry {
                    level: index + 1,
                    source,
                })?;
            points = kept;
            levels.push(level);
        }
        Ok(Self { levels })
    }

    /// Puts a hierarchy together from its levels, as [`new`](Self::new) makes them or as they were
    /// stored.
    ///
    /// # Errors
    /// [`HierarchyError::NoVertices`] without levels, [`HierarchyError::BadLevels`] where one does not
    /// fit to the one before.
    pub fn from_levels(levels: Vec<Level>) -> Result<Self, HierarchyError> {
        let bad = |level: usize, what: &str| HierarchyError::BadLevels {
            problem: format!("level {level} {what}"),
        };
        let Some(finest) = levels.first() else {
            return Err(HierarchyError::NoVertices);
        };
        let all = 0..finest.graph.vertex_count() as u32;
        if finest.clusters.is_some() || !finest.vertices.iter().copied().eq(all) {
            return Err(bad(0, "does not have all vertices"));
        }
        for (index, level) in levels.iter().enumerate() {
            if level.vertices.is_empty() {
                return Err(HierarchyError::NoVertices);
            }
            if level.vertices.len() != level.graph.vertex_count() {
                return Err(bad(index, "has a graph of another size"));
            }
        }
        for (index, pair) in levels.windows(2).enumerate() {
            let [finer, coarser] = pair else { continue };
            let level = index + 1;
            let rising = coarser.vertices.is_sorted_by(|a, b| a < b);
            let kept = |vertex| finer.vertices.binary_search(vertex).is_ok();
            if !rising || !coarser.vertices.iter().all(kept) {
                return Err(bad(
                    level,
                    "has vertices that the level before does not have",
                ));
            }
            let fits = coarser.clusters.as_ref().is_some_and(|clusters| {
                clusters.len() == coarser.vertices.len()
                    && clusters.cluster_of.len() == finer.vertices.len()
            });
            if !fits {
                return Err(bad(level, "has no clusters of the level before"));
            }
        }
        Ok(Self { levels })
    }

    /// The levels from fine to coarse; none of them is empty.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }
}

impl HierarchyOptions {
    fn check(&self) -> Result<(), HierarchyError> {
        let (ratios, radii) = (&self.ratios, &self.radii);
        if ratios.len() != radii.len() {
            return Err(HierarchyError::Unpaired {
                ratios: ratios.len(),
                radii: radii.len(),
            });
        }
        if let Some(at) = ratios
            .iter()
            .position(|&ratio| !(ratio > 0.0 && ratio <= 1.0))
        {
            return Err(HierarchyError::BadRatio {
                level: at + 1,
                ratio: ratios[at],
            });
        }
        Ok(())
    }
}

/// The next level and the positions of its vertices.
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
    let level = Level {
        graph: GaugeGraph::with_frames(&kept, frames, adjacency)?,
        vertices: select(&finer.vertices, &representatives),
        clusters: Some(clusters),
    };
    Ok((level, kept))
}

/// The values of the given vertices.
fn select<T: Copy>(values: &[T], vertices: &[u32]) -> Vec<T> {
    vertices
        .iter()
        .map(|&vertex| values[vertex as usize])
        .collect()
}

impl Clusters {
    /// Every point with its nearest representative, the lower one in ties; a representative is in its
    /// own cluster even where another lies on top of it, so that no cluster is empty.
    fn nearest(points: &[DVec3], frames: &[Frame], representatives: &[u32]) -> Self {
        let index = PointIndex::new(&select(points, representatives));
        let mut cluster_of: Vec<u32> = points
            .iter()
            .map(|&point| index.nearest(point).map_or(0, |found| found.point))
            .collect();
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
        Self {
            offsets,
            members,
            cluster_of,
            transport,
        }
    }

    /// Clusters from their parts: the cluster of each vertex of the finer level, and its transport to the
    /// representative.
    ///
    /// # Errors
    /// [`HierarchyError::BadLevels`] for a cluster that does not exist or has no vertices, and for
    /// transports that are not one finite number for each vertex.
    pub fn new(
        count: usize,
        cluster_of: Vec<u32>,
        transport: Vec<f64>,
    ) -> Result<Self, HierarchyError> {
        let bad = |problem: String| Err(HierarchyError::BadLevels { problem });
        if let Some(other) = cluster_of.iter().find(|&&of| of as usize >= count) {
            return bad(format!("there is no cluster {other}, only {count}"));
        }
        if transport.len() != cluster_of.len() || !transport.iter().all(|t| t.is_finite()) {
            return bad("clusters need one finite transport for each vertex".into());
        }
        let by_cluster = cluster_of.iter().copied().zip(0u32..);
        let (offsets, members) = bucket(count, by_cluster);
        if let Some(empty) = offsets.windows(2).position(|pair| pair[0] == pair[1]) {
            return bad(format!("cluster {empty} has no vertices"));
        }
        Ok(Self {
            offsets,
            members,
            cluster_of,
            transport,
        })
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are no clusters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of each cluster in [`members`](Self::members), and the number of finer vertices at the end.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Vertices of the finer level, cluster after cluster and rising within each.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Cluster of each vertex of the finer level.
    pub fn cluster_of(&self) -> &[u32] {
        &self.cluster_of
    }

    /// Transport from each vertex of the finer level to the representative of its cluster.
    pub fn transport(&self) -> &[f64] {
        &self.transport
    }
}

/// `count` of the points, or all if there are fewer: first `start` (the last point, if there are fewer),
/// then always the one farthest from those chosen, the lower index in ties. No point is chosen twice,
/// even where points coincide.
///
/// ```
/// use gemcnn_mesh::{DVec3, farthest_points};
/// let points = [0.0, 1.0, 4.0, 9.0].map(|x| DVec3::new(x, 0.0, 0.0));
/// assert_eq!(farthest_points(&points, 3, 0), [0, 3, 2]);
/// ```
pub fn farthest_points(points: &[DVec3], count: usize, start: usize) -> Vec<u32> {
    /// Below every squared distance.
    const CHOSEN: f64 = -1.0;
    let count = count.min(points.len());
    let mut chosen = Vec::with_capacity(count);
    let mut squared_distances = vec![f64::INFINITY; points.len()];
    let mut next = start.min(points.len().saturating_sub(1));
    while chosen.len() < count {
        chosen.push(next as u32);
        squared_distances[next] = CHOSEN;
        let centre = points[next];
        let mut farthest = CHOSEN;
        for (index, (point, distance)) in points.iter().zip(&mut squared_distances).enumerate() {
            *distance = distance.min(point.distance_squared(centre));
            if *distance > farthest {
                (farthest, next) = (*distance, index);
            }
        }
    }
    chosen
}
