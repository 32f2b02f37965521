//! The gauge convolution with weights of edges, and the products of queries with its keys: the two halves of attention.

use super::ConvWeights;
use crate::{GraphBatch, Keep, ParameterId, Recipe, Result, Tape, Var};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::weighted_conv::{Backward, Forward, Products};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

impl<'a, T: Real> Tape<'a, T> {
    /// Products `<y_p, K(theta_pq) rho(g_pq) x_q>` of queries `y`, one row of `config.output` for each vertex, with the keys
    /// of each edge `p <- q`: one scalar for each edge. `config` has no self term and no bias; `weight` is `K(0)`, `[D_out,
    /// D_in]`. Keeps both inputs and recomputes the rest.
    pub fn edge_product(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weight: ParameterId,
        queries: Var<T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        let vertices = batch.vertex_count();
        queries.expect_kind("queries of an edge product", &config.output)?;
        queries.expect_rows("the queries of an edge product", vertices)?;
        x.expect_kind("input of an edge product", &config.input)?;
        x.expect_rows("the input of an edge product", vertices)?;
        let output = (FeatureType::scalars(1), self.context().edge_rows(batch));
        let (state, parameters) = ((Arc::clone(config), batch.on(self.device())?), [Some(weight), None]);
        self.record_wanted(
            Recipe { state, inputs: [queries, x], parameters, output, keep: Keep::Inputs },
            |(op, graph), run, [y, x], [weight, _], products| {
                Products { op, graph: graph.view(), y, x, weight, products }.run(run)
            },
            // With the gradient as weights of the edges, both are weighted convolutions.
            |(op, graph), run, [(dy, to), (x, dx)], [(weight, dweight), (bias, dbias)], (_, factors)| {
                let graph = graph.view();
                to.map_or(Ok(()), |y| Forward { op, graph, factors, x, weight, bias, y }.run(run))?;
                Backward { op, graph, factors, x, weight, bias, dy, dx, dweight, dbias }.run(run)
            },
        )
    }

    /// Gauge convolution with one weight for each edge, `sum_q w_pq K(theta_pq) rho(g_pq) x_q + bias`: one row of
    /// `config.input` for each vertex and one scalar for each edge become one row of `config.output` for each vertex. `config`
    /// has no self term. Keeps both inputs and recomputes the rest.
    pub fn weighted_conv(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weights: ConvWeights,
        x: Var<T>,
        factors: Var<T>,
    ) -> Result<Var<T>> {
        let what = "weights of a weighted gauge convolution";
        x.expect_kind("input of a weighted gauge convolution", &config.input)?;
        x.expect_rows("the input of a weighted gauge convolution", batch.vertex_count())?;
        factors.expect_kind(what, &FeatureType::scalars(1))?;
        factors.expect_rows(what, self.context().edge_rows(batch))?;
        let (state, parameters) =
            ((Arc::clone(config), batch.on(self.device())?), [Some(weights.neighbour), weights.bias]);
        let output = (config.output.clone(), x.rows());
        self.record_wanted(
            Recipe { state, inputs: [x, factors], parameters, output, keep: Keep::Inputs },
            |(op, graph), run, [x, factors], [weight, bias], y| {
                Forward { op, graph: graph.view(), factors, x, weight, bias, y }.run(run)
            },
            |(op, graph), run, [(x, dx), (factors, dfactors)], [(weight, dweight), (bias, dbias)], (_, dy)| {
                let graph = graph.view();
                Backward { op, graph, factors, x, weight, bias, dy, dx, dweight, dbias }.run(run)?;
                dfactors.map_or(Ok(()), |products| Products { op, graph, y: dy, x, weight, products }.run(run))
            },
        )
    }
}
