//! One convolution on plain buffers, without a tape.

use super::work::LayerWork;
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_kernels::Scratch;
use gemcnn_kernels::cuda::{DeviceBuffer, DeviceGraph};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, Weights};
use gemcnn_nn::{CudaDevice, CudaError, Device, FeatureType, Geometry, Levels, NnError};
use std::convert::Infallible;
use std::sync::Arc;

/// Number of feature sets that successive calls cycle through, so that small inputs do not stay in a cache.
const SETS: usize = 4;
/// Inputs of at least this many vertices do not fit in a cache: one set is enough.
const LARGE: usize = 100_000;

/// Forward pass, and forward with backward pass, of `16x(0,1,2)` to the same.
pub(super) fn rows(bench: &Bench, graphs: &Arc<Geometry<f32>>) -> Result<[Row; 2], NnError> {
    let batch = Levels::from(&**graphs).graph()?;
    let hidden = FeatureType::uniform(16, 2);
    let op = GaugeConv::new(hidden.clone(), hidden);
    let (layer, size) = (LayerWork::convolution(&op), graph_size(batch));
    let (forward, backward) = (layer.forward(size), layer.backward(size));
    let vertices = batch.vertex_count();
    let sets = if vertices < LARGE { SETS } else { 1 };
    let rows = |kind: &FeatureType| numbers(vertices * kind.dimension());
    let counts = [op.neighbour_count(), op.self_count(), op.bias_count()];
    let mut convolution =
        convolution(&op, &bench.device, graphs, counts.map(numbers), vec![(rows(&op.input), rows(&op.output)); sets])?;
    Ok([
        bench.row(Case::ConvolutionForward, vertices, forward, |call| convolution.forward(call % sets))?,
        bench.row(Case::ConvolutionForwardBackward, vertices, forward + backward, |call| {
            convolution.forward(call % sets)?;
            convolution.backward(call % sets)
        })?,
    ])
}

/// Allocates a convolution on the finest graph, on a device. `weights` are neighbour weights, self weights and biases;
/// each of `sets` is an input and a gradient of the output.
///
/// # Errors
/// Too little memory on a GPU.
pub fn convolution(
    op: &GaugeConv,
    device: &Device,
    graphs: &Arc<Geometry<f32>>,
    weights: [Vec<f32>; 3],
    sets: Vec<(Vec<f32>, Vec<f32>)>,
) -> Result<Box<dyn Convolution>, NnError> {
    Ok(match device {
        Device::Cpu => {
            let Ok(buffers) = Buffers::new(weights, sets, Ok::<_, Infallible>);
            Box::new(OnCpu { op: op.clone(), graphs: Arc::clone(graphs), buffers, scratch: Scratch::new() })
        }
        Device::Cuda(device) => Box::new(OnCuda {
            op: op.clone(),
            graph: DeviceGraph::new(device, Levels::from(&**graphs).graph()?.view())?,
            buffers: Buffers::new(weights, sets, |values| device.upload(&values))?,
            device: device.clone(),
        }),
    })
}

/// A convolution with all its buffers on a device.
pub trait Convolution: Send {
    /// Runs the forward pass on one set of features.
    fn forward(&mut self, set: usize) -> Result<(), NnError>;

    /// Runs the backward pass on one set of features.
    fn backward(&mut self, set: usize) -> Result<(), NnError>;

    /// Reads the results of one set.
    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError>;
}

/// Results of a convolution and its backward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionResults {
    /// Output.
    pub y: Vec<f32>,
    /// Gradient of the input.
    pub dx: Vec<f32>,
    /// Gradients of neighbour weights, self weights and biases, summed over all backward passes.
    pub weights: [Vec<f32>; 3],
}

/// The buffers of one set of features.
struct Set<B> {
    x: B,
    y: B,
    dy: B,
    dx: B,
}

/// All buffers on a device.
struct Buffers<B> {
    sets: Vec<Set<B>>,
    weights: [B; 3],
    gradients: [B; 3],
}

