//! Optimisers: SGD, Adam and AdamW, with an exponential moving average of the weights.
//!
//! The update of a parameter `w` with gradient `g`, learning rate `r` and weight decay `d`. Weight decay is zero
//! for parameters that do not decay ([`Parameter::decays`](crate::Parameter::decays)): by default biases, and
//! scales and shifts of normalisations.
//!
//! | method | step |
//! | --- | --- |
//! | SGD | `g += d w;  m = momentum m + g;  w -= r m` |
//! | Adam | `g += d w;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= r m' / (sqrt v' + eps)` |
//! | AdamW | `w -= r d w`, then as Adam with `d = 0` |
//!
//! where `m' = m / (1 - b1^t)`, `v' = v / (1 - b2^t)` in step `t = 1, 2, ...`
//!
//! The average `a` follows with `a += q (w - a)`, where `q = 1 - min(decay, (t - 1) / (t + 8))`. So the first step
//! copies the weights, and the average covers about the last tenth of the steps until the decay is reached.

mod method;

use crate::device::{f32_slice, f32_slice_mut};
use crate::error::check_size;
use crate::{Archive, NnError, Parameters, Result};
use gemcnn_kernels::cuda::optimiser::{self as cuda, DeviceOptimiser};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceSlice};
use gemcnn_kernels::{Real, compiled};
use rayon::prelude::*;
use std::borrow::Cow;

pub use method::Method;

/// Number of values that one task updates.
const BLOCK: usize = 1 << 14;

/// An update rule and its state: the number of steps and the moments of each parameter.
///
/// ```
/// use gemcnn_nn::{Method, Optimiser, Parameters, Role};
/// let mut parameters = Parameters::<f64>::new();
/// let x = parameters.add("x", &[1], Role::Weight, vec![3.0])?;
/// let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
/// for _ in 0..500 {
///     parameters.clear_gradients();
///     let slope = 2.0 * (parameters.value(x)[0] - 1.0); // of (x - 1)^2
///     parameters.get_mut(x).gradient_mut()[0] = slope;
///     optimiser.step(&mut parameters, 0.05)?;
/// }
/// assert!((parameters.value(x)[0] - 1.0).abs() < 1e-3);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Optimiser<T> {
    method: Method,
    /// Decay of the averages; 0 without averages.
    decay: f64,
    steps: u64,
    /// First moment (Adam) or momentum (SGD), second moment, and average of each parameter. All are empty for
    /// statistics, second moments also for SGD, and averages if the decay is 0.
    state: [Vec<Vec<T>>; 3],
    /// The state while the parameters are on a GPU; that above is then out of date.
    on_device: Option<DeviceState>,
}

/// Names of the parts of the state in archives.
const PARTS: [&str; 3] = ["first", "second", "average"];

/// State of all trained parameters on a GPU.
#[derive(Debug)]
struct DeviceState {
    device: CudaDevice,
    lengths: Vec<usize>,
    /// An error of a clone, reported when the clone is used.
    optimiser: Result<DeviceOptimiser, CudaError>,
}

impl DeviceState {
    /// The parts of the state, after all queued work.
    fn read(&self) -> Result<[Vec<f32>; 3], CudaError> {
        let state = self.optimiser.as_ref().map_err(Clone::clone)?.state();
        let read = |part: DeviceSlice<'_, f32>| {
            let mut values = vec![0.0; part.len()];
            self.device.read(part, &mut values).map(|()| values)
        };
        let [first, second, average] = state.map(read);
        Ok([first?, second?, average?])
    }
}

impl Clone for DeviceState {
    fn clone(&self) -> Self {
        let duplicate = |from: &DeviceOptimiser| {
            let averages = !from.state()[2].is_empty();
            let mut copy = DeviceOptimiser::new(&self.device, &self.lengths, averages)?;
            for (from, to) in from.state().into_iter().zip(copy.state_mut()) {
                self.device.copy(from, to)?;
            }
            Ok(copy)
        };
        Self {
            device: self.device.clone(),
            lengths: self.lengths.clone(),
            optimiser: (self.optimiser.as_ref()).map_err(Clone::clone).and_then(duplicate),
        }
    }
}

