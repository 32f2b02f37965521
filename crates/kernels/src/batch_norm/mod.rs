//! Gauge equivariant batch normalisation.
//!
//! Only order 0 may be shifted, and the two components of an order share one scale. Each irrep
//! `(order, channel)` belongs to a statistic slot ([`NormGroups`]). Over all `V` vertices, with the
//! members of a slot inside the sums,
//!
//! ```text
//! mean = 1/V sum_v x_0                                              (0 without an order-0 member)
//! var  = 1/V sum_v [ (x_0 - mean)^2 + 1/2 sum_{n>0} (x_a^2 + x_b^2) ]
//! y_0  = gamma (x_0 - mean) / sqrt(var + epsilon) + beta
//! y_n  = gamma x_n / sqrt(var + epsilon)                            (n > 0)
//! ```
//!
//! The weight 1/2 makes [`NormGroups::PerChannel`] the batch normalisation of the *samples* of the
//! regular nonlinearity: for `N >= 2B + 1` equidistant samples `s_t` of a channel, the mean of `s_t`
//! is `x_0` and the mean of `s_t^2` is `x_0^2 + 1/2 sum_n (x_a^2 + x_b^2)`, so mean and variance
//! over vertices and samples are the two lines above, and scaling and shifting samples is scaling
//! all orders and shifting order 0. No samples are computed. With scalars only, both groupings are
//! ordinary batch normalisation.
//!
//! Fused: one pass for the statistics, one for the result; the regular nonlinearity applies the
//! second one while it loads ([`crate::regular::Forward`]), so that the normalised map is
//! never stored. Saved: the input and the [`Statistics`]. The backward pass is exact through the
//! batch statistics: with `z = (x - mean)/sqrt(var + epsilon)`, `A = sum dy z` over the slot
//! (which is the gradient of gamma), `C = sum dy_0` (the gradient of beta), `w` = 1 or 1/2,
//!
//! ```text
//! dx = gamma / sqrt(var + epsilon) * (dy - [order 0] C/V - w z A/V).
//! ```
//!
//! Statistics are summed in f64, in partial sums whose number depends only on `V`.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{arguments, kinds};
use crate::cuda::Result;
use crate::error::{check_length, check_rows};
use crate::real::compiled;
use crate::{Executor, FeatureType, KernelError, OnDevice, Real, Resolve, Scratch, View, ViewMut, irrep_dimension};
use cuda::{DeviceNormalisation, DeviceStatistics};
pub(crate) use fast::{Affine, backward_with};

const FORWARD: &str = "batch norm forward";
const BACKWARD: &str = "batch norm backward";

/// Which irreps share their statistics, their gamma and their beta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormGroups {
    /// One slot for each irrep: order by order, channel by channel.
    PerIrrep,
    /// One slot for each channel, shared by all orders, which must have the same multiplicity.
    PerChannel,
}

/// Settings of a batch normalisation.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Type of input and output.
    pub kind: FeatureType,
    /// Which irreps share a slot.
    pub groups: NormGroups,
    /// Added to the variance (default 1e-5).
    pub epsilon: f64,
    /// Weight of the current batch in the running statistics (default 0.1).
    pub momentum: f64,
}

impl BatchNorm {
    /// Default settings for a type.
    pub fn new(kind: FeatureType, groups: NormGroups) -> Self {
        Self { kind, groups, epsilon: 1e-5, momentum: 0.1 }
    }

