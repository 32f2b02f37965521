//! One convolution on plain buffers, without a tape.

use super::case::{input, output_gradient};
use super::job::{Job, Setup};
use gemcnn_kernels::gauge_conv::{Backward, Forward, GaugeConv};
use gemcnn_kernels::{Executor, HostScratch, Scratch};
use gemcnn_nn::{
    Aggregation, Archive, Device, FeatureType, Geometry, Levels, Module, NnError, Parameters, Storage, Tape,
};
use std::sync::Arc;

/// A forward pass, or a forward and a backward pass, whose gradients of weights add up.
pub(super) struct Convolution {
    op: GaugeConv,
    device: Device,
    graphs: Arc<Geometry<f32>>,
    /// Names and shapes of the weights.
    parameters: Parameters<f32>,
    weights: [Storage<f32>; 3],
    gradients: [Storage<f32>; 3],
    /// Features that calls take in turn, so that small ones do not stay in a cache.
    sets: Vec<Set>,
    scratch: (Scratch<f32>, Scratch<f64>),
    is_backward: bool,
    calls: usize,
}

/// Input, output and their gradients.
struct Set {
    x: Storage<f32>,
    y: Storage<f32>,
    dy: Storage<f32>,
    dx: Storage<f32>,
}

impl Convolution {
    /// The convolution of a network that has nothing else.
    pub fn new(
        network: &dyn Module<f32>,
        parameters: Parameters<f32>,
        graphs: Arc<Geometry<f32>>,
        setup: &Setup,
        is_backward: bool,
    ) -> Result<Self, NnError> {
        let vertices = Levels::from(&*graphs).graph()?.vertex_count();
        let (x, dy) = (input(network, vertices), output_gradient(network, vertices));
        let mut workspace = setup.workspace();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let mut put = |values: &[f32]| {
            let shared = tape.input(FeatureType::scalars(1), values)?.into_storage();
            Arc::into_inner(shared).ok_or_else(|| NnError::setting("storage", "it is shared"))
        };
        let sets = (0..setup.sets)
            .map(|_| {
                Ok(Set { y: put(&vec![0.0; dy.len()])?, dx: put(&vec![0.0; x.len()])?, x: put(&x)?, dy: put(&dy)? })
            })
            .collect::<Result<_, NnError>>()?;
        let mut three = |is_zero: bool| {
            let values = parameters.iter().map(|parameter| match is_zero {
                true => put(&vec![0.0; parameter.value().len()]),
                false => put(parameter.value()),
            });
            let values = values.collect::<Result<Vec<_>, _>>()?;
            <[_; 3]>::try_from(values).map_err(|_| NnError::setting("network", "it is not one convolution"))
        };
        let (weights, gradients) = (three(false)?, three(true)?);
        drop(tape);
        let op = GaugeConv::new(network.input().clone(), network.output().clone());
        Ok(Self {
            op: GaugeConv { aggregation: Aggregation::Mean, ..op },
            device: setup.device.clone(),
            graphs,
            parameters,
            weights,
            gradients,
            sets,
            scratch: Default::default(),
            is_backward,
            calls: 0,
        })
    }
}

fn executor<'e>(device: &'e Device, (narrow, wide): &'e mut (Scratch<f32>, Scratch<f64>)) -> Executor<'e, f32> {
    match device {
        Device::Cpu => Executor::Host(HostScratch { narrow, wide }),
        Device::Cuda(device) => Executor::Cuda(device),
    }
}

impl Job for Convolution {
    fn call(&mut self) -> Result<(), NnError> {
        let Self { op, device, scratch, .. } = self;
        let set = self.calls % self.sets.len();
        let Set { x, y, dy, dx } = &mut self.sets[set];
        self.calls += 1;
        let graph = Levels::from(&*self.graphs).graph()?.on(device)?;
        let (op, graph, x, mut run) = (&*op, graph.view(), x.view(), executor(device, scratch));
        let [neighbour, self_term, bias] = self.weights.each_ref().map(Storage::view);
        Forward { op, graph, x, neighbour, self_term, bias, y: y.view_mut() }.run(&mut run)?;
        if self.is_backward {
            let [dneighbour, dself_term, dbias] = self.gradients.each_mut().map(Storage::view_mut);
            let (dy, dx) = (dy.view(), Some(dx.view_mut()));
            Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias }
                .run(&mut run)?;
        }
        Ok(())
    }

    fn results(&mut self) -> Result<Archive, NnError> {
        if self.is_backward && self.calls > 0 {
            return Err(NnError::setting("results", "gradients add up: ask for them before any run"));
        }
        self.call()?;
        let Set { y, dx, .. } = &self.sets[0];
        let vertices = y.len() / self.op.output.dimension();
        let mut archive = Archive::new();
        archive.set_tensor("y", &[vertices, self.op.output.dimension()], &y.read()?)?;
        if self.is_backward {
            archive.set_tensor("dx", &[vertices, self.op.input.dimension()], &dx.read()?)?;
            for (parameter, gradient) in self.parameters.iter().zip(&self.gradients) {
                let name = format!("gradient.{}", parameter.name());
                archive.set_tensor(name, parameter.shape(), &gradient.read()?)?;
            }
        }
        Ok(archive)
    }
}
