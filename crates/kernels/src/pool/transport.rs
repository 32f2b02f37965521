//! Parallel-transport pooling over clusters, and unpooling.
//!
//! Every fine vertex `f` belongs to one cluster `c`, whose coarse vertex has its own frame; `g_f` is the
//! transport from `f` to it. For features of any type
//!
//! ```text
//! pool:    y_c = 1/|c| sum_{f in c} rho(g_f) x_f       dx_f = 1/|c| rho(-g_f) dy_c
//! unpool:  y_f = rho(-g_f) x_c                         dx_c = sum_{f in c} rho(g_f) dy_f
//! ```
//!
//! Each is the adjoint of the other up to the size of the cluster. All four are a gather: over the members
//! of a cluster, or from the cluster of a vertex. An empty cluster pools to 0.
//!
//! Only `(cos, sin)` of `g_f` is stored; higher orders follow from the angle-addition recurrence. Nothing
//! is saved for the backward pass.

use crate::graph::check_offsets;
use crate::real::compiled;
use crate::{KernelError, Real};

/// The clusters of one graph that [`ClusterArrays`] are made from.
#[derive(Debug, Clone, Copy)]
pub struct ClusterParts<'a> {
    /// Start of each cluster in `members`, then the number of fine vertices.
    pub offsets: &'a [u32],
    /// Fine vertices, cluster by cluster.
    pub members: &'a [u32],
    /// Cluster of each fine vertex.
    pub cluster_of: &'a [u32],
    /// Transport from each fine vertex to the coarse vertex of its cluster, in radians.
    pub transport: &'a [f64],
}

/// Clusters of one graph, or of a batch of graphs as a disjoint union.
///
/// Operators read them through a [`ClusterView`].
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterArrays<T> {
    offsets: Vec<u32>,
    members: Vec<u32>,
    cluster_of: Vec<u32>,
    phases: Vec<[T; 2]>,
}

/// The slices that a [`ClusterView`] is made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterSlices<'a, T> {
    /// Start of each cluster in `members`, then the number of fine vertices.
    pub offsets: &'a [u32],
    /// Fine vertices, cluster by cluster.
    pub members: &'a [u32],
    /// Cluster of each fine vertex.
    pub cluster_of: &'a [u32],
    /// `(cos, sin)` of the transport from each fine vertex to the coarse vertex of its cluster.
    pub phases: &'a [[T; 2]],
}

/// Clusters in borrowed memory, as the operators on the CPU take them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterView<'a, T> {
    slices: ClusterSlices<'a, T>,
}

