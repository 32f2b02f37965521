//! Batches of meshes of unequal size: a disjoint union with an offset table.

use crate::NnError;
use crate::device::{Sent, single};
use crate::error::check_size;
use gemcnn_kernels::cuda::{CudaDevice, CudaGraph};
use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts};
use gemcnn_kernels::{GraphArrays, GraphParts, Real};
use gemcnn_mesh::{GaugeGraph, Hierarchy, Level};
use std::ops::Range;
use std::sync::Arc;

/// The gauge graphs of a batch as one graph, the vertices of each mesh after those of the one
/// before. Features of a batch are the rows of all its vertices in this order.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::GraphBatch;
/// let options = GeometryOptions::default();
/// let small = GaugeGraph::new(&shapes::icosahedron(), &options)?;
/// let large = GaugeGraph::new(&shapes::icosphere(2)?, &options)?;
/// let batch = GraphBatch::<f32>::new([&small, &large])?;
/// assert_eq!(batch.mesh_count(), 2);
/// assert_eq!(batch.vertices_of(0), 0..12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GraphBatch<T> {
    arrays: GraphArrays<T>,
    sent: Sent<CudaGraph>,
}

impl<T: Real> GraphBatch<T> {
    /// Joins graphs.
    ///
    /// # Errors
    /// More vertices or edges than 32-bit indices can address.
    pub fn new<'g>(graphs: impl IntoIterator<Item = &'g GaugeGraph>) -> Result<Self, NnError> {
        let parts: Vec<GraphParts<'_>> = graphs
            .into_iter()
            .map(|graph| GraphParts {
                offsets: graph.offsets(),
                neighbours: graph.neighbours(),
                reverse: graph.reverse(),
                theta: graph.theta(),
                transport: graph.transport(),
                radius: graph.radius(),
            })
            .collect();
        Ok(Self {
            arrays: GraphArrays::union(&parts)?,
            sent: Sent::default(),
        })
    }

    /// The arrays that operators read.
    pub fn arrays(&self) -> &GraphArrays<T> {
        &self.arrays
    }

    /// The arrays on a GPU, sent there by the first operator that needs them.
    pub(crate) fn on(&self, device: &CudaDevice) -> Result<Arc<CudaGraph>, NnError> {
        self.sent.to(device, || {
            Ok(CudaGraph::new(device, single(&self.arrays)?)?)
        })
    }

    /// The same batch with arrays of its own on a GPU.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
        let copy = self.on(device)?.duplicate(device)?;
        Ok(Self {
            arrays: self.arrays.clone(),
            sent: Sent::holding(device, copy),
        })
    }

    /// Vertices of all meshes together.
    pub fn vertex_count(&self) -> usize {
        self.arrays.vertex_count()
    }

    /// How many meshes there are.
    pub fn mesh_count(&self) -> usize {
        self.arrays.mesh_count()
    }

    /// Rows of one mesh.
    ///
    /// # Panics
    /// If there is no such mesh.
    pub fn vertices_of(&self, mesh: usize) -> Range<usize> {
        let offsets = self.arrays.mesh_offsets();
        offsets[mesh] as usize..offsets[mesh + 1] as usize
    }

    /// Mean number of neighbours of a vertex.
    pub fn mean_degree(&self) -> f64 {
        self.arrays.edge_count() as f64 / self.vertex_count().max(1) as f64
    }
}

/// The hierarchies of a batch of meshes: a graph for each level from fine to coarse, and the clusters
/// between one level and the next.
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchyBatch<T> {
    levels: Vec<GraphBatch<T>>,
    clusters: Vec<ClusterArrays<T>>,
}

impl<T: Real> HierarchyBatch<T> {
    /// Joins hierarchies of the same number of levels.
    ///
    /// # Errors
    /// Another number of levels, or more vertices or edges than 32-bit indices can address.
    pub fn new<'h>(hierarchies: impl IntoIterator<Item = &'h Hierarchy>) -> Result<Self, NnError> {
        let hierarchies: Vec<&[Level]> = hierarchies.into_iter().map(Hierarchy::levels).collect();
        let depth = hierarchies.first().map_or(0, |levels| levels.len());
        for (index, levels) in hierarchies.iter().enumerate() {
            check_size(format!("levels of hierarchy {index}"), depth, levels.len())?;
        }
        let level = |depth: usize| hierarchies.iter().map(move |levels| &levels[depth]);
        let graphs = |depth: usize| GraphBatch::new(level(depth).map(|level| &level.graph));
        let clusters = |depth: usize| {
            let parts: Vec<ClusterParts<'_>> = level(depth)
                .filter_map(|level| level.clusters.as_ref())
                .map(|clusters| ClusterParts {
                    offsets: clusters.offsets(),
                    members: clusters.members(),
                    cluster_of: clusters.cluster_of(),
                    transport: clusters.transport(),
                })
                .collect();
            ClusterArrays::union(&parts)
        };
        Ok(Self {
            levels: (0..depth).map(graphs).collect::<Result<_, _>>()?,
            clusters: (1..depth).map(clusters).collect::<Result<_, _>>()?,
        })
    }

    /// The graphs from fine to coarse.
    pub fn levels(&self) -> &[GraphBatch<T>] {
        &self.levels
    }

    /// Number `i` leads from level `i` to level `i + 1`.
    pub fn clusters(&self) -> &[ClusterArrays<T>] {
        &self.clusters
    }
}

/// What a network runs on: one graph, or the graphs of a hierarchy for networks that pool.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{GraphBatch, Levels};
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
/// let batch = GraphBatch::<f32>::new([&graph])?;
/// assert_eq!(Levels::from(&batch).count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Levels<'a, T> {
    graphs: &'a [GraphBatch<T>],
    clusters: &'a [ClusterArrays<T>],
}

impl<'a, T> Levels<'a, T> {
    /// How many graphs there are.
    pub fn count(self) -> usize {
        self.graphs.len()
    }

    /// The graphs from fine to coarse.
    pub fn graphs(self) -> &'a [GraphBatch<T>] {
        self.graphs
    }

    /// Number `i` leads from graph `i` to graph `i + 1`.
    pub fn clusters(self) -> &'a [ClusterArrays<T>] {
        self.clusters
    }
}

// Derived ones would ask for numbers that can be copied.
impl<T> Clone for Levels<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Levels<'_, T> {}

impl<'a, T> From<&'a GraphBatch<T>> for Levels<'a, T> {
    fn from(batch: &'a GraphBatch<T>) -> Self {
        Self {
            graphs: std::slice::from_ref(batch),
            clusters: &[],
        }
    }
}

impl<'a, T> From<&'a HierarchyBatch<T>> for Levels<'a, T> {
    fn from(batch: &'a HierarchyBatch<T>) -> Self {
        Self {
            graphs: &batch.levels,
            clusters: &batch.clusters,
        }
    }
}
