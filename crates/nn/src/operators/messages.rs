//! Nonlinear messages along edges.

use super::LinearWeights;
use crate::record::empty;
use crate::{Context, Device, GraphBatch, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer, DeviceSlice};
use gemcnn_kernels::linear::{self, Linear};
use gemcnn_kernels::messages::chain::{self, Chain, SendLayer};
use gemcnn_kernels::messages::host::{self, HostChain, HostLayer};
use gemcnn_kernels::messages::{Gather, GatherBackward, Reduce, ReduceBackward};
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{FeatureType, Real, Resolve};
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

/// Mean of nonlinear messages over the neighbours of each vertex, `1/|N(p)| sum_q rho(theta_pq) phi(rho(-theta_pq) x_p,
/// rho(g_pq - theta_pq) x_q)`. Saves `x`. Edges are computed in one pass where the device supports the layers
/// ([`host`], [`chain`]), in pieces elsewhere, and again in the backward pass, so memory grows with the number of
/// vertices.
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
const MIN_EDGES: usize = 8192;
const MAX_PIECES: usize = 16;

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

    /// The layers for one pass over the edges on the CPU, if it supports them.
    fn host_chain(&self) -> Option<HostChain<'_, T>> {
        let layers = self.layers.iter().map(|layer| HostLayer { map: &layer.map, plan: &layer.plan });
        HostChain::new(&self.input, &layers.collect::<Vec<_>>())
    }

    fn host_weights(&self, context: &mut Context<'_, T>) -> Result<Vec<T>> {
        host_weights(context, self.layers.iter().map(|layer| layer.weights))
    }

    /// Adds to the gradients of all matrices and biases.
    fn add_host_gradients(&self, context: &mut Context<'_, T>, all: &[T]) -> Result<()> {
        let matrices = self.layers.iter().map(|layer| layer.map.weight_count());
        let (mut weights, mut biases) = all.split_at(matrices.sum());
        for layer in &self.layers {
            let (_, [dweight, dbias], _) = context.gradients(layer.weights.ids())?;
            let parts = [(&mut weights, dweight), (&mut biases, dbias)];
            for (rest, gradient) in parts {
                let gradient = gradient.host()?;
                let part = rest.split_off(..gradient.len()).unwrap_or_default();
                let pairs = gradient.iter_mut().zip(part);
                pairs.for_each(|(gradient, &part)| *gradient += part);
            }
        }
        Ok(())
    }

    /// The ranges of edges that are computed together.
    fn pieces(&self, device: &Device, edges: usize) -> impl Iterator<Item = Range<usize>> + use<T> {
        let piece = match device {
            Device::Cpu => edges.div_ceil(MAX_PIECES).max(MIN_EDGES),
            Device::Cuda(device) => (device.tile_bytes() / (4 * self.width().max(1))).max(1024),
        };
        let first = (0..edges).step_by(piece);
        first.map(move |first| first..edges.min(first + piece))
    }
}

/// All matrices of some maps, then all biases, in main memory.
pub(super) fn host_weights<T: Real>(
    context: &mut Context<'_, T>,
    maps: impl Iterator<Item = LinearWeights>,
) -> Result<Vec<T>> {
    let (mut weights, mut biases) = (Vec::new(), Vec::new());
    for map in maps {
        let ([weight, bias], _) = context.values(map.ids())?;
        weights.extend_from_slice(weight.host()?);
        biases.extend_from_slice(bias.host()?);
    }
    weights.append(&mut biases);
    Ok(weights)
}

/// What the layers computed for a range of edges.
struct Messages<T: Real> {
    /// The gathered features, then the output of each layer; a backward pass leaves out the last.
    values: Vec<Storage<T>>,
    /// The values of each layer before its nonlinearity.
    sums: Vec<Storage<T>>,
}

/// Layers that a GPU computes in one kernel, with their parameters.
pub(super) struct OneKernel<'a> {
    pub device: CudaDevice,
    pub chain: Chain<'a>,
    /// All matrices, then all biases, four at a time.
    parameters: Vec<[Option<ParameterId>; 4]>,
}

impl<'a> OneKernel<'a> {
    pub fn new(device: &CudaDevice, chain: Chain<'a>, layers: impl Iterator<Item = LinearWeights> + Clone) -> Self {
        let matrices = layers.clone().map(|layer| Some(layer.weight));
        let all: Vec<_> = matrices.chain(layers.map(|layer| layer.bias)).collect();
        let four = |ids: &[Option<ParameterId>]| std::array::from_fn(|place| ids.get(place).copied().flatten());
        Self { device: device.clone(), chain, parameters: all.chunks(4).map(four).collect() }
    }

