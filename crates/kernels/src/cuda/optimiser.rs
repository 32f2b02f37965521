//! Optimiser steps on a GPU: one kernel updates all parameters.
//!
//! With gradient `g`, parameter `w`, learning rate `r` and weight decay `d`:
//!
//! ```text
//! SGD:   m = momentum m + (g + d w);                      w -= r m
//! Adam:  g += d w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
//!        w = s w - r/(1 - b1^t) m / (sqrt(v/(1 - b2^t)) + eps)
//! ```
//!
//! with `s = 1`; with decoupled weight decay (AdamW) instead `g` is used as it is and `s = 1 - r d`.
//!
//! With averaging, `a += q (w - a)` follows, where `q` is the averaging rate of the step.
//!
//! The settings of the step lie in device memory, so that a captured step can be replayed with others.

use super::sources::KernelSource;
use super::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, Result, args, check_length};
use crate::KernelError;
use bytemuck::{Pod, Zeroable};

pub(crate) const SOURCE: KernelSource = KernelSource::new("optimiser", include_str!("optimiser.cu"));

/// Values of a parameter that one block updates; as in the kernel.
const PIECE: usize = 1024;

/// Largest number of partial sums of a norm.
const MAX_PARTIALS: usize = 256;

/// One step of an optimiser, with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        rate: f64,
        /// Momentum.
        momentum: f64,
        /// Weight decay.
        weight_decay: f64,
    },
    /// Adam, or AdamW.
    Adam {
        /// Learning rate.
        rate: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        epsilon: f64,
        /// Weight decay.
        weight_decay: f64,
        /// True to decouple weight decay from the gradient (AdamW).
        apart: bool,
        /// Index of the step, from 1.
        step: u64,
    },
}

/// As the kernels read it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Rule {
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    rate: f32,
    second_scale: f32,
    epsilon: f32,
    decay: f32,
    shrink: f32,
    average_rate: f32,
}

impl Step {
    fn rule(self, average_rate: f64) -> Rule {
        let average_rate = average_rate as f32;
        match self {
            Self::Sgd { rate, momentum, weight_decay } => Rule {
                beta1: momentum as f32,
                rate: rate as f32,
                decay: weight_decay as f32,
                average_rate,
                ..Rule::zeroed()
            },
            Self::Adam { rate, beta1, beta2, epsilon, weight_decay, apart, step } => {
                let exponent = i32::try_from(step).unwrap_or(i32::MAX);
                let (decay, shrink) = if apart { (0.0, 1.0 - rate * weight_decay) } else { (weight_decay, 1.0) };
                Rule {
                    beta1: beta1 as f32,
                    beta2: beta2 as f32,
                    rest1: (1.0 - beta1) as f32,
                    rest2: (1.0 - beta2) as f32,
                    rate: (rate / (1.0 - beta1.powi(exponent))) as f32,
                    second_scale: (1.0 / (1.0 - beta2.powi(exponent))) as f32,
                    epsilon: epsilon as f32,
                    decay: decay as f32,
                    shrink: shrink as f32,
                    average_rate,
                }
            }
        }
    }
}

/// Clips a vector to the Euclidean norm `largest`, without waiting for the device. A vector whose norm is not
/// finite stays as it is.
pub fn clip(device: &CudaDevice, largest: f64, values: DeviceSliceMut<'_, f32>) -> Result<()> {
    let blocks = values.len().div_ceil(PIECE).min(MAX_PARTIALS);
    let partials: DeviceBuffer<f64> = device.buffer(blocks)?;
    let length = values.len() as u64;
    // SAFETY: every block has its partial sum, and stays within the length.
    unsafe {
        let function = device.function(SOURCE, &[], "square_partials")?;
        let arguments = args![&values, length, &partials];
        function.run((blocks, 1), (256, 1), arguments)?;
        let function = device.function(SOURCE, &[], "clip")?;
        let arguments = args![&values, length, &partials, blocks as u32, largest];
        function.run((blocks, 1), (256, 1), arguments)
    }
}

/// One parameter with its gradient.
#[derive(Debug)]
pub struct Parameter<'a> {
    /// The values.
    pub value: DeviceSliceMut<'a, f32>,
    /// Their gradient.
    pub gradient: DeviceSlice<'a, f32>,
    /// True if weight decay applies.
    pub decays: bool,
}

