//! Pooling over whole meshes ([`Mean`], [`Max`]), and over clusters of vertices with parallel transport to a coarser
//! graph ([`Pool`]) and back ([`Unpool`], formulas in [`transport`]).
//!
//! ```text
//! mean:  y_m = 1/|m| sum_{v in m} x_v        dx_v = dy_m / |m|
//! max:   y_m = max_{v in m} x_v              dx_v = dy_m where v is the saved argument, else 0
//! ```
//!
//! for `x` `[vertices, channels]` and `y` `[meshes, channels]`, channel by channel. A mesh without vertices
//! gives 0. Only scalars can be pooled: components in different frames cannot be added or compared without
//! transport.
//!
//! The mean is summed in f64 and saves nothing. The maximum saves the vertex that attains it, the lowest
//! one in ties. NaN counts as larger than any number.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;
pub mod transport;

use crate::arguments::{Indices, MeshOffsets, Meshes, WriteIndices, arguments, kinds};
use crate::error::check_mesh_offsets;
use crate::{FeatureType, KernelError};

/// The saved vertex of the maximum over a mesh without vertices.
pub const NO_VERTEX: u32 = u32::MAX;

const GLOBAL: &str = "global pooling";
const TRANSPORT: &str = "transport pooling";

kinds! {
    /// The clusters of a batch.
    Clusters = transport::ClusterView<'a, T>, cuda::DeviceClusterView<'a>;
}

/// Checks that features are scalars and that offsets rise; returns the numbers of vertices and of meshes.
fn check_meshes(mesh_offsets: &[u32], features: &FeatureType) -> Result<(usize, usize), KernelError> {
    if !features.is_scalar() {
        let problem =
            format!("{features} has components that depend on the frames; only scalars can be pooled over a mesh");
        return Err(KernelError::Setting { operator: GLOBAL, problem });
    }
    Ok((check_mesh_offsets(mesh_offsets)?, mesh_offsets.len() - 1))
}

arguments! {
    /// Mean over each mesh. `meshes` holds the first vertex of each mesh, then the number of vertices, as
    /// [`GraphArrays::mesh_offsets`](crate::GraphArrays::mesh_offsets).
    ///
    /// ```
    /// use gemcnn_kernels::FeatureType;
    /// use gemcnn_kernels::pool::Mean;
    /// let (features, meshes, mut y) = (&FeatureType::scalars(1), &[0, 2, 2, 3][..], [0.0; 3]);
    /// Mean { features, meshes, x: &[1.0, 3.0, 5.0][..], y: &mut y[..] }.on_host()?;
    /// assert_eq!(y, [2.0, 0.0, 5.0]);
    /// # Ok::<(), gemcnn_kernels::KernelError>(())
    /// ```
    Mean = mean(GLOBAL) {
        features: &'a FeatureType;
        meshes: Meshes,
        x: read[vertices, features.dimension()],
        y: write[count, features.dimension()];
        let (vertices, count) = check_meshes(meshes.mesh_offsets(), features)?;
    }

    /// Overwrites `dx` with the gradient of [`Mean`].
    MeanBackward = mean_backward(GLOBAL) {
        features: &'a FeatureType;
        meshes: Meshes,
        dy: read[count, features.dimension()],
        dx: write[vertices, features.dimension()];
        let (vertices, count) = check_meshes(meshes.mesh_offsets(), features)?;
    }

    /// Maximum over each mesh, and the vertex that attains it (for the backward pass).
    Max = max(GLOBAL) {
        features: &'a FeatureType;
        meshes: Meshes,
        x: read[vertices, features.dimension()],
        y: write[count, features.dimension()],
        arguments: WriteIndices[count, features.dimension()];
        let (vertices, count) = check_meshes(meshes.mesh_offsets(), features)?;
    }

    /// Overwrites `dx` with the gradient of [`Max`], from the saved vertices. One outside of its mesh is an error on
    /// the host, and is ignored on a GPU.
    MaxBackward = max_backward(GLOBAL) {
        features: &'a FeatureType;
        meshes: Meshes,
        arguments: Indices[count, features.dimension()],
        dy: read[count, features.dimension()],
        dx: write[vertices, features.dimension()];
        let (vertices, count) = check_meshes(meshes.mesh_offsets(), features)?;
    }

    /// Mean over each cluster of the features transported to its coarse vertex.
    ///
    /// ```
    /// use gemcnn_kernels::pool::Pool;
    /// use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts};
    /// // Two vertices whose first axes point in opposite directions, and one vector seen from both.
    /// let clusters = ClusterArrays::union(&[ClusterParts {
    ///     offsets: &[0, 2],
    ///     members: &[0, 1],
    ///     cluster_of: &[0, 0],
    ///     transport: &[0.0, std::f64::consts::PI],
    /// }])?;
    /// let (features, clusters, mut y) = (&"1x1".parse()?, clusters.view(), [0.0f64; 2]);
    /// Pool { features, clusters, x: &[1.0, 2.0, -1.0, -2.0][..], y: &mut y[..] }.on_host()?;
    /// assert!((y[0] - 1.0).abs() < 1e-15 && (y[1] - 2.0).abs() < 1e-15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Pool = pool(TRANSPORT) {
        features: &'a FeatureType;
        clusters: Clusters,
        x: read[clusters.fine_count(), features.dimension()],
        y: write[clusters.coarse_count(), features.dimension()]
    }

    /// Overwrites `dx` with the gradient of [`Pool`].
    PoolBackward = pool_backward(TRANSPORT) {
        features: &'a FeatureType;
        clusters: Clusters,
        dy: read[clusters.coarse_count(), features.dimension()],
        dx: write[clusters.fine_count(), features.dimension()]
    }

    /// Features of each cluster transported back to its members.
    Unpool = unpool(TRANSPORT) {
        features: &'a FeatureType;
        clusters: Clusters,
        x: read[clusters.coarse_count(), features.dimension()],
        y: write[clusters.fine_count(), features.dimension()]
    }

    /// Overwrites `dx` with the gradient of [`Unpool`].
    UnpoolBackward = unpool_backward(TRANSPORT) {
        features: &'a FeatureType;
        clusters: Clusters,
        dy: read[clusters.fine_count(), features.dimension()],
        dx: write[clusters.coarse_count(), features.dimension()]
    }
}
