//! Loss operators and loss values.

use crate::operator::Context;
use crate::storage::Storage;
use crate::var::NodeId;
use crate::{Result, Var};
use gemcnn_kernels::Real;
use gemcnn_kernels::cross_entropy::Score;
use gemcnn_kernels::cross_entropy::cuda::DeviceScore;
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use std::sync::Arc;

/// An operator whose output is one number to be minimised: [`Tape::apply_loss`](crate::Tape::apply_loss).
pub trait LossOperator<T: Real, const N: usize = 1> {
    /// What the backward pass needs beside the operator itself.
    type Saved;

    /// Computes the value and what the backward pass needs.
    fn forward(&self, context: &mut Context<'_, T>, inputs: [Var<T>; N]) -> Result<(LossValue, Self::Saved)>;

    /// Computes the gradients by the inputs of `weight` times the loss.
    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        weight: f64,
        wanted: [bool; N],
    ) -> Result<[Option<Storage<T>>; N]>;
}

/// The value of a loss, on the host or still being computed on a GPU.
#[derive(Debug, Clone)]
pub enum LossValue {
    /// A number.
    Number(f64),
    /// The score of a classification.
    Score(Score),
    /// A number on a GPU.
    CudaNumber(CudaDevice, Arc<DeviceBuffer<f64>>),
    /// The score of a classification on a GPU.
    CudaScore(CudaDevice, Arc<DeviceScore>),
}

/// A loss: its value, and where [`Tape::backward`](crate::Tape::backward) starts.
#[derive(Debug, Clone)]
pub struct Loss {
    node: Option<NodeId>,
    value: LossValue,
}

impl Loss {
    pub(crate) fn new(value: LossValue, node: Option<NodeId>) -> Self {
        Self { node, value }
    }

    pub(crate) fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The value. Reading it from a GPU waits for all queued work.
    pub fn value(&self) -> Result<f64> {
        Ok(match &self.value {
            LossValue::Number(value) => *value,
            LossValue::CudaNumber(device, value) => {
                let mut read = [0.0];
                value.read(device, &mut read)?;
                read[0]
            }
            LossValue::Score(_) | LossValue::CudaScore(..) => self.score()?.map_or(0.0, |score| score.loss),
        })
    }

    /// A copy of the value that the next replay of a captured step does not overwrite.
    pub(crate) fn detached(&self) -> Result<Self> {
        let value = match &self.value {
            LossValue::CudaNumber(device, number) => {
                LossValue::CudaNumber(device.clone(), Arc::new(number.duplicate(device)?))
            }
            LossValue::CudaScore(device, score) => {
                LossValue::CudaScore(device.clone(), Arc::new(score.duplicate(device)?))
            }
            value => value.clone(),
        };
        Ok(Self { node: None, value })
    }

    /// Number of classified rows and of correct ones; `None` for regression losses. Reading it from a
    /// GPU waits for all queued work.
    pub fn score(&self) -> Result<Option<Score>> {
        Ok(match &self.value {
            LossValue::Number(_) | LossValue::CudaNumber(..) => None,
            LossValue::Score(score) => Some(*score),
            LossValue::CudaScore(device, score) => Some(score.read(device)?),
        })
    }
}
