//! Gauge aggregation: the sums over neighbours of a convolution.

use crate::{Context, GraphBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::aggregate::{self, Aggregate};
use gemcnn_kernels::{FeatureType, Real, dispatch};
use std::sync::Arc;

/// Gauge aggregation: the sums over neighbours that a convolution multiplies with its weights. Saves
/// nothing.
///
/// # Shapes
/// `x`: one row of `config.input` for each vertex; `y`: one row of `config.dimension()` scalars,
/// ordered by ring, harmonic and input component.
#[derive(Debug)]
pub struct GaugeAggregate<'a, T> {
    /// Type, harmonics, rings and aggregation.
    pub config: Arc<Aggregate>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
}

impl<T: Real> Operator<T> for GaugeAggregate<'_, T> {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, ()), NnError> {
        let config = &*self.config;
        x.expect_kind("input of an aggregation", &config.input)?;
        x.expect_rows("the input of an aggregation", self.batch.vertex_count())?;
        let kind = FeatureType::scalars(config.dimension());
        let mut y = context.buffer(x.rows() * kind.dimension())?;
        let graph = self.batch.on(context.device())?;
        let run = context.executor();
        dispatch!(run, aggregate::forward(config; graph.view(), x.view(), y.view_mut(); scratch));
        Ok((Var::new(kind, x.rows(), y), ()))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (): (),
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let length = self.batch.vertex_count() * self.config.input.dimension();
        let mut dx = context.buffer(length)?;
        let graph = self.batch.on(context.device())?;
        let run = context.executor();
        dispatch!(
            run,
            aggregate::backward(&self.config; graph.view(), dy.view(), dx.view_mut(); scratch)
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`GaugeAggregate`].
    pub fn aggregate(
        &mut self,
        config: &Arc<Aggregate>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(GaugeAggregate { config, batch }, [x])
    }
}
