//! Pooling on a GPU: over the meshes of a batch, and over clusters with transport.

use super::transport::ClusterView;
use super::{Max, MaxBackward, Mean, MeanBackward, Pool, PoolBackward, TRANSPORT, Unpool, UnpoolBackward};
use crate::cuda::reduce::column_threads;
use crate::cuda::{
    CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args, check_length, irrep_count,
    irreps,
};
use crate::{FeatureType, Gpu, KernelError};

pub(crate) const SOURCE: KernelSource = KernelSource::new("pool", include_str!("pool.cu"));

/// Number of pieces of the vertices of a mesh.
const PIECES: usize = 32;

pub(super) fn mean(device: &CudaDevice, Mean { features, meshes, x, y }: Mean<'_, Gpu>) -> Result<()> {
    let channels = features.dimension();
    if y.is_empty() {
        return Ok(());
    }
    let count = meshes.mesh_count();
    let mut partials: DeviceBuffer<f64> = device.buffer(count * PIECES * channels)?;
    // SAFETY: lengths were checked, and every piece of every mesh has its partial sums.
    unsafe {
        let function = device.function(SOURCE, &[], "mean_partials")?;
        let arguments = args![meshes.device_mesh_offsets(), x, channels, &partials.view_mut()];
        function.run((PIECES, count), column_threads(channels), arguments)?;
        device
            .function(SOURCE, &[], "mean_finish")?
            .over(count * channels, args![meshes.device_mesh_offsets(), &partials, PIECES, channels, count, &y])
    }
}

pub(super) fn mean_backward(device: &CudaDevice, pass: MeanBackward<'_, Gpu>) -> Result<()> {
    let MeanBackward { features, meshes, dy, dx } = pass;
    let channels = features.dimension();
    let function = device.function(SOURCE, &[], "mean_backward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.run((PIECES, meshes.mesh_count()), (256, 1), args![meshes.device_mesh_offsets(), dy, channels, &dx])
    }
}

pub(super) fn max(device: &CudaDevice, pass: Max<'_, Gpu>) -> Result<()> {
    let Max { features, meshes, x, y, arguments } = pass;
    let channels = features.dimension();
    if y.is_empty() {
        return Ok(());
    }
    let count = meshes.mesh_count();
    let mut partials: DeviceBuffer<[u32; 2]> = device.buffer(count * PIECES * channels)?;
    // SAFETY: as in `mean`.
    unsafe {
        let function = device.function(SOURCE, &[], "max_partials")?;
        let inputs = args![meshes.device_mesh_offsets(), x, channels, &partials.view_mut()];
        function.run((PIECES, count), column_threads(channels), inputs)?;
        device
            .function(SOURCE, &[], "max_finish")?
            .over(count * channels, args![&partials, PIECES, channels, count, &y, &arguments])
    }
}

pub(super) fn max_backward(device: &CudaDevice, pass: MaxBackward<'_, Gpu>) -> Result<()> {
    let MaxBackward { features, meshes, arguments, dy, mut dx } = pass;
    let channels = features.dimension();
    device.clear(dx.reborrow())?;
    let count = meshes.mesh_count();
    let function = device.function(SOURCE, &[], "max_backward")?;
    // SAFETY: lengths were checked, and the kernel leaves out arguments that are no vertices.
    unsafe { function.over(count * channels, args![meshes.device_mesh_offsets(), arguments, dy, channels, count, &dx]) }
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
    pub fn new(device: &CudaDevice, clusters: ClusterView<'_, f32>) -> Result<Self> {
        Ok(Self {
            offsets: device.upload(clusters.offsets())?,
            members: device.upload(clusters.members())?,
            cluster_of: device.upload(clusters.cluster_of())?,
            phases: device.upload(clusters.phases())?,
        })
    }

    /// A copy.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self> {
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
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
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

    /// The kernel for `y_c = w sum_{f in c} rho(g_f) x_f`, its number of rows and its indices.
    fn gather(&self) -> Kernel<'a> {
        ("transport_gather", self.coarse_count(), self.slices.members)
    }

    /// The kernel for `y_f = w rho(-g_f) x_c`, likewise.
    fn spread(&self) -> Kernel<'a> {
        ("transport_spread", self.fine_count(), self.slices.cluster_of)
    }

    /// Runs one of the two; `w` is 1, or with `mean` one over the number of members.
    fn run(
        &self,
        device: &CudaDevice,
        (kernel, rows, indices): Kernel<'_>,
        (features, mean): (&FeatureType, bool),
        x: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let function = device.function(SOURCE, &[], kernel)?;
        let DeviceClusterSlices { offsets, phases, .. } = self.slices;
        let (table, count, width) = (irreps(device, features, 1)?, irrep_count(features), features.dimension());
        let arguments = args![offsets, indices, phases, x, y, &*table, count, width, u32::from(mean), rows];
        // SAFETY: lengths were checked, and the arrays when they were made.
        unsafe { function.over(rows * count, arguments) }
    }
}

/// A kernel of transport, its number of rows and its indices.
type Kernel<'a> = (&'static str, usize, DeviceSlice<'a, u32>);

pub(super) fn pool(device: &CudaDevice, pass: Pool<'_, Gpu>) -> Result<()> {
    pass.clusters.run(device, pass.clusters.gather(), (pass.features, true), pass.x, &pass.y)
}

pub(super) fn pool_backward(device: &CudaDevice, pass: PoolBackward<'_, Gpu>) -> Result<()> {
    pass.clusters.run(device, pass.clusters.spread(), (pass.features, true), pass.dy, &pass.dx)
}

pub(super) fn unpool(device: &CudaDevice, pass: Unpool<'_, Gpu>) -> Result<()> {
    pass.clusters.run(device, pass.clusters.spread(), (pass.features, false), pass.x, &pass.y)
}

pub(super) fn unpool_backward(device: &CudaDevice, pass: UnpoolBackward<'_, Gpu>) -> Result<()> {
    pass.clusters.run(device, pass.clusters.gather(), (pass.features, false), pass.dy, &pass.dx)
}