    pub fn weights<T: Real>(&self, context: &mut Context<'_, T>) -> Result<DeviceBuffer<f32>> {
        let mut all = self.device.buffer(self.chain.weight_count())?;
        let mut start = 0;
        for &ids in &self.parameters {
            let ([a, b, c, d], _) = context.values(ids)?;
            let parts = [a.cuda()?, b.cuda()?, c.cuda()?, d.cuda()?];
            let end = start + parts.iter().map(DeviceSlice::len).sum::<usize>();
            chain::pack(&self.device, parts, &all.view_mut().slice(start..end))?;
            start = end;
        }
        Ok(all)
    }

    pub fn add_gradients<T: Real>(&self, context: &mut Context<'_, T>, all: DeviceSlice<'_, f32>) -> Result<()> {
        let mut start = 0;
        for &ids in &self.parameters {
            let (_, [a, b, c, d], _) = context.gradients(ids)?;
            let parts = [a.cuda()?, b.cuda()?, c.cuda()?, d.cuda()?];
            let end = start + parts.iter().map(|part| part.view().len()).sum::<usize>();
            chain::add_gradients(&self.device, all.slice(start..end), parts)?;
            start = end;
        }
        Ok(())
    }
}

impl<T: Real> SendMessages<'_, T> {
    /// The layers as one kernel, if the device supports it.
    fn chain(&self, device: &Device) -> Result<Option<OneKernel<'_>>> {
        let (function, Device::Cuda(device)) = (&*self.function, device) else { return Ok(None) };
        let layers = function.layers.iter().map(|layer| {
            let plan = layer.plan.cuda();
            Ok(SendLayer { map: &layer.map, plan })
        });
        let layers = layers.collect::<Result<Vec<_>>>()?;
        let chain = Chain::messages(device, &function.input, &layers)?;
        let weights = || function.layers.iter().map(|layer| layer.weights);
        Ok(chain.map(|chain| OneKernel::new(device, chain, weights())))
    }

    /// The result in one pass over the edges, if the device supports it.
    fn sent(&self, context: &mut Context<'_, T>, x: &Var<T>) -> Result<Option<Storage<T>>> {
        if let Device::Cpu = context.device() {
            return self.sent_on_host(context, x);
        }
        let Some(kernel) = self.chain(context.device())? else { return Ok(None) };
        let weights = kernel.weights(context)?;
        let mut y = context.buffer(x.rows() * self.function.output().dimension())?;
        let graph = self.batch.on(context.device())?;
        chain::send(
            &kernel.device,
            &kernel.chain,
            graph.view().cuda()?,
            x.view().cuda()?,
            weights.view(),
            y.view_mut().cuda()?,
        )?;
        Ok(Some(y))
    }

    fn sent_on_host(&self, context: &mut Context<'_, T>, x: &Var<T>) -> Result<Option<Storage<T>>> {
        let Some(chain) = self.function.host_chain() else { return Ok(None) };
        let weights = self.function.host_weights(context)?;
        let mut y = context.buffer(x.rows() * self.function.output().dimension())?;
        let graph = self.batch.on(context.device())?;
        let scratch = context.executor().cpu_only("messages")?.narrow;
        let (graph, x, y_view) = (graph.view().host()?, x.view().host()?, y.view_mut().host()?);
        host::send(&chain, graph, x, &weights, y_view, scratch)?;
        Ok(Some(y))
    }

    fn sent_back_on_host(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
        dy: &Storage<T>,
        wanted: bool,
    ) -> Result<Option<[Option<Storage<T>>; 1]>> {
        let Some(chain) = self.function.host_chain() else { return Ok(None) };
        let weights = self.function.host_weights(context)?;
        let mut gradients = vec![T::zero(); weights.len()];
        let mut dx = context.buffer_if(wanted, x.values_len())?;
        let graph = self.batch.on(context.device())?;
        host::send_backward(
            &chain,
            graph.view().host()?,
            x.view().host()?,
            &weights,
            dy.view().host()?,
            dx.as_mut().map(Storage::view_mut).host()?,
            &mut gradients,
            context.executor().cpu_only("messages")?.narrow,
        )?;
        self.function.add_host_gradients(context, &gradients)?;
        Ok(Some([dx]))
    }

    /// The gradient of `x` in one pass over the edges, if the device supports it; adds to the gradients of the weights.
    fn sent_back(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
        dy: &Storage<T>,
        wanted: bool,
    ) -> Result<Option<[Option<Storage<T>>; 1]>> {
        if let Device::Cpu = context.device() {
            return self.sent_back_on_host(context, x, dy, wanted);
        }
        let kernel = self.chain(context.device())?;
        let Some(kernel) = kernel.filter(|kernel| kernel.chain.has_backward()) else { return Ok(None) };
        let weights = kernel.weights(context)?;
        let mut gradients = kernel.device.buffer(weights.len())?;
        let mut dx = context.buffer(x.values_len())?;
        let graph = self.batch.on(context.device())?;
        chain::send_backward(
            &kernel.device,
            &kernel.chain,
            graph.view().cuda()?,
            x.view().cuda()?,
            weights.view(),
            dy.view().cuda()?,
            dx.view_mut().cuda()?,
            gradients.view_mut(),
        )?;
        kernel.add_gradients(context, gradients.view())?;
        Ok(Some([wanted.then_some(dx)]))
    }

    fn compute(
        &self,
        context: &mut Context<'_, T>,
        x: &Var<T>,
        range: Range<usize>,
        is_backward: bool,
    ) -> Result<Messages<T>> {
        let (function, rows) = (&*self.function, range.len());
        let mut gathered = context.buffer(rows * 2 * function.input.dimension())?;
        let graph = self.batch.on(context.device())?;
        let (features, range, graph, x, z) = (&function.input, &range, graph.view(), x.view(), gathered.view_mut());
        Gather { features, range, graph, x, z }.run(&mut context.executor())?;
        let mut computed = Messages { values: vec![gathered], sums: Vec::new() };
        for (index, layer) in function.layers.iter().enumerate() {
            let (map, plan) = (&layer.map, &*layer.plan);
            let mut sum = context.buffer(rows * map.outputs)?;
            let (x, y) = (computed.values[index].view(), sum.view_mut());
            let ([weight, bias], mut run) = context.values(layer.weights.ids())?;
            linear::Forward { op: map, rows, x, weight, bias, y }.run(&mut run)?;
            if !(is_backward && index + 1 == function.layers.len()) {
                let mut value = context.buffer(rows * map.outputs)?;
                let mut run = context.executor();
                let (plan, norm) = (plan.on(&run), run.option(None));
                regular::Forward { rows, plan, norm, x: sum.view(), y: value.view_mut() }.run(&mut run)?;
                computed.values.push(value);
            }
            computed.sums.push(sum);
        }
        Ok(computed)
    }
}

