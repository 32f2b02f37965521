//! Batch normalisation.

use crate::{Context, Device, NnError, Operator, ParameterId, Storage, Tape, Var};
use gemcnn_kernels::batch_norm::cuda::{DeviceStatistics, TrainingSlots};
use gemcnn_kernels::batch_norm::{self, BatchNorm, NormGradients, Normalisation, Statistics};
use gemcnn_kernels::{OnDevice, Real, Resolve, View, dispatch};
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

/// The mean and variance used by a normalisation.
pub(super) type UsedStatistics = OnDevice<Statistics, DeviceStatistics>;

impl NormWeights {
    pub(super) fn ids(&self) -> [Option<ParameterId>; 2] {
        [Some(self.gamma), Some(self.beta)]
    }

    /// The statistics to normalise with: in training those of the rows, which also update the running statistics;
    /// otherwise the running statistics.
    pub(super) fn statistics<T: Real>(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
    ) -> Result<UsedStatistics, NnError> {
        let (config, ids) = (&*self.config, [self.mean, self.variance]);
        let device = context.device().clone();
        if context.access.parameters_mut().is_none() {
            let ([mean, variance], _) = context.values(ids.map(Some))?;
            return Ok(match &device {
                Device::Cpu => OnDevice::Host(Statistics::running(mean.host()?, variance.host()?)),
                Device::Cuda(device) => {
                    OnDevice::Cuda(DeviceStatistics::running(device, mean.cuda()?, variance.cuda()?)?)
                }
            });
        }
        match &device {
            Device::Cpu => {
                let scratch = &mut context.workspace.wide_scratch;
                let values = x.view().host()?;
                let statistics = batch_norm::statistics(config, x.rows(), values, scratch)?;
                if let Some(([mean, variance], _)) = context.values_mut(ids)? {
                    statistics.update_running(config.momentum, mean.host()?, variance.host()?)?;
                }
                Ok(OnDevice::Host(statistics))
            }
            Device::Cuda(device) => {
                let ids = [self.gamma, self.beta, self.mean, self.variance];
                let (rows, values) = (x.rows(), x.view().cuda()?);
                Ok(OnDevice::Cuda(match context.values_mut(ids)? {
                    Some(([gamma, beta, mean, variance], _)) => {
                        let (gamma, beta) = (gamma.cuda()?, beta.cuda()?);
                        let slots = TrainingSlots {
                            gamma: gamma.view(),
                            beta: beta.view(),
                            mean: mean.cuda()?,
                            variance: variance.cuda()?,
                        };
                        batch_norm::cuda::training_statistics(device, config, rows, values, slots)?
                    }
                    None => batch_norm::cuda::statistics(device, config, rows, values)?,
                }))
            }
        }
    }

    /// The normalisation with these statistics, and values of gamma and beta.
    pub(super) fn with<'n, T>(
        &'n self,
        statistics: &'n UsedStatistics,
        [gamma, beta]: [View<'n, T>; 2],
    ) -> Normalisation<'n, OnDevice<&'n Statistics, &'n DeviceStatistics>, View<'n, T>> {
        Normalisation {
            config: &self.config,
            statistics: match statistics {
                OnDevice::Host(statistics) => OnDevice::Host(statistics),
                OnDevice::Cuda(statistics) => OnDevice::Cuda(statistics),
            },
            gamma,
            beta,
        }
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
    type Saved = (Var<T>, UsedStatistics);

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let kind = &self.0.config.kind;
        x.expect_kind("input of a batch normalisation", kind)?;
        let mut y = context.buffer(x.values_len())?;
        let statistics = self.0.statistics(context, &x)?;
        let (values, run) = context.values(self.0.ids())?;
        let norm = self.0.with(&statistics, values);
        dispatch!(run, batch_norm::forward(; norm, x.rows(), x.view(), y.view_mut()));
        Ok((Var::new(kind.clone(), x.rows(), y), (x, statistics)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, statistics): Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let (values, [gamma, beta], run) = context.gradients(self.0.ids())?;
        let norm = self.0.with(&statistics, values);
        let gradients = NormGradients { gamma, beta };
        dispatch!(
            run,
            batch_norm::backward(
                ; norm, x.rows(), x.view(), dy.view(), dx.view_mut(), gradients;
                wide_scratch
            )
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`BatchNormalise`].
    pub fn batch_norm(&mut self, weights: &NormWeights, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(BatchNormalise(weights.clone()), [x])
    }
}
