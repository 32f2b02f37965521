//! A single convolution on plain buffers.

use super::work::LayerWork;
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_kernels::Scratch;
use gemcnn_kernels::cuda::{CudaGraph, DeviceBuffer};
use gemcnn_kernels::gauge_conv::{self, GaugeConv};
use gemcnn_nn::{CudaDevice, CudaError, Device, FeatureType, GraphBatch, NnError};
use std::convert::Infallible;
use std::sync::Arc;

/// Calls cycle through this many sets of features, so that features do not stay in a cache.
const SETS: usize = 4;
/// From this many vertices on, features do not fit into a cache anyway, and one set suffices.
const LARGE: usize = 100_000;

/// Forward pass, and forward and backward pass, of a convolution from `16x(0,1,2)` to the same type.
pub(super) fn rows(bench: &Bench, batch: &Arc<GraphBatch<f32>>) -> Result<[Row; 2], NnError> {
    let hidden = FeatureType::uniform(16, 2);
    let op = GaugeConv::new(hidden.clone(), hidden);
    let (layer, size) = (LayerWork::convolution(&op), graph_size(batch));
    let (forward, backward) = (layer.forward(size), layer.backward(size));
    let vertices = batch.vertex_count();
    let sets = if vertices < LARGE { SETS } else { 1 };
    let rows = |kind: &FeatureType| numbers(vertices * kind.dimension());
    let counts = [op.neighbour_count(), op.self_count(), op.bias_count()];
    let mut convolution = convolution(
        &op,
        &bench.device,
        batch,
        counts.map(numbers),
        vec![(rows(&op.input), rows(&op.output)); sets],
    )?;
    Ok([
        bench.row(Case::ConvolutionForward, vertices, forward, |call| {
            convolution.forward(call % sets)
        })?,
        bench.row(
            Case::ConvolutionForwardBackward,
            vertices,
            forward + backward,
            |call| {
                convolution.forward(call % sets)?;
                convolution.backward(call % sets)
            },
        )?,
    ])
}

/// A convolution with its buffers on a device. `weights` are the neighbour weights, the self weights and the
/// bias. Each of the `sets` is an input and a gradient of the output.
///
/// # Errors
/// A GPU runs out of memory.
pub fn convolution(
    op: &GaugeConv,
    device: &Device,
    batch: &Arc<GraphBatch<f32>>,
    weights: [Vec<f32>; 3],
    sets: Vec<(Vec<f32>, Vec<f32>)>,
) -> Result<Box<dyn Convolution>, NnError> {
    Ok(match device {
        Device::Cpu => Box::new(OnCpu::new(op, batch, weights, sets)),
        Device::Cuda(device) => Box::new(OnCuda::new(op, device, batch, weights, sets)?),
    })
}

/// A convolution with its buffers on a device.
pub trait Convolution {
    /// Forward pass of one set.
    ///
    /// # Errors
    /// A buffer has the wrong size, or a GPU operation fails.
    fn forward(&mut self, set: usize) -> Result<(), NnError>;

    /// Backward pass of one set, after its forward pass.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn backward(&mut self, set: usize) -> Result<(), NnError>;

    /// Results of one set.
    ///
    /// # Errors
    /// A GPU operation fails.
    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError>;
}

/// Results of a forward and a backward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionResults {
    /// Output.
    pub y: Vec<f32>,
    /// Gradient of the input.
    pub dx: Vec<f32>,
    /// Gradients of the neighbour weights, the self weights and the bias, summed over all backward passes.
    pub weights: [Vec<f32>; 3],
}

/// Features and gradients of one set.
struct Set<B> {
    x: B,
    y: B,
    dy: B,
    dx: B,
}

/// All buffers of a convolution.
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
                .map(|(x, dy)| {
                    Ok(Set {
                        y: zeros(&dy)?,
                        dx: zeros(&x)?,
                        x: buffer(x)?,
                        dy: buffer(dy)?,
                    })
                })
                .collect::<Result<_, E>>()?,
        })
    }

    fn results<E>(
        &self,
        set: usize,
        read: impl Fn(&B) -> Result<Vec<f32>, E>,
    ) -> Result<ConvolutionResults, E> {
        let set = &self.sets[set];
        let [neighbour, self_term, bias] = self.gradients.each_ref().map(&read);
        Ok(ConvolutionResults {
            y: read(&set.y)?,
            dx: read(&set.dx)?,
            weights: [neighbour?, self_term?, bias?],
        })
    }
}

struct OnCpu {
    op: GaugeConv,
    batch: Arc<GraphBatch<f32>>,
    buffers: Buffers<Vec<f32>>,
    scratch: Scratch<f32>,
}

impl OnCpu {
    fn new(
        op: &GaugeConv,
        batch: &Arc<GraphBatch<f32>>,
        weights: [Vec<f32>; 3],
        sets: Vec<(Vec<f32>, Vec<f32>)>,
    ) -> Self {
        let Ok(buffers) = Buffers::new(weights, sets, Ok::<_, Infallible>);
        Self {
            buffers,
            op: op.clone(),
            batch: Arc::clone(batch),
            scratch: Scratch::new(),
        }
    }
}

impl Convolution for OnCpu {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let Set { x, y, .. } = &mut self.buffers.sets[set];
        let [neighbour, self_term, bias] = &self.buffers.weights;
        let weights = gauge_conv::Weights {
            neighbour,
            self_term,
            bias,
        };
        let graph = self.batch.arrays();
        gauge_conv::forward(&self.op, graph, x, weights, y, &mut self.scratch)?;
        Ok(())
    }

    fn backward(&mut self, set: usize) -> Result<(), NnError> {
        let Set { x, dy, dx, .. } = &mut self.buffers.sets[set];
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
        let (op, graph, scratch) = (&self.op, self.batch.arrays(), &mut self.scratch);
        gauge_conv::backward(op, graph, x, weights, dy, Some(dx), gradients, scratch)?;
        Ok(())
    }

    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError> {
        let Ok(results) = self
            .buffers
            .results(set, |b| Ok::<_, Infallible>(b.clone()));
        Ok(results)
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
        op: &GaugeConv,
        device: &CudaDevice,
        batch: &GraphBatch<f32>,
        weights: [Vec<f32>; 3],
        sets: Vec<(Vec<f32>, Vec<f32>)>,
    ) -> Result<Self, CudaError> {
        let upload = |values: Vec<f32>| device.upload(&values);
        Ok(Self {
            graph: CudaGraph::new(device, batch.arrays())?,
            buffers: Buffers::new(weights, sets, upload)?,
            device: device.clone(),
            op: op.clone(),
        })
    }
}

impl Convolution for OnCuda {
    fn forward(&mut self, set: usize) -> Result<(), NnError> {
        let Set { x, y, .. } = &mut self.buffers.sets[set];
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
        let Set { x, dy, dx, .. } = &mut self.buffers.sets[set];
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

    fn results(&self, set: usize) -> Result<ConvolutionResults, NnError> {
        Ok(self.buffers.results(set, |buffer| {
            let mut values = vec![0.0; buffer.len()];
            self.device.read(buffer.view(), &mut values)?;
            Ok::<_, CudaError>(values)
        })?)
    }
}
