//! Pooling: whole meshes to one row, and clusters of vertices to one vertex and back.

use super::{Context, InputGradients, Step, Tape, Var, expect_batch};
use crate::device::single;
use crate::storage::Storage;
use crate::{GraphBatch, NnError};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::pool;
use gemcnn_kernels::pool::cuda::DeviceClusters;
use gemcnn_kernels::pool::{global, transport};
use gemcnn_kernels::{FeatureType, Real};

use gemcnn_kernels::pool::transport::ClusterArrays;

pub(super) enum PoolingStep<'a, T: Real> {
    GlobalMean {
        batch: &'a GraphBatch<T>,
        kind: FeatureType,
    },
    GlobalMax {
        batch: &'a GraphBatch<T>,
        kind: FeatureType,
        arguments: Arguments,
    },
    Pool {
        clusters: Clusters<'a, T>,
        kind: FeatureType,
    },
    Unpool {
        clusters: Clusters<'a, T>,
        kind: FeatureType,
    },
}

/// Vertices that have the largest values.
pub(super) enum Arguments {
    Host(Vec<u32>),
    Cuda(CudaDevice, DeviceBuffer<u32>),
}

/// Clusters where the tape runs. To a GPU they are sent by every operator that uses them.
pub(super) enum Clusters<'a, T> {
    Host(&'a ClusterArrays<T>),
    Cuda(CudaDevice, DeviceClusters),
}

impl<'a, T: Real> Tape<'a, T> {
    /// Mean over the vertices of each mesh. Keeps nothing.
    ///
    /// # Shapes
    /// `x`: one row of scalars for each vertex; result: one row for each mesh.
    ///
    /// # Errors
    /// Features that are not scalars, or another number of rows.
    pub fn global_mean(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        expect_batch("the input of a global pooling", &x, batch)?;
        let meshes = batch.mesh_count();
        let mut y = self.output(meshes, &x.kind)?;
        match self.cuda() {
            None => {
                let offsets = batch.arrays().mesh_offsets();
                global::mean(offsets, &x.kind, x.value.host()?, y.host_mut()?)?;
            }
            Some(device) => {
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                pool::cuda::mean(&device, &*batch.on(&device)?, &x.kind, values, y)?;
            }
        }
        let kind = x.kind.clone();
        let node = self.record([x.node, None], false, || {
            Step::Pooling(PoolingStep::GlobalMean { batch, kind })
        });
        Ok(Var::new(x.kind, meshes, y, node))
    }

    /// Largest value over the vertices of each mesh. Keeps where it was.
    ///
    /// # Shapes
    /// `x`: one row of scalars for each vertex; result: one row for each mesh.
    ///
    /// # Errors
    /// Features that are not scalars, or another number of rows.
    pub fn global_max(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        expect_batch("the input of a global pooling", &x, batch)?;
        let meshes = batch.mesh_count();
        let mut y = self.output(meshes, &x.kind)?;
        let arguments = match self.cuda() {
            None => {
                let mut arguments = vec![0; y.len()];
                let offsets = batch.arrays().mesh_offsets();
                let (values, y) = (x.value.host()?, y.host_mut()?);
                global::max(offsets, &x.kind, values, y, &mut arguments)?;
                Arguments::Host(arguments)
            }
            Some(device) => {
                let mut arguments = device.buffer(y.len())?;
                let graph = batch.on(&device)?;
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                pool::cuda::max(&device, &graph, &x.kind, values, y, arguments.view_mut())?;
                Arguments::Cuda(device, arguments)
            }
        };
        let kind = x.kind.clone();
        let node = self.record([x.node, None], false, || {
            Step::Pooling(PoolingStep::GlobalMax {
                batch,
                kind,
                arguments,
            })
        });
        Ok(Var::new(x.kind, meshes, y, node))
    }

    /// Mean over the vertices of each cluster, transported to the vertex that stands for it. Keeps
    /// nothing.
    ///
    /// # Shapes
    /// `x`: one row for each fine vertex; result: one row of the same type for each cluster.
    ///
    /// # Errors
    /// Another number of rows.
    pub fn transport_pool(
        &mut self,
        clusters: &'a ClusterArrays<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_rows("the input of a pooling", clusters.fine_count())?;
        let rows = clusters.coarse_count();
        let mut y = self.output(rows, &x.kind)?;
        let clusters = self.clusters(clusters)?;
        match &clusters {
            Clusters::Host(clusters) => {
                transport::pool(clusters, &x.kind, x.value.host()?, y.host_mut()?)?;
            }
            Clusters::Cuda(device, clusters) => {
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                pool::cuda::pool(device, clusters, &x.kind, values, y)?;
            }
        }
        let kind = x.kind.clone();
        let node = self.record([x.node, None], false, || {
            Step::Pooling(PoolingStep::Pool { clusters, kind })
        });
        Ok(Var::new(x.kind, rows, y, node))
    }

