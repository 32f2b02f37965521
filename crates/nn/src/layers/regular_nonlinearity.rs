//! The regular nonlinearity, with optional batch normalisation of its samples.

use super::{EquivariantNorm, EquivariantNormConfig, Nonlinearity};
use crate::initialisation::{DRAWS, drawn_moments};
use crate::{Builder, Levels, Module, NnError, Result, Tape, Var};
use gemcnn_kernels::batch_norm::NormGroups;
use gemcnn_kernels::regular::{self, Forward, Plan};
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// The regular nonlinearity: samples the signal of each channel around the circle, applies a pointwise function and
/// projects back. It is exactly equivariant for angles that are multiples of `2 pi / samples`, approximately for
/// others.
#[derive(Debug, Clone, PartialEq)]
pub struct Regular {
    /// Number of samples around the circle. With fewer than `2 band_limit + 1` samples orders alias. More samples
    /// reduce the equivariance error.
    pub samples: usize,
    /// The pointwise function.
    pub activation: Activation,
    /// Batch-normalises the samples first, with one mean and variance per channel over vertices and
    /// samples (default false).
    pub batch_norm: bool,
}

impl Regular {
    /// ReLU of the given number of samples.
    pub fn relu(samples: usize) -> Self {
        Self { samples, activation: Activation::Relu, batch_norm: false }
    }

    /// The same with batch normalisation of the samples.
    pub fn with_batch_norm(self) -> Self {
        Self { batch_norm: true, ..self }
    }

    pub(super) fn operator(&self, kind: FeatureType) -> regular::Regular {
        regular::Regular::new(kind, self.samples, self.activation.clone())
    }
}

impl<T: Real> Nonlinearity<T> for Regular {
    fn word(&self) -> &'static str {
        "regular"
    }

    /// With batch normalisation the input is first scaled to samples of variance 1.
    fn moments(&self, output: &FeatureType) -> Vec<f64> {
        let band_limit = output.highest_order();
        let one_channel = FeatureType::uniform(1, band_limit);
        let config = self.operator(one_channel.clone());
        let scale = if self.batch_norm { (1.0 + band_limit as f64).sqrt().recip() } else { 1.0 };
        drawn_moments([&one_channel, &one_channel], scale, |x, y| {
            Forward { rows: DRAWS, plan: &Plan::new(&config)?, norm: None, x, y }.on_host()
        })
    }

    fn as_regular(&self) -> Option<&Regular> {
        Some(self)
    }

    /// Adds the parameters of the normalisation `norm`, if there is one. All orders up to the highest must have
    /// the same multiplicity.
    fn init(&self, name: &str, output: &FeatureType, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        builder.within(name, |builder| {
            let plan = Plan::new(&self.operator(output.clone()))
                .map_err(|error| NnError::from(error).in_layer(builder.scope()))?;
            let norm = match self.batch_norm {
                true => {
                    let config = EquivariantNormConfig {
                        groups: NormGroups::PerChannel,
                        ..EquivariantNormConfig::new(output.clone())
                    };
                    Some(config.init("norm", builder)?)
                }
                false => None,
            };
            Ok(Box::new(RegularNonlinearity { name: builder.scope().into(), plan: Arc::new(plan), norm })
                as Box<dyn Module<T>>)
        })
    }
}

/// The layer of [`Regular`].
#[derive(Debug, Clone)]
struct RegularNonlinearity<T: Real> {
    name: String,
    plan: Arc<Plan<T>>,
    norm: Option<EquivariantNorm>,
}

impl<T: Real> Module<T> for RegularNonlinearity<T> {
    fn input(&self) -> &FeatureType {
        &self.plan.config().input
    }

    fn output(&self) -> &FeatureType {
        &self.plan.config().input
    }

    fn reach(&self) -> Option<usize> {
        Some(0)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, _: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let norm = self.norm.as_ref().map(EquivariantNorm::weights);
        tape.regular(&self.plan, norm, x).map_err(|error| error.in_layer(&self.name))
    }
}
