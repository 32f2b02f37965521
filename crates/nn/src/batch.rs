//! Batches of meshes of unequal size: a disjoint union with an offset table.

use crate::device::{Sent, single};
use crate::error::check_size;
use crate::{Device, HeatBatch, IncidenceBatch, NnError, PatchBatch, SpectraBatch};
use gemcnn_kernels::cuda::{CudaDevice, DeviceGraph, DeviceGraphView};
use gemcnn_kernels::pool::cuda::{DeviceClusterView, DeviceClusters};
use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts, ClusterView};
use gemcnn_kernels::{GraphArrays, GraphParts, GraphView, OnDevice, Real};
use gemcnn_mesh::{GaugeGraph, Hierarchy, Level};
use std::ops::Range;
use std::sync::Arc;

/// Room for more edges in the graphs of a captured step: an eighth, and some more for small graphs.
const SPARE_PART: usize = 8;
const SPARE_EDGES: usize = 1024;

/// The gauge graphs of a batch as one graph: a disjoint union, in the order of the meshes. Features of a batch
/// have one row for each vertex in this order.
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
    sent: Sent<DeviceGraph>,
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
                coefficients: graph.coefficients(),
            })
            .collect();
        Ok(Self { arrays: GraphArrays::union(&parts)?, sent: Sent::default() })
    }

    /// The arrays that operators read.
    pub fn arrays(&self) -> &GraphArrays<T> {
        &self.arrays
    }

    /// The graph where a device reads it. It is copied to a GPU once, by the first operator that needs it.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn on(&self, device: &Device) -> Result<GraphOn<'_, T>, NnError> {
        Ok(GraphOn(match device {
            Device::Cpu => OnDevice::Host(&self.arrays),
            Device::Cuda(device) => OnDevice::Cuda(self.on_cuda(device)?),
        }))
    }

    pub(crate) fn on_cuda(&self, device: &CudaDevice) -> Result<Arc<DeviceGraph>, NnError> {
        self.sent.to(device, || Ok(DeviceGraph::new(device, single::<GraphArrays<f32>, _>(&self.arrays)?.view())?))
    }

    /// The same batch with arrays of its own on a GPU, for a captured step.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
        let spare = self.arrays.view().edge_count() / SPARE_PART + SPARE_EDGES;
        let copy = self.on_cuda(device)?.duplicate(device, spare)?;
        Ok(Self { arrays: self.arrays.clone(), sent: Sent::holding(device, copy) })
    }

    /// Copies another graph with the same numbers of vertices over this one, on a GPU.
    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
        Ok(self.on_cuda(device)?.overwrite(device, &*with.on_cuda(device)?)?)
    }

    /// Vertices of all meshes together.
    pub fn vertex_count(&self) -> usize {
        self.arrays.vertex_count()
    }

    /// Directed edges of all meshes together.
    pub fn edge_count(&self) -> usize {
        self.arrays.edge_count()
    }

    /// Number of meshes.
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
        self.edge_count() as f64 / self.vertex_count().max(1) as f64
    }
}

/// A graph on the device of a tape, for operators.
#[derive(Debug)]
pub struct GraphOn<'g, T>(OnDevice<&'g GraphArrays<T>, Arc<DeviceGraph>>);

impl<T: Real> GraphOn<'_, T> {
    /// The whole graph.
    pub fn view(&self) -> OnDevice<GraphView<'_, T>, DeviceGraphView<'_>> {
        match &self.0 {
            OnDevice::Host(graph) => OnDevice::Host(graph.view()),
            OnDevice::Cuda(graph) => OnDevice::Cuda(graph.view()),
        }
    }

    /// The ranges of its meshes.
    pub fn meshes(&self) -> OnDevice<&[u32], DeviceGraphView<'_>> {
        match &self.0 {
            OnDevice::Host(graph) => OnDevice::Host(graph.view().mesh_offsets()),
            OnDevice::Cuda(graph) => OnDevice::Cuda(graph.view()),
        }
    }
}

