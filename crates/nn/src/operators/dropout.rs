//! Dropout of whole irreps, channels or meshes.

use crate::operator::RandomStream;
use crate::{Context, GraphBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::dropout::{self, Dropout};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{FeatureType, OnDevice, Real, View, ViewMut, dispatch};
use std::sync::Arc;

/// Dropout of whole irreps or channels, in training only. Saves its random stream; the backward pass generates the
/// mask again.
///
/// # Shapes
/// `x` and `y`: rows of the type of the dropout.
#[derive(Debug, Clone)]
pub struct DropIrreps(pub Arc<Dropout>);

impl DropIrreps {
    /// Drops features, or gradients: the map is its own adjoint.
    fn run<T: Real>(
        &self,
        context: &mut Context<'_, T>,
        random: &RandomStream,
        rows: usize,
        x: View<'_, T>,
        y: ViewMut<'_, T>,
    ) -> Result<(), NnError> {
        let random = borrowed(random);
        dispatch!(context.executor(), dropout::forward(&self.0; random, rows, x, y));
        Ok(())
    }
}

impl<T: Real> Operator<T> for DropIrreps {
    type Saved = Option<(RandomStream, usize)>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_kind("input of a dropout", &self.0.kind)?;
        self.0.units()?;
        let Some(random) = context.random_stream()? else {
            return Ok((x, None));
        };
        let mut y = context.buffer(x.values_len())?;
        self.run(context, &random, x.rows(), x.view(), y.view_mut())?;
        Ok((Var::new(x.kind().clone(), x.rows(), y), Some((random, x.rows()))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let Some((random, rows)) = saved else {
            return Ok([Some(dy)]);
        };
        let mut dx = context.buffer(dy.len())?;
        self.run(context, &random, rows, dy.view(), dx.view_mut())?;
        Ok([Some(dx)])
    }
}

/// Dropout of the features of whole meshes, in training only: stochastic depth if the input is the update of a
/// residual block. Saves its random stream and the type; the backward pass draws the same meshes again.
///
/// # Shapes
/// `x` and `y`: one row of any type for each vertex.
#[derive(Debug, Clone, Copy)]
pub struct DropMeshes<'a, T> {
    /// The graphs of the batch.
    pub graph: &'a GraphBatch<T>,
    /// Probability of dropping a mesh, in [0, 1).
    pub probability: f64,
}

impl<T: Real> DropMeshes<'_, T> {
    /// Drops features, or gradients: the map is its own adjoint.
    fn run(
        &self,
        context: &mut Context<'_, T>,
        random: &RandomStream,
        width: usize,
        x: View<'_, T>,
        y: ViewMut<'_, T>,
    ) -> Result<(), NnError> {
        let graph = self.graph.on(context.device())?;
        let meshes = graph.meshes();
        let run = context.executor();
        dispatch!(run, dropout::drop_meshes(self.probability, width; borrowed(random), meshes, x, y));
        Ok(())
    }
}

impl<T: Real> Operator<T> for DropMeshes<'_, T> {
    type Saved = Option<(RandomStream, FeatureType)>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_rows("the input of a dropout of meshes", self.graph.vertex_count())?;
        let Some(random) = context.random_stream()? else {
            return Ok((x, None));
        };
        let kind = x.kind().clone();
        let mut y = context.buffer(x.values_len())?;
        self.run(context, &random, kind.dimension(), x.view(), y.view_mut())?;
        let y = Var::new(kind.clone(), x.rows(), y);
        Ok((y, Some((random, kind))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let Some((random, kind)) = saved else {
            return Ok([Some(dy)]);
        };
        let mut dx = context.buffer(dy.len())?;
        self.run(context, &random, kind.dimension(), dy.view(), dx.view_mut())?;
        Ok([Some(dx)])
    }
}

/// A stream for the kernels.
fn borrowed(random: &RandomStream) -> OnDevice<Stream, (&DeviceStream, u64)> {
    match random {
        OnDevice::Host(stream) => OnDevice::Host(*stream),
        OnDevice::Cuda((stream, salt)) => OnDevice::Cuda((&**stream, *salt)),
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`DropIrreps`].
    pub fn dropout(&mut self, config: &Arc<Dropout>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(DropIrreps(Arc::clone(config)), [x])
    }

    /// Applies [`DropMeshes`].
    ///
    /// # Errors
    /// Another number of rows, or a probability outside [0, 1).
    pub fn drop_meshes(&mut self, graph: &'a GraphBatch<T>, probability: f64, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(DropMeshes { graph, probability }, [x])
    }
}
