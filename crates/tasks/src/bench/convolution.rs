//! One convolution by itself, on plain buffers.

use super::work::LayerWork;
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_kernels::cuda::{CudaGraph, DeviceBuffer};
use gemcnn_kernels::gauge_conv::{self, GaugeConv};
use gemcnn_kernels::{GraphArrays, Scratch};
use gemcnn_nn::{CudaDevice, CudaError, Device, FeatureType, GraphBatch, NnError};
use std::convert::Infallible;

/// Sets of features that calls take in turn, so that they do not all stay in a cache.
const SETS: usize = 4;

/// Forward, and forward with backward, of `16x(0,1,2)` to the same.
pub(super) fn rows(bench: &Bench, batch: &GraphBatch<f32>) -> Result<[Row; 2], NnError> {
    let hidden = FeatureType::uniform(16, 2);
    let op = GaugeConv::new(hidden.clone(), hidden);
    let (layer, size) = (LayerWork::convolution(&op), graph_size(batch));
    let (forward, backward) = (layer.forward(size), layer.backward(size));
    let vertices = batch.vertex_count();
    let mut convolution: Box<dyn Convolution> = match &bench.device {
        Device::Cpu => Box::new(OnCpu::new(op, batch.arrays())),
        Device::Cuda(device) => Box::new(OnCuda::new(op, device, batch.arrays())?),
    };
    Ok([
        bench.row(Case::ConvolutionForward, vertices, forward, |call| {
            convolution.forward(call % SETS)
        })?,
        bench.row(
            Case::ConvolutionForwardBackward,
            vertices,
            forward + backward,
            |call| {
                convolution.forward(call % SETS)?;
                convolution.backward(call % SETS)
            },
        )?,
    ])
}

/// A convolution with all its buffers on some device.
trait Convolution {
    /// Of one set of features.
    fn forward(&mut self, set: usize) -> Result<(), NnError>;

    /// Of the same set, with its output in the place of a gradient.
    fn backward(&mut self, set: usize) -> Result<(), NnError>;
}

/// Buffers of a device: features in sets of input, output and gradient of the input, and weights and
/// their gradients for neighbours, for the vertex itself, and as bias.
struct Buffers<B> {
    sets: Vec<[B; 3]>,
    weights: [B; 3],
    gradients: [B; 3],
}

impl<B> Buffers<B> {
    fn new<E>(
        op: &GaugeConv,
        vertices: usize,
        mut buffer: impl FnMut(Vec<f32>) -> Result<B, E>,
    ) -> Result<Self, E> {
        let counts = [op.neighbour_count(), op.self_count(), op.bias_count()];
        let [inputs, outputs] = [&op.input, &op.output].map(|kind| vertices * kind.dimension());
        let mut three = |counts: [usize; 3]| {
            let [a, b, c] = counts.map(|count| buffer(numbers(count)));
            Ok([a?, b?, c?])
        };
        Ok(Self {
            sets: (0..SETS)
                .map(|_| three([inputs, outputs, inputs]))
                .collect::<Result<_, E>>()?,
            weights: three(counts)?,
            gradients: three(counts)?,
        })
    }
}

struct OnCpu<'g> {
    op: GaugeConv,
    graph: &'g GraphArrays<f32>,
    buffers: Buffers<Vec<f32>>,
    scratch: Scratch<f32>,
}

impl<'g> OnCpu<'g> {
    fn new(op: GaugeConv, graph: &'g GraphArrays<f32>) -> Self {
        let Ok(buffers) = Buffers::new(&op, graph.vertex_count(), Ok::<_, Infallible>);
        Self {
            buffers,
            op,
            graph,
            scratch: Scratch::new(),
        }
    }
}

impl Convolution for OnCpu<'_> {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let [x, y, _] = &mut self.buffers.sets[set];
        let [neighbour, self_term, bias] = &self.buffers.weights;
        let weights = gauge_conv::Weights {
            neighbour,
            self_term,
            bias,
        };
        gauge_conv::forward(&self.op, self.graph, x, weights, y, &mut self.scratch)?;
        Ok(())
    }

    fn backward(&mut self, set: usize) -> Result<(), NnError> {
        let [x, dy, dx] = &mut self.buffers.sets[set];
        let [neighbour, self_term, bias] = &self.buffers.weights;
        let weights = gauge_conv::Weights {
            neighbour,
            self_term,
            bias,
        };
        let [neighbour, self_term, bias] = &mut self.buffers.gradients;
        let gradients = gauge_conv::WeightGradients {
            neighbour,
            self_term,
            bias,
        };
        let (op, graph, scratch) = (&self.op, self.graph, &mut self.scratch);
        gauge_conv::backward(op, graph, x, weights, dy, Some(dx), gradients, scratch)?;
        Ok(())
    }
}

struct OnCuda {
    op: GaugeConv,
    device: CudaDevice,
    graph: CudaGraph,
    buffers: Buffers<DeviceBuffer<f32>>,
}

impl OnCuda {
    fn new(
        op: GaugeConv,
        device: &CudaDevice,
        graph: &GraphArrays<f32>,
    ) -> Result<Self, CudaError> {
        let upload = |values: Vec<f32>| device.upload(&values);
        Ok(Self {
            graph: CudaGraph::new(device, graph)?,
            buffers: Buffers::new(&op, graph.vertex_count(), upload)?,
            device: device.clone(),
            op,
        })
    }
}

impl Convolution for OnCuda {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let [x, y, _] = &mut self.buffers.sets[set];
        let [neighbour, self_term, bias] = self.buffers.weights.each_ref().map(DeviceBuffer::view);
        let weights = gauge_conv::cuda::Weights {
            neighbour,
            self_term,
            bias,
        };
        let (op, graph, y) = (&self.op, &self.graph, y.view_mut());
        gauge_conv::cuda::forward(&self.device, op, graph, x.view(), weights, y)?;
        Ok(())
    }

    fn backward(&mut self, set: usize) -> Result<(), NnError> {
        let [x, dy, dx] = &mut self.buffers.sets[set];
        let [neighbour, self_term, bias] = self.buffers.weights.each_ref().map(DeviceBuffer::view);
        let weights = gauge_conv::cuda::Weights {
            neighbour,
            self_term,
            bias,
        };
        let [neighbour, self_term, bias] =
            (self.buffers.gradients.each_mut()).map(DeviceBuffer::view_mut);
        let gradients = gauge_conv::cuda::WeightGradients {
            neighbour,
            self_term,
            bias,
        };
        let (device, op, graph) = (&self.device, &self.op, &self.graph);
        let (x, dy, dx) = (x.view(), dy.view(), Some(dx.view_mut()));
        gauge_conv::cuda::backward(device, op, graph, x, weights, dy, dx, gradients)?;
        Ok(())
    }
}