    /// Number of slots: the length of gamma, beta and the statistics.
    ///
    /// # Errors
    /// [`NormGroups::PerChannel`] where multiplicities differ, or an epsilon or momentum out of
    /// range.
    ///
    /// ```
    /// use gemcnn_kernels::{FeatureType, batch_norm::{BatchNorm, NormGroups}};
    /// let kind = FeatureType::uniform(16, 2);
    /// assert_eq!(BatchNorm::new(kind.clone(), NormGroups::PerIrrep).slots()?, 48);
    /// assert_eq!(BatchNorm::new(kind, NormGroups::PerChannel).slots()?, 16);
    /// # Ok::<(), gemcnn_kernels::KernelError>(())
    /// ```
    pub fn slots(&self) -> Result<usize, KernelError> {
        let setting = |problem: String| KernelError::Setting { operator: "batch norm", problem };
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(setting(format!("epsilon is {}, but has to be positive", self.epsilon)));
        }
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(setting(format!("momentum is {}, but has to be from 0 to 1", self.momentum)));
        }
        match self.groups {
            NormGroups::PerIrrep => Ok(self.kind.multiplicities().iter().sum()),
            NormGroups::PerChannel if self.kind == FeatureType::default() => Ok(0),
            NormGroups::PerChannel => self.kind.uniform_multiplicity().ok_or_else(|| {
                setting(format!(
                    "statistics per channel need the same multiplicity for every order, but the \
                     type is {}; take statistics per irrep",
                    self.kind
                ))
            }),
        }
    }

    /// Slot and order of every column of a feature vector.
    fn columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut first = 0;
        self.kind.orders().flat_map(move |(order, multiplicity)| {
            let start = match self.groups {
                NormGroups::PerIrrep => first,
                NormGroups::PerChannel => 0,
            };
            first += multiplicity;
            (0..irrep_dimension(order) * multiplicity).map(move |column| (start + column % multiplicity, order))
        })
    }
}

/// The weight of a squared component in the variance of its slot.
fn moment_weight(order: usize) -> f64 {
    if order == 0 { 1.0 } else { 0.5 }
}

/// Origin of statistics: whether they depend on the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The input itself (training): gradients pass through them.
    Batch {
        /// Number of vertices.
        vertices: usize,
    },
    /// Running averages (evaluation): they are constants.
    Running,
}

/// Mean and variance of every slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Mean of each slot; zero where a slot holds no order 0.
    pub mean: Vec<f64>,
    /// Variance of each slot: the mean over the `V` vertices, not divided by `V - 1`.
    pub variance: Vec<f64>,
    /// Origin of the statistics.
    pub origin: Origin,
}

impl Statistics {
    /// Running statistics, for evaluation.
    pub fn running<T: Real>(mean: &[T], variance: &[T]) -> Self {
        let wide = |values: &[T]| values.iter().map(|v| v.as_f64()).collect();
        Self { mean: wide(mean), variance: wide(variance), origin: Origin::Running }
    }

    /// Updates running averages: `r <- (1 - momentum) r + momentum s`. The variance is the biased one
    /// (divided by `V`), as used for the batch. A batch without vertices changes nothing.
    ///
    /// # Errors
    /// Running averages of another length than the statistics.
    pub fn update_running<T: Real>(
        &self,
        momentum: f64,
        mean: &mut [T],
        variance: &mut [T],
    ) -> Result<(), KernelError> {
        check_length("batch norm", "running mean", mean, self.mean.len())?;
        check_length("batch norm", "running variance", variance, self.variance.len())?;
        if self.origin == (Origin::Batch { vertices: 0 }) {
            return Ok(());
        }
        let towards = |running: &mut [T], now: &[f64]| {
            for (running, &now) in running.iter_mut().zip(now) {
                *running = T::of((1.0 - momentum) * running.as_f64() + momentum * now);
            }
        };
        towards(mean, &self.mean);
        towards(variance, &self.variance);
        Ok(())
    }
}

/// A batch normalisation with its statistics `P` and parameters: the map from `x` to `y`.
#[derive(Debug, Clone, Copy)]
pub struct Normalisation<'a, P, S> {
    /// The settings.
    pub config: &'a BatchNorm,
    /// Mean and variance of each slot.
    pub statistics: P,
    /// Scale of each slot.
    pub gamma: S,
    /// Shift of each slot; only order 0 is shifted.
    pub beta: S,
}

/// A [`Normalisation`] on the host.
pub type HostNormalisation<'a, T> = Normalisation<'a, &'a Statistics, &'a [T]>;

impl<T: Real> HostNormalisation<'_, T> {
    pub(crate) fn check(&self, operator: &'static str) -> Result<(), KernelError> {
        let slots = self.config.slots()?;
        check_length(operator, "mean", &self.statistics.mean, slots)?;
        check_length(operator, "variance", &self.statistics.variance, slots)?;
        check_length(operator, "gamma", self.gamma, slots)?;
        check_length(operator, "beta", self.beta, slots)
    }
}

/// Statistics on the host or on a GPU.
pub type AnyStatistics = OnDevice<Statistics, DeviceStatistics>;
/// A [`Normalisation`] on the host or on a GPU.
pub type AnyNormalisation<'a, T> = OnDevice<HostNormalisation<'a, T>, DeviceNormalisation<'a>>;