/// The clusters of a batch between two levels of its hierarchies.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterBatch<T> {
    arrays: ClusterArrays<T>,
    sent: Sent<DeviceClusters>,
}

/// Clusters on the device of a tape, for operators.
#[derive(Debug)]
pub struct ClustersOn<'c, T>(OnDevice<&'c ClusterArrays<T>, Arc<DeviceClusters>>);

impl<T: Real> ClustersOn<'_, T> {
    /// All clusters.
    pub fn view(&self) -> OnDevice<ClusterView<'_, T>, DeviceClusterView<'_>> {
        match &self.0 {
            OnDevice::Host(clusters) => OnDevice::Host(clusters.view()),
            OnDevice::Cuda(clusters) => OnDevice::Cuda(clusters.view()),
        }
    }
}

impl<T: Real> ClusterBatch<T> {
    /// Joins the clusters of several meshes.
    pub fn new(parts: &[ClusterParts<'_>]) -> Result<Self, NnError> {
        Ok(Self { arrays: ClusterArrays::union(parts)?, sent: Sent::default() })
    }

    /// The arrays that operators read.
    pub fn arrays(&self) -> &ClusterArrays<T> {
        &self.arrays
    }

    /// Vertices of the finer level.
    pub fn fine_count(&self) -> usize {
        self.arrays.fine_count()
    }

    /// Clusters: vertices of the coarser level.
    pub fn coarse_count(&self) -> usize {
        self.arrays.coarse_count()
    }

    /// The clusters where a device reads them. They are copied to a GPU once, by the first operator that
    /// needs them.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn on(&self, device: &Device) -> Result<ClustersOn<'_, T>, NnError> {
        Ok(ClustersOn(match device {
            Device::Cpu => OnDevice::Host(&self.arrays),
            Device::Cuda(device) => OnDevice::Cuda(self.on_cuda(device)?),
        }))
    }

    fn on_cuda(&self, device: &CudaDevice) -> Result<Arc<DeviceClusters>, NnError> {
        self.sent.to(device, || Ok(DeviceClusters::new(device, single::<ClusterArrays<f32>, _>(&self.arrays)?.view())?))
    }

    fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
        let copy = self.on_cuda(device)?.duplicate(device)?;
        Ok(Self { arrays: self.arrays.clone(), sent: Sent::holding(device, copy) })
    }

    fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
        Ok(self.on_cuda(device)?.overwrite(device, &*with.on_cuda(device)?)?)
    }
}

/// The hierarchies of a batch of meshes: a graph for each level from fine to coarse, the clusters between one level and
/// the next, and for the finest level the eigenbases, the operators of diffusion, and the faces or edges of the output,
/// if models need them. A single graph is a hierarchy of one level. Clones share all arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchyBatch<T> {
    pub(crate) levels: Arc<[GraphBatch<T>]>,
    pub(crate) clusters: Arc<[ClusterBatch<T>]>,
    pub(crate) spectra: Option<Arc<SpectraBatch<T>>>,
    pub(crate) heat: Option<Arc<HeatBatch<T>>>,
    pub(crate) elements: Option<Arc<IncidenceBatch<T>>>,
    pub(crate) patches: Option<Arc<PatchBatch<T>>>,
}

