//! Operators on each row by itself: nonlinearities, normalisation, dropout, sums, and joining and
//! cutting types.

use super::{Access, Context, InputGradients, Step, Tape, Var};
use crate::{Buffer, NnError, ParameterId};
use gemcnn_kernels::batch_norm::{self, BatchNorm, NormGradients, Normalisation, Statistics};
use gemcnn_kernels::dropout::{self, Dropout};
use gemcnn_kernels::elementwise::{self, Slice};
use gemcnn_kernels::norm_gate::{self, GatedNonlinearity, NormNonlinearity};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Activation, FeatureType, Real, activation};
use std::sync::Arc;

/// A batch normalisation: its settings and parameters.
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

/// A batch normalisation with the statistics it used.
pub(super) struct NormStep {
    weights: NormWeights,
    statistics: Statistics,
}

pub(super) enum PointwiseStep<T: Real> {
    Regular {
        plan: Arc<Plan<T>>,
        norm: Option<NormStep>,
        rows: usize,
        x: Arc<Buffer<T>>,
    },
    BatchNorm {
        norm: NormStep,
        rows: usize,
        x: Arc<Buffer<T>>,
    },
    Dropout {
        config: Arc<Dropout>,
        stream: Stream,
        rows: usize,
    },
    Activation {
        activation: Activation,
        x: Arc<Buffer<T>>,
    },
    Norm {
        config: Arc<NormNonlinearity>,
        bias: ParameterId,
        rows: usize,
        x: Arc<Buffer<T>>,
    },
    Gated {
        config: Arc<GatedNonlinearity>,
        rows: usize,
        x: Arc<Buffer<T>>,
    },
    Add,
    Scale(T),
    Concatenate {
        kinds: [FeatureType; 2],
        rows: usize,
    },
    Slice {
        config: Arc<Slice>,
        rows: usize,
    },
}

