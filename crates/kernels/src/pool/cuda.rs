//! Pooling on a GPU: over the meshes of a batch, and over clusters with transport.

use super::global::check;
use super::transport::ClusterView;
use crate::cuda::reduce::column_threads;
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceGraphView, DeviceSlice, DeviceSliceMut, KernelSource, args,
    check_length, irrep_count, irreps, to_u32,
};
use crate::{FeatureType, KernelError};

pub(crate) const SOURCE: KernelSource = KernelSource::new("pool", include_str!("pool.cu"));

const GLOBAL: &str = "global pooling";
const TRANSPORT: &str = "transport pooling";
/// Number of pieces of the vertices of a mesh.
const PIECES: usize = 32;

/// Mean of scalars over each mesh of a graph.
pub fn mean(
    device: &CudaDevice,
    graph: DeviceGraphView<'_>,
    features: &FeatureType,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let channels = check(graph.mesh_offsets(), features, ("x", x), ("y", y.view()))?;
    if y.is_empty() {
        return Ok(());
    }
    let meshes = graph.mesh_count();
    let mut partials: DeviceBuffer<f64> = device.buffer(meshes * PIECES * channels)?;
    let size = |n: usize| to_u32(GLOBAL, n);
    // SAFETY: lengths were checked, and every piece of every mesh has its partial sums.
    unsafe {
        device.function(SOURCE, &[], "mean_partials")?.run(
            (PIECES, meshes),
            column_threads(channels),
            args![graph.device_mesh_offsets(), x, size(channels)?, &partials.view_mut(),],
        )?;
        device.function(SOURCE, &[], "mean_finish")?.over(
            meshes * channels,
            args![graph.device_mesh_offsets(), &partials, size(PIECES)?, size(channels)?, size(meshes)?, &y,],
        )
    }
}

/// `dx` from `dy` of [`mean`].
pub fn mean_backward(
    device: &CudaDevice,
    graph: DeviceGraphView<'_>,
    features: &FeatureType,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let channels = check(graph.mesh_offsets(), features, ("dx", dx.view()), ("dy", dy))?;
    let function = device.function(SOURCE, &[], "mean_backward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.run(
            (PIECES, graph.mesh_count()),
            (256, 1),
            args![graph.device_mesh_offsets(), dy, to_u32(GLOBAL, channels)?, &dx,],
        )
    }
}