/// Splits concatenated values into entries.
fn distribute<T: Real>(numbers: &[f32], entries: &mut [Vec<T>]) -> Result<()> {
    let mut rest = numbers;
    for entry in entries {
        let (own, others) = rest.split_at(entry.len().min(rest.len()));
        f32_slice_mut(entry)?.copy_from_slice(own);
        rest = others;
    }
    Ok(())
}

impl<T: Real> Optimiser<T> {
    /// An optimiser before its first step.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn new(method: Method, parameters: &Parameters<T>) -> Result<Self> {
        Self::with_average(method, 0.0, parameters)
    }

    /// An optimiser that also keeps an exponential moving average of the weights with this decay; `0` keeps none.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn with_average(method: Method, decay: f64, parameters: &Parameters<T>) -> Result<Self> {
        method.check()?;
        if !(0.0..1.0).contains(&decay) {
            let problem = format!("the decay {decay} of the average must be at least 0 and below 1");
            return Err(NnError::setting("optimiser", problem));
        }
        let zeros = |needed: bool| -> Vec<Vec<T>> {
            let zero = |entry: &crate::Parameter<T>| match needed {
                true => vec![T::zero(); entry.gradient().len()],
                false => Vec::new(),
            };
            parameters.iter().map(zero).collect()
        };
        Ok(Self {
            method,
            decay,
            steps: 0,
            state: [zeros(true), zeros(!matches!(method, Method::Sgd { .. })), zeros(decay > 0.0)],
            on_device: None,
        })
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates all trained parameters from their gradients, on the device of the parameters.
    pub fn step(&mut self, parameters: &mut Parameters<T>, rate: f64) -> Result<()> {
        if !(rate >= 0.0 && rate.is_finite()) {
            return Err(NnError::setting(
                "optimiser",
                format!("the learning rate {rate} must be finite and at least 0"),
            ));
        }
        check_size("parameters of the optimiser", self.state[0].len(), parameters.iter().len())?;
        for (entry, first) in parameters.iter().zip(&self.state[0]) {
            check_size(format!("optimiser: numbers in `{}`", entry.name()), first.len(), entry.gradient().len())?;
        }
        if parameters.on_device_mut()?.is_some() {
            self.prepare_on_device(parameters, rate)?;
            return self.run_on_device();
        }
        self.move_to_host()?;
        let average_rate = T::of(self.average_rate());
        self.steps += 1;
        let exponent = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let [first, second, averages] = &mut self.state;
        let state = first.iter_mut().zip(second).zip(averages);
        for (entry, ((first, second), average)) in parameters.iter_mut().zip(state) {
            let decays = entry.decays();
            let decay = |strength: f64| if decays { strength } else { 0.0 };
            let (value, gradient) = entry.value_and_gradient_mut();
            if gradient.is_empty() {
                continue;
            }
            match self.method {
                Method::Sgd { momentum, weight_decay } => {
                    compiled!(sgd as fn(&mut [T], &[T], &mut [T], f64, f64, f64))(
                        value,
                        gradient,
                        first,
                        rate,
                        momentum,
                        decay(weight_decay),
                    )
                }
                Method::Adam { beta1, beta2, epsilon, weight_decay }
                | Method::AdamW { beta1, beta2, epsilon, weight_decay } => {
                    let apart = matches!(self.method, Method::AdamW { .. });
                    let strength = decay(weight_decay);
                    let rule = AdamStep {
                        beta: [T::of(beta1), T::of(beta2)],
                        rest: [T::of(1.0 - beta1), T::of(1.0 - beta2)],
                        rate: T::of(rate / (1.0 - beta1.powi(exponent))),
                        second_scale: T::of(1.0 / (1.0 - beta2.powi(exponent))),
                        epsilon: T::of(epsilon),
                        decay: T::of(if apart { 0.0 } else { strength }),
                        shrink: T::of(if apart { 1.0 - rate * strength } else { 1.0 }),
                    };
                    compiled!(AdamStep::apply as fn(&AdamStep<T>, &mut [T], &[T], &mut [T], &mut [T]))(
                        &rule, value, gradient, first, second,
                    );
                }
            }
            compiled!(average_blocks as fn(&mut [T], &[T], T))(average, value, average_rate);
        }
        Ok(())
    }

    /// Share of the new weights in the average after the next step.
    fn average_rate(&self) -> f64 {
        let done = self.steps as f64;
        1.0 - self.decay.min(done / (done + 9.0))
    }

    /// The parameters with averaged weights, on the host; the given ones if there is no average. Running statistics
    /// are copied: they are averages already.
    pub fn averaged<'p>(&self, parameters: &'p Parameters<T>) -> Result<Cow<'p, Parameters<T>>> {
        if self.decay == 0.0 || self.steps == 0 {
            return Ok(Cow::Borrowed(parameters));
        }
        let mut averaged = parameters.clone();
        averaged.move_to_host()?;
        let [.., averages] = &self.on_host()?.state;
        for (entry, average) in averaged.iter_mut().zip(averages) {
            if entry.is_trained() {
                let what = format!("average of `{}`", entry.name());
                check_size(what, entry.value().len(), average.len())?;
                entry.value_mut().copy_from_slice(average);
            }
        }
        Ok(Cow::Owned(averaged))
    }

    /// Copies to the GPU what [`run_on_device`](Self::run_on_device) reads. The parameters are on a GPU.
    pub(crate) fn prepare_on_device(&mut self, parameters: &mut Parameters<T>, rate: f64) -> Result<()> {
        let step = self.method.device_step(rate, self.steps + 1);
        let average_rate = self.average_rate();
        let trained: Vec<Option<bool>> = parameters
            .iter()
            .map(|entry| if entry.gradient().is_empty() { None } else { Some(entry.decays()) })
            .collect();
        let Some(on_device) = parameters.on_device_mut()? else { return Ok(()) };
        let device = on_device.device().clone();
        if self.on_device.as_ref().is_some_and(|m| m.device != device) {
            self.move_to_host()?;
        }
        if self.on_device.is_none() {
            self.on_device = Some(self.send(&device)?);
        }
        let entries: Vec<cuda::Parameter<'_>> = (on_device.all()?.into_iter().zip(trained))
            .filter_map(|((value, gradient), decays)| Some(cuda::Parameter { value, gradient, decays: decays? }))
            .collect();
        if let Some(state) = &mut self.on_device {
            let optimiser = state.optimiser.as_mut().map_err(|error| error.clone())?;
            optimiser.prepare(&device, step, average_rate, &entries)?;
        }
        Ok(())
    }

    /// Runs the prepared step on the GPU.
    pub(crate) fn run_on_device(&mut self) -> Result<()> {
        if let Some(state) = &mut self.on_device {
            let optimiser = state.optimiser.as_mut().map_err(|error| error.clone())?;
            optimiser.run(&state.device)?;
        }
        self.steps += 1;
        Ok(())
    }

    /// Counts a step that a CUDA graph has run.
    pub(crate) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Address of the state on a GPU.
    pub(crate) fn place(&self) -> Option<u64> {
        let state = self.on_device.as_ref()?.optimiser.as_ref().ok()?.state();
        Some(state[0].address())
    }

    /// The state on a GPU.
    fn send(&self, device: &CudaDevice) -> Result<DeviceState> {
        let lengths: Vec<usize> = (self.state[0].iter().map(Vec::len)).filter(|&length| length > 0).collect();
        let mut optimiser = DeviceOptimiser::new(device, &lengths, self.decay > 0.0)?;
        for (to, from) in optimiser.state_mut().into_iter().zip(&self.state) {
            let numbers = from.concat();
            if !numbers.is_empty() {
                device.write(to, f32_slice(&numbers)?)?;
            }
        }
        Ok(DeviceState { device: device.clone(), lengths, optimiser: Ok(optimiser) })
    }

    /// Copies the state back from a GPU.
    fn move_to_host(&mut self) -> Result<()> {
        if let Some(on_device) = &self.on_device {
            for (numbers, entries) in on_device.read()?.iter().zip(&mut self.state) {
                distribute(numbers, entries)?;
            }
            self.on_device = None;
        }
        Ok(())
    }

    /// The optimiser with its state on the host.
    fn on_host(&self) -> Result<Cow<'_, Self>> {
        let mut own = Cow::Borrowed(self);
        if self.on_device.is_some() {
            own.to_mut().move_to_host()?;
        }
        Ok(own)
    }

    /// Stores rule and state in an archive under `group`.
    ///
    /// # Errors
    /// Parameters other than those it was made for.
    pub fn store(&self, archive: &mut Archive, group: &str, parameters: &Parameters<T>) -> Result<()> {
        let own = self.on_host()?;
        archive.set_json(&format!("{group}.method"), &self.method)?;
        archive.set_json(&format!("{group}.decay"), &self.decay)?;
        archive.set_json(&format!("{group}.steps"), &self.steps)?;
        for (part, values) in PARTS.into_iter().zip(&own.state) {
            for (entry, values) in parameters.iter().zip(values) {
                if !values.is_empty() {
                    let name = format!("{group}/{part}/{}", entry.name());
                    archive.set_tensor(name, entry.shape(), values)?;
                }
            }
        }
        Ok(())
    }

    /// Loads rule and state for the same parameters.
    ///
    /// # Errors
    /// Everything that is missing or of another shape, at once.
    pub fn load(archive: &Archive, group: &str, parameters: &Parameters<T>) -> Result<Self> {
        let method: Method = archive.json(&format!("{group}.method"))?;
        let decay = archive.json(&format!("{group}.decay"))?;
        let mut optimiser = Self::with_average(method, decay, parameters)?;
        optimiser.steps = archive.json(&format!("{group}.steps"))?;
        let mut differences = Vec::new();
        for (part, values) in PARTS.into_iter().zip(&mut optimiser.state) {
            for (entry, values) in parameters.iter().zip(values) {
                if !values.is_empty() {
                    let name = format!("{group}/{part}/{}", entry.name());
                    archive.read_tensor(&name, entry.shape(), values, &mut differences);
                }
            }
        }
        crate::archive::no_differences(differences)?;
        Ok(optimiser)
    }
}

