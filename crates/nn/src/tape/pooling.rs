//! Pooling: whole meshes to one row, and clusters of vertices to one vertex and back.

use super::{Context, InputGradients, Step, Tape, Var, expect_batch};
use crate::{GraphBatch, NnError};
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
        arguments: Vec<u32>,
    },
    Pool {
        clusters: &'a ClusterArrays<T>,
        kind: FeatureType,
    },
    Unpool {
        clusters: &'a ClusterArrays<T>,
        kind: FeatureType,
    },
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
        let mut y = self.output(meshes, &x.kind);
        global::mean(batch.arrays().mesh_offsets(), &x.kind, &x.value, &mut y)?;
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
        let mut y = self.output(meshes, &x.kind);
        let mut arguments = vec![0; y.len()];
        let offsets = batch.arrays().mesh_offsets();
        global::max(offsets, &x.kind, &x.value, &mut y, &mut arguments)?;
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
        let mut y = self.output(rows, &x.kind);
        transport::pool(clusters, &x.kind, &x.value, &mut y)?;
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
        let mut y = self.output(rows, &x.kind);
        transport::unpool(clusters, &x.kind, &x.value, &mut y)?;
        let kind = x.kind.clone();
        let node = self.record([x.node, None], false, || {
            Step::Pooling(PoolingStep::Unpool { clusters, kind })
        });
        Ok(Var::new(x.kind, rows, y, node))
    }
}

impl<T: Real> PoolingStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dy: &[T],
    ) -> Result<InputGradients<T>, NnError> {
        let pool = &context.workspace.pool;
        let take = |rows: usize, kind: &FeatureType| pool.take(rows * kind.dimension());
        let dx = match self {
            Self::GlobalMean { batch, kind } => {
                let mut dx = take(batch.vertex_count(), &kind);
                global::mean_backward(batch.arrays().mesh_offsets(), &kind, dy, &mut dx)?;
                dx
            }
            Self::GlobalMax {
                batch,
                kind,
                arguments,
            } => {
                let mut dx = take(batch.vertex_count(), &kind);
                let offsets = batch.arrays().mesh_offsets();
                global::max_backward(offsets, &kind, &arguments, dy, &mut dx)?;
                dx
            }
            Self::Pool { clusters, kind } => {
                let mut dx = take(clusters.fine_count(), &kind);
                transport::pool_backward(clusters, &kind, dy, &mut dx)?;
                dx
            }
            Self::Unpool { clusters, kind } => {
                let mut dx = take(clusters.coarse_count(), &kind);
                transport::unpool_backward(clusters, &kind, dy, &mut dx)?;
                dx
            }
        };
        Ok([Some(dx), None])
    }
}
