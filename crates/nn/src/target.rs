//! Targets: what is known of the rows of an output, wherever it is.

use crate::device::f32_slice;
use crate::{Result, Targets};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::regression::cuda::DeviceValues;
use gemcnn_kernels::regression::{Penalty, Regression};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// What is known of the rows of an output: nothing, classes or values.
///
/// `C` and `V` say how and where: by default lists in main memory, of one sample or of a batch. They may as well be
/// columns of a file, slices with the settings of their loss, or buffers on a GPU.
///
/// ```
/// use gemcnn_nn::Target;
/// let target: Target = Target::Values(vec![0.5, 2.0]);
/// let sizes = target.as_ref().map(Vec::len, Vec::len);
/// assert_eq!(sizes, Target::Values(2));
/// assert_eq!(target.values(), Some(vec![0.5, 2.0]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Target<C = Vec<u32>, V = Vec<f32>> {
    /// Nothing.
    #[default]
    Unknown,
    /// Class of each row, or [`IGNORE`](crate::IGNORE) where it is not known.
    Classes(C),
    /// Values of each row, row after row. A row that is not known has a NaN.
    Values(V),
}

impl<C, V> Target<C, V> {
    /// The same, borrowed.
    pub fn as_ref(&self) -> Target<&C, &V> {
        match self {
            Self::Unknown => Target::Unknown,
            Self::Classes(classes) => Target::Classes(classes),
            Self::Values(values) => Target::Values(values),
        }
    }

    /// The same in another form.
    pub fn map<D, W>(self, classes: impl FnOnce(C) -> D, values: impl FnOnce(V) -> W) -> Target<D, W> {
        match self {
            Self::Unknown => Target::Unknown,
            Self::Classes(of) => Target::Classes(classes(of)),
            Self::Values(of) => Target::Values(values(of)),
        }
    }

    /// The same in another form, unless that fails.
    pub fn try_map<D, W, E>(
        self,
        classes: impl FnOnce(C) -> Result<D, E>,
        values: impl FnOnce(V) -> Result<W, E>,
    ) -> Result<Target<D, W>, E> {
        Ok(match self {
            Self::Unknown => Target::Unknown,
            Self::Classes(of) => Target::Classes(classes(of)?),
            Self::Values(of) => Target::Values(values(of)?),
        })
    }

    /// Both targets; `None` unless both are classes or both are values.
    pub fn zip<D, W>(self, other: Target<D, W>) -> Option<Target<(C, D), (V, W)>> {
        match (self, other) {
            (Self::Classes(of), Target::Classes(other)) => Some(Target::Classes((of, other))),
            (Self::Values(of), Target::Values(other)) => Some(Target::Values((of, other))),
            _ => None,
        }
    }

    /// The classes; `None` for values.
    pub fn classes(self) -> Option<C> {
        match self {
            Self::Classes(classes) => Some(classes),
            Self::Unknown | Self::Values(_) => None,
        }
    }

    /// The values; `None` for classes.
    pub fn values(self) -> Option<V> {
        match self {
            Self::Values(values) => Some(values),
            Self::Unknown | Self::Classes(_) => None,
        }
    }
}

/// One form of a target for a loss: `H` on the host, and its copy `D` on the GPU of the tape if it is there already.
#[derive(Debug, Clone)]
pub(crate) struct LossTarget<H, D> {
    pub host: H,
    pub sent: Option<Arc<D>>,
}

/// Target values with the settings of their loss.
#[derive(Debug, Clone, Copy)]
pub struct TargetValues<'a, T> {
    /// Penalty on the difference.
    pub penalty: Penalty,
    /// Row after row, of the type of the prediction.
    pub values: &'a [T],
    /// Which rows are known; all if `None`.
    pub known: Option<&'a [bool]>,
}

impl<T: Real> TargetValues<'_, T> {
    /// The loss for a type of the rows.
    pub(crate) fn loss<'s>(&'s self, features: &'s FeatureType) -> Regression<'s> {
        Regression { features, penalty: self.penalty, mask: self.known }
    }

    /// A copy on a GPU, with rows of a type.
    pub(crate) fn send(&self, device: &CudaDevice, features: &FeatureType) -> Result<DeviceValues> {
        Ok(DeviceValues::new(device, &self.loss(features), f32_slice(self.values)?)?)
    }
}

/// Classes for a loss.
pub(crate) type LossClasses<'a, T> = LossTarget<Targets<'a, T>, DeviceTargets>;
/// Values for a loss.
pub(crate) type LossValues<'a, T> = LossTarget<TargetValues<'a, T>, DeviceValues>;

impl<H, D> LossTarget<H, D> {
    /// The copy on the GPU, made by `send` if there is none.
    pub fn on(&self, send: impl FnOnce(&H) -> Result<D>) -> Result<Arc<D>> {
        match &self.sent {
            Some(sent) => Ok(Arc::clone(sent)),
            None => send(&self.host).map(Arc::new),
        }
    }
}

impl<H, D> From<H> for LossTarget<H, D> {
    fn from(host: H) -> Self {
        Self { host, sent: None }
    }
}
