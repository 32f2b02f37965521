//! Operators with weights: gauge convolution, aggregation, equivariant and plain linear maps.

use super::{Access, Context, InputGradients, Step, Tape, Var, expect_batch};
use crate::storage::Storage;
use crate::{GraphBatch, NnError, ParameterId, Parameters};
use gemcnn_kernels::aggregate::{self, Aggregate};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, WeightGradients, Weights};
use gemcnn_kernels::linear::{self, Linear};
use gemcnn_kernels::self_map::{self, SelfMap};
use gemcnn_kernels::{FeatureType, Real, irrep_dimension};
use std::sync::Arc;

/// Parameters of a gauge convolution; absent where its settings leave them out.
#[derive(Debug, Clone, Copy)]
pub struct ConvWeights {
    /// `K(0)` of each ring, `[rings, D_out, D_in]`.
    pub neighbour: ParameterId,
    /// Self weights.
    pub self_term: Option<ParameterId>,
    /// One number for each scalar output.
    pub bias: Option<ParameterId>,
}

impl ConvWeights {
    fn ids(self) -> [Option<ParameterId>; 3] {
        [Some(self.neighbour), self.self_term, self.bias]
    }
}

/// Parameters of a linear map.
#[derive(Debug, Clone, Copy)]
pub struct LinearWeights {
    /// The matrix.
    pub weight: ParameterId,
    /// Added to the result.
    pub bias: Option<ParameterId>,
}

impl LinearWeights {
    fn ids(self) -> [Option<ParameterId>; 2] {
        [Some(self.weight), self.bias]
    }
}

pub(super) struct GaugeConvStep<'a, T: Real> {
    config: Arc<GaugeConv>,
    batch: &'a GraphBatch<T>,
    weights: ConvWeights,
    x: Arc<Storage<T>>,
}

pub(super) struct AggregateStep<'a, T> {
    config: Arc<Aggregate>,
    batch: &'a GraphBatch<T>,
}

pub(super) struct SelfMapStep<T: Real> {
    config: Arc<SelfMap>,
    rows: usize,
    weights: LinearWeights,
    x: Arc<Storage<T>>,
}

pub(super) struct LinearStep<T: Real> {
    config: Linear,
    rows: usize,
    weights: LinearWeights,
    x: Arc<Storage<T>>,
}

