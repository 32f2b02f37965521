//! The gauge convolution with weights of edges, and the products of queries with its keys: the two halves of attention.

use super::ConvWeights;
use crate::{Context, GraphBatch, NnError, Operator, ParameterId, Storage, Tape, Var};
use gemcnn_kernels::gauge_conv::{GaugeConv, Weights};
use gemcnn_kernels::{FeatureType, Real, View, dispatch, weighted_conv};
use std::sync::Arc;

/// Products `<y_p, K(theta_pq) rho(g_pq) x_q>` of queries `y` with the keys of each edge `p <- q`. Saves both inputs
/// and recomputes the rest.
///
/// # Shapes
/// Queries: one row of `config.output` for each vertex; `x`: one row of `config.input`; products: one scalar for each
/// edge.
#[derive(Debug)]
pub struct EdgeProduct<'a, T> {
    /// Types of the keys; without self term and bias.
    pub config: Arc<GaugeConv>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
    /// `K(0)`, `[D_out, D_in]`.
    pub weight: ParameterId,
}

/// Gauge convolution with one weight for each edge, `sum_q w_pq K(theta_pq) rho(g_pq) x_q + bias`. Saves both inputs
/// and recomputes the rest.
///
/// # Shapes
/// `x`: one row of `config.input` for each vertex; weights: one scalar for each edge; result: one row of
/// `config.output`.
#[derive(Debug)]
pub struct WeightedConvolve<'a, T> {
    /// Types; without self term.
    pub config: Arc<GaugeConv>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
    /// The parameters.
    pub weights: ConvWeights,
}

fn neighbour_only<S>(neighbour: S, [self_term, bias]: [S; 2]) -> Weights<S> {
    Weights { neighbour, self_term, bias }
}

/// The products of rows of `y` with the messages of all edges.
fn products<T: Real>(
    context: &mut Context<'_, T>,
    (config, batch, weight): (&GaugeConv, &GraphBatch<T>, ParameterId),
    y: View<'_, T>,
    x: &Var<T>,
) -> Result<Storage<T>, NnError> {
    let mut products = context.buffer(batch.edge_count())?;
    let graph = batch.on(context.device())?;
    let ([weight], run) = context.values([Some(weight)])?;
    dispatch!(
        run,
        weighted_conv::products(config; graph.view(), y, x.view(), weight, products.view_mut(); scratch)
    );
    Ok(products)
}

impl<T: Real> Operator<T, 2> for EdgeProduct<'_, T> {
    type Saved = [Var<T>; 2];

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [y, x]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved), NnError> {
        let (config, vertices) = (&*self.config, self.batch.vertex_count());
        y.expect_kind("queries of an edge product", &config.output)?;
        y.expect_rows("the queries of an edge product", vertices)?;
        x.expect_kind("input of an edge product", &config.input)?;
        x.expect_rows("the input of an edge product", vertices)?;
        let edges = context.edge_rows(self.batch);
        let place = (config, self.batch, self.weight);
        let products = products(context, place, y.view(), &x)?;
        let products = Var::new(FeatureType::scalars(1), edges, products);
        Ok((products, [y, x]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [y, x]: Self::Saved,
        dl: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let config = &*self.config;
        let mut dy = context.buffer_if(wanted[0], y.values_len())?;
        let mut dx = context.buffer_if(wanted[1], x.values_len())?;
        let graph = self.batch.on(context.device())?;
        if let Some(dy) = &mut dy {
            let ([weight, none, nothing], run) = context.values([Some(self.weight), None, None])?;
            let weights = neighbour_only(weight, [none, nothing]);
            dispatch!(
                run,
                weighted_conv::forward(config; graph.view(), dl.view(), x.view(), weights, dy.view_mut(); scratch)
            );
        }
        let ids = [Some(self.weight), None, None];
        let ([weight, a, b], [dweight, c, d], run) = context.gradients(ids)?;
        let (weights, gradients) = (neighbour_only(weight, [a, b]), neighbour_only(dweight, [c, d]));
        dispatch!(
            run,
            weighted_conv::backward(
                config;
                graph.view(),
                dl.view(),
                x.view(),
                weights,
                y.view(),
                dx.as_mut().map(Storage::view_mut),
                gradients;
                scratch
            )
        );
        Ok([dy, dx])
    }
}

impl<T: Real> Operator<T, 2> for WeightedConvolve<'_, T> {
    type Saved = [Var<T>; 2];

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [x, factors]: [Var<T>; 2],
    ) -> Result<(Var<T>, Self::Saved), NnError> {
        let config = &*self.config;
        let what = "weights of a weighted gauge convolution";
        x.expect_kind("input of a weighted gauge convolution", &config.input)?;
        x.expect_rows("the input of a weighted gauge convolution", self.batch.vertex_count())?;
        factors.expect_kind(what, &FeatureType::scalars(1))?;
        factors.expect_rows(what, context.edge_rows(self.batch))?;
        let mut y = context.buffer(x.rows() * config.output.dimension())?;
        let graph = self.batch.on(context.device())?;
        let ([neighbour, self_term, bias], run) = context.values(self.weights.ids())?;
        let weights = neighbour_only(neighbour, [self_term, bias]);
        dispatch!(
            run,
            weighted_conv::forward(
                config; graph.view(), factors.view(), x.view(), weights, y.view_mut(); scratch
            )
        );
        let y = Var::new(config.output.clone(), x.rows(), y);
        Ok((y, [x, factors]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [x, factors]: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let config = &*self.config;
        let mut dx = context.buffer_if(wanted[0], x.values_len())?;
        let graph = self.batch.on(context.device())?;
        let ([neighbour, a, b], [dneighbour, c, d], run) = context.gradients(self.weights.ids())?;
        let (weights, gradients) = (neighbour_only(neighbour, [a, b]), neighbour_only(dneighbour, [c, d]));
        dispatch!(
            run,
            weighted_conv::backward(
                config;
                graph.view(),
                factors.view(),
                x.view(),
                weights,
                dy.view(),
                dx.as_mut().map(Storage::view_mut),
                gradients;
                scratch
            )
        );
        let place = (config, self.batch, self.weights.neighbour);
        let dfactors = match wanted[1] {
            true => Some(products(context, place, dy.view(), &x)?),
            false => None,
        };
        Ok([dx, dfactors])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`EdgeProduct`] to queries and features.
    pub fn edge_product(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weight: ParameterId,
        queries: Var<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(EdgeProduct { config, batch, weight }, [queries, x])
    }

    /// Applies [`WeightedConvolve`] to features and weights of edges.
    pub fn weighted_conv(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weights: ConvWeights,
        x: Var<T>,
        factors: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(WeightedConvolve { config, batch, weights }, [x, factors])
    }
}