/// As the kernels read it.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Tensor {
    value: u64,
    gradient: u64,
    first: u64,
    second: u64,
    average: u64,
    length: u64,
    decays: u64,
}

/// The state of an optimiser: moments and averages of all parameters, and the addresses that its kernel reads.
#[derive(Debug)]
pub struct DeviceOptimiser {
    /// First moments, second moments and averages.
    state: [DeviceBuffer<f32>; 3],
    lengths: Vec<usize>,
    tensors: DeviceBuffer<Tensor>,
    pieces: DeviceBuffer<[u32; 2]>,
    rule: DeviceBuffer<Rule>,
    /// What `tensors` holds now.
    placed: Vec<Tensor>,
    /// The rule's kernel.
    kernel: &'static str,
}

impl DeviceOptimiser {
    /// The state before the first step, for parameters of these lengths, with averages of their values if
    /// `averages`.
    pub fn new(device: &CudaDevice, lengths: &[usize], averages: bool) -> Result<Self> {
        let total = lengths.iter().sum();
        let pieces: Vec<[u32; 2]> = lengths
            .iter()
            .enumerate()
            .flat_map(|(tensor, length)| (0..length.div_ceil(PIECE)).map(move |piece| [tensor as u32, piece as u32]))
            .collect();
        Ok(Self {
            state: [device.zeros(total)?, device.zeros(total)?, device.zeros(if averages { total } else { 0 })?],
            lengths: lengths.to_vec(),
            tensors: device.buffer(lengths.len())?,
            pieces: device.upload(&pieces)?,
            rule: device.buffer(1)?,
            placed: Vec::new(),
            kernel: "adam",
        })
    }

    /// First moments, second moments and averages of all parameters, each concatenated. The averages are empty if
    /// there are none.
    pub fn state(&self) -> [DeviceSlice<'_, f32>; 3] {
        self.state.each_ref().map(DeviceBuffer::view)
    }

    /// The same for writing, to restore a checkpoint.
    pub fn state_mut(&mut self) -> [DeviceSliceMut<'_, f32>; 3] {
        self.state.each_mut().map(DeviceBuffer::view_mut)
    }

    /// Copies the settings and the addresses of the parameters for the next [`run`](Self::run) to the device,
    /// unless they are there already. `average_rate` is the share of the new values in the averages.
    pub fn prepare(
        &mut self,
        device: &CudaDevice,
        step: Step,
        average_rate: f64,
        parameters: &[Parameter<'_>],
    ) -> Result<()> {
        let operator = "optimiser";
        if parameters.len() != self.lengths.len() {
            return Err(CudaError::Kernel(KernelError::Length {
                operator,
                buffer: "parameters",
                found: parameters.len(),
                expected: self.lengths.len(),
            }));
        }
        let mut placed = Vec::with_capacity(parameters.len());
        let mut start = 0;
        for (parameter, &length) in parameters.iter().zip(&self.lengths) {
            check_length(operator, "value", parameter.value.view(), length)?;
            check_length(operator, "gradient", parameter.gradient, length)?;
            let place = |values: DeviceSlice<'_, f32>| if values.is_empty() { 0 } else { values.from(start).address };
            let [first, second, average] = self.state().map(place);
            placed.push(Tensor {
                value: parameter.value.address,
                gradient: parameter.gradient.address,
                first,
                second,
                average,
                length: length as u64,
                decays: u64::from(parameter.decays),
            });
            start += length;
        }
        if placed != self.placed {
            device.write(self.tensors.view_mut(), &placed)?;
            self.placed = placed;
        }
        self.kernel = match step {
            Step::Sgd { .. } => "sgd",
            Step::Adam { .. } => "adam",
        };
        device.write(self.rule.view_mut(), &[step.rule(average_rate)])
    }

    /// Updates the parameters with the prepared settings. It can be captured, and replayed after
    /// [`prepare`](Self::prepare) with other settings.
    pub fn run(&mut self, device: &CudaDevice) -> Result<()> {
        if self.placed.is_empty() {
            return Ok(());
        }
        let function = device.function(SOURCE, &[], self.kernel)?;
        // SAFETY: the places and lengths are those of the slices that `prepare` checked, and every piece is
        // one of them; the caller keeps the parameters.
        unsafe { function.run((self.pieces.len(), 1), (256, 1), args![&self.tensors, &self.pieces, &self.rule]) }
    }
}
