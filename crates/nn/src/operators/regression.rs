//! Regression losses.

use crate::device::single_slice;
use crate::error::check_size;
use crate::{Context, Loss, LossOperator, LossValue, NnError, Storage, Tape, Var};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceBuffer};
use gemcnn_kernels::regression::cuda::DeviceRegression;
use gemcnn_kernels::regression::{self, Penalty, Regression};
use gemcnn_kernels::{Executor, OnDevice, Real, Resolve};
use std::sync::Arc;

/// Target values on a GPU, with the settings of their loss.
#[derive(Debug)]
pub struct DeviceValues {
    pub(crate) regression: DeviceRegression,
    pub(crate) target: DeviceBuffer<f32>,
}

impl DeviceValues {
    pub(crate) fn new(
        device: &CudaDevice,
        regression: &Regression<'_>,
        rows: usize,
        target: &[f32],
    ) -> Result<Self, CudaError> {
        Ok(Self { regression: DeviceRegression::new(device, regression, rows)?, target: device.upload(target)? })
    }
}

/// Target values on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostValues<'a, T> {
    penalty: Penalty,
    target: &'a [T],
    mask: Option<&'a [bool]>,
}

/// Mean penalty on the difference from target values, over the rows selected by a mask (all rows without a mask).
/// It is gauge invariant for features of any type. Saves the prediction.
#[derive(Debug)]
pub struct RegressionLoss<'a, T> {
    pub(crate) values: OnDevice<HostValues<'a, T>, Arc<DeviceValues>>,
}

impl<'a, T: Real> RegressionLoss<'a, T> {
    /// The loss between a prediction and `target`, which has one row of the same type for each row of the prediction.
    pub fn new(penalty: Penalty, target: &'a [T], mask: Option<&'a [bool]>) -> Self {
        Self { values: OnDevice::Host(HostValues { penalty, target, mask }) }
    }
}

impl<'a, T> HostValues<'a, T> {
    fn regression<'r>(&self, prediction: &'r Var<T>) -> Regression<'r>
    where
        'a: 'r,
        T: Real,
    {
        Regression { features: prediction.kind(), penalty: self.penalty, mask: self.mask }
    }
}

impl<T: Real> LossOperator<T> for RegressionLoss<'_, T> {
    type Saved = (Var<T>, Option<Arc<DeviceValues>>);

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [prediction]: [Var<T>; 1],
    ) -> Result<(LossValue, Self::Saved), NnError> {
        if let OnDevice::Host(HostValues { mask: Some(mask), .. }) = &self.values {
            check_size("rows in the mask", prediction.rows(), mask.len())?;
        }
        let values = match (context.executor(), &self.values) {
            (Executor::Host(_), OnDevice::Host(values)) => {
                let found = prediction.host()?;
                let settings = values.regression(&prediction);
                let value = regression::forward(&settings, found, values.target)?;
                return Ok((LossValue::Number(value), (prediction, None)));
            }
            (Executor::Host(_), OnDevice::Cuda(_)) => {
                return Err(gemcnn_kernels::KernelError::OtherDevice.into());
            }
            (Executor::Cuda(device), OnDevice::Host(values)) => {
                let settings = values.regression(&prediction);
                let target = single_slice(values.target)?;
                Arc::new(DeviceValues::new(device, &settings, prediction.rows(), target)?)
            }
            (Executor::Cuda(_), OnDevice::Cuda(values)) => Arc::clone(values),
        };
        let Executor::Cuda(device) = context.executor() else {
            return Err(gemcnn_kernels::KernelError::OtherDevice.into());
        };
        let (found, wanted) = (prediction.view().cuda()?, values.target.view());
        let value = regression::cuda::forward(device, &values.regression, found, wanted)?;
        let value = LossValue::CudaNumber(device.clone(), Arc::new(value));
        Ok((value, (prediction, Some(values))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (prediction, values): Self::Saved,
        weight: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(prediction.values_len())?;
        match (context.executor(), values, &self.values) {
            (Executor::Cuda(device), Some(values), _) => {
                let (found, wanted) = (prediction.view().cuda()?, values.target.view());
                let gradient = dx.view_mut().cuda()?;
                let settings = &values.regression;
                regression::cuda::backward(device, settings, found, wanted, weight, gradient)?;
            }
            (_, _, OnDevice::Host(values)) => {
                let (found, gradient) = (prediction.host()?, dx.view_mut().host()?);
                let settings = values.regression(&prediction);
                regression::backward(&settings, found, values.target, weight, gradient)?;
            }
            _ => return Err(gemcnn_kernels::KernelError::OtherDevice.into()),
        }
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Mean squared length of the difference from `target`, over all rows.
    ///
    /// # Errors
    /// A target of another size.
    pub fn mean_square(&mut self, prediction: Var<T>, target: &'a [T]) -> Result<Loss, NnError> {
        self.regression(Penalty::MeanSquare, prediction, target, None)
    }

    /// Applies [`RegressionLoss`].
    ///
    /// # Errors
    /// A target or a mask of another size.
    pub fn regression(
        &mut self,
        penalty: Penalty,
        prediction: Var<T>,
        target: &'a [T],
        mask: Option<&'a [bool]>,
    ) -> Result<Loss, NnError> {
        self.apply_loss(RegressionLoss::new(penalty, target, mask), [prediction])
    }
}
