//! Features on the directed edges of a graph: gather, spread, reduce and softmax.
//!
//! Features of edges are rows in the order of the edges of the graph. In the frame of the vertex
//! ([`EdgeFrame::Vertex`]) they keep their type. In the frame of the edge ([`EdgeFrame::Edge`]) they do not
//! depend on the gauge, so their type is scalar and any function may act on them.

use crate::{Context, GraphBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::edges::{self, EdgeFrame, Reduce};
use gemcnn_kernels::{FeatureType, Real, View, dispatch};
use std::sync::Arc;

/// Type of features at edges, for features of type `kind` at vertices.
fn kind_at_edges(frame: EdgeFrame, kind: &FeatureType) -> FeatureType {
    match frame {
        EdgeFrame::Vertex => kind.clone(),
        EdgeFrame::Edge => FeatureType::scalars(kind.dimension()),
    }
}

/// Gathers the features of the neighbour `q` at each edge `p <- q`, transported to `p`. Saves the type.
///
/// # Shapes
/// `x`: one row for each vertex; `y`: one row for each edge, of the same type in the frame of the vertex and
/// of scalars in the frame of the edge.
#[derive(Debug, Clone, Copy)]
pub struct GatherEdges<'a, T> {
    /// Frame of the result.
    pub frame: EdgeFrame,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
}

/// Copies the features of the vertex `p` to each of its edges `p <- q`. Saves the type.
///
/// # Shapes
/// As [`GatherEdges`].
#[derive(Debug, Clone, Copy)]
pub struct SpreadEdges<'a, T> {
    /// Frame of the result.
    pub frame: EdgeFrame,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
}

/// The two differ in their kernels.
macro_rules! to_edges {
    ($name:ident, $label:literal, $forward:ident, $backward:ident) => {
        impl<T: Real> Operator<T> for $name<'_, T> {
            type Saved = FeatureType;

            fn forward(
                &self,
                context: &mut Context<'_, T>,
                [x]: [Var<T>; 1],
            ) -> Result<(Var<T>, Self::Saved), NnError> {
                let kind = x.kind().clone();
                x.expect_rows(concat!("the input of an ", $label), self.batch.vertex_count())?;
                let edges = context.edge_rows(self.batch);
                let mut y = context.buffer(edges * kind.dimension())?;
                let graph = self.batch.on(context.device())?;
                dispatch!(
                    context.executor(),
                    edges::$forward(&kind, self.frame; graph.view(), x.view(), y.view_mut())
                );
                Ok((Var::new(kind_at_edges(self.frame, &kind), edges, y), kind))
            }

            fn backward(
                &self,
                context: &mut Context<'_, T>,
                kind: Self::Saved,
                dy: Storage<T>,
                _: [bool; 1],
            ) -> Result<[Option<Storage<T>>; 1], NnError> {
                let mut dx = context.buffer(self.batch.vertex_count() * kind.dimension())?;
                let graph = self.batch.on(context.device())?;
                dispatch!(
                    context.executor(),
                    edges::$backward(&kind, self.frame; graph.view(), dy.view(), dx.view_mut())
                );
                Ok([Some(dx)])
            }
        }
    };
}

to_edges!(GatherEdges, "edge gather", gather, gather_backward);
to_edges!(SpreadEdges, "edge spread", spread, spread_backward);

/// Sum or mean of values over the edges of each vertex, optionally with weights. With weights it saves both inputs,
/// otherwise nothing.
///
/// # Shapes
/// Values: one row for each edge, of type `config.features` in the frame of the vertex, or of the same number of
/// scalars in the frame of the edge. Weights, if there is a second input: one row of `config.heads` scalars for each
/// edge. Result: one row of `config.features` for each vertex.
#[derive(Debug, Clone)]
pub struct ReduceEdges<'a, T> {
    /// Type, frame, aggregation and heads.
    pub config: Arc<Reduce>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
}