impl<'a, T: Real> Tape<'a, T> {
    /// Regular nonlinearity, after a batch normalisation of the samples where one is given. Keeps
    /// `x`.
    ///
    /// # Shapes
    /// `x`: rows of the plan's input; result: as many rows of its output.
    ///
    /// # Errors
    /// Types that do not fit.
    pub fn regular(
        &mut self,
        plan: &Arc<Plan<T>>,
        norm: Option<&NormWeights>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a regular nonlinearity", &plan.config().input)?;
        let kind = plan.config().output();
        let mut y = self.output(x.rows, &kind);
        let norm = match norm {
            Some(weights) => Some(self.statistics(weights, &x)?),
            None => None,
        };
        let (parameters, _) = self.parts();
        match &norm {
            None => regular::forward(plan, x.rows, &x.value, &mut y)?,
            Some(norm) => {
                let [gamma, beta] = parameters.values_of(norm.ids());
                let normalisation = norm.normalisation(gamma, beta);
                regular::forward_normalised(plan, &normalisation, x.rows, &x.value, &mut y)?;
            }
        }
        let node = self.record([x.node, None], norm.is_some(), || {
            Step::Pointwise(PointwiseStep::Regular {
                plan: plan.clone(),
                norm,
                rows: x.rows,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(kind, x.rows, y, node))
    }

    /// Batch normalisation; in training it uses the statistics of the rows and updates the running
    /// ones, in inference it uses the running ones. Keeps `x`.
    ///
    /// # Shapes
    /// `x` and result: rows of the normalisation's type.
    ///
    /// # Errors
    /// Types that do not fit.
    pub fn batch_norm(&mut self, weights: &NormWeights, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        let kind = weights.config.kind.clone();
        x.expect_kind("input of a batch normalisation", &kind)?;
        let mut y = self.output(x.rows, &kind);
        let norm = self.statistics(weights, &x)?;
        let (parameters, _) = self.parts();
        let [gamma, beta] = parameters.values_of(norm.ids());
        batch_norm::forward(&norm.normalisation(gamma, beta), x.rows, &x.value, &mut y)?;
        let node = self.record([x.node, None], true, || {
            Step::Pointwise(PointwiseStep::BatchNorm {
                norm,
                rows: x.rows,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(kind, x.rows, y, node))
    }

    fn statistics(&mut self, weights: &NormWeights, x: &Var<T>) -> Result<NormStep, NnError> {
        let statistics = match &mut self.access {
            Access::Inference(parameters) => {
                let ids = [weights.mean, weights.variance];
                let [mean, variance] = parameters.values_of(ids.map(Some));
                Statistics::running(mean, variance)
            }
            Access::Training { parameters, .. } | Access::Calibration(parameters) => {
                let scratch = &mut self.workspace.wide_scratch;
                let config = &weights.config;
                let statistics = batch_norm::statistics(config, x.rows, &x.value, scratch)?;
                let [mean, variance] = parameters.many_mut([weights.mean, weights.variance])?;
                statistics.update_running(
                    config.momentum,
                    mean.value_mut(),
                    variance.value_mut(),
                )?;
                statistics
            }
        };
        Ok(NormStep {
            weights: weights.clone(),
            statistics,
        })
    }

    /// Dropout of whole irreps or channels, in training only. Keeps nothing: the mask is drawn again.
    ///
    /// # Shapes
    /// `x` and result: rows of `config.kind`.
    ///
    /// # Errors
    /// Types or settings that do not fit.
    pub fn dropout(&mut self, config: &Arc<Dropout>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a dropout", &config.kind)?;
        config.units()?;
        let Access::Training { randomness, .. } = &self.access else {
            return Ok(x);
        };
        // Every dropout of a step has its own sequence: golden-ratio steps keep seeds apart.
        let stream = Stream {
            seed: randomness.seed ^ self.random_steps.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            step: randomness.step,
        };
        self.random_steps += 1;
        let mut y = self.output(x.rows, &x.kind);
        dropout::forward(config, stream, x.rows, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Dropout {
                config: config.clone(),
                stream,
                rows: x.rows,
            })
        });
        Ok(Var::new(x.kind, x.rows, y, node))
    }

    /// A function of each scalar. Keeps `x`.
    ///
    /// # Shapes
    /// `x` and result: rows of scalars.
    ///
    /// # Errors
    /// Features that are not scalars.
    pub fn activation(&mut self, function: &Activation, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        let scalars = FeatureType::scalars(x.kind.dimension());
        x.expect_kind("input of a pointwise function", &scalars)?;
        let mut y = self.output(x.rows, &x.kind);
        activation::forward(function, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Activation {
                activation: function.clone(),
                x: x.value.clone(),
            })
        });
        Ok(Var::new(x.kind, x.rows, y, node))
    }

    /// Nonlinearity of the norms of irreps. Keeps `x`.
    ///
    /// # Shapes
    /// `x` and result: rows of `config.kind`.
    ///
    /// # Errors
    /// Types that do not fit.
    pub fn norm_nonlinearity(
        &mut self,
        config: &Arc<NormNonlinearity>,
        bias: ParameterId,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a norm nonlinearity", &config.kind)?;
        let mut y = self.output(x.rows, &x.kind);
        let (parameters, _) = self.parts();
        let [bias_values] = parameters.values_of([Some(bias)]);
        norm_gate::norm_forward(config, x.rows, &x.value, bias_values, &mut y)?;
        let node = self.record([x.node, None], true, || {
            Step::Pointwise(PointwiseStep::Norm {
                config: config.clone(),
                bias,
                rows: x.rows,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(x.kind, x.rows, y, node))
    }

    /// Irreps scaled by gates. Keeps `x`.
    ///
    /// # Shapes
    /// `x`: rows of `config.input()`, the gates after the other scalars; result: as many rows of
    /// `config.output`.
    ///
    /// # Errors
    /// Types that do not fit.
    pub fn gated_nonlinearity(
        &mut self,
        config: &Arc<GatedNonlinearity>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a gated nonlinearity", &config.input())?;
        let mut y = self.output(x.rows, &config.output);
        norm_gate::gated_forward(config, x.rows, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Gated {
                config: config.clone(),
                rows: x.rows,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(config.output.clone(), x.rows, y, node))
    }

    /// Sum of two features, in place where nobody else holds one of them. Keeps nothing.
    ///
    /// # Shapes
    /// `a`, `b` and result: as many rows of the same type.
    ///
    /// # Errors
    /// Types or sizes that differ.
    pub fn add(&mut self, mut a: Var<T>, mut b: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&a)?;
        self.check_own(&b)?;
        b.expect_kind("right operand of a sum", &a.kind)?;
        b.expect_rows("the right operand of a sum", a.rows)?;
        let operands = [a.node, b.node];
        let value = if let Some(sum) = Arc::get_mut(&mut a.value) {
            elementwise::accumulate(&b.value, sum)?;
            a.value
        } else if let Some(sum) = Arc::get_mut(&mut b.value) {
            elementwise::accumulate(&a.value, sum)?;
            b.value
        } else {
            let mut sum = self.workspace.pool.take(a.value.len());
            elementwise::add(&a.value, &b.value, &mut sum)?;
            Arc::new(sum)
        };
        let node = self.record(operands, false, || Step::Pointwise(PointwiseStep::Add));
        Ok(Var {
            kind: a.kind,
            rows: a.rows,
            value,
            node,
        })
    }

    /// Features times a number. Keeps nothing.
    ///
    /// # Errors
    /// Features of another tape.
    pub fn scale(&mut self, factor: T, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        let mut y = self.output(x.rows, &x.kind);
        elementwise::scale(factor, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Scale(factor))
        });
        Ok(Var::new(x.kind, x.rows, y, node))
    }

    /// Channels of two features side by side, order by order. Keeps nothing.
    ///
    /// # Shapes
    /// `a`, `b`: as many rows of any types; result: rows of
    /// [`FeatureType::concatenated`](gemcnn_kernels::FeatureType::concatenated).
    ///
    /// # Errors
    /// Sizes that differ.
    pub fn concatenate(&mut self, a: Var<T>, b: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&a)?;
        self.check_own(&b)?;
        b.expect_rows("the right operand of a concatenation", a.rows)?;
        let kind = a.kind.concatenated(&b.kind);
        let mut y = self.output(a.rows, &kind);
        elementwise::concatenate(&a.kind, &b.kind, a.rows, &a.value, &b.value, &mut y)?;
        let node = self.record([a.node, b.node], false, || {
            Step::Pointwise(PointwiseStep::Concatenate {
                kinds: [a.kind.clone(), b.kind.clone()],
                rows: a.rows,
            })
        });
        Ok(Var::new(kind, a.rows, y, node))
    }

    /// A range of channels of each order. Keeps nothing.
    ///
    /// # Shapes
    /// `x`: rows of `config.kind`; result: as many rows of `config.output()`.
    ///
    /// # Errors
    /// Features of another type, or channels that it does not have.
    pub fn slice(&mut self, config: &Arc<Slice>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a slice", &config.kind)?;
        let kind = config.output()?;
        let mut y = self.output(x.rows, &kind);
        elementwise::slice(config, x.rows, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Slice {
                config: config.clone(),
                rows: x.rows,
            })
        });
        Ok(Var::new(kind, x.rows, y, node))
    }
}