/// Maximum of scalars over each mesh, and the vertex that attains it (`[meshes, channels]`).
pub fn max(
    device: &CudaDevice,
    graph: DeviceGraphView<'_>,
    features: &FeatureType,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
    arguments: DeviceSliceMut<'_, u32>,
) -> Result<(), CudaError> {
    let channels = check(graph.mesh_offsets(), features, ("x", x), ("y", y.view()))?;
    check_length(GLOBAL, "arguments", arguments.view(), y.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let meshes = graph.mesh_count();
    let mut partials: DeviceBuffer<[u32; 2]> = device.buffer(meshes * PIECES * channels)?;
    let size = |n: usize| to_u32(GLOBAL, n);
    // SAFETY: as in `mean`.
    unsafe {
        device.function(SOURCE, &[], "max_partials")?.run(
            (PIECES, meshes),
            column_threads(channels),
            args![graph.device_mesh_offsets(), x, size(channels)?, &partials.view_mut(),],
        )?;
        device
            .function(SOURCE, &[], "max_finish")?
            .over(meshes * channels, args![&partials, size(PIECES)?, size(channels)?, size(meshes)?, &y, &arguments,])
    }
}

/// `dx` from `dy` of [`max`], with the saved vertices. A saved vertex outside of its mesh is ignored.
pub fn max_backward(
    device: &CudaDevice,
    graph: DeviceGraphView<'_>,
    features: &FeatureType,
    arguments: DeviceSlice<'_, u32>,
    dy: DeviceSlice<'_, f32>,
    mut dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let channels = check(graph.mesh_offsets(), features, ("dx", dx.view()), ("dy", dy))?;
    check_length(GLOBAL, "arguments", arguments, dy.len())?;
    device.clear(dx.reborrow())?;
    let meshes = graph.mesh_count();
    let size = |n: usize| to_u32(GLOBAL, n);
    let function = device.function(SOURCE, &[], "max_backward")?;
    // SAFETY: lengths were checked, and the kernel leaves out arguments that are no vertices.
    unsafe {
        function.over(
            meshes * channels,
            args![graph.device_mesh_offsets(), arguments, dy, size(channels)?, size(meshes)?, &dx,],
        )
    }
}

/// Clusters in device memory. Operators read them through a [`DeviceClusterView`].
#[derive(Debug)]
pub struct DeviceClusters {
    offsets: DeviceBuffer<u32>,
    members: DeviceBuffer<u32>,
    cluster_of: DeviceBuffer<u32>,
    phases: DeviceBuffer<[f32; 2]>,
}

impl DeviceClusters {
    /// Copies clusters to a device.
    pub fn new(device: &CudaDevice, clusters: ClusterView<'_, f32>) -> Result<Self, CudaError> {
        Ok(Self {
            offsets: device.upload(clusters.offsets())?,
            members: device.upload(clusters.members())?,
            cluster_of: device.upload(clusters.cluster_of())?,
            phases: device.upload(clusters.phases())?,
        })
    }

    /// A copy.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self, CudaError> {
        Ok(Self {
            offsets: self.offsets.duplicate(device)?,
            members: self.members.duplicate(device)?,
            cluster_of: self.cluster_of.duplicate(device)?,
            phases: self.phases.duplicate(device)?,
        })
    }

    /// Copies other clusters over these, at the same addresses, for all work that follows. Work captured
    /// with these clusters then runs on the others.
    ///
    /// # Errors
    /// Other numbers of fine vertices or of clusters.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), CudaError> {
        self.offsets.overwrite(device, &with.offsets)?;
        self.members.overwrite(device, &with.members)?;
        self.cluster_of.overwrite(device, &with.cluster_of)?;
        self.phases.overwrite(device, &with.phases)
    }

    /// The clusters as operators take them.
    pub fn view(&self) -> DeviceClusterView<'_> {
        DeviceClusterView {
            slices: DeviceClusterSlices {
                offsets: self.offsets.view(),
                members: self.members.view(),
                cluster_of: self.cluster_of.view(),
                phases: self.phases.view(),
            },
        }
    }
}

/// The slices that a [`DeviceClusterView`] is made from: those of
/// [`ClusterSlices`](super::transport::ClusterSlices) on the device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceClusterSlices<'a> {
    /// Start of each cluster in `members`, then the number of fine vertices.
    pub offsets: DeviceSlice<'a, u32>,
    /// Fine vertices, cluster by cluster.
    pub members: DeviceSlice<'a, u32>,
    /// Cluster of each fine vertex.
    pub cluster_of: DeviceSlice<'a, u32>,
    /// `(cos, sin)` of the transport from each fine vertex to the coarse vertex of its cluster.
    pub phases: DeviceSlice<'a, [f32; 2]>,
}

/// Clusters in borrowed device memory, as the operators on the GPU take them.
#[derive(Debug, Clone, Copy)]
pub struct DeviceClusterView<'a> {
    slices: DeviceClusterSlices<'a>,
}

impl<'a> DeviceClusterView<'a> {
    /// Clusters in memory of the caller. Lengths are checked, contents are not: they lie on the device.
    ///
    /// # Safety
    /// The contents must be those of valid clusters:
    /// [`ClusterView::new`](super::transport::ClusterView::new) would accept them.
    pub unsafe fn new(slices: DeviceClusterSlices<'a>) -> Result<Self, KernelError> {
        let (offsets, vertices) = (slices.offsets.len(), slices.members.len());
        check_length(TRANSPORT, "offsets", slices.offsets, offsets.max(1))?;
        check_length(TRANSPORT, "clusters", slices.cluster_of, vertices)?;
        check_length(TRANSPORT, "phases", slices.phases, vertices)?;
        Ok(Self { slices })
    }

