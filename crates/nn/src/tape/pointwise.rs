//! Operators on each row by itself: nonlinearities, normalisation, dropout, sums, and joining and
//! cutting types.

use super::{Access, Context, InputGradients, Step, Tape, Var};
use crate::storage::Storage;
use crate::{NnError, ParameterId};
use gemcnn_kernels::batch_norm::cuda::DeviceStatistics;
use gemcnn_kernels::batch_norm::{self, BatchNorm, NormGradients, Normalisation, Statistics};
use gemcnn_kernels::cuda::{CudaDevice, DeviceSlice};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::dropout::{self, Dropout};
use gemcnn_kernels::elementwise::{self, Slice};
use gemcnn_kernels::norm_gate::{self, GatedNonlinearity, NormNonlinearity};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::regular::cuda::DevicePlan;
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

/// Where a dropout takes its random numbers from.
pub(super) enum RandomStep {
    Host(Stream),
    /// With what tells it from the others of the step.
    Cuda(CudaDevice, Arc<DeviceStream>, u64),
}

impl RandomStep {
    /// Dropout of features, or of gradients: it is its own adjoint.
    fn drop_out<T: Real>(
        &self,
        config: &Dropout,
        rows: usize,
        x: &Storage<T>,
        y: &mut Storage<T>,
    ) -> Result<(), NnError> {
        match self {
            Self::Host(stream) => {
                dropout::forward(config, *stream, rows, x.host()?, y.host_mut()?)?;
            }
            Self::Cuda(device, stream, salt) => {
                let random = (&**stream, *salt);
                dropout::cuda::forward(device, config, random, rows, x.cuda()?, y.cuda_mut()?)?;
            }
        }
        Ok(())
    }
}

/// A batch normalisation with the statistics it used.
pub(super) struct NormStep {
    weights: NormWeights,
    statistics: NormStatistics,
}

enum NormStatistics {
    Host(Statistics),
    Cuda(DeviceStatistics),
}

/// Why statistics cannot be of another device: they were made where the features are.
const STATISTICS_ELSEWHERE: &str = "statistics of another device";