impl AnyStatistics {
    /// Statistics of the rows of `x`, for training.
    ///
    /// # Errors
    /// Invalid settings, `x` of the wrong length or on another device, or a failed call.
    pub fn of_rows<T: Real>(
        run: &mut Executor<'_, T>,
        config: &BatchNorm,
        rows: usize,
        x: View<'_, T>,
    ) -> Result<Self> {
        Ok(match run {
            Executor::Host(scratch) => Self::Host(statistics(config, rows, x.host()?, scratch.wide)?),
            Executor::Cuda(device) => Self::Cuda(cuda::statistics(device, config, rows, x.cuda()?)?),
        })
    }

    /// Running statistics, for evaluation.
    ///
    /// # Errors
    /// Values on another device, or a failed call.
    pub fn running<T: Real>(run: &Executor<'_, T>, [mean, variance]: [View<'_, T>; 2]) -> Result<Self> {
        Ok(match run {
            Executor::Host(_) => Self::Host(Statistics::running(mean.host()?, variance.host()?)),
            Executor::Cuda(device) => Self::Cuda(DeviceStatistics::running(device, mean.cuda()?, variance.cuda()?)?),
        })
    }

    /// Updates running averages, as [`Statistics::update_running`].
    ///
    /// # Errors
    /// Running averages of another length than the statistics or on another device, or a failed call.
    pub fn update_running<T: Real>(
        &self,
        run: &Executor<'_, T>,
        momentum: f64,
        [mean, variance]: [ViewMut<'_, T>; 2],
    ) -> Result<()> {
        match (self, run) {
            (Self::Host(found), _) => Ok(found.update_running(momentum, mean.host()?, variance.host()?)?),
            (Self::Cuda(found), Executor::Cuda(device)) => {
                found.update_running(device, momentum, mean.cuda()?, variance.cuda()?)
            }
            (Self::Cuda(_), Executor::Host(_)) => Err(KernelError::OtherDevice.into()),
        }
    }

    /// The normalisation with these statistics, and values of gamma and beta.
    ///
    /// # Errors
    /// Values on another device.
    pub fn normalisation<'a, T>(
        &'a self,
        config: &'a BatchNorm,
        [gamma, beta]: [View<'a, T>; 2],
    ) -> Result<AnyNormalisation<'a, T>, KernelError> {
        Ok(match self {
            Self::Host(statistics) => {
                OnDevice::Host(Normalisation { config, statistics, gamma: gamma.host()?, beta: beta.host()? })
            }
            Self::Cuda(statistics) => {
                OnDevice::Cuda(Normalisation { config, statistics, gamma: gamma.cuda()?, beta: beta.cuda()? })
            }
        })
    }
}

/// Mean and variance of a batch: `x` is `vertices` rows of the type.
pub fn statistics<T: Real>(
    config: &BatchNorm,
    vertices: usize,
    x: &[T],
    scratch: &mut Scratch<f64>,
) -> Result<Statistics, KernelError> {
    config.slots()?;
    let width = config.kind.dimension();
    check_rows("batch norm statistics", "x", x, vertices, width)?;
    Ok(compiled!(fast::statistics as fn(&BatchNorm, usize, &[T], &mut Scratch<f64>) -> Statistics)(
        config, vertices, x, scratch,
    ))
}

kinds! {
    /// A normalisation.
    Normalised = HostNormalisation<'a, T>, DeviceNormalisation<'a>;
    /// A normalisation, or none.
    MaybeNormalised = Option<HostNormalisation<'a, T>>, Option<DeviceNormalisation<'a>>;
}

arguments! {
    /// `y` = the normalised `x`.
    Forward = forward(FORWARD) {
        rows: usize;
        norm: Normalised,
        x: read[rows, norm.config.kind.dimension()],
        y: write[rows, norm.config.kind.dimension()];
        norm.check(FORWARD)?;
    }

    /// Overwrites `dx` and adds to the gradients of gamma and beta; that of the beta of a slot without order 0 stays as it is.
    Backward = backward(BACKWARD, scratch) {
        rows: usize;
        norm: Normalised,
        x: read[rows, norm.config.kind.dimension()],
        dy: read[rows, norm.config.kind.dimension()],
        dx: write[rows, norm.config.kind.dimension()],
        dgamma: add[norm.gamma.len()],
        dbeta: add[norm.gamma.len()];
        norm.check(BACKWARD)?;
    }
}
