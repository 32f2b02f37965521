//! Batch normalisation.

use crate::{Context, Device, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::batch_norm::cuda::{self, TrainingSlots};
use gemcnn_kernels::batch_norm::{AnyStatistics, Backward, BatchNorm, Forward};
use gemcnn_kernels::{OnDevice, Real, Resolve};
use std::sync::Arc;

/// Settings and parameters of a batch normalisation.
#[derive(Debug, Clone)]
pub struct NormWeights {
    /// The settings.
    pub config: Arc<BatchNorm>,
    /// Scale of each slot.
    pub gamma: ParameterId,
    /// Shift of each slot.
    pub beta: ParameterId,
    /// Running mean of each slot.
    pub mean: ParameterId,
    /// Running variance of each slot.
    pub variance: ParameterId,
}

impl NormWeights {
    pub(super) fn ids(&self) -> [Option<ParameterId>; 2] {
        [Some(self.gamma), Some(self.beta)]
    }

    /// The statistics to normalise with: in training those of the rows, which also update the running statistics;
    /// otherwise the running statistics.
    pub(super) fn statistics<T: Real>(&self, context: &mut Context<'_, T>, x: &Var<T>) -> Result<AnyStatistics> {
        let (config, ids) = (&*self.config, [self.mean, self.variance]);
        if context.access.parameters_mut().is_none() {
            let (running, run) = context.values(ids.map(Some))?;
            return Ok(AnyStatistics::running(&run, running)?);
        }
        let Device::Cuda(device) = context.device().clone() else {
            let statistics = AnyStatistics::of_rows(&mut context.executor(), config, x.rows(), x.view())?;
            if let Some((running, run)) = context.values_mut(ids)? {
                statistics.update_running(&run, config.momentum, running)?;
            }
            return Ok(statistics);
        };
        let ids = [self.gamma, self.beta, self.mean, self.variance];
        let (rows, values) = (x.rows(), x.view().cuda()?);
        Ok(OnDevice::Cuda(match context.values_mut(ids)? {
            Some(([gamma, beta, mean, variance], _)) => {
                let (gamma, beta) = (gamma.cuda()?, beta.cuda()?);
                let (mean, variance) = (mean.cuda()?, variance.cuda()?);
                let slots = TrainingSlots { gamma: gamma.view(), beta: beta.view(), mean, variance };
                cuda::training_statistics(&device, config, rows, values, slots)?
            }
            None => cuda::statistics(&device, config, rows, values)?,
        }))
    }
}

/// Batch normalisation. In training it uses the statistics of the rows and updates the running statistics. In
/// inference it uses the running statistics. Saves `x` and the statistics.
///
/// # Shapes
/// `x` and `y`: rows of the type of the normalisation.
#[derive(Debug, Clone)]
pub struct BatchNormalise(pub NormWeights);

impl<T: Real> Operator<T> for BatchNormalise {
    type Saved = (Var<T>, AnyStatistics);

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        let kind = &self.0.config.kind;
        x.expect_kind("input of a batch normalisation", kind)?;
        let mut y = context.buffer(x.values_len())?;
        let statistics = self.0.statistics(context, &x)?;
        let (values, mut run) = context.values(self.0.ids())?;
        let (rows, norm) = (x.rows(), statistics.normalisation(&self.0.config, values)?);
        Forward { rows, norm, x: x.view(), y: y.view_mut() }.run(&mut run)?;
        Ok((Var::new(kind.clone(), rows, y), (x, statistics)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, statistics): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let mut dx = context.buffer(x.values_len())?;
        let (values, [dgamma, dbeta], mut run) = context.gradients(self.0.ids())?;
        let norm = statistics.normalisation(&self.0.config, values)?;
        let (rows, x, dy, to) = (x.rows(), x.view(), dy.view(), dx.view_mut());
        Backward { rows, norm, x, dy, dx: to, dgamma, dbeta }.run(&mut run)?;
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`BatchNormalise`].
    pub fn batch_norm(&mut self, weights: &NormWeights, x: Var<T>) -> Result<Var<T>> {
        self.apply(BatchNormalise(weights.clone()), [x])
    }
}