impl<T: Real> ClusterArrays<T> {
    /// The disjoint union of clusters: the vertices of each graph follow those of the previous one.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for arrays that do not fit together, or a union too large for 32-bit indices.
    pub fn union(graphs: &[ClusterParts<'_>]) -> Result<Self, KernelError> {
        compiled!(ClusterArrays::union_of as fn(&[ClusterParts<'_>]) -> Result<ClusterArrays<T>, KernelError>)(graphs)
    }

    fn union_of(graphs: &[ClusterParts<'_>]) -> Result<Self, KernelError> {
        let mut converted = Vec::with_capacity(graphs.len());
        for (index, graph) in graphs.iter().enumerate() {
            graph
                .check()
                .map_err(|problem| KernelError::Graph { problem: format!("clusters of graph {index}: {problem}") })?;
            let phase = |&g: &f64| [T::of(g.cos()), T::of(g.sin())];
            converted.push(Self {
                offsets: graph.offsets.to_vec(),
                members: graph.members.to_vec(),
                cluster_of: graph.cluster_of.to_vec(),
                phases: graph.transport.iter().map(phase).collect(),
            });
        }
        match converted.len() {
            1 => Ok(converted.remove(0)),
            _ => Self::join(&converted.iter().map(Self::view).collect::<Vec<_>>()),
        }
    }

    /// The union of clusters that have been converted already: copies and additions only.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for a union too large for 32-bit indices.
    pub fn join(clusters: &[ClusterView<'_, T>]) -> Result<Self, KernelError> {
        compiled!(ClusterArrays::joined as fn(&[ClusterView<'_, T>]) -> Result<ClusterArrays<T>, KernelError>)(clusters)
    }

    fn joined(clusters: &[ClusterView<'_, T>]) -> Result<Self, KernelError> {
        let vertices: usize = clusters.iter().map(ClusterView::fine_count).sum();
        if vertices >= u32::MAX as usize {
            return Err(KernelError::Graph {
                problem: format!("{vertices} clustered vertices are too many for 32-bit indices"),
            });
        }
        let mut union = Self {
            offsets: vec![0],
            members: Vec::with_capacity(vertices),
            cluster_of: Vec::with_capacity(vertices),
            phases: Vec::with_capacity(vertices),
        };
        for part in clusters {
            let (vertex, cluster) = (union.fine_count() as u32, union.coarse_count() as u32);
            let shifted = |values: &[u32], to: &mut Vec<u32>, by: u32| {
                to.extend(values.iter().map(|value| value + by));
            };
            shifted(&part.offsets()[1..], &mut union.offsets, vertex);
            shifted(part.members(), &mut union.members, vertex);
            shifted(part.cluster_of(), &mut union.cluster_of, cluster);
            union.phases.extend_from_slice(part.phases());
        }
        Ok(union)
    }

    /// The arrays as operators take them.
    pub fn view(&self) -> ClusterView<'_, T> {
        ClusterView {
            slices: ClusterSlices {
                offsets: &self.offsets,
                members: &self.members,
                cluster_of: &self.cluster_of,
                phases: &self.phases,
            },
        }
    }

    /// Number of fine vertices.
    pub fn fine_count(&self) -> usize {
        self.view().fine_count()
    }

    /// Number of clusters, which are the coarse vertices.
    pub fn coarse_count(&self) -> usize {
        self.view().coarse_count()
    }
}

impl<'a, T> ClusterView<'a, T> {
    /// Clusters in memory of the caller. All indices are checked, in time linear in the number of vertices.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for slices that do not fit together.
    pub fn new(slices: ClusterSlices<'a, T>) -> Result<Self, KernelError> {
        let ClusterSlices { offsets, members, cluster_of, phases } = slices;
        check_clusters(offsets, members, cluster_of, phases.len())
            .map_err(|problem| KernelError::Graph { problem: format!("clusters: {problem}") })?;
        Ok(Self { slices })
    }

    /// Number of fine vertices.
    pub fn fine_count(&self) -> usize {
        self.slices.members.len()
    }

    /// Number of clusters, which are the coarse vertices.
    pub fn coarse_count(&self) -> usize {
        self.slices.offsets.len() - 1
    }

    /// Start of each cluster in [`members`](Self::members), then the number of fine vertices.
    pub fn offsets(&self) -> &'a [u32] {
        self.slices.offsets
    }

    /// Fine vertices, cluster by cluster.
    pub fn members(&self) -> &'a [u32] {
        self.slices.members
    }

    /// Cluster of each fine vertex.
    pub fn cluster_of(&self) -> &'a [u32] {
        self.slices.cluster_of
    }

    /// `(cos, sin)` of the transport from each fine vertex to its cluster.
    pub fn phases(&self) -> &'a [[T; 2]] {
        self.slices.phases
    }

    /// The fine vertices of one cluster.
    pub(super) fn cluster(&self, cluster: usize) -> &'a [u32] {
        let offsets = self.slices.offsets;
        &self.slices.members[offsets[cluster] as usize..offsets[cluster + 1] as usize]
    }
}

impl ClusterParts<'_> {
    fn check(&self) -> Result<(), String> {
        let transports = self.transport.len();
        check_clusters(self.offsets, self.members, self.cluster_of, transports)?;
        match self.transport.iter().position(|g| !g.is_finite()) {
            Some(vertex) => Err(format!("the transport from vertex {vertex} is not finite")),
            None => Ok(()),
        }
    }
}

/// Checks that every fine vertex is a member of its cluster, and of no other.
fn check_clusters(offsets: &[u32], members: &[u32], cluster_of: &[u32], transports: usize) -> Result<(), String> {
    let vertices = members.len();
    for (what, length) in [("cluster indices", cluster_of.len()), ("transports", transports)] {
        if length != vertices {
            return Err(format!("{length} {what} for {vertices} vertices"));
        }
    }
    check_offsets("offsets", offsets, vertices)?;
    let mut met = vec![false; vertices];
    for (cluster, bounds) in offsets.windows(2).enumerate() {
        for &member in &members[bounds[0] as usize..bounds[1] as usize] {
            let place = member as usize;
            if cluster_of.get(place).map(|&c| c as usize) != Some(cluster) {
                return Err(format!("cluster {cluster} lists vertex {member}, which is not in it"));
            }
            if std::mem::replace(&mut met[place], true) {
                return Err(format!("cluster {cluster} lists vertex {member} twice"));
            }
        }
    }
    Ok(())
}