impl<'a, T: Real> Tape<'a, T> {
    /// Gauge convolution. Keeps `x`.
    ///
    /// # Shapes
    /// `x`: one row of `config.input` for each vertex; result: one row of `config.output`.
    ///
    /// # Errors
    /// Types or sizes that do not fit.
    pub fn gauge_conv(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weights: ConvWeights,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of a gauge convolution", &config.input)?;
        expect_batch("the input of a gauge convolution", &x, batch)?;
        let mut y = self.output(x.rows, &config.output)?;
        let cuda = self.cuda();
        let (parameters, workspace) = self.parts();
        match cuda {
            None => {
                let [neighbour, self_term, bias] = parameters.values_of(weights.ids())?;
                gauge_conv::forward(
                    config,
                    batch.arrays(),
                    x.value.host()?,
                    Weights {
                        neighbour,
                        self_term,
                        bias,
                    },
                    y.host_mut()?,
                    &mut workspace.scratch,
                )?;
            }
            Some(device) => {
                let values = parameters.on(&device)?.values_of(weights.ids());
                let [neighbour, self_term, bias] = values;
                gauge_conv::cuda::forward(
                    &device,
                    config,
                    &*batch.on(&device)?,
                    x.value.cuda()?,
                    gauge_conv::cuda::Weights {
                        neighbour,
                        self_term,
                        bias,
                    },
                    y.cuda_mut()?,
                )?;
            }
        }
        if let Access::Calibration(parameters) = &mut self.access {
            calibrate(config, weights, parameters, y.host_mut()?);
        }
        let node = self.record([x.node, None], true, || {
            Step::GaugeConv(GaugeConvStep {
                config: config.clone(),
                batch,
                weights,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(config.output.clone(), x.rows, y, node))
    }

    /// Gauge aggregation: the sums over neighbours that a convolution multiplies with its weights.
    /// Keeps nothing.
    ///
    /// # Shapes
    /// `x`: one row of `config.input` for each vertex; result: `config.dimension()` numbers as
    /// scalars, by ring, harmonic and input component.
    ///
    /// # Errors
    /// Types or sizes that do not fit.
    pub fn aggregate(
        &mut self,
        config: &Arc<Aggregate>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of an aggregation", &config.input)?;
        expect_batch("the input of an aggregation", &x, batch)?;
        let kind = FeatureType::scalars(config.dimension());
        let mut a = self.output(x.rows, &kind)?;
        match self.cuda() {
            None => {
                let scratch = &mut self.workspace.scratch;
                let (x, a) = (x.value.host()?, a.host_mut()?);
                aggregate::forward(config, batch.arrays(), x, a, scratch)?;
            }
            Some(device) => {
                let (x, a) = (x.value.cuda()?, a.cuda_mut()?);
                aggregate::cuda::forward(&device, config, &*batch.on(&device)?, x, a)?;
            }
        }
        let node = self.record([x.node, None], false, || {
            Step::Aggregate(AggregateStep {
                config: config.clone(),
                batch,
            })
        });
        Ok(Var::new(kind, x.rows, a, node))
    }

    /// Equivariant linear map of each row. Keeps `x`.
    ///
    /// # Shapes
    /// `x`: rows of `config.input`; result: as many rows of `config.output`.
    ///
    /// # Errors
    /// Types or sizes that do not fit.
    pub fn self_map(
        &mut self,
        config: &Arc<SelfMap>,
        weights: LinearWeights,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind("input of an equivariant linear map", &config.input)?;
        let mut y = self.output(x.rows, &config.output)?;
        let cuda = self.cuda();
        let (parameters, workspace) = self.parts();
        match cuda {
            None => {
                let [weight, bias] = parameters.values_of(weights.ids())?;
                let scratch = &mut workspace.scratch;
                let (values, y) = (x.value.host()?, y.host_mut()?);
                self_map::forward(config, x.rows, values, weight, bias, y, scratch)?;
            }
            Some(device) => {
                let values = parameters.on(&device)?.values_of(weights.ids());
                let ([weight, bias], y) = (values, y.cuda_mut()?);
                let values = x.value.cuda()?;
                self_map::cuda::forward(&device, config, x.rows, values, weight, bias, y)?;
            }
        }
        let node = self.record([x.node, None], true, || {
            Step::SelfMap(SelfMapStep {
                config: config.clone(),
                rows: x.rows,
                weights,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(config.output.clone(), x.rows, y, node))
    }

    /// Plain linear map of each row of scalars. Keeps `x`.
    ///
    /// # Shapes
    /// `x`: rows of `config.inputs` scalars; result: as many rows of `config.outputs` scalars.
    ///
    /// # Errors
    /// Types or sizes that do not fit.
    pub fn linear(
        &mut self,
        config: Linear,
        weights: LinearWeights,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.check_own(&x)?;
        x.expect_kind(
            "input of a linear map",
            &FeatureType::scalars(config.inputs),
        )?;
        let kind = FeatureType::scalars(config.outputs);
        let mut y = self.output(x.rows, &kind)?;
        let cuda = self.cuda();
        let (parameters, _) = self.parts();
        match cuda {
            None => {
                let [weight, bias] = parameters.values_of(weights.ids())?;
                let (values, y) = (x.value.host()?, y.host_mut()?);
                linear::forward(&config, x.rows, values, weight, bias, y)?;
            }
            Some(device) => {
                let values = parameters.on(&device)?.values_of(weights.ids());
                let ([weight, bias], y) = (values, y.cuda_mut()?);
                let values = x.value.cuda()?;
                linear::cuda::forward(&device, &config, x.rows, values, weight, bias, y)?;
            }
        }
        let node = self.record([x.node, None], true, || {
            Step::Linear(LinearStep {
                config,
                rows: x.rows,
                weights,
                x: x.value.clone(),
            })
        });
        Ok(Var::new(kind, x.rows, y, node))
    }
}

/// Divides the output of each order, and the weights that make it, by its root mean square.
fn calibrate<T: Real>(
    config: &GaugeConv,
    weights: ConvWeights,
    parameters: &mut Parameters<T>,
    y: &mut [T],
) {
    let (inputs, outputs) = (config.input.dimension(), config.output.dimension());
    let rows = y.len().checked_div(outputs).unwrap_or(0);
    let multiply = |values: &mut [T], factor: T| values.iter_mut().for_each(|v| *v *= factor);
    for (order, channels) in config.output.orders() {
        let columns = config.output.range(order);
        let square = |row: &[T]| -> f64 {
            row[columns.clone()]
                .iter()
                .map(|v| v.as_f64().powi(2))
                .sum()
        };
        let sum: f64 = y.chunks_exact(outputs).map(square).sum();
        let size = (sum / (rows * columns.len()) as f64).sqrt();
        // An order that is zero on this data, or not finite, is left as it is.
        if !(size.is_normal() && size.recip().is_normal()) {
            continue;
        }
        let factor = T::of(size.recip());
        for row in y.chunks_exact_mut(outputs) {
            multiply(&mut row[columns.clone()], factor);
        }
        let neighbour = parameters.get_mut(weights.neighbour).value_mut();
        for ring in neighbour.chunks_exact_mut((outputs * inputs).max(1)) {
            multiply(
                &mut ring[columns.start * inputs..columns.end * inputs],
                factor,
            );
        }
        if let Some(id) = weights.self_term {
            let pairs = |order: usize| {
                let pairs = config.input.multiplicity(order) * config.output.multiplicity(order);
                pairs * irrep_dimension(order)
            };
            let start: usize = (0..order).map(pairs).sum();
            let own = parameters.get_mut(id).value_mut();
            multiply(&mut own[start..start + pairs(order)], factor);
        }
        if let Some(id) = weights.bias.filter(|_| order == 0) {
            multiply(&mut parameters.get_mut(id).value_mut()[..channels], factor);
        }
    }
}

impl<T: Real> GaugeConvStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dy: &Storage<T>,
        wants: [bool; 2],
    ) -> Result<InputGradients<T>, NnError> {
        let mut dx = context.take_if(wants[0], self.x.len())?;
        let ids = self.weights.ids();
        match context.cuda() {
            None => {
                let (x, dy) = (self.x.host()?, dy.host()?);
                let dx = dx.as_mut().map(Storage::host_mut).transpose()?;
                context.with_gradients(ids, |values, gradients, workspace| {
                    let [neighbour, self_term, bias] = values;
                    let weights = Weights {
                        neighbour,
                        self_term,
                        bias,
                    };
                    let [neighbour, self_term, bias] = gradients;
                    let gradients = WeightGradients {
                        neighbour,
                        self_term,
                        bias,
                    };
                    let (arrays, scratch) = (self.batch.arrays(), &mut workspace.scratch);
                    gauge_conv::backward(
                        &self.config,
                        arrays,
                        x,
                        weights,
                        dy,
                        dx,
                        gradients,
                        scratch,
                    )
                })?;
            }
            Some(device) => {
                let (x, dy) = (self.x.cuda()?, dy.cuda()?);
                let dx = dx.as_mut().map(Storage::cuda_mut).transpose()?;
                let graph = self.batch.on(&device)?;
                context.with_cuda_gradients(&device, ids, |values, gradients| {
                    let [neighbour, self_term, bias] = values;
                    let weights = gauge_conv::cuda::Weights {
                        neighbour,
                        self_term,
                        bias,
                    };
                    let [neighbour, self_term, bias] = gradients;
                    let gradients = gauge_conv::cuda::WeightGradients {
                        neighbour,
                        self_term,
                        bias,
                    };
                    gauge_conv::cuda::backward(
                        &device,
                        &self.config,
                        &graph,
                        x,
                        weights,
                        dy,
                        dx,
                        gradients,
                    )
                })?;
            }
        }
        Ok([dx, None])
    }
}

impl<T: Real> AggregateStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        da: &Storage<T>,
    ) -> Result<InputGradients<T>, NnError> {
        let length = self.batch.vertex_count() * self.config.input.dimension();
        let mut dx = context.take(length)?;
        match context.cuda() {
            None => {
                let (da, dx) = (da.host()?, dx.host_mut()?);
                let scratch = &mut context.workspace.scratch;
                aggregate::backward(&self.config, self.batch.arrays(), da, dx, scratch)?;
            }
            Some(device) => {
                let (da, dx) = (da.cuda()?, dx.cuda_mut()?);
                let graph = self.batch.on(&device)?;
                aggregate::cuda::backward(&device, &self.config, &graph, da, dx)?;
            }
        }
        Ok([Some(dx), None])
    }
}

/// The backward pass of a map of each row by itself: the step that recorded it, and its operator.
macro_rules! row_map_backward {
    ($step:ident, $operator:ident) => {
        impl<T: Real> $step<T> {
            pub(super) fn backward(
                self,
                context: &mut Context<'_, T>,
                dy: &Storage<T>,
                wants: [bool; 2],
            ) -> Result<InputGradients<T>, NnError> {
                let mut dx = context.take_if(wants[0], self.x.len())?;
                let (ids, config, rows) = (self.weights.ids(), &self.config, self.rows);
                match context.cuda() {
                    None => {
                        let (x, dy) = (self.x.host()?, dy.host()?);
                        let dx = dx.as_mut().map(Storage::host_mut).transpose()?;
                        context.with_gradients(
                            ids,
                            |[weight, _], [dweight, dbias], workspace| {
                                let scratch = &mut workspace.scratch;
                                $operator::backward(
                                    config, rows, x, weight, dy, dx, dweight, dbias, scratch,
                                )
                            },
                        )?;
                    }
                    Some(device) => {
                        let (x, dy) = (self.x.cuda()?, dy.cuda()?);
                        let dx = dx.as_mut().map(Storage::cuda_mut).transpose()?;
                        context.with_cuda_gradients(
                            &device,
                            ids,
                            |[weight, _], [dweight, dbias]| {
                                $operator::cuda::backward(
                                    &device, config, rows, x, weight, dy, dx, dweight, dbias,
                                )
                            },
                        )?;
                    }
                }
                Ok([dx, None])
            }
        }
    };
}

row_map_backward!(SelfMapStep, self_map);
row_map_backward!(LinearStep, linear);
