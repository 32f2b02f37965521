//! The geometry of the meshes of a batch, and the part of it that a module sees.

use crate::error::check_size;
use crate::extras::{AnyExtra, as_type};
use crate::{ClusterBatch, Device, Extra, Extras, GraphBatch, NnError, Result};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::pool::transport::ClusterParts;
use gemcnn_mesh::{Hierarchy, Level};
use std::sync::Arc;

/// What is known of the meshes of a batch: a graph for each level from fine to coarse, the clusters between one level
/// and the next, and [`Extras`] of the finest level, such as eigenvectors. A single graph is a geometry of one level.
/// Clones share all arrays.
///
/// ```
/// use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{Geometry, GraphBatch, SpectraBatch};
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let options = OperatorOptions { eigenpairs: [16, 8, 8], ..Default::default() };
/// let operators = SurfaceOperators::new(&mesh, &graph, &options)?;
/// let geometry = Geometry::<f32>::from(GraphBatch::new([&graph])?)
///     .with(SpectraBatch::new(&operators, &options.eigenpairs)?)?;
/// assert!(geometry.extras().get::<SpectraBatch<f32>>().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry<T: 'static> {
    levels: Arc<[GraphBatch<T>]>,
    clusters: Arc<[ClusterBatch<T>]>,
    extras: Extras<T>,
}

impl<T: Real> From<GraphBatch<T>> for Geometry<T> {
    fn from(graph: GraphBatch<T>) -> Self {
        Self { levels: Arc::from([graph]), clusters: Arc::from([]), extras: Extras::default() }
    }
}

impl<T: Real> Geometry<T> {
    /// Joins hierarchies of the same number of levels.
    ///
    /// # Errors
    /// Another number of levels, or more vertices or edges than 32-bit indices can address.
    pub fn new<'h>(hierarchies: impl IntoIterator<Item = &'h Hierarchy>) -> Result<Self> {
        let hierarchies: Vec<&[Level]> = hierarchies.into_iter().map(Hierarchy::levels).collect();
        let depth = common_depth("hierarchy", hierarchies.iter().map(|levels| levels.len()))?;
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
            ClusterBatch::new(&parts)
        };
        Ok(Self {
            levels: (0..depth).map(graphs).collect::<Result<_, _>>()?,
            clusters: (1..depth).map(clusters).collect::<Result<_, _>>()?,
            extras: Extras::default(),
        })
    }

    /// The same geometry with an extra.
    ///
    /// # Errors
    /// An extra of other meshes.
    pub fn with<E: Extra<T> + PartialEq>(self, extra: E) -> Result<Self> {
        let mut extras = self.extras.clone();
        extras.insert(Arc::new(extra));
        self.with_extras(extras)
    }

    /// The same graphs with these extras.
    ///
    /// # Errors
    /// Extras of other meshes.
    pub fn with_extras(self, extras: Extras<T>) -> Result<Self> {
        let offsets = self.levels.first().map_or(&[][..], |graph| graph.mesh_offsets());
        match extras.all().iter().find(|extra| !extra.fits(offsets)) {
            Some(other) => {
                Err(NnError::setting(other.name_of(), "their numbers of vertices are not those of the graphs"))
            }
            None => Ok(Self { extras, ..self }),
        }
    }

    /// Joins batches of the same number of levels. This is faster than [`new`](Self::new), which converts
    /// angles: batches of single meshes are worth keeping.
    pub fn join(batches: &[&Self]) -> Result<Self> {
        let depth = common_depth("batch", batches.iter().map(|batch| batch.levels.len()))?;
        let level = |depth: usize| GraphBatch::join(batches.iter().map(|batch| &batch.levels[depth]));
        let clusters = |depth: usize| ClusterBatch::join(batches.iter().map(|batch| &batch.clusters[depth - 1]));
        Ok(Self {
            levels: (0..depth).map(level).collect::<Result<_, _>>()?,
            clusters: (1..depth).map(clusters).collect::<Result<_, _>>()?,
            extras: Extras::join(&batches.iter().map(|batch| &batch.extras).collect::<Vec<_>>())?,
        })
    }

    /// The graphs from fine to coarse.
    pub fn levels(&self) -> &[GraphBatch<T>] {
        &self.levels
    }

    /// What is known besides the graphs.
    pub fn extras(&self) -> &Extras<T> {
        &self.extras
    }

    /// Copies everything to a device that is not there yet.
    pub(crate) fn send(&self, device: &Device) -> Result<()> {
        self.levels.iter().try_for_each(|graph| graph.copy_to(device))?;
        self.clusters.iter().try_for_each(|clusters| clusters.copy_to(device))?;
        self.extras.all().iter().try_for_each(|extra| extra.send(device))
    }

    /// Approximate size of its arrays on a device in bytes.
    pub fn size_in_bytes(&self, device: &Device) -> usize {
        // Phases of both angles, indices and the reversed table.
        let edges: usize = self.levels.iter().map(|graph| graph.edge_count()).sum();
        let coefficients: usize = self.levels.iter().map(|graph| graph.view().coefficients().len()).sum();
        32 * edges + 8 * coefficients + self.extras.size_in_bytes(device)
    }

    /// The same geometry with arrays of its own on a GPU, for a captured step.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self> {
        Ok(Self {
            levels: self.levels.iter().map(|graph| graph.place_on(device)).collect::<Result<_, _>>()?,
            clusters: self.clusters.iter().map(|clusters| clusters.place_on(device)).collect::<Result<_, _>>()?,
            extras: self.extras.place_on(device)?,
        })
    }

    /// Numbers of the extras that two batches must have in common so that one can be copied over the other.
    pub(crate) fn shapes(&self) -> Vec<Vec<usize>> {
        self.extras.all().iter().map(|extra| extra.shape()).collect()
    }

    /// True if another geometry with the same numbers of vertices can be copied over this one on a GPU.
    pub(crate) fn can_hold(&self, device: &CudaDevice, other: &Self) -> Result<bool> {
        for (to, from) in self.levels.iter().zip(&*other.levels) {
            if from.edge_count() > to.on_cuda(device)?.edge_capacity() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies another geometry with the same numbers of vertices over this one, on a GPU.
    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        for (to, from) in self.levels.iter().zip(&*with.levels) {
            to.overwrite(device, from)?;
        }
        for (to, from) in self.clusters.iter().zip(&*with.clusters) {
            to.overwrite(device, from)?;
        }
        let mut extras = self.extras.all().iter().zip(with.extras.all());
        extras.try_for_each(|(to, from)| to.overwrite_any(device, &**from))
    }
}

