//! Update rules of optimisers.

use crate::{NnError, Result};
use gemcnn_kernels::cuda::optimiser as cuda;
use serde::{Deserialize, Serialize};

/// The update rule of an optimiser, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum coefficient, in [0, 1).
        momentum: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
    /// Adam; weight decay is added to the gradient.
    Adam {
        /// Decay rate of the first moment, in [0, 1).
        beta1: f64,
        /// Decay rate of the second moment, in [0, 1).
        beta2: f64,
        /// Added to the denominator for numerical stability; positive.
        epsilon: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay rate of the first moment, in [0, 1).
        beta1: f64,
        /// Decay rate of the second moment, in [0, 1).
        beta2: f64,
        /// Added to the denominator for numerical stability; positive.
        epsilon: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
}

impl Method {
    /// SGD with momentum, without weight decay.
    pub fn sgd(momentum: f64) -> Self {
        Self::Sgd { momentum, weight_decay: 0.0 }
    }

    /// Adam with `beta = (0.9, 0.999)`, `epsilon = 1e-8`, without weight decay.
    pub fn adam() -> Self {
        Self::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// AdamW with `beta = (0.9, 0.999)`, `epsilon = 1e-8`.
    pub fn adam_w(weight_decay: f64) -> Self {
        Self::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        let bad = |problem: &str| Err(NnError::setting("optimiser", problem));
        let in_range = |value: f64| (0.0..1.0).contains(&value);
        let (rates, epsilon, decay) = match *self {
            Self::Sgd { momentum, weight_decay } => ([momentum, 0.0], 1.0, weight_decay),
            Self::Adam { beta1, beta2, epsilon, weight_decay }
            | Self::AdamW { beta1, beta2, epsilon, weight_decay } => ([beta1, beta2], epsilon, weight_decay),
        };
        if !rates.into_iter().all(in_range) {
            return bad("momentum and beta must be at least 0 and below 1");
        }
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return bad("epsilon must be above 0");
        }
        if !(decay >= 0.0 && decay.is_finite()) {
            return bad("weight decay must be at least 0");
        }
        Ok(())
    }

    /// The step for the kernels of a GPU.
    pub(super) fn device_step(self, rate: f64, step: u64) -> cuda::Step {
        match self {
            Self::Sgd { momentum, weight_decay } => cuda::Step::Sgd { rate, momentum, weight_decay },
            Self::Adam { beta1, beta2, epsilon, weight_decay }
            | Self::AdamW { beta1, beta2, epsilon, weight_decay } => cuda::Step::Adam {
                rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
                apart: matches!(self, Self::AdamW { .. }),
                step,
            },
        }
    }
}