/// `average += rate (value - average)`, if there is an average.
fn average_blocks<T: Real>(average: &mut [T], value: &[T], rate: T) {
    let blocks = average.par_chunks_mut(BLOCK).zip(value.par_chunks(BLOCK));
    blocks.for_each(|(average, value)| {
        for (a, &w) in average.iter_mut().zip(value) {
            *a += rate * (w - *a);
        }
    });
}

fn sgd<T: Real>(value: &mut [T], gradient: &[T], momentum: &mut [T], rate: f64, coefficient: f64, decay: f64) {
    let (rate, coefficient, decay) = (T::of(rate), T::of(coefficient), T::of(decay));
    value.par_chunks_mut(BLOCK).zip(gradient.par_chunks(BLOCK)).zip(momentum.par_chunks_mut(BLOCK)).for_each(
        |((value, gradient), momentum)| {
            for ((w, &g), m) in value.iter_mut().zip(gradient).zip(momentum) {
                *m = coefficient * *m + (g + decay * *w);
                *w -= rate * *m;
            }
        },
    );
}

struct AdamStep<T> {
    beta: [T; 2],
    rest: [T; 2],
    /// Learning rate with the bias correction of the first moment.
    rate: T,
    second_scale: T,
    epsilon: T,
    decay: T,
    shrink: T,
}

impl<T: Real> AdamStep<T> {
    fn apply(&self, value: &mut [T], gradient: &[T], first: &mut [T], second: &mut [T]) {
        value
            .par_chunks_mut(BLOCK)
            .zip(gradient.par_chunks(BLOCK))
            .zip(first.par_chunks_mut(BLOCK))
            .zip(second.par_chunks_mut(BLOCK))
            .for_each(|(((value, gradient), first), second)| {
                let moments = first.iter_mut().zip(second);
                for ((w, &g), (m, v)) in value.iter_mut().zip(gradient).zip(moments) {
                    let g = g + self.decay * *w;
                    *m = self.beta[0] * *m + self.rest[0] * g;
                    *v = self.beta[1] * *v + self.rest[1] * g * g;
                    let size = (*v * self.second_scale).sqrt() + self.epsilon;
                    *w = *w * self.shrink - self.rate * *m / size;
                }
            });
    }
}

#[cfg(test)]
mod tests;
