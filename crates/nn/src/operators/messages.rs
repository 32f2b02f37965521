//! Nonlinear messages along edges.

use super::LinearWeights;
use crate::{Context, Device, GraphBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::linear::{self, Linear};
use gemcnn_kernels::messages::chain::{self, Chain, SendLayer};
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{FeatureType, Real, Resolve, dispatch, messages};
use std::ops::Range;
use std::sync::Arc;

/// One layer of a message function: a linear map in the frame of the edge, then a regular nonlinearity.
#[derive(Debug, Clone)]
pub struct MessageLayer<T: Real> {
    /// Numbers of inputs and outputs of the linear map.
    pub map: Linear,
    /// Its parameters.
    pub weights: LinearWeights,
    /// The nonlinearity; its type is that of the outputs.
    pub plan: Arc<Plan<T>>,
}

/// A message function: layers on the features of both vertices of an edge, in its frame.
#[derive(Debug, Clone)]
pub struct MessageFunction<T: Real> {
    /// Type of the features of vertices.
    pub input: FeatureType,
    /// The layers; the first one takes twice the dimension of `input`.
    pub layers: Vec<MessageLayer<T>>,
}

/// Mean of nonlinear messages over the neighbours of each vertex,
/// `1/|N(p)| sum_q rho(theta_pq) phi(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)`. Saves `x`. Edges are computed in pieces,
/// and again in the backward pass, so memory grows with the number of vertices.
///
/// # Shapes
/// `x`: one row of `function.input` for each vertex; `y`: one row of the type of the last layer.
#[derive(Debug)]
pub struct SendMessages<'a, T: Real> {
    /// The message function.
    pub function: Arc<MessageFunction<T>>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
}

/// Fewest edges of a piece on the CPU, and most pieces of a graph there.
const LEAST_EDGES: usize = 8192;
const MOST_PIECES: usize = 16;

impl<T: Real> MessageFunction<T> {
    /// Type of the messages.
    pub fn output(&self) -> FeatureType {
        let last = self.layers.last().map(|layer| layer.plan.config().output());
        last.unwrap_or_default()
    }

    /// Numbers that are computed for each edge.
    fn width(&self) -> usize {
        let layers = self.layers.iter().map(|layer| 2 * layer.map.outputs);
        2 * self.input.dimension() + layers.sum::<usize>()
    }

    /// The ranges of edges that are computed together.
    fn pieces(&self, device: &Device, edges: usize) -> impl Iterator<Item = Range<usize>> + use<T> {
        let piece = match device {
            Device::Cpu => edges.div_ceil(MOST_PIECES).max(LEAST_EDGES),
            Device::Cuda(device) => (device.tile_bytes() / (4 * self.width().max(1))).max(1024),
        };
        let first = (0..edges).step_by(piece);
        first.map(move |first| first..edges.min(first + piece))
    }
}

/// What the layers computed for a range of edges.
struct Messages<T: Real> {
    /// The gathered features, then the output of each layer; a backward pass leaves out the last.
    values: Vec<Storage<T>>,
    /// The values of each layer before its nonlinearity.
    sums: Vec<Storage<T>>,
}

impl<T: Real> SendMessages<'_, T> {
    /// The result by one kernel, if the device supports it.
    fn sent(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
    ) -> Result<Option<Storage<T>>, NnError> {
        let (function, Device::Cuda(device)) = (&*self.function, context.device().clone()) else {
            return Ok(None);
        };
        let layers = function.layers.iter().map(|layer| {
            let plan = (&*layer.plan).cuda()?;
            Ok(SendLayer {
                map: &layer.map,
                plan,
            })
        });
        let layers = layers.collect::<Result<Vec<_>, NnError>>()?;
        let Some(chain) = Chain::messages(&device, &function.input, &layers)? else {
            return Ok(None);
        };
        let maps = || function.layers.iter().map(|layer| &layer.map);
        let matrices: usize = maps().map(Linear::weight_count).sum();
        let biases: usize = maps().map(Linear::bias_count).sum();
        let mut weights = device.buffer(matrices + biases)?;
        let (mut place, mut bias_place) = (0, matrices);
        for layer in &function.layers {
            let ([weight, bias], _) = context.values(layer.weights.ids())?;
            for (from, place) in [(weight, &mut place), (bias, &mut bias_place)] {
                let from = from.cuda()?;
                let to = *place..*place + from.len();
                *place = to.end;
                device.copy(from, weights.view_mut().slice(to))?;
            }
        }
        let mut y = context.buffer(x.rows() * function.output().dimension())?;
        let graph = self.batch.on(context.device())?;
        chain::send(
            &device,
            &chain,
            graph.view().cuda()?,
            x.view().cuda()?,
            weights.view(),
            y.view_mut().cuda()?,
        )?;
        Ok(Some(y))
    }

    fn compute(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
        range: Range<usize>,
        is_backward: bool,
    ) -> Result<Messages<T>, NnError> {
        let (function, rows) = (&*self.function, range.len());
        let mut gathered = context.buffer(rows * 2 * function.input.dimension())?;
        let graph = self.batch.on(context.device())?;
        let input = &function.input;
        dispatch!(
            context.executor(),
            messages::gather(input, range; graph.view(), x.view(), gathered.view_mut())
        );
        let mut computed = Messages {
            values: vec![gathered],
            sums: Vec::new(),
        };
        for (index, layer) in function.layers.iter().enumerate() {
            let (map, plan) = (&layer.map, &*layer.plan);
            let mut sum = context.buffer(rows * map.outputs)?;
            let before = computed.values[index].view();
            let ([weight, bias], run) = context.values(layer.weights.ids())?;
            dispatch!(
                run,
                linear::forward(map, rows; before, weight, bias, sum.view_mut())
            );
            if !(is_backward && index + 1 == function.layers.len()) {
                let mut value = context.buffer(rows * map.outputs)?;
                let run = context.executor();
                dispatch!(run, regular::forward(; plan, rows, sum.view(), value.view_mut()));
                computed.values.push(value);
            }
            computed.sums.push(sum);
        }
        Ok(computed)
    }
}