/// The number of levels of all parts of a batch.
fn common_depth(what: &str, depths: impl Iterator<Item = usize> + Clone) -> Result<usize> {
    let depth = depths.clone().next().unwrap_or(0);
    for (index, found) in depths.enumerate() {
        check_size(format!("levels of {what} {index}"), depth, found)?;
    }
    Ok(depth)
}

/// The levels that a module runs on: graphs from fine to coarse, the clusters between them, and the extras of the
/// finest graph.
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
    clusters: &'a [ClusterBatch<T>],
    extras: &'a [Arc<dyn AnyExtra<T>>],
}

impl<'a, T> Levels<'a, T> {
    /// Number of graphs.
    pub fn count(self) -> usize {
        self.graphs.len()
    }

    /// The finest graph.
    ///
    /// # Errors
    /// [`NnError::Levels`] if there is none.
    pub fn graph(self) -> Result<&'a GraphBatch<T>> {
        self.graphs.first().ok_or(NnError::Levels { needed: 1, found: 0 })
    }

    /// What is known of the meshes besides their graphs, by its type: `levels.get::<SpectraBatch<T>>()?`.
    ///
    /// # Errors
    /// [`NnError::Missing`] if there is none.
    pub fn get<E: Extra<T>>(self) -> Result<&'a E>
    where
        T: 'static,
    {
        let found = self.extras.iter().find_map(|extra| as_type(&**extra));
        found.ok_or(NnError::Missing { what: E::name() })
    }

    /// The clusters that lead to the next coarser graph, and the levels starting at that graph.
    ///
    /// # Errors
    /// [`NnError::Levels`] if there is no coarser graph.
    pub fn coarser(self) -> Result<(&'a ClusterBatch<T>, Self)> {
        match (self.clusters.split_first(), self.graphs.get(1..)) {
            (Some((first, clusters)), Some(graphs)) if !graphs.is_empty() => {
                Ok((first, Self { graphs, clusters, extras: &[] }))
            }
            _ => Err(NnError::Levels { needed: self.graphs.len() + 1, found: self.graphs.len() }),
        }
    }
}

// A derived implementation would require `T: Clone`.
impl<T> Clone for Levels<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Levels<'_, T> {}

impl<'a, T> From<&'a GraphBatch<T>> for Levels<'a, T> {
    fn from(batch: &'a GraphBatch<T>) -> Self {
        Self { graphs: std::slice::from_ref(batch), clusters: &[], extras: &[] }
    }
}

impl<'a, T: 'static> From<&'a Geometry<T>> for Levels<'a, T> {
    fn from(geometry: &'a Geometry<T>) -> Self {
        Self { graphs: &geometry.levels, clusters: &geometry.clusters, extras: geometry.extras.all() }
    }
}
