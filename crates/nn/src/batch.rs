//! Batches of meshes of unequal size: a disjoint union with an offset table.

use crate::Result;
use crate::device::as_f32;
use crate::on_devices::{ArraysOn, OnDevices, Upload};
use gemcnn_kernels::cuda::{CudaDevice, DeviceGraph, DeviceGraphView};
use gemcnn_kernels::pool::cuda::{DeviceClusterView, DeviceClusters};
use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts, ClusterView};
use gemcnn_kernels::{GraphArrays, GraphParts, GraphView, OnDevice, Real};
use gemcnn_mesh::GaugeGraph;
use std::ops::Range;

/// Spare capacity for edges in the graphs of a captured step: an eighth, and some more for small graphs.
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
pub type GraphBatch<T> = OnDevices<GraphArrays<T>, DeviceGraph>;

impl<T: Real> Upload for GraphArrays<T> {
    type Uploaded = DeviceGraph;

    fn upload(&self, device: &CudaDevice) -> Result<DeviceGraph> {
        Ok(DeviceGraph::new(device, as_f32::<GraphArrays<f32>, _>(self)?.view())?)
    }
}

impl<T: Real> GraphBatch<T> {
    /// Joins graphs.
    ///
    /// # Errors
    /// More vertices or edges than 32-bit indices can address.
    pub fn new<'g>(graphs: impl IntoIterator<Item = &'g GaugeGraph>) -> Result<Self> {
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
        Ok(Self::of(GraphArrays::union(&parts)?))
    }

    /// Joins batches.
    pub(crate) fn join<'g>(batches: impl Iterator<Item = &'g Self>) -> Result<Self> {
        Ok(Self::of(GraphArrays::join(&batches.map(|batch| batch.view()).collect::<Vec<_>>())?))
    }

    /// The same batch with arrays of its own on a GPU, for a captured step.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self> {
        let spare = self.edge_count() / SPARE_PART + SPARE_EDGES;
        Ok(self.with_copy(device, self.on_cuda(device)?.duplicate(device, spare)?))
    }

    /// Copies another graph with the same numbers of vertices over this one, on a GPU.
    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        Ok(self.on_cuda(device)?.overwrite(device, &*with.on_cuda(device)?)?)
    }

    /// Rows of one mesh.
    ///
    /// # Panics
    /// If there is no such mesh.
    pub fn vertices_of(&self, mesh: usize) -> Range<usize> {
        let offsets = self.mesh_offsets();
        offsets[mesh] as usize..offsets[mesh + 1] as usize
    }

    /// Mean number of neighbours of a vertex.
    pub fn mean_degree(&self) -> f64 {
        self.edge_count() as f64 / self.vertex_count().max(1) as f64
    }
}

impl<T: Real> ArraysOn<'_, GraphArrays<T>, DeviceGraph> {
    /// The whole graph.
    pub fn view(&self) -> OnDevice<GraphView<'_, T>, DeviceGraphView<'_>> {
        match self.get() {
            OnDevice::Host(graph) => OnDevice::Host(graph.view()),
            OnDevice::Cuda(graph) => OnDevice::Cuda(graph.view()),
        }
    }

    /// The ranges of its meshes.
    pub fn meshes(&self) -> OnDevice<&[u32], DeviceGraphView<'_>> {
        match self.get() {
            OnDevice::Host(graph) => OnDevice::Host(graph.mesh_offsets()),
            OnDevice::Cuda(graph) => OnDevice::Cuda(graph.view()),
        }
    }
}

/// The clusters of a batch between two levels of its hierarchies.
pub type ClusterBatch<T> = OnDevices<ClusterArrays<T>, DeviceClusters>;

impl<T: Real> Upload for ClusterArrays<T> {
    type Uploaded = DeviceClusters;

    fn upload(&self, device: &CudaDevice) -> Result<DeviceClusters> {
        Ok(DeviceClusters::new(device, as_f32::<ClusterArrays<f32>, _>(self)?.view())?)
    }
}

impl<T: Real> ClusterBatch<T> {
    /// Joins the clusters of several meshes.
    pub fn new(parts: &[ClusterParts<'_>]) -> Result<Self> {
        Ok(Self::of(ClusterArrays::union(parts)?))
    }

    /// Joins batches.
    pub(crate) fn join<'c>(batches: impl Iterator<Item = &'c Self>) -> Result<Self> {
        Ok(Self::of(ClusterArrays::join(&batches.map(|batch| batch.view()).collect::<Vec<_>>())?))
    }

    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self> {
        Ok(self.with_copy(device, self.on_cuda(device)?.duplicate(device)?))
    }

    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        Ok(self.on_cuda(device)?.overwrite(device, &*with.on_cuda(device)?)?)
    }
}

impl<T: Real> ArraysOn<'_, ClusterArrays<T>, DeviceClusters> {
    /// All clusters.
    pub fn view(&self) -> OnDevice<ClusterView<'_, T>, DeviceClusterView<'_>> {
        match self.get() {
            OnDevice::Host(clusters) => OnDevice::Host(clusters.view()),
            OnDevice::Cuda(clusters) => OnDevice::Cuda(clusters.view()),
        }
    }
}
