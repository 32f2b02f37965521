//! Regression losses.

use crate::error::check_size;
use crate::target::{LossValues, TargetValues};
use crate::{Context, Loss, LossOperator, LossValue, Result, Storage, Tape, Var};
use gemcnn_kernels::regression::cuda::DeviceValues;
use gemcnn_kernels::regression::{self, Penalty};
use gemcnn_kernels::{Executor, Real, Resolve};
use std::sync::Arc;

/// Mean penalty on the difference from target values, over the rows selected by a mask (all rows without a mask).
/// It is gauge invariant for features of any type. Saves the prediction.
#[derive(Debug)]
pub struct RegressionLoss<'a, T>(pub(crate) LossValues<'a, T>);

impl<'a, T: Real> RegressionLoss<'a, T> {
    /// The loss between a prediction and `values`, which have one row of the same type for each row of the prediction.
    pub fn new(penalty: Penalty, values: &'a [T], known: Option<&'a [bool]>) -> Self {
        Self(TargetValues { penalty, values, known }.into())
    }
}

impl<T: Real> LossOperator<T> for RegressionLoss<'_, T> {
    type Saved = (Var<T>, Option<Arc<DeviceValues>>);

    fn forward(&self, context: &mut Context<'_, T>, [prediction]: [Var<T>; 1]) -> Result<(LossValue, Self::Saved)> {
        let (kind, target) = (prediction.kind(), &self.0.host);
        if let Some(known) = target.known {
            check_size("rows in the mask", prediction.rows(), known.len())?;
        }
        let Executor::Cuda(device) = context.executor() else {
            let value = regression::forward(&target.loss(kind), prediction.host()?, target.values)?;
            return Ok((LossValue::Number(value), (prediction, None)));
        };
        let sent = self.0.on(|target| target.send(device, kind))?;
        let value = regression::cuda::forward(device, &sent, prediction.view().cuda()?)?;
        let value = LossValue::CudaNumber(device.clone(), Arc::new(value));
        Ok((value, (prediction, Some(sent))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (prediction, sent): Self::Saved,
        weight: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let mut dx = context.buffer(prediction.values_len())?;
        match (context.executor(), sent) {
            (Executor::Cuda(device), Some(sent)) => {
                let (found, gradient) = (prediction.view().cuda()?, dx.view_mut().cuda()?);
                regression::cuda::backward(device, &sent, found, weight, gradient)?;
            }
            _ => {
                let (target, gradient) = (&self.0.host, dx.view_mut().host()?);
                let loss = target.loss(prediction.kind());
                regression::backward(&loss, prediction.host()?, target.values, weight, gradient)?;
            }
        }
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Mean squared length of the difference from `target`, over all rows.
    ///
    /// # Errors
    /// A target of another size.
    pub fn mean_square(&mut self, prediction: Var<T>, target: &'a [T]) -> Result<Loss> {
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
    ) -> Result<Loss> {
        self.apply_loss(RegressionLoss::new(penalty, target, mask), [prediction])
    }
}
