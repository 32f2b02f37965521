//! Pooling: from vertices to whole meshes, and between vertices and clusters.

use crate::{ClusterBatch, Context, Device, GraphBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::cuda::DeviceBuffer;
use gemcnn_kernels::{FeatureType, OnDevice, Real, dispatch, pool};

/// Mean over the vertices of each mesh. Saves the type.
///
/// # Shapes
/// `x`: one row of scalars for each vertex; `y`: one row for each mesh.
#[derive(Debug, Clone, Copy)]
pub struct GlobalMean<'a, T>(pub &'a GraphBatch<T>);

impl<T: Real> Operator<T> for GlobalMean<'_, T> {
    type Saved = FeatureType;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let (batch, kind) = (self.0, x.kind().clone());
        x.expect_rows("the input of a global pooling", batch.vertex_count())?;
        let mut y = context.buffer(batch.mesh_count() * kind.dimension())?;
        let graph = batch.on(context.device())?;
        dispatch!(context.executor(), pool::mean(; graph.meshes(), &kind, x.view(), y.view_mut()));
        Ok((Var::new(kind.clone(), batch.mesh_count(), y), kind))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        kind: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(self.0.vertex_count() * kind.dimension())?;
        let graph = self.0.on(context.device())?;
        let run = context.executor();
        dispatch!(run, pool::mean_backward(; graph.meshes(), &kind, dy.view(), dx.view_mut()));
        Ok([Some(dx)])
    }
}

/// Maximum over the vertices of each mesh. Saves the vertices of the maxima.
///
/// # Shapes
/// `x`: one row of scalars for each vertex; `y`: one row for each mesh.
#[derive(Debug, Clone, Copy)]
pub struct GlobalMax<'a, T>(pub &'a GraphBatch<T>);

impl<T: Real> Operator<T> for GlobalMax<'_, T> {
    type Saved = (FeatureType, OnDevice<Vec<u32>, DeviceBuffer<u32>>);

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let (batch, kind) = (self.0, x.kind().clone());
        x.expect_rows("the input of a global pooling", batch.vertex_count())?;
        let mut y = context.buffer(batch.mesh_count() * kind.dimension())?;
        let mut arguments = match context.device() {
            Device::Cpu => OnDevice::Host(vec![0; y.len()]),
            Device::Cuda(device) => OnDevice::Cuda(device.buffer(y.len())?),
        };
        let places = match &mut arguments {
            OnDevice::Host(places) => OnDevice::Host(&mut places[..]),
            OnDevice::Cuda(places) => OnDevice::Cuda(places.view_mut()),
        };
        let graph = batch.on(context.device())?;
        dispatch!(
            context.executor(),
            pool::max(; graph.meshes(), &kind, x.view(), y.view_mut(), places)
        );
        Ok((Var::new(kind.clone(), batch.mesh_count(), y), (kind, arguments)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (kind, arguments): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(self.0.vertex_count() * kind.dimension())?;
        let places = match &arguments {
            OnDevice::Host(places) => OnDevice::Host(&places[..]),
            OnDevice::Cuda(places) => OnDevice::Cuda(places.view()),
        };
        let graph = self.0.on(context.device())?;
        dispatch!(
            context.executor(),
            pool::max_backward(; graph.meshes(), &kind, places, dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
    }
}

/// Mean over the vertices of each cluster, transported to its representative. Saves the type.
///
/// # Shapes
/// `x`: one row for each fine vertex; `y`: one row of the same type for each cluster.
#[derive(Debug, Clone, Copy)]
pub struct PoolClusters<'a, T>(pub &'a ClusterBatch<T>);

/// Features of each cluster, transported to its vertices. Saves the type.
///
/// # Shapes
/// `x`: one row for each cluster; `y`: one row of the same type for each fine vertex.
#[derive(Debug, Clone, Copy)]
pub struct UnpoolClusters<'a, T>(pub &'a ClusterBatch<T>);

/// The two directions differ in their counts and in their kernels.
macro_rules! cluster_map {
    ($name:ident, $label:literal, $from:ident -> $to:ident, $forward:ident, $backward:ident) => {
        impl<T: Real> Operator<T> for $name<'_, T> {
            type Saved = FeatureType;

            fn forward(
                &self,
                context: &mut Context<'_, T>,
                [x]: [Var<T>; 1],
            ) -> Result<(Var<T>, Self::Saved), NnError> {
                let kind = x.kind().clone();
                x.expect_rows(concat!("the input of a ", $label), self.0.$from())?;
                let rows = self.0.$to();
                let mut y = context.buffer(rows * kind.dimension())?;
                let clusters = self.0.on(context.device())?;
                let run = context.executor();
                dispatch!(run, pool::$forward(; clusters.view(), &kind, x.view(), y.view_mut()));
                Ok((Var::new(kind.clone(), rows, y), kind))
            }

            fn backward(
                &self,
                context: &mut Context<'_, T>,
                kind: Self::Saved,
                dy: Storage<T>,
                _: [bool; 1],
            ) -> Result<[Option<Storage<T>>; 1], NnError> {
                let mut dx = context.buffer(self.0.$from() * kind.dimension())?;
                let clusters = self.0.on(context.device())?;
                let run = context.executor();
                dispatch!(run, pool::$backward(; clusters.view(), &kind, dy.view(), dx.view_mut()));
                Ok([Some(dx)])
            }
        }
    };
}

cluster_map!(PoolClusters, "transport pooling", fine_count -> coarse_count, pool, pool_backward);
cluster_map!(UnpoolClusters, "transport unpooling", coarse_count -> fine_count, unpool, unpool_backward);

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`GlobalMean`].
    pub fn global_mean(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(GlobalMean(batch), [x])
    }

    /// Applies [`GlobalMax`].
    pub fn global_max(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(GlobalMax(batch), [x])
    }

    /// Applies [`PoolClusters`].
    pub fn transport_pool(&mut self, clusters: &'a ClusterBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(PoolClusters(clusters), [x])
    }

    /// Applies [`UnpoolClusters`].
    pub fn transport_unpool(&mut self, clusters: &'a ClusterBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(UnpoolClusters(clusters), [x])
    }
}