    /// Number of fine vertices.
    pub fn fine_count(&self) -> usize {
        self.slices.members.len()
    }

    /// Number of clusters.
    pub fn coarse_count(&self) -> usize {
        self.slices.offsets.len() - 1
    }

    fn check(
        &self,
        features: &FeatureType,
        (fine_name, fine): (&'static str, DeviceSlice<'_, f32>),
        (coarse_name, coarse): (&'static str, DeviceSlice<'_, f32>),
    ) -> Result<(), KernelError> {
        let dimension = features.dimension();
        check_length(TRANSPORT, fine_name, fine, self.fine_count() * dimension)?;
        check_length(TRANSPORT, coarse_name, coarse, self.coarse_count() * dimension)
    }

    /// `y_c = w sum_{f in c} rho(g_f) x_f`.
    fn gather(
        &self,
        device: &CudaDevice,
        features: &FeatureType,
        mean: bool,
        x: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let function = device.function(SOURCE, &[], "transport_gather")?;
        let rows = self.coarse_count();
        let (table, count) = (irreps(device, features, 1)?, irrep_count(features));
        let size = |n: usize| to_u32(TRANSPORT, n);
        // SAFETY: lengths were checked, and the arrays when they were made.
        unsafe {
            function.over(
                rows * count,
                args![
                    self.slices.offsets,
                    self.slices.members,
                    self.slices.phases,
                    x,
                    y,
                    &*table,
                    size(count)?,
                    size(features.dimension())?,
                    u32::from(mean),
                    size(rows)?,
                ],
            )
        }
    }

    /// `y_f = w rho(-g_f) x_c`.
    fn spread(
        &self,
        device: &CudaDevice,
        features: &FeatureType,
        mean: bool,
        x: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let function = device.function(SOURCE, &[], "transport_spread")?;
        let rows = self.fine_count();
        let (table, count) = (irreps(device, features, 1)?, irrep_count(features));
        let size = |n: usize| to_u32(TRANSPORT, n);
        // SAFETY: as in `gather`.
        unsafe {
            function.over(
                rows * count,
                args![
                    self.slices.offsets,
                    self.slices.cluster_of,
                    self.slices.phases,
                    x,
                    y,
                    &*table,
                    size(count)?,
                    size(features.dimension())?,
                    u32::from(mean),
                    size(rows)?,
                ],
            )
        }
    }
}

/// Mean over each cluster of the features transported to its coarse vertex.
pub fn pool(
    device: &CudaDevice,
    clusters: DeviceClusterView<'_>,
    features: &FeatureType,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    clusters.check(features, ("x", x), ("y", y.view()))?;
    clusters.gather(device, features, true, x, &y)
}

/// `dx` from `dy` of [`pool`].
pub fn pool_backward(
    device: &CudaDevice,
    clusters: DeviceClusterView<'_>,
    features: &FeatureType,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    clusters.check(features, ("dx", dx.view()), ("dy", dy))?;
    clusters.spread(device, features, true, dy, &dx)
}

/// Features of each cluster transported back to its members.
pub fn unpool(
    device: &CudaDevice,
    clusters: DeviceClusterView<'_>,
    features: &FeatureType,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    clusters.check(features, ("y", y.view()), ("x", x))?;
    clusters.spread(device, features, false, x, &y)
}

/// `dx` from `dy` of [`unpool`].
pub fn unpool_backward(
    device: &CudaDevice,
    clusters: DeviceClusterView<'_>,
    features: &FeatureType,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    clusters.check(features, ("dy", dy), ("dx", dx.view()))?;
    clusters.gather(device, features, false, dy, &dx)
}