pub(super) enum PointwiseStep<T: Real> {
    Regular {
        plan: Arc<Plan<T>>,
        norm: Option<NormStep>,
        rows: usize,
        x: Arc<Storage<T>>,
    },
    BatchNorm {
        norm: NormStep,
        rows: usize,
        x: Arc<Storage<T>>,
    },
    Dropout {
        config: Arc<Dropout>,
        random: RandomStep,
        rows: usize,
    },
    Activation {
        activation: Activation,
        x: Arc<Storage<T>>,
    },
    Norm {
        config: Arc<NormNonlinearity>,
        bias: ParameterId,
        rows: usize,
        x: Arc<Storage<T>>,
    },
    Gated {
        config: Arc<GatedNonlinearity>,
        rows: usize,
        x: Arc<Storage<T>>,
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
        let mut y = self.output(x.rows, &kind)?;
        let norm = match norm {
            Some(weights) => Some(self.statistics(weights, &x)?),
            None => None,
        };
        let cuda = self.cuda();
        let (parameters, _) = self.parts();
        match (&cuda, &norm) {
            (None, None) => regular::forward(plan, x.rows, x.value.host()?, y.host_mut()?)?,
            (None, Some(norm)) => {
                let normalisation = norm.normalisation(parameters.values_of(norm.ids())?)?;
                let (values, y) = (x.value.host()?, y.host_mut()?);
                regular::forward_normalised(plan, &normalisation, x.rows, values, y)?;
            }
            (Some(device), norm) => {
                let plan = DevicePlan::new(plan.config())?;
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                match norm {
                    None => regular::cuda::forward(device, &plan, x.rows, values, y)?,
                    Some(norm) => {
                        let weights = parameters.on(device)?.values_of(norm.ids());
                        let norm = norm.cuda_normalisation(weights)?;
                        regular::cuda::forward_normalised(device, &plan, &norm, x.rows, values, y)?;
                    }
                }
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
        let mut y = self.output(x.rows, &kind)?;
        let norm = self.statistics(weights, &x)?;
        let cuda = self.cuda();
        let (parameters, _) = self.parts();
        match &cuda {
            None => {
                let normalisation = norm.normalisation(parameters.values_of(norm.ids())?)?;
                batch_norm::forward(&normalisation, x.rows, x.value.host()?, y.host_mut()?)?;
            }
            Some(device) => {
                let weights = parameters.on(device)?.values_of(norm.ids());
                let normalisation = norm.cuda_normalisation(weights)?;
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                batch_norm::cuda::forward(device, &normalisation, x.rows, values, y)?;
            }
        }
        let node = self.record([x.node, None], true, || {
            Step::Pointwise(PointwiseStep::BatchNorm {
                norm,
                rows: x.rows,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(kind, x.rows, y, node))
    }

    /// The statistics to normalise with; in training the running ones move towards those of the rows.
    fn statistics(&mut self, weights: &NormWeights, x: &Var<T>) -> Result<NormStep, NnError> {
        let statistics = match self.cuda() {
            None => NormStatistics::Host(self.host_statistics(weights, x)?),
            Some(device) => NormStatistics::Cuda(self.cuda_statistics(&device, weights, x)?),
        };
        Ok(NormStep {
            weights: weights.clone(),
            statistics,
        })
    }

    fn host_statistics(
        &mut self,
        weights: &NormWeights,
        x: &Var<T>,
    ) -> Result<Statistics, NnError> {
        let ids = [weights.mean, weights.variance];
        match &mut self.access {
            Access::Inference(parameters) => {
                let [mean, variance] = parameters.values_of(ids.map(Some))?;
                Ok(Statistics::running(mean, variance))
            }
            Access::Training { parameters, .. } | Access::Calibration(parameters) => {
                let scratch = &mut self.workspace.wide_scratch;
                let config = &weights.config;
                let statistics = batch_norm::statistics(config, x.rows, x.value.host()?, scratch)?;
                let [mean, variance] = parameters.many_mut(ids)?;
                statistics.update_running(
                    config.momentum,
                    mean.value_mut(),
                    variance.value_mut(),
                )?;
                Ok(statistics)
            }
        }
    }

    fn cuda_statistics(
        &mut self,
        device: &CudaDevice,
        weights: &NormWeights,
        x: &Var<T>,
    ) -> Result<DeviceStatistics, NnError> {
        let ids = [weights.mean, weights.variance];
        match &mut self.access {
            Access::Inference(parameters) => {
                let [mean, variance] = parameters.on(device)?.values_of(ids.map(Some));
                Ok(DeviceStatistics::running(device, mean, variance)?)
            }
            Access::Training { parameters, .. } | Access::Calibration(parameters) => {
                let config = &weights.config;
                let values = x.value.cuda()?;
                let statistics = batch_norm::cuda::statistics(device, config, x.rows, values)?;
                let [mean, variance] = parameters.on_mut(device)?.values_mut(ids);
                statistics.update_running(device, config.momentum, mean, variance)?;
                Ok(statistics)
            }
        }
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
        let stream = *randomness;
        // Every dropout of a step has its own sequence: golden-ratio steps keep seeds apart.
        let salt = self.random_steps.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.random_steps += 1;
        let random = match self.cuda() {
            None => RandomStep::Host(Stream {
                seed: stream.seed ^ salt,
                step: stream.step,
            }),
            Some(device) => {
                let stream = self.workspace.device_stream(&device, stream)?;
                RandomStep::Cuda(device, stream, salt)
            }
        };
        let mut y = self.output(x.rows, &x.kind)?;
        random.drop_out(config, x.rows, &x.value, &mut y)?;
        let node = self.record([x.node, None], false, || {
            Step::Pointwise(PointwiseStep::Dropout {
                config: config.clone(),
                random,
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
        let mut y = self.output(x.rows, &x.kind)?;
        run!(self.cuda(), activation::forward(function; x.value; y));
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
        let mut y = self.output(x.rows, &x.kind)?;
        let cuda = self.cuda();
        let (parameters, _) = self.parts();
        match &cuda {
            None => {
                let [bias] = parameters.values_of([Some(bias)])?;
                norm_gate::norm_forward(config, x.rows, x.value.host()?, bias, y.host_mut()?)?;
            }
            Some(device) => {
                let [bias] = parameters.on(device)?.values_of([Some(bias)]);
                let (values, y) = (x.value.cuda()?, y.cuda_mut()?);
                norm_gate::cuda::norm_forward(device, config, x.rows, values, bias, y)?;
            }
        }
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
        let mut y = self.output(x.rows, &config.output)?;
        run!(self.cuda(), norm_gate::gated_forward(config, x.rows; x.value; y));
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
            sum.add(&b.value)?;
            a.value
        } else if let Some(sum) = Arc::get_mut(&mut b.value) {
            sum.add(&a.value)?;
            b.value
        } else {
            let mut sum = self.workspace.take(a.value.len())?;
            run!(self.cuda(), elementwise::add(; a.value, b.value; sum));
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
        let mut y = self.output(x.rows, &x.kind)?;
        scale(self.cuda().as_ref(), factor, &x.value, &mut y)?;
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
        let mut y = self.output(a.rows, &kind)?;
        run!(self.cuda(), elementwise::concatenate(&a.kind, &b.kind, a.rows; a.value, b.value; y));
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
        let mut y = self.output(x.rows, &kind)?;
        run!(self.cuda(), elementwise::slice(config, x.rows; x.value; y));
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

    fn normalisation<'n, T>(
        &'n self,
        [gamma, beta]: [&'n [T]; 2],
    ) -> Result<Normalisation<'n, T>, NnError> {
        match &self.statistics {
            NormStatistics::Host(statistics) => Ok(Normalisation {
                config: &self.weights.config,
                statistics,
                gamma,
                beta,
            }),
            NormStatistics::Cuda(_) => Err(NnError::setting("tape", STATISTICS_ELSEWHERE)),
        }
    }

    fn cuda_normalisation<'n>(
        &'n self,
        [gamma, beta]: [DeviceSlice<'n, f32>; 2],
    ) -> Result<batch_norm::cuda::Normalisation<'n>, NnError> {
        match &self.statistics {
            NormStatistics::Cuda(statistics) => Ok(batch_norm::cuda::Normalisation {
                config: &self.weights.config,
                statistics,
                gamma,
                beta,
            }),
            NormStatistics::Host(_) => Err(NnError::setting("tape", STATISTICS_ELSEWHERE)),
        }
    }

    /// Gradient by the rows, through the regular nonlinearity that follows if there is one.
    fn backward<T: Real>(
        &self,
        context: &mut Context<'_, T>,
        plan: Option<&Plan<T>>,
        rows: usize,
        [x, dy]: [&Storage<T>; 2],
        dx: &mut Storage<T>,
    ) -> Result<(), NnError> {
        let Some(device) = context.cuda() else {
            let (x, dy, dx) = (x.host()?, dy.host()?, dx.host_mut()?);
            return context.with_gradients(self.ids(), |values, [gamma, beta], workspace| {
                let norm = self.normalisation(values)?;
                let gradients = &mut NormGradients { gamma, beta };
                let scratch = &mut workspace.wide_scratch;
                match plan {
                    None => batch_norm::backward(&norm, rows, x, dy, dx, gradients, scratch)?,
                    Some(plan) => regular::backward_normalised(
                        plan, &norm, rows, x, dy, dx, gradients, scratch,
                    )?,
                }
                Ok::<(), NnError>(())
            });
        };
        let plan = plan
            .map(|plan| DevicePlan::new(plan.config()))
            .transpose()?;
        let (x, dy, dx) = (x.cuda()?, dy.cuda()?, dx.cuda_mut()?);
        let parameters = context.parameters.on_mut(&device)?;
        let (values, [gamma, beta]) = parameters.with_gradients(self.ids())?;
        let norm = self.cuda_normalisation(values)?;
        let gradients = &batch_norm::cuda::NormGradients { gamma, beta };
        match plan {
            None => batch_norm::cuda::backward(&device, &norm, rows, x, dy, dx, gradients)?,
            Some(plan) => regular::cuda::backward_normalised(
                &device, &plan, &norm, rows, x, dy, dx, gradients,
            )?,
        }
        Ok(())
    }
}

/// `y = factor x`.
pub(super) fn scale<T: Real>(
    cuda: Option<&CudaDevice>,
    factor: T,
    x: &Storage<T>,
    y: &mut Storage<T>,
) -> Result<(), NnError> {
    match cuda {
        None => elementwise::scale(factor, x.host()?, y.host_mut()?)?,
        Some(device) => {
            let factor = factor.as_f64() as f32;
            elementwise::cuda::scale(device, factor, x.cuda()?, y.cuda_mut()?)?;
        }
    }
    Ok(())
}

impl<T: Real> PointwiseStep<T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dy: Storage<T>,
        wants: [bool; 2],
    ) -> Result<InputGradients<T>, NnError> {
        let cuda = context.cuda();
        let dx = match self {
            Self::Add => {
                return Ok(match wants {
                    [true, true] => {
                        let copy = context.workspace.duplicate(&dy)?;
                        [Some(dy), Some(copy)]
                    }
                    [true, false] => [Some(dy), None],
                    [false, right] => [None, right.then_some(dy)],
                });
            }
            Self::Concatenate { kinds, rows } => {
                let [first, second] = &kinds;
                let mut da = context.take(rows * first.dimension())?;
                let mut db = context.take(rows * second.dimension())?;
                run!(cuda, elementwise::split(first, second, rows; dy; da, db));
                return Ok([Some(da), Some(db)]);
            }
            Self::Slice { config, rows } => {
                let mut dx = context.take(rows * config.kind.dimension())?;
                run!(cuda, elementwise::unslice(&config, rows; dy; dx));
                dx
            }
            Self::Regular {
                plan,
                norm: None,
                rows,
                x,
            } => {
                let mut dx = context.take(x.len())?;
                match &cuda {
                    None => regular::backward(&plan, rows, x.host()?, dy.host()?, dx.host_mut()?)?,
                    Some(device) => {
                        let plan = DevicePlan::new(plan.config())?;
                        let (x, dy, dx) = (x.cuda()?, dy.cuda()?, dx.cuda_mut()?);
                        regular::cuda::backward(device, &plan, rows, x, dy, dx)?;
                    }
                }
                dx
            }
            Self::Regular {
                plan,
                norm: Some(norm),
                rows,
                x,
            } => {
                let mut dx = context.take(x.len())?;
                norm.backward(context, Some(&*plan), rows, [&x, &dy], &mut dx)?;
                dx
            }
            Self::BatchNorm { norm, rows, x } => {
                let mut dx = context.take(x.len())?;
                norm.backward(context, None, rows, [&x, &dy], &mut dx)?;
                dx
            }
            Self::Dropout {
                config,
                random,
                rows,
            } => {
                let mut dx = context.take(dy.len())?;
                random.drop_out(&config, rows, &dy, &mut dx)?;
                dx
            }
            Self::Activation { activation, x } => {
                let mut dx = context.take(x.len())?;
                run!(cuda, activation::backward(&activation; x, dy; dx));
                dx
            }
            Self::Norm {
                config,
                bias,
                rows,
                x,
            } => {
                let mut dx = context.take(x.len())?;
                let ids = [Some(bias)];
                match &cuda {
                    None => {
                        let (x, dy, dx) = (x.host()?, dy.host()?, dx.host_mut()?);
                        context.with_gradients(ids, |[bias], [dbias], workspace| {
                            let scratch = &mut workspace.wide_scratch;
                            norm_gate::norm_backward(&config, rows, x, bias, dy, dx, dbias, scratch)
                        })?;
                    }
                    Some(device) => {
                        let (x, dy, dx) = (x.cuda()?, dy.cuda()?, dx.cuda_mut()?);
                        context.with_cuda_gradients(device, ids, |[bias], [dbias]| {
                            let config = &config;
                            norm_gate::cuda::norm_backward(
                                device, config, rows, x, bias, dy, dx, dbias,
                            )
                        })?;
                    }
                }
                dx
            }
            Self::Gated { config, rows, x } => {
                let mut dx = context.take(x.len())?;
                run!(cuda, norm_gate::gated_backward(&config, rows; x, dy; dx));
                dx
            }
            Self::Scale(factor) => {
                let mut dx = context.take(dy.len())?;
                scale(cuda.as_ref(), factor, &dy, &mut dx)?;
                dx
            }
        };
        Ok([Some(dx), None])
    }
}
