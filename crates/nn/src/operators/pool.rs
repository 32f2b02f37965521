//! Pooling: from vertices to whole meshes, and between vertices and clusters.

use crate::{ClusterBatch, Context, Device, GraphBatch, Keep, Operator, Recipe, Result, Storage, Tape, Var};
use gemcnn_kernels::cuda::DeviceBuffer;
use gemcnn_kernels::pool::{Max, MaxBackward, Mean, MeanBackward, Pool, PoolBackward, Unpool, UnpoolBackward};
use gemcnn_kernels::{FeatureType, OnDevice, Real};

/// Maximum over the vertices of each mesh. Saves the vertices of the maxima.
///
/// # Shapes
/// `x`: one row of scalars for each vertex; `y`: one row for each mesh.
#[derive(Debug, Clone, Copy)]
pub struct GlobalMax<'a, T>(pub &'a GraphBatch<T>);

impl<T: Real> Operator<T> for GlobalMax<'_, T> {
    type Saved = (FeatureType, OnDevice<Vec<u32>, DeviceBuffer<u32>>);

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
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
        Max { features: &kind, meshes: graph.meshes(), x: x.view(), y: y.view_mut(), arguments: places }
            .run(&mut context.executor())?;
        Ok((Var::new(kind.clone(), batch.mesh_count(), y), (kind, arguments)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (kind, arguments): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let mut dx = context.buffer(self.0.vertex_count() * kind.dimension())?;
        let arguments = match &arguments {
            OnDevice::Host(places) => OnDevice::Host(&places[..]),
            OnDevice::Cuda(places) => OnDevice::Cuda(places.view()),
        };
        let graph = self.0.on(context.device())?;
        MaxBackward { features: &kind, meshes: graph.meshes(), arguments, dy: dy.view(), dx: dx.view_mut() }
            .run(&mut context.executor())?;
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Mean over the vertices of each mesh: one row of scalars for each vertex becomes one for each mesh. Keeps the
    /// type.
    pub fn global_mean(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of a global pooling", batch.vertex_count())?;
        let output = (x.kind().clone(), batch.mesh_count());
        let state = (x.kind().clone(), batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |(features, graph), run, [x], [], y| Mean { features, meshes: graph.meshes(), x, y }.run(run),
            |(features, graph), run, [(_, dx)], [], (_, dy)| {
                MeanBackward { features, meshes: graph.meshes(), dy, dx }.run(run)
            },
        )
    }

    /// Applies [`GlobalMax`].
    pub fn global_max(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        self.apply(GlobalMax(batch), [x])
    }

    /// Mean over the vertices of each cluster, transported to its representative: one row for each fine vertex becomes
    /// one of the same type for each cluster. Keeps the type.
    pub fn transport_pool(&mut self, clusters: &'a ClusterBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of a transport pooling", clusters.fine_count())?;
        let output = (x.kind().clone(), clusters.coarse_count());
        let state = (x.kind().clone(), clusters.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |(features, on), run, [x], [], y| Pool { features, clusters: on.view(), x, y }.run(run),
            |(features, on), run, [(_, dx)], [], (_, dy)| {
                PoolBackward { features, clusters: on.view(), dy, dx }.run(run)
            },
        )
    }

    /// Features of each cluster, transported to its vertices: one row for each cluster becomes one of the same type for
    /// each fine vertex. Keeps the type.
    pub fn transport_unpool(&mut self, clusters: &'a ClusterBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of a transport unpooling", clusters.coarse_count())?;
        let output = (x.kind().clone(), clusters.fine_count());
        let state = (x.kind().clone(), clusters.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |(features, on), run, [x], [], y| Unpool { features, clusters: on.view(), x, y }.run(run),
            |(features, on), run, [(_, dx)], [], (_, dy)| {
                UnpoolBackward { features, clusters: on.view(), dy, dx }.run(run)
            },
        )
    }
}