impl NormStep {
    fn ids(&self) -> [Option<ParameterId>; 2] {
        [Some(self.weights.gamma), Some(self.weights.beta)]
    }

    fn normalisation<'n, T>(&'n self, gamma: &'n [T], beta: &'n [T]) -> Normalisation<'n, T> {
        Normalisation {
            config: &self.weights.config,
            statistics: &self.statistics,
            gamma,
            beta,
        }
    }
}

impl<T: Real> PointwiseStep<T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dy: Buffer<T>,
        wants: [bool; 2],
    ) -> Result<InputGradients<T>, NnError> {
        let pool = context.workspace.pool.clone();
        let dx = match self {
            Self::Regular {
                plan,
                norm: None,
                rows,
                x,
            } => {
                let mut dx = pool.take(x.len());
                regular::backward(&plan, rows, &x, &dy, &mut dx)?;
                dx
            }
            Self::Regular {
                plan,
                norm: Some(norm),
                rows,
                x,
            } => {
                let mut dx = pool.take(x.len());
                context.with_gradients(norm.ids(), |values, [gamma, beta], workspace| {
                    let normalisation = norm.normalisation(values[0], values[1]);
                    let mut gradients = NormGradients { gamma, beta };
                    let scratch = &mut workspace.wide_scratch;
                    regular::backward_normalised(
                        &plan,
                        &normalisation,
                        rows,
                        &x,
                        &dy,
                        &mut dx,
                        &mut gradients,
                        scratch,
                    )
                })?;
                dx
            }
            Self::BatchNorm { norm, rows, x } => {
                let mut dx = pool.take(x.len());
                context.with_gradients(norm.ids(), |values, [gamma, beta], workspace| {
                    let normalisation = norm.normalisation(values[0], values[1]);
                    let mut gradients = NormGradients { gamma, beta };
                    let scratch = &mut workspace.wide_scratch;
                    batch_norm::backward(
                        &normalisation,
                        rows,
                        &x,
                        &dy,
                        &mut dx,
                        &mut gradients,
                        scratch,
                    )
                })?;
                dx
            }
            Self::Dropout {
                config,
                stream,
                rows,
            } => {
                let mut dx = pool.take(dy.len());
                dropout::backward(&config, stream, rows, &dy, &mut dx)?;
                dx
            }
            Self::Activation { activation, x } => {
                let mut dx = pool.take(x.len());
                activation::backward(&activation, &x, &dy, &mut dx)?;
                dx
            }
            Self::Norm {
                config,
                bias,
                rows,
                x,
            } => {
                let mut dx = pool.take(x.len());
                context.with_gradients([Some(bias)], |[bias], [dbias], workspace| {
                    let scratch = &mut workspace.wide_scratch;
                    norm_gate::norm_backward(&config, rows, &x, bias, &dy, &mut dx, dbias, scratch)
                })?;
                dx
            }
            Self::Gated { config, rows, x } => {
                let mut dx = pool.take(x.len());
                norm_gate::gated_backward(&config, rows, &x, &dy, &mut dx)?;
                dx
            }
            Self::Add => {
                return Ok(match wants {
                    [true, true] => {
                        let copy = pool.copy(&dy);
                        [Some(dy), Some(copy)]
                    }
                    [true, false] => [Some(dy), None],
                    [false, right] => [None, right.then_some(dy)],
                });
            }
            Self::Scale(factor) => {
                let mut dx = pool.take(dy.len());
                elementwise::scale(factor, &dy, &mut dx)?;
                dx
            }
            Self::Concatenate { kinds, rows } => {
                let [mut da, mut db] =
                    [&kinds[0], &kinds[1]].map(|k| pool.take(rows * k.dimension()));
                elementwise::split(&kinds[0], &kinds[1], rows, &dy, &mut da, &mut db)?;
                return Ok([Some(da), Some(db)]);
            }
            Self::Slice { config, rows } => {
                let mut dx = pool.take(rows * config.kind.dimension());
                elementwise::unslice(&config, rows, &dy, &mut dx)?;
                dx
            }
        };
        Ok([Some(dx), None])
    }
}
