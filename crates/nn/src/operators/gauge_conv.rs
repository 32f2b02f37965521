//! The gauge convolution.

use crate::parameters::Access;
use crate::{Context, GraphBatch, Operator, ParameterId, Parameters, Result, Storage, Tape, Var};
use gemcnn_kernels::gauge_conv::{Backward, Forward, GaugeConv};
use gemcnn_kernels::{Real, Resolve, irrep_dimension};
use std::sync::Arc;

/// Parameters of a gauge convolution; `None` if its settings omit them.
#[derive(Debug, Clone, Copy)]
pub struct ConvWeights {
    /// `K(0)` of each ring, `[rings, D_out, D_in]`.
    pub neighbour: ParameterId,
    /// Weights of the self term.
    pub self_term: Option<ParameterId>,
    /// One value for each scalar of the output.
    pub bias: Option<ParameterId>,
}

impl ConvWeights {
    pub(super) fn ids(self) -> [Option<ParameterId>; 3] {
        [Some(self.neighbour), self.self_term, self.bias]
    }
}

/// Gauge convolution. Saves `x` and recomputes the rest.
///
/// # Shapes
/// `x`: one row of `config.input` for each vertex; `y`: one row of `config.output`.
#[derive(Debug)]
pub struct GaugeConvolve<'a, T> {
    /// Types, rings and aggregation.
    pub config: Arc<GaugeConv>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
    /// The parameters.
    pub weights: ConvWeights,
}

impl<T: Real> GaugeConvolve<'_, T> {
    /// The convolution of `x`.
    fn convolve(&self, context: &mut Context<'_, T>, x: &Var<T>) -> Result<Storage<T>> {
        let config = &*self.config;
        x.expect_kind("input of a gauge convolution", &config.input)?;
        x.expect_rows("the input of a gauge convolution", self.batch.vertex_count())?;
        let mut y = context.buffer(x.rows() * config.output.dimension())?;
        let graph = self.batch.on(context.device())?;
        let ([neighbour, self_term, bias], mut run) = context.values(self.weights.ids())?;
        let (op, graph, x, to) = (config, graph.view(), x.view(), y.view_mut());
        Forward { op, graph, x, neighbour, self_term, bias, y: to }.run(&mut run)?;
        if let Access::Calibration(parameters) = &mut context.access {
            calibrate(config, self.weights, parameters, y.view_mut().host()?);
        }
        Ok(y)
    }

    /// The gradient of `x`, if it is wanted; adds to the gradients of the parameters.
    fn transposed(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
        dy: &Storage<T>,
        wanted: bool,
    ) -> Result<Option<Storage<T>>> {
        let mut dx = context.buffer_if(wanted, x.values_len())?;
        let graph = self.batch.on(context.device())?;
        let (values, gradients, mut run) = context.gradients(self.weights.ids())?;
        let ([neighbour, self_term, bias], [dneighbour, dself_term, dbias]) = (values, gradients);
        let (op, graph, x, dy, to) = (&*self.config, graph.view(), x.view(), dy.view(), dx.as_mut());
        let dx_to = to.map(Storage::view_mut);
        let pass = Backward { op, graph, x, neighbour, self_term, bias, dy, dx: dx_to, dneighbour, dself_term, dbias };
        pass.run(&mut run)?;
        Ok(dx)
    }
}

impl<T: Real> Operator<T> for GaugeConvolve<'_, T> {
    type Saved = Var<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        let y = self.convolve(context, &x)?;
        Ok((Var::new(self.config.output.clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        Ok([self.transposed(context, &x, &dy, wanted)?])
    }
}

/// The sum of the convolution of the first input and of the second input: the end of a residual block. The gradient of
/// the output becomes that of the second input when the convolution has used it.
impl<T: Real> Operator<T, 2> for GaugeConvolve<'_, T> {
    type Saved = Var<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x, skipped]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved)> {
        skipped.expect_kind("skip connection of a gauge convolution", &self.config.output)?;
        skipped.expect_rows("the skip connection of a gauge convolution", x.rows())?;
        let mut y = self.convolve(context, &x)?;
        (context.workspace).accumulate(&mut y, &skipped.into_storage())?;
        Ok((Var::new(self.config.output.clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        [wanted, skipped]: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2]> {
        let dx = self.transposed(context, &x, &dy, wanted)?;
        Ok([dx, skipped.then_some(dy)])
    }
}

/// Divides the output of each order, and the weights that compute it, by its root mean square.
fn calibrate<T: Real>(config: &GaugeConv, weights: ConvWeights, parameters: &mut Parameters<T>, y: &mut [T]) {
    let (inputs, outputs) = (config.input.dimension(), config.output.dimension());
    let rows = y.len().checked_div(outputs).unwrap_or(0);
    let multiply = |values: &mut [T], factor: T| values.iter_mut().for_each(|v| *v *= factor);
    for (order, channels) in config.output.orders() {
        let columns = config.output.range(order);
        let square = |row: &[T]| -> f64 { row[columns.clone()].iter().map(|v| v.as_f64().powi(2)).sum() };
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
            multiply(&mut ring[columns.start * inputs..columns.end * inputs], factor);
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

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`GaugeConvolve`], and adds the features of a skip connection if there are any.
    pub fn gauge_conv(
        &mut self,
        config: &Arc<GaugeConv>,
        batch: &'a GraphBatch<T>,
        weights: ConvWeights,
        x: Var<T>,
        skipped: Option<Var<T>>,
    ) -> Result<Var<T>> {
        let config = Arc::clone(config);
        let operator = GaugeConvolve { config, batch, weights };
        match skipped {
            None => self.apply(operator, [x]),
            Some(skipped) => self.apply(operator, [x, skipped]),
        }
    }
}
