//! The regular nonlinearity, with optional batch normalisation of its samples.

use super::NormWeights;
use super::batch_norm::UsedStatistics;
use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::batch_norm::NormGradients;
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Real, dispatch};
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
    type Saved = (Var<T>, Option<UsedStatistics>);

    fn has_parameters(&self) -> bool {
        self.norm.is_some()
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let (plan, rows) = (&*self.plan, x.rows());
        x.expect_kind("input of a regular nonlinearity", &plan.config().input)?;
        let kind = plan.config().output();
        let mut y = context.buffer(rows * kind.dimension())?;
        let statistics = match &self.norm {
            None => {
                let run = context.executor();
                dispatch!(run, regular::forward(; plan, rows, x.view(), y.view_mut()));
                None
            }
            Some(weights) => {
                let statistics = weights.statistics(context, &x)?;
                let (values, run) = context.values(weights.ids())?;
                let norm = weights.with(&statistics, values);
                dispatch!(run, regular::forward_normalised(; plan, norm, rows, x.view(), y.view_mut()));
                Some(statistics)
            }
        };
        Ok((Var::new(kind, rows, y), (x, statistics)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, statistics): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let (plan, rows) = (&*self.plan, x.rows());
        let mut dx = context.buffer(x.values_len())?;
        match self.norm.as_ref().zip(statistics.as_ref()) {
            None => {
                let run = context.executor();
                dispatch!(run, regular::backward(; plan, rows, x.view(), dy.view(), dx.view_mut()));
            }
            Some((weights, statistics)) => {
                let (values, [gamma, beta], run) = context.gradients(weights.ids())?;
                let norm = weights.with(statistics, values);
                let gradients = NormGradients { gamma, beta };
                dispatch!(
                    run,
                    regular::backward_normalised(
                        ; plan, norm, rows, x.view(), dy.view(), dx.view_mut(), gradients;
                        wide_scratch
                    )
                );
            }
        }
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`RegularActivate`].
    pub fn regular(&mut self, plan: &Arc<Plan<T>>, norm: Option<&NormWeights>, x: Var<T>) -> Result<Var<T>, NnError> {
        let plan = Arc::clone(plan);
        self.apply(RegularActivate { plan, norm: norm.cloned() }, [x])
    }
}
