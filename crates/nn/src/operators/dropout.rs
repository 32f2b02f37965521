//! Dropout of whole irreps, channels or meshes.

use crate::operator::RandomStream;
use crate::{GraphBatch, Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::dropout::{DropMeshes, DropUnits, Dropout};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{OnDevice, Real};
use std::sync::Arc;

/// A stream for the kernels.
fn borrowed(random: &RandomStream) -> OnDevice<Stream, (&DeviceStream, u64)> {
    match random {
        OnDevice::Host(stream) => OnDevice::Host(*stream),
        OnDevice::Cuda((stream, salt)) => OnDevice::Cuda((&**stream, *salt)),
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Dropout of whole irreps or channels, in training only. The backward pass generates the mask again.
    pub fn dropout(&mut self, config: &Arc<Dropout>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of a dropout", &config.kind)?;
        config.units()?;
        let Some(random) = self.context().random_stream()? else { return Ok(x) };
        let (state, output) = ((Arc::clone(config), random, x.rows()), (config.kind.clone(), x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref op, ref random, rows), run, [x], [], y| {
                DropUnits { op, rows, stream: borrowed(random), x, y }.run(run)
            },
            |&(ref op, ref random, rows), run, [(_, y)], [], (_, x)| {
                DropUnits { op, rows, stream: borrowed(random), x, y }.run(run)
            },
        )
    }

    /// Dropout of the features of whole meshes, in training only: stochastic depth if the input is the update of a residual
    /// block. The backward pass draws the same meshes again.
    ///
    /// # Errors
    /// Another number of rows, or a probability outside [0, 1).
    pub fn drop_meshes(&mut self, graph: &'a GraphBatch<T>, probability: f64, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of a dropout of meshes", graph.vertex_count())?;
        let Some(random) = self.context().random_stream()? else { return Ok(x) };
        let (width, output) = (x.kind().dimension(), (x.kind().clone(), x.rows()));
        let state = (graph.on(self.device())?, random, probability, width);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref graph, ref random, probability, width), run, [x], [], y| {
                let (stream, meshes) = (borrowed(random), graph.meshes());
                DropMeshes { probability, width, stream, meshes, x, y }.run(run)
            },
            |&(ref graph, ref random, probability, width), run, [(_, y)], [], (_, x)| {
                let (stream, meshes) = (borrowed(random), graph.meshes());
                DropMeshes { probability, width, stream, meshes, x, y }.run(run)
            },
        )
    }
}
