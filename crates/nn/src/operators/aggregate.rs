//! Gauge aggregation: the sparse part of a gauge convolution.

use crate::{GraphBatch, Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::aggregate::{Aggregate, Backward, Forward};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

impl<'a, T: Real> Tape<'a, T> {
    /// Harmonics of the rotated features of the neighbours, summed; see [`gemcnn_kernels::aggregate`]: one row of
    /// `config.input` for each vertex becomes one row of `config.dimension()` scalars. Saves nothing.
    pub fn aggregate(&mut self, config: &Arc<Aggregate>, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of an aggregation", &config.input)?;
        x.expect_rows("the input of an aggregation", batch.vertex_count())?;
        let output = (FeatureType::scalars(config.dimension()), x.rows());
        let state = (Arc::clone(config), batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |(op, graph), run, [x], [], a| Forward { op, graph: graph.view(), x, a }.run(run),
            |(op, graph), run, [(_, dx)], [], (_, da)| Backward { op, graph: graph.view(), da, dx }.run(run),
        )
    }
}
