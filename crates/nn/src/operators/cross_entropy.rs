//! Softmax cross-entropy of logits.

use crate::device::f32_slice;
use crate::target::LossClasses;
use crate::{Context, Loss, LossOperator, LossValue, Result, Storage, Tape, Var};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cross_entropy::{self, Targets};
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::{Executor, FeatureType, Real, Resolve};
use std::sync::Arc;

/// Softmax cross-entropy of logits. Saves the logits.
///
/// # Shapes
/// Input: one row of `targets.classes` scalars for each label.
#[derive(Debug)]
pub struct CrossEntropy<'a, T>(pub(crate) LossClasses<'a, T>);

impl<'a, T: Real> CrossEntropy<'a, T> {
    /// The loss between logits and these labels.
    pub fn new(targets: Targets<'a, T>) -> Self {
        Self(targets.into())
    }
}

/// Labels with the settings of their loss, on a GPU.
pub(crate) fn send_targets<T: Real>(device: &CudaDevice, targets: &Targets<'_, T>) -> Result<DeviceTargets> {
    let Targets { classes, labels, class_weights, smoothing } = *targets;
    let class_weights = class_weights.map(f32_slice).transpose()?;
    Ok(DeviceTargets::new(device, &Targets { classes, labels, class_weights, smoothing })?)
}

impl<T: Real> LossOperator<T> for CrossEntropy<'_, T> {
    type Saved = (Var<T>, Option<Arc<DeviceTargets>>);

    fn forward(&self, context: &mut Context<'_, T>, [logits]: [Var<T>; 1]) -> Result<(LossValue, Self::Saved)> {
        let targets = &self.0.host;
        logits.expect_kind("logits", &FeatureType::scalars(targets.classes))?;
        logits.expect_rows("logits", targets.labels.len())?;
        let Executor::Cuda(device) = context.executor() else {
            let score = cross_entropy::forward(targets, logits.host()?)?;
            return Ok((LossValue::Score(score), (logits, None)));
        };
        let targets = self.0.on(|targets| send_targets(device, targets))?;
        let score = cross_entropy::cuda::forward(device, &targets, logits.view().cuda()?)?;
        Ok((LossValue::CudaScore(device.clone(), Arc::new(score)), (logits, Some(targets))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (logits, targets): Self::Saved,
        weight: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let mut dx = context.buffer(logits.values_len())?;
        match (context.executor(), targets) {
            (Executor::Cuda(device), Some(targets)) => {
                let (logits, dlogits) = (logits.view().cuda()?, dx.view_mut().cuda()?);
                cross_entropy::cuda::backward(device, &targets, logits, weight, dlogits)?;
            }
            _ => {
                let (logits, dlogits) = (logits.host()?, dx.view_mut().host()?);
                cross_entropy::backward(&self.0.host, logits, weight, dlogits)?;
            }
        }
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`CrossEntropy`].
    pub fn cross_entropy(&mut self, logits: Var<T>, targets: Targets<'a, T>) -> Result<Loss> {
        self.apply_loss(CrossEntropy::new(targets), [logits])
    }
}