impl<T> From<GraphBatch<T>> for HierarchyBatch<T> {
    fn from(graph: GraphBatch<T>) -> Self {
        Self {
            levels: Arc::from([graph]),
            clusters: Arc::from([]),
            spectra: None,
            heat: None,
            elements: None,
            patches: None,
        }
    }
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
            ClusterBatch::new(&parts)
        };
        Ok(Self {
            levels: (0..depth).map(graphs).collect::<Result<_, _>>()?,
            clusters: (1..depth).map(clusters).collect::<Result<_, _>>()?,
            spectra: None,
            heat: None,
            elements: None,
            patches: None,
        })
    }

    /// The same batch with the eigenbases of its meshes.
    ///
    /// # Errors
    /// Eigenbases of other meshes.
    pub fn with_spectra(mut self, spectra: impl Into<Arc<SpectraBatch<T>>>) -> Result<Self, NnError> {
        let spectra = spectra.into();
        self.check_meshes("eigenvectors", spectra.mesh_offsets())?;
        self.spectra = Some(spectra);
        Ok(self)
    }

    /// The same batch with the operators of implicit diffusion of its meshes.
    ///
    /// # Errors
    /// Operators of other meshes.
    pub fn with_heat(mut self, heat: impl Into<Arc<HeatBatch<T>>>) -> Result<Self, NnError> {
        let heat = heat.into();
        self.check_meshes("Laplacians", heat.mesh_offsets())?;
        self.heat = Some(heat);
        Ok(self)
    }

    /// The same batch with faces or edges of its meshes, which an output is for: a row for each, with its vertices as
    /// columns.
    ///
    /// # Errors
    /// Elements of other meshes, or with angles.
    pub fn with_elements(mut self, elements: impl Into<Arc<IncidenceBatch<T>>>) -> Result<Self, NnError> {
        let elements = elements.into();
        let vertices = self.levels.first().map_or(0, GraphBatch::vertex_count);
        check_size("columns of elements", vertices, elements.column_count())?;
        if elements.has_angles() {
            return Err(NnError::setting("elements", "they must not have angles"));
        }
        self.elements = Some(elements);
        Ok(self)
    }

    /// The same batch with the sparse maps of its meshes.
    ///
    /// # Errors
    /// Maps of other meshes.
    pub fn with_patches(mut self, patches: impl Into<Arc<PatchBatch<T>>>) -> Result<Self, NnError> {
        let patches = patches.into();
        self.check_meshes("sparse maps", patches.mesh_offsets())?;
        self.patches = Some(patches);
        Ok(self)
    }

    fn check_meshes(&self, what: &str, mesh_offsets: &[u32]) -> Result<(), NnError> {
        let offsets = self.levels.first().map(|graph| graph.arrays.mesh_offsets());
        match offsets == Some(mesh_offsets) {
            true => Ok(()),
            false => Err(NnError::setting(what, "their numbers of vertices are not those of the graphs")),
        }
    }

    /// The eigenbases of the meshes, if there are any.
    pub fn spectra(&self) -> Option<&SpectraBatch<T>> {
        self.spectra.as_deref()
    }

    /// Joins batches of the same number of levels. This is faster than [`new`](Self::new), which converts
    /// angles: batches of single meshes are worth keeping.
    pub fn join(batches: &[&Self]) -> Result<Self, NnError> {
        let depth = batches.first().map_or(0, |batch| batch.levels.len());
        for (index, batch) in batches.iter().enumerate() {
            check_size(format!("levels of batch {index}"), depth, batch.levels.len())?;
        }
        let level = |depth: usize| {
            let views: Vec<_> = batches.iter().map(|b| b.levels[depth].arrays.view()).collect();
            Ok::<_, NnError>(GraphBatch { arrays: GraphArrays::join(&views)?, sent: Sent::default() })
        };
        let clusters = |depth: usize| {
            let views: Vec<_> = batches.iter().map(|b| b.clusters[depth].arrays.view()).collect();
            Ok::<_, NnError>(ClusterBatch { arrays: ClusterArrays::join(&views)?, sent: Sent::default() })
        };
        let spectra: Vec<_> = batches.iter().filter_map(|batch| batch.spectra()).collect();
        if !spectra.is_empty() {
            check_size("batches with eigenvectors", batches.len(), spectra.len())?;
        }
        let heat: Vec<_> = (batches.iter()).filter_map(|batch| batch.heat.as_deref()).collect();
        if !heat.is_empty() {
            check_size("batches with Laplacians", batches.len(), heat.len())?;
        }
        let elements: Vec<_> = (batches.iter()).filter_map(|batch| batch.elements.as_deref()).collect();
        if !elements.is_empty() {
            check_size("batches with elements", batches.len(), elements.len())?;
        }
        let patches: Vec<_> = (batches.iter()).filter_map(|batch| batch.patches.as_deref()).collect();
        if !patches.is_empty() {
            check_size("batches with sparse maps", batches.len(), patches.len())?;
        }
        Ok(Self {
            elements: match elements.is_empty() {
                true => None,
                false => Some(Arc::new(IncidenceBatch::join(&elements)?)),
            },
            levels: (0..depth).map(level).collect::<Result<_, _>>()?,
            clusters: (1..depth).map(|depth| clusters(depth - 1)).collect::<Result<_, _>>()?,
            spectra: match spectra.is_empty() {
                true => None,
                false => Some(Arc::new(SpectraBatch::join(&spectra)?)),
            },
            heat: match heat.is_empty() {
                true => None,
                false => Some(Arc::new(HeatBatch::join(&heat)?)),
            },
            patches: match patches.is_empty() {
                true => None,
                false => Some(Arc::new(PatchBatch::join(&patches)?)),
            },
        })
    }

    /// The graphs from fine to coarse.
    pub fn levels(&self) -> &[GraphBatch<T>] {
        &self.levels
    }

    /// Copies all graphs and clusters to a GPU, except those that are there already.
    pub(crate) fn send(&self, device: &CudaDevice) -> Result<(), NnError> {
        for graph in &*self.levels {
            graph.on_cuda(device)?;
        }
        for clusters in &*self.clusters {
            clusters.on_cuda(device)?;
        }
        if let Some(spectra) = &self.spectra {
            spectra.send(device)?;
        }
        if let Some(heat) = &self.heat {
            heat.send(device)?;
        }
        if let Some(elements) = &self.elements {
            elements.on_cuda(device)?;
        }
        if let Some(patches) = &self.patches {
            patches.send(device)?;
        }
        Ok(())
    }

    /// Approximate size in bytes of its arrays on a device.
    pub fn size_in_bytes(&self) -> usize {
        // Phases of both angles, indices and the reversed table.
        let edges: usize = self.levels.iter().map(GraphBatch::edge_count).sum();
        let coefficients = |graph: &GraphBatch<T>| graph.arrays.view().coefficients().len();
        let coefficients: usize = self.levels.iter().map(coefficients).sum();
        let spectra = self.spectra().map_or(0, SpectraBatch::size_in_bytes);
        let heat = self.heat.as_ref().map_or(0, |heat| heat.size_in_bytes());
        let elements = (self.elements.as_ref()).map_or(0, |elements| elements.size_in_bytes());
        let patches = (self.patches.as_ref()).map_or(0, |patches| patches.size_in_bytes());
        32 * edges + 8 * coefficients + spectra + heat + elements + patches
    }

    /// The same batch with arrays of its own on a GPU, for a captured step.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
        let (levels, clusters) = (self.levels.iter(), self.clusters.iter());
        Ok(Self {
            levels: levels.map(|l| l.place_on(device)).collect::<Result<_, _>>()?,
            clusters: clusters.map(|c| c.place_on(device)).collect::<Result<_, _>>()?,
            spectra: match &self.spectra {
                None => None,
                Some(spectra) => Some(Arc::new(spectra.place_on(device)?)),
            },
            // Steps that read these are not captured.
            heat: self.heat.clone(),
            elements: self.elements.clone(),
            patches: self.patches.clone(),
        })
    }

    /// True if another batch with the same numbers of vertices can be copied over this one on a GPU.
    pub(crate) fn can_hold(&self, device: &CudaDevice, other: &Self) -> Result<bool, NnError> {
        for (to, from) in self.levels.iter().zip(&*other.levels) {
            if from.arrays.edge_count() > to.on_cuda(device)?.edge_capacity() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies another batch with the same numbers of vertices over this one, on a GPU.
    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
        for (to, from) in self.levels.iter().zip(&*with.levels) {
            to.overwrite(device, from)?;
        }
        for (to, from) in self.clusters.iter().zip(&*with.clusters) {
            to.overwrite(device, from)?;
        }
        if let (Some(to), Some(from)) = (&self.spectra, &with.spectra) {
            to.overwrite(device, from)?;
        }
        Ok(())
    }
}