impl<T: Real> ReduceEdges<'_, T> {
    fn reduce(
        &self,
        context: &mut Context<'_, T>,
        values: &Var<T>,
        weights: Option<&Var<T>>,
    ) -> Result<Var<T>, NnError> {
        let config = &*self.config;
        let kind = kind_at_edges(config.frame, &config.features);
        values.expect_kind("values of an edge reduction", &kind)?;
        values.expect_rows("the values of an edge reduction", context.edge_rows(self.batch))?;
        if let Some(weights) = weights {
            let scalars = FeatureType::scalars(config.heads);
            weights.expect_kind("weights of an edge reduction", &scalars)?;
            weights.expect_rows("the weights of an edge reduction", values.rows())?;
        }
        let rows = self.batch.vertex_count();
        let mut y = context.buffer(rows * config.features.dimension())?;
        let graph = self.batch.on(context.device())?;
        let weights = weights.map(Var::view);
        dispatch!(
            context.executor(),
            edges::reduce(config; graph.view(), values.view(), weights, y.view_mut())
        );
        Ok(Var::new(config.features.clone(), rows, y))
    }

    fn gradients(
        &self,
        context: &mut Context<'_, T>,
        values: Option<View<'_, T>>,
        weights: Option<View<'_, T>>,
        dy: &Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let (config, edges) = (&*self.config, self.batch.edge_count());
        let mut dvalues = context.buffer_if(wanted[0], edges * config.features.dimension())?;
        let mut dweights = context.buffer_if(wanted[1], edges * config.heads)?;
        let graph = self.batch.on(context.device())?;
        dispatch!(
            context.executor(),
            edges::reduce_backward(
                config;
                graph.view(),
                values,
                weights,
                dy.view(),
                dvalues.as_mut().map(Storage::view_mut),
                dweights.as_mut().map(Storage::view_mut)
            )
        );
        Ok([dvalues, dweights])
    }
}

impl<T: Real> Operator<T, 1> for ReduceEdges<'_, T> {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [values]: [Var<T>; 1]) -> Result<(Var<T>, ()), NnError> {
        Ok((self.reduce(context, &values, None)?, ()))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (): (),
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let [dvalues, _] = self.gradients(context, None, None, &dy, [wanted, false])?;
        Ok([dvalues])
    }
}

impl<T: Real> Operator<T, 2> for ReduceEdges<'_, T> {
    type Saved = [Var<T>; 2];

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [values, weights]: [Var<T>; 2],
    ) -> Result<(Var<T>, Self::Saved), NnError> {
        let y = self.reduce(context, &values, Some(&weights))?;
        Ok((y, [values, weights]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [values, weights]: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let (values, weights) = (Some(values.view()), Some(weights.view()));
        self.gradients(context, values, weights, &dy, wanted)
    }
}

/// Softmax over the edges of each vertex, channel by channel. Saves the result.
///
/// # Shapes
/// `x` and `y`: one row of scalars for each edge.
#[derive(Debug, Clone, Copy)]
pub struct EdgeSoftmax<'a, T>(pub &'a GraphBatch<T>);

impl<T: Real> Operator<T> for EdgeSoftmax<'_, T> {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_scalars("the input of an edge softmax")?;
        x.expect_rows("the input of an edge softmax", context.edge_rows(self.0))?;
        let mut y = context.buffer(x.values_len())?;
        let graph = self.0.on(context.device())?;
        let heads = x.kind().dimension();
        dispatch!(
            context.executor(),
            edges::softmax(heads; graph.view(), x.view(), y.view_mut())
        );
        let y = Var::new(x.kind().clone(), x.rows(), y);
        Ok((y.clone(), y))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        y: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(y.values_len())?;
        let graph = self.0.on(context.device())?;
        let heads = y.kind().dimension();
        dispatch!(
            context.executor(),
            edges::softmax_backward(heads; graph.view(), y.view(), dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`GatherEdges`].
    pub fn gather_edges(&mut self, frame: EdgeFrame, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(GatherEdges { frame, batch }, [x])
    }

    /// Applies [`SpreadEdges`].
    pub fn spread_edges(&mut self, frame: EdgeFrame, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(SpreadEdges { frame, batch }, [x])
    }

    /// Applies [`ReduceEdges`] without weights.
    pub fn reduce_edges(
        &mut self,
        config: &Arc<Reduce>,
        batch: &'a GraphBatch<T>,
        values: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(ReduceEdges { config, batch }, [values])
    }

    /// Applies [`ReduceEdges`] to values and weights.
    pub fn reduce_edges_weighted(
        &mut self,
        config: &Arc<Reduce>,
        batch: &'a GraphBatch<T>,
        values: Var<T>,
        weights: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(ReduceEdges { config, batch }, [values, weights])
    }

    /// Applies [`EdgeSoftmax`].
    pub fn edge_softmax(&mut self, batch: &'a GraphBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(EdgeSoftmax(batch), [x])
    }
}