    /// The features of each cluster, transported to its vertices. Keeps nothing.
    ///
    /// # Shapes
    /// `x`: one row for each cluster; result: one row of the same type for each fine vertex.
    ///
    /// # Errors
    /// Another number of rows.
    pub fn transport_unpool(
        &mut self,
        clusters: &'a ClusterArrays<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_rows("the input of an unpooling", clusters.coarse_count())?;
        let rows = clusters.fine_count();
        let mut y = self.output(rows, &x.kind)?;
        let clusters = self.clusters(clusters)?;
        match &clusters {
            Clusters::Host(clusters) => {
                transport::unpool(clusters, &x.kind, x.value.host()?, y.host_mut()?)?;
            }
            Clusters::Cuda(device, clusters) => {
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                pool::cuda::unpool(device, clusters, &x.kind, values, y)?;
            }
        }
        let kind = x.kind.clone();
        let node = self.record([x.node, None], false, || {
            Step::Pooling(PoolingStep::Unpool { clusters, kind })
        });
        Ok(Var::new(x.kind, rows, y, node))
    }

    fn clusters(&self, clusters: &'a ClusterArrays<T>) -> Result<Clusters<'a, T>, NnError> {
        Ok(match self.cuda() {
            None => Clusters::Host(clusters),
            Some(device) => {
                let sent = DeviceClusters::new(&device, single(clusters)?)?;
                Clusters::Cuda(device, sent)
            }
        })
    }
}

impl<T: Real> Clusters<'_, T> {
    fn fine_count(&self) -> usize {
        match self {
            Self::Host(clusters) => clusters.fine_count(),
            Self::Cuda(_, clusters) => clusters.fine_count(),
        }
    }

    fn coarse_count(&self) -> usize {
        match self {
            Self::Host(clusters) => clusters.coarse_count(),
            Self::Cuda(_, clusters) => clusters.coarse_count(),
        }
    }
}

impl<T: Real> PoolingStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dy: &Storage<T>,
    ) -> Result<InputGradients<T>, NnError> {
        let take = |rows: usize, kind: &FeatureType| context.take(rows * kind.dimension());
        let dx = match self {
            Self::GlobalMean { batch, kind } => {
                let mut dx = take(batch.vertex_count(), &kind)?;
                match context.cuda() {
                    None => {
                        let offsets = batch.arrays().mesh_offsets();
                        global::mean_backward(offsets, &kind, dy.host()?, dx.host_mut()?)?;
                    }
                    Some(device) => {
                        let (graph, dy, dx) = (batch.on(&device)?, dy.cuda()?, dx.cuda_mut()?);
                        pool::cuda::mean_backward(&device, &graph, &kind, dy, dx)?;
                    }
                }
                dx
            }
            Self::GlobalMax {
                batch,
                kind,
                arguments,
            } => {
                let mut dx = take(batch.vertex_count(), &kind)?;
                match &arguments {
                    Arguments::Host(arguments) => {
                        let offsets = batch.arrays().mesh_offsets();
                        let (dy, dx) = (dy.host()?, dx.host_mut()?);
                        global::max_backward(offsets, &kind, arguments, dy, dx)?;
                    }
                    Arguments::Cuda(device, arguments) => {
                        let (graph, dy, dx) = (batch.on(device)?, dy.cuda()?, dx.cuda_mut()?);
                        let arguments = arguments.view();
                        pool::cuda::max_backward(device, &graph, &kind, arguments, dy, dx)?;
                    }
                }
                dx
            }
            Self::Pool { clusters, kind } => {
                let mut dx = take(clusters.fine_count(), &kind)?;
                match &clusters {
                    Clusters::Host(clusters) => {
                        transport::pool_backward(clusters, &kind, dy.host()?, dx.host_mut()?)?;
                    }
                    Clusters::Cuda(device, clusters) => {
                        let (dy, dx) = (dy.cuda()?, dx.cuda_mut()?);
                        pool::cuda::pool_backward(device, clusters, &kind, dy, dx)?;
                    }
                }
                dx
            }
            Self::Unpool { clusters, kind } => {
                let mut dx = take(clusters.coarse_count(), &kind)?;
                match &clusters {
                    Clusters::Host(clusters) => {
                        transport::unpool_backward(clusters, &kind, dy.host()?, dx.host_mut()?)?;
                    }
                    Clusters::Cuda(device, clusters) => {
                        let (dy, dx) = (dy.cuda()?, dx.cuda_mut()?);
                        pool::cuda::unpool_backward(device, clusters, &kind, dy, dx)?;
                    }
                }
                dx
            }
        };
        Ok([Some(dx), None])
    }
}