impl<T: Real> Operator<T> for SendMessages<'_, T> {
    type Saved = Var<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
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
            let Some(values) = computed.values.last() else { continue };
            let (features, range, graph, values, y) = (&output, &range, graph.view(), values.view(), y.view_mut());
            Reduce { features, range, graph, values, y }.run(&mut context.executor())?;
        }
        Ok((Var::new(output, x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let (function, output) = (&*self.function, &self.function.output());
        if let Some(gradient) = self.sent_back(context, &x, &dy, wanted)? {
            return Ok(gradient);
        }
        let mut dx = if wanted { Some(context.zeros(x.values_len())?) } else { None };
        let graph = self.batch.on(context.device())?;
        for range in function.pieces(context.device(), self.batch.edge_count()) {
            let rows = range.len();
            let mut computed = self.compute(context, &x, range.clone(), true)?;
            let mut gradient = context.buffer(rows * output.dimension())?;
            let (features, range, graph, to) = (output, &range, graph.view(), gradient.view_mut());
            ReduceBackward { features, range, graph, dy: dy.view(), dvalues: to }.run(&mut context.executor())?;
            for (index, layer) in function.layers.iter().enumerate().rev() {
                let (map, plan) = (&layer.map, &*layer.plan);
                let sum = computed.sums.split_off(index).swap_remove(0);
                computed.values.truncate(index + 1);
                let mut dsum = context.buffer(rows * map.outputs)?;
                let (_, none) = empty(context.device());
                let mut run = context.executor();
                let (plan, norm, dgamma, dbeta) = (plan.on(&run), run.option(None), none(), none());
                let (x, dy, dx) = (sum.view(), gradient.view(), dsum.view_mut());
                regular::Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta }.run(&mut run)?;
                let needed = index > 0 || wanted;
                let mut before = context.buffer_if(needed, rows * map.inputs)?;
                let ([weight, _], [dweight, dbias], mut run) = context.gradients(layer.weights.ids())?;
                let (op, x, dy, to) = (map, computed.values[index].view(), dsum.view(), before.as_mut());
                let dx = to.map(Storage::view_mut);
                linear::Backward { op, rows, x, weight, dy, dx, dweight, dbias }.run(&mut run)?;
                if let Some(before) = before {
                    gradient = before;
                }
            }
            if let Some(dx) = &mut dx {
                let (features, dz, dx) = (&function.input, gradient.view(), dx.view_mut());
                GatherBackward { features, range, graph, dz, dx }.run(&mut context.executor())?;
            }
        }
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`SendMessages`].
    pub fn send_messages(
        &mut self,
        function: &Arc<MessageFunction<T>>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        let function = Arc::clone(function);
        self.apply(SendMessages { function, batch }, [x])
    }
}
