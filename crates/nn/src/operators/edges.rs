//! Features on the directed edges of a graph: gather, spread, reduce and softmax.
//!
//! Features of edges are rows in the order of the edges of the graph. In the frame of the vertex
//! ([`EdgeFrame::Vertex`]) they keep their type. In the frame of the edge ([`EdgeFrame::Edge`]) they do not
//! depend on the gauge, so their type is scalar and any function may act on them.

use crate::{GraphBatch, Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::edges::{
    EdgeFrame, Gather, GatherBackward, Reduce, ReduceBackwardWeights, ReduceForward, Softmax, SoftmaxBackward, Spread,
};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Type of features at edges, for features of type `kind` at vertices.
fn kind_at_edges(frame: EdgeFrame, kind: &FeatureType) -> FeatureType {
    match frame {
        EdgeFrame::Vertex => kind.clone(),
        EdgeFrame::Edge => FeatureType::scalars(kind.dimension()),
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Gathers the features of the neighbour `q` at each edge `p <- q`, transported to `p`: one row for each vertex becomes
    /// one row for each edge, of the same type in the frame of the vertex and of scalars in the frame of the edge. Keeps the
    /// type.
    pub fn gather_edges(&mut self, frame: EdgeFrame, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of an edge gather", batch.vertex_count())?;
        let output = (kind_at_edges(frame, x.kind()), self.context().edge_rows(batch));
        let state = (x.kind().clone(), frame, batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref features, frame, ref graph), run, [x], [], y| {
                Gather { features, frame, graph: graph.view(), x, y }.run(run)
            },
            |&(ref features, frame, ref graph), run, [(_, dx)], [], (_, dy)| {
                GatherBackward { features, frame, graph: graph.view(), dy, dx }.run(run)
            },
        )
    }

    /// Copies the features of the vertex `p` to each of its edges `p <- q`. Rows and types are those of
    /// [`gather_edges`](Self::gather_edges). Keeps the type.
    pub fn spread_edges(&mut self, frame: EdgeFrame, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_rows("the input of an edge spread", batch.vertex_count())?;
        let output = (kind_at_edges(frame, x.kind()), self.context().edge_rows(batch));
        let state = (Reduce::sum(x.kind().clone(), frame), batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |(op, graph), run, [x], [], y| Spread { op, graph: graph.view(), weights: None, x, y }.run(run),
            |(op, graph), run, [(_, y)], [], (_, x)| {
                ReduceForward { op, graph: graph.view(), x, weights: None, y }.run(run)
            },
        )
    }

    /// Sum or mean of values over the edges of each vertex: one row for each edge, of type `config.features` in the frame of
    /// the vertex, or of the same number of scalars in the frame of the edge, becomes one row of `config.features` for each
    /// vertex. Keeps nothing.
    pub fn reduce_edges(&mut self, config: &Arc<Reduce>, batch: &'a GraphBatch<T>, values: Var<T>) -> Result<Var<T>> {
        self.expect_values(config, batch, &values)?;
        let output = (config.features.clone(), batch.vertex_count());
        let state = (Arc::clone(config), batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [values], parameters: [], output, keep: Keep::Nothing },
            |(op, graph), run, [x], [], y| ReduceForward { op, graph: graph.view(), x, weights: None, y }.run(run),
            |(op, graph), run, [(_, y)], [], (_, x)| Spread { op, graph: graph.view(), weights: None, x, y }.run(run),
        )
    }

    /// The same with weights: one row of `config.heads` scalars for each edge. Keeps both inputs.
    pub fn reduce_edges_weighted(
        &mut self,
        config: &Arc<Reduce>,
        batch: &'a GraphBatch<T>,
        values: Var<T>,
        weights: Var<T>,
    ) -> Result<Var<T>> {
        self.expect_values(config, batch, &values)?;
        weights.expect_kind("weights of an edge reduction", &FeatureType::scalars(config.heads))?;
        weights.expect_rows("the weights of an edge reduction", values.rows())?;
        let output = (config.features.clone(), batch.vertex_count());
        let state = (Arc::clone(config), batch.on(self.device())?);
        self.record_wanted(
            Recipe { state, inputs: [values, weights], parameters: [], output, keep: Keep::Inputs },
            |(op, graph), run, [x, weights], [], y| {
                ReduceForward { op, graph: graph.view(), x, weights: Some(weights), y }.run(run)
            },
            |(op, graph), run, [(x, dx), (weights, dweights)], [], (_, dy)| {
                let (graph, weights) = (graph.view(), Some(weights));
                dx.map_or(Ok(()), |y| Spread { op, graph, weights, x: dy, y }.run(run))?;
                dweights.map_or(Ok(()), |dweights| ReduceBackwardWeights { op, graph, x, dy, dweights }.run(run))
            },
        )
    }

    fn expect_values(&mut self, config: &Reduce, batch: &GraphBatch<T>, values: &Var<T>) -> Result<()> {
        let kind = kind_at_edges(config.frame, &config.features);
        values.expect_kind("values of an edge reduction", &kind)?;
        values.expect_rows("the values of an edge reduction", self.context().edge_rows(batch))
    }

    /// Softmax over the edges of each vertex, channel by channel: one row of scalars for each edge. Keeps the result.
    pub fn edge_softmax(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_scalars("the input of an edge softmax")?;
        x.expect_rows("the input of an edge softmax", self.context().edge_rows(batch))?;
        let output = (x.kind().clone(), x.rows());
        let state = (x.kind().dimension(), batch.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Output },
            |&(heads, ref graph), run, [x], [], y| Softmax { heads, graph: graph.view(), x, y }.run(run),
            |&(heads, ref graph), run, [(_, dx)], [], (y, dy)| {
                SoftmaxBackward { heads, graph: graph.view(), y, dy, dx }.run(run)
            },
        )
    }
}