impl<B> Buffers<B> {
    fn new<E>(
        weights: [Vec<f32>; 3],
        sets: Vec<(Vec<f32>, Vec<f32>)>,
        buffer: impl Fn(Vec<f32>) -> Result<B, E>,
    ) -> Result<Self, E> {
        let zeros = |like: &Vec<f32>| buffer(vec![0.0; like.len()]);
        let three = |[a, b, c]: [Result<B, E>; 3]| Ok([a?, b?, c?]);
        Ok(Self {
            gradients: three(weights.each_ref().map(zeros))?,
            weights: three(weights.map(&buffer))?,
            sets: (sets.into_iter())
                .map(|(x, dy)| Ok(Set { y: zeros(&dy)?, dx: zeros(&x)?, x: buffer(x)?, dy: buffer(dy)? }))
                .collect::<Result<_, E>>()?,
        })
    }

    fn results<E>(&self, set: usize, read: impl Fn(&B) -> Result<Vec<f32>, E>) -> Result<ConvolutionResults, E> {
        let set = &self.sets[set];
        let [neighbour, self_term, bias] = self.gradients.each_ref().map(&read);
        Ok(ConvolutionResults { y: read(&set.y)?, dx: read(&set.dx)?, weights: [neighbour?, self_term?, bias?] })
    }
}

fn weights<S>([neighbour, self_term, bias]: [S; 3]) -> Weights<S> {
    Weights { neighbour, self_term, bias }
}

struct OnCpu {
    op: GaugeConv,
    graphs: Arc<Geometry<f32>>,
    buffers: Buffers<Vec<f32>>,
    scratch: Scratch<f32>,
}

impl Convolution for OnCpu {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let Set { x, y, .. } = &mut self.buffers.sets[set];
        let weights = weights(self.buffers.weights.each_ref().map(Vec::as_slice));
        let graph = Levels::from(&*self.graphs).graph()?.view();
        gauge_conv::forward(&self.op, graph, x, weights, y, &mut self.scratch)?;
        Ok(())
    }

    fn backward(&mut self, set: usize) -> Result<(), NnError> {
        let Buffers { sets, weights: values, gradients } = &mut self.buffers;
        let Set { x, dy, dx, .. } = &mut sets[set];
        let values = weights(values.each_ref().map(Vec::as_slice));
        let gradients = weights(gradients.each_mut().map(Vec::as_mut_slice));
        let graph = Levels::from(&*self.graphs).graph()?.view();
        let (op, scratch) = (&self.op, &mut self.scratch);
        gauge_conv::backward(op, graph, x, values, dy, Some(dx), gradients, scratch)?;
        Ok(())
    }

    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError> {
        let Ok(results) = self.buffers.results(set, |b| Ok::<_, Infallible>(b.clone()));
        Ok(results)
    }
}

struct OnCuda {
    op: GaugeConv,
    device: CudaDevice,
    graph: DeviceGraph,
    buffers: Buffers<DeviceBuffer<f32>>,
}

impl Convolution for OnCuda {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let Set { x, y, .. } = &mut self.buffers.sets[set];
        let weights = weights(self.buffers.weights.each_ref().map(DeviceBuffer::view));
        let (op, graph, y) = (&self.op, self.graph.view(), y.view_mut());
        gauge_conv::cuda::forward(&self.device, op, graph, x.view(), weights, y)?;
        Ok(())
    }

    fn backward(&mut self, set: usize) -> Result<(), NnError> {
        let Buffers { sets, weights: values, gradients } = &mut self.buffers;
        let Set { x, dy, dx, .. } = &mut sets[set];
        let values = weights(values.each_ref().map(DeviceBuffer::view));
        let gradients = weights(gradients.each_mut().map(DeviceBuffer::view_mut));
        let (device, op, graph) = (&self.device, &self.op, self.graph.view());
        let (x, dy, dx) = (x.view(), dy.view(), Some(dx.view_mut()));
        gauge_conv::cuda::backward(device, op, graph, x, values, dy, dx, gradients)?;
        Ok(())
    }

    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError> {
        Ok(self.buffers.results(set, |buffer| {
            let mut values = vec![0.0; buffer.len()];
            self.device.read(buffer.view(), &mut values)?;
            Ok::<_, CudaError>(values)
        })?)
    }
}
