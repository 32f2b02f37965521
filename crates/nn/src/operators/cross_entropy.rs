//! Softmax cross-entropy of logits.

use super::AnyTargets;
use crate::device::single_slice;
use crate::{Context, Loss, LossOperator, LossValue, NnError, Storage, Tape, Var};
use gemcnn_kernels::cross_entropy::{self, Targets};
use gemcnn_kernels::{Executor, FeatureType, OnDevice, Real, Resolve};
use std::sync::Arc;

/// Softmax cross-entropy of logits. Saves the logits.
///
/// # Shapes
/// Input: one row of `targets.classes` scalars for each label.
#[derive(Debug)]
pub struct CrossEntropy<'a, T> {
    pub(crate) targets: AnyTargets<'a, T>,
}

impl<'a, T: Real> CrossEntropy<'a, T> {
    /// The loss between logits and these labels.
    pub fn new(targets: Targets<'a, T>) -> Self {
        Self { targets: OnDevice::Host(targets).into() }
    }
}

impl<T: Real> LossOperator<T> for CrossEntropy<'_, T> {
    type Saved = (Var<T>, AnyTargetsHere);

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [logits]: [Var<T>; 1],
    ) -> Result<(LossValue, Self::Saved), NnError> {
        let classes = FeatureType::scalars(self.targets.classes());
        logits.expect_kind("logits", &classes)?;
        logits.expect_rows("logits", self.targets.rows())?;
        let device = match context.executor() {
            Executor::Host(_) => {
                let targets = self.targets.host()?;
                let score = cross_entropy::forward(&targets, logits.host()?)?;
                return Ok((LossValue::Score(score), (logits, None)));
            }
            Executor::Cuda(device) => device.clone(),
        };
        let targets = self.targets.on(&device)?;
        let score = cross_entropy::cuda::forward(&device, &targets, logits.view().cuda()?)?;
        let value = LossValue::CudaScore(device, Arc::new(score));
        Ok((value, (logits, Some(targets))))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (logits, targets): Self::Saved,
        weight: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(logits.values_len())?;
        match (context.executor(), targets) {
            (Executor::Cuda(device), Some(targets)) => {
                let (logits, dlogits) = (logits.view().cuda()?, dx.view_mut().cuda()?);
                cross_entropy::cuda::backward(device, &targets, logits, weight, dlogits)?;
            }
            _ => {
                let (logits, dlogits) = (logits.host()?, dx.view_mut().host()?);
                cross_entropy::backward(&self.targets.host()?, logits, weight, dlogits)?;
            }
        }
        Ok([Some(dx)])
    }
}

/// Labels on the GPU of the tape, if it runs on one.
type AnyTargetsHere = Option<Arc<gemcnn_kernels::cross_entropy::cuda::DeviceTargets>>;

/// Targets in f32, for a GPU.
pub(crate) fn single_targets<'t, T: Real>(targets: Targets<'t, T>) -> Result<Targets<'t, f32>, NnError> {
    Ok(Targets {
        classes: targets.classes,
        labels: targets.labels,
        class_weights: targets.class_weights.map(single_slice).transpose()?,
        smoothing: targets.smoothing,
    })
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`CrossEntropy`].
    pub fn cross_entropy(&mut self, logits: Var<T>, targets: Targets<'a, T>) -> Result<Loss, NnError> {
        self.apply_loss(CrossEntropy::new(targets), [logits])
    }
}