impl<T: Real> Operator<T> for SendMessages<'_, T> {
    type Saved = Var<T>;

    fn name(&self) -> &'static str {
        "messages"
    }

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [x]: [Var<T>; 1],
    ) -> Result<(Var<T>, Self::Saved), NnError> {
        let (function, output) = (&*self.function, self.function.output());
        x.expect_kind("input of messages", &function.input)?;
        x.expect_rows("the input of messages", self.batch.vertex_count())?;
        let edges = context.edge_rows(self.batch);
        if let Some(y) = self.sent(context, &x)? {
            return Ok((Var::new(output, x.rows(), y), x));
        }
        let mut y = context.zeros(x.rows() * output.dimension())?;
        let graph = self.batch.on(context.device())?;
        for range in function.pieces(context.device(), edges) {
            let computed = self.compute(context, &x, range.clone(), false)?;
            let Some(values) = computed.values.last() else {
                continue;
            };
            let output = &output;
            dispatch!(
                context.executor(),
                messages::reduce(output, range; graph.view(), values.view(), y.view_mut())
            );
        }
        Ok((Var::new(output, x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let (function, output) = (&*self.function, &self.function.output());
        let mut dx = match wanted {
            true => Some(context.zeros(x.values_len())?),
            false => None,
        };
        let graph = self.batch.on(context.device())?;
        for range in function.pieces(context.device(), self.batch.edge_count()) {
            let rows = range.len();
            let mut computed = self.compute(context, &x, range.clone(), true)?;
            let mut gradient = context.buffer(rows * output.dimension())?;
            let values = range.clone();
            dispatch!(
                context.executor(),
                messages::reduce_backward(output, values; graph.view(), dy.view(), gradient.view_mut())
            );
            for (index, layer) in function.layers.iter().enumerate().rev() {
                let (map, plan) = (&layer.map, &*layer.plan);
                let sum = computed.sums.split_off(index).swap_remove(0);
                computed.values.truncate(index + 1);
                let mut dsum = context.buffer(rows * map.outputs)?;
                let run = context.executor();
                dispatch!(
                    run,
                    regular::backward(; plan, rows, sum.view(), gradient.view(), dsum.view_mut())
                );
                let needed = index > 0 || wanted;
                let mut before = context.buffer_if(needed, rows * map.inputs)?;
                let value = computed.values[index].view();
                let ([weight, _], [dweight, dbias], run) =
                    context.gradients(layer.weights.ids())?;
                dispatch!(
                    run,
                    linear::backward(
                        map, rows;
                        value,
                        weight,
                        dsum.view(),
                        before.as_mut().map(Storage::view_mut),
                        dweight,
                        dbias;
                        scratch
                    )
                );
                if let Some(before) = before {
                    gradient = before;
                }
            }
            if let Some(dx) = &mut dx {
                let input = &function.input;
                dispatch!(
                    context.executor(),
                    messages::gather_backward(input, range; graph.view(), gradient.view(), dx.view_mut())
                );
            }
        }
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`SendMessages`].
    ///
    /// # Errors
    /// Input of another type or number of rows.
    pub fn send_messages(
        &mut self,
        function: &Arc<MessageFunction<T>>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let function = Arc::clone(function);
        self.apply(SendMessages { function, batch }, [x])
    }
}
