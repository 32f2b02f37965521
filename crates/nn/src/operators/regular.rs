//! The regular nonlinearity, with optional batch normalisation of its samples.

use super::NormWeights;
use crate::record::empty;
use crate::{Context, Operator, Result, Storage, Tape, Var};
use gemcnn_kernels::Real;
use gemcnn_kernels::batch_norm::AnyStatistics;
use gemcnn_kernels::regular::{Backward, Forward, Plan};
use std::sync::Arc;

/// Regular nonlinearity, after an optional batch normalisation of the samples. Saves `x` and the statistics.
///
/// # Shapes
/// `x`: rows of the plan's input; `y`: as many rows of its output.
#[derive(Debug, Clone)]
pub struct RegularActivate<T: Real> {
    /// Samples and function.
    pub plan: Arc<Plan<T>>,
    /// The batch normalisation, if there is one.
    pub norm: Option<NormWeights>,
}

impl<T: Real> Operator<T> for RegularActivate<T> {
    type Saved = (Var<T>, Option<AnyStatistics>);

    fn has_parameters(&self) -> bool {
        self.norm.is_some()
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        let (plan, rows) = (&*self.plan, x.rows());
        x.expect_kind("input of a regular nonlinearity", &plan.config().input)?;
        let kind = plan.config().output();
        let mut y = context.buffer(rows * kind.dimension())?;
        let statistics = self.norm.as_ref().map(|weights| weights.statistics(context, &x)).transpose()?;
        let (norm, mut run) = match self.norm.as_ref().zip(statistics.as_ref()) {
            None => (None, context.executor()),
            Some((weights, statistics)) => {
                let (values, run) = context.values(weights.ids())?;
                (Some(statistics.normalisation(&weights.config, values)?), run)
            }
        };
        let (plan, norm) = (plan.on(&run), run.option(norm));
        Forward { rows, plan, norm, x: x.view(), y: y.view_mut() }.run(&mut run)?;
        Ok((Var::new(kind, rows, y), (x, statistics)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, statistics): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let (plan, rows) = (&*self.plan, x.rows());
        let mut dx = context.buffer(x.values_len())?;
        let (_, none) = empty(context.device());
        let (norm, [dgamma, dbeta], mut run) = match self.norm.as_ref().zip(statistics.as_ref()) {
            None => (None, [none(), none()], context.executor()),
            Some((weights, statistics)) => {
                let (values, gradients, run) = context.gradients(weights.ids())?;
                (Some(statistics.normalisation(&weights.config, values)?), gradients, run)
            }
        };
        let (plan, norm) = (plan.on(&run), run.option(norm));
        let (x, dy, to) = (x.view(), dy.view(), dx.view_mut());
        Backward { rows, plan, norm, x, dy, dx: to, dgamma, dbeta }.run(&mut run)?;
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`RegularActivate`].
    pub fn regular(&mut self, plan: &Arc<Plan<T>>, norm: Option<&NormWeights>, x: Var<T>) -> Result<Var<T>> {
        let plan = Arc::clone(plan);
        self.apply(RegularActivate { plan, norm: norm.cloned() }, [x])
    }
}
