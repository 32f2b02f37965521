//! Optimisers: SGD, Adam and AdamW.
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

use crate::device::{single_slice, single_slice_mut};
use crate::error::check_size;
use crate::{Archive, NnError, Parameters};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::optimiser::{self as cuda, DeviceOptimiser};
use gemcnn_kernels::cuda::{CudaDevice, CudaError};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Number of values that one task updates.
const BLOCK: usize = 1 << 14;

/// The update rule of an optimiser, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum coefficient, in [0, 1).
        momentum: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
    /// Adam; weight decay is added to the gradient.
    Adam {
        /// Decay rate of the first moment, in [0, 1).
        beta1: f64,
        /// Decay rate of the second moment, in [0, 1).
        beta2: f64,
        /// Added to the denominator for numerical stability; positive.
        epsilon: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay rate of the first moment, in [0, 1).
        beta1: f64,
        /// Decay rate of the second moment, in [0, 1).
        beta2: f64,
        /// Added to the denominator for numerical stability; positive.
        epsilon: f64,
        /// Weight decay coefficient, at least 0.
        weight_decay: f64,
    },
}

impl Method {
    /// SGD with momentum, without weight decay.
    pub fn sgd(momentum: f64) -> Self {
        Self::Sgd {
            momentum,
            weight_decay: 0.0,
        }
    }

    /// Adam with `beta = (0.9, 0.999)`, `epsilon = 1e-8`, without weight decay.
    pub fn adam() -> Self {
        Self::Adam {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        }
    }

    /// AdamW with `beta = (0.9, 0.999)`, `epsilon = 1e-8`.
    pub fn adam_w(weight_decay: f64) -> Self {
        Self::AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is out of range, and its range.
    pub fn check(&self) -> Result<(), NnError> {
        let bad = |problem: &str| Err(NnError::setting("optimiser", problem));
        let in_range = |value: f64| (0.0..1.0).contains(&value);
        let (rates, epsilon, decay) = match *self {
            Self::Sgd {
                momentum,
                weight_decay,
            } => ([momentum, 0.0], 1.0, weight_decay),
            Self::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }
            | Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => ([beta1, beta2], epsilon, weight_decay),
        };
        if !rates.into_iter().all(in_range) {
            return bad("momentum and beta must be at least 0 and below 1");
        }
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return bad("epsilon must be above 0");
        }
        if !(decay >= 0.0 && decay.is_finite()) {
            return bad("weight decay must be at least 0");
        }
        Ok(())
    }
}

impl Method {
    fn device_step(self, rate: f64, step: u64) -> cuda::Step {
        match self {
            Self::Sgd {
                momentum,
                weight_decay,
            } => cuda::Step::Sgd {
                rate,
                momentum,
                weight_decay,
            },
            Self::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }
            | Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => cuda::Step::Adam {
                rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
                apart: matches!(self, Self::AdamW { .. }),
                step,
            },
        }
    }
}

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
    steps: u64,
    /// First moment (Adam) or momentum (SGD) of each parameter; empty for statistics.
    first: Vec<Vec<T>>,
    /// Second moment of each parameter; empty for statistics and for SGD.
    second: Vec<Vec<T>>,
    /// The moments while the parameters are on a GPU; those above are then out of date.
    on_device: Option<DeviceMoments>,
}

/// Moments of all trained parameters on a GPU.
#[derive(Debug)]
struct DeviceMoments {
    device: CudaDevice,
    lengths: Vec<usize>,
    /// An error of a clone, reported when the clone is used.
    optimiser: Result<DeviceOptimiser, CudaError>,
}

impl DeviceMoments {
    /// First and second moments, after all queued work.
    fn read(&self) -> Result<[Vec<f32>; 2], CudaError> {
        let moments = self.optimiser.as_ref().map_err(Clone::clone)?.moments();
        let read = |moment| {
            let mut values = vec![0.0; self.lengths.iter().sum()];
            self.device.read(moment, &mut values).map(|()| values)
        };
        let [first, second] = moments.map(read);
        Ok([first?, second?])
    }
}

impl Clone for DeviceMoments {
    fn clone(&self) -> Self {
        let duplicate = |from: &DeviceOptimiser| {
            let mut copy = DeviceOptimiser::new(&self.device, &self.lengths)?;
            for (from, to) in from.moments().into_iter().zip(copy.moments_mut()) {
                self.device.copy(from, to)?;
            }
            Ok(copy)
        };
        Self {
            device: self.device.clone(),
            lengths: self.lengths.clone(),
            optimiser: (self.optimiser.as_ref())
                .map_err(Clone::clone)
                .and_then(duplicate),
        }
    }
}

/// Splits concatenated values into entries.
fn distribute<T: Real>(numbers: &[f32], entries: &mut [Vec<T>]) -> Result<(), NnError> {
    let mut rest = numbers;
    for entry in entries {
        let (own, others) = rest.split_at(entry.len().min(rest.len()));
        single_slice_mut(entry)?.copy_from_slice(own);
        rest = others;
    }
    Ok(())
}

impl<T: Real> Optimiser<T> {
    /// An optimiser before its first step.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn new(method: Method, parameters: &Parameters<T>) -> Result<Self, NnError> {
        method.check()?;
        let zeros = |needed: bool| -> Vec<Vec<T>> {
            let zero = |entry: &crate::Parameter<T>| match needed {
                true => vec![T::zero(); entry.gradient().len()],
                false => Vec::new(),
            };
            parameters.iter().map(zero).collect()
        };
        Ok(Self {
            method,
            steps: 0,
            first: zeros(true),
            second: zeros(!matches!(method, Method::Sgd { .. })),
            on_device: None,
        })
    }

    /// The update rule.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates all trained parameters from their gradients, on the device of the parameters.
    ///
    /// # Errors
    /// Parameters other than those it was made for, a learning rate that is negative or not finite, or
    /// work on a GPU that failed.
    pub fn step(&mut self, parameters: &mut Parameters<T>, rate: f64) -> Result<(), NnError> {
        if !(rate >= 0.0 && rate.is_finite()) {
            return Err(NnError::setting(
                "optimiser",
                format!("the learning rate {rate} must be finite and at least 0"),
            ));
        }
        check_size(
            "parameters of the optimiser",
            self.first.len(),
            parameters.iter().len(),
        )?;
        for (entry, first) in parameters.iter().zip(&self.first) {
            check_size(
                format!("optimiser: numbers in `{}`", entry.name()),
                first.len(),
                entry.gradient().len(),
            )?;
        }
        if parameters.on_device_mut()?.is_some() {
            self.prepare_on_device(parameters, rate)?;
            return self.run_on_device();
        }
        self.move_to_host()?;
        self.steps += 1;
        let exponent = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let moments = self.first.iter_mut().zip(&mut self.second);
        for (entry, (first, second)) in parameters.iter_mut().zip(moments) {
            let decays = entry.decays();
            let decay = |strength: f64| if decays { strength } else { 0.0 };
            let (value, gradient) = entry.value_and_gradient_mut();
            if gradient.is_empty() {
                continue;
            }
            match self.method {
                Method::Sgd {
                    momentum,
                    weight_decay,
                } => sgd(value, gradient, first, rate, momentum, decay(weight_decay)),
                Method::Adam {
                    beta1,
                    beta2,
                    epsilon,
                    weight_decay,
                }
                | Method::AdamW {
                    beta1,
                    beta2,
                    epsilon,
                    weight_decay,
                } => {
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
                    rule.apply(value, gradient, first, second);
                }
            }
        }
        Ok(())
    }

    /// Copies to the GPU what [`run_on_device`](Self::run_on_device) reads. The parameters are on a GPU.
    pub(crate) fn prepare_on_device(
        &mut self,
        parameters: &mut Parameters<T>,
        rate: f64,
    ) -> Result<(), NnError> {
        let step = self.method.device_step(rate, self.steps + 1);
        let trained: Vec<Option<bool>> = parameters
            .iter()
            .map(|entry| match entry.gradient().is_empty() {
                true => None,
                false => Some(entry.decays()),
            })
            .collect();
        let Some(on_device) = parameters.on_device_mut()? else {
            return Ok(());
        };
        let device = on_device.device().clone();
        if self.on_device.as_ref().is_some_and(|m| m.device != device) {
            self.move_to_host()?;
        }
        if self.on_device.is_none() {
            self.on_device = Some(self.send(&device)?);
        }
        let entries: Vec<cuda::Parameter<'_>> = (on_device.all()?.into_iter().zip(trained))
            .filter_map(|((value, gradient), decays)| {
                Some(cuda::Parameter {
                    value,
                    gradient,
                    decays: decays?,
                })
            })
            .collect();
        if let Some(moments) = &mut self.on_device {
            let optimiser = moments.optimiser.as_mut().map_err(|error| error.clone())?;
            optimiser.prepare(&device, step, &entries)?;
        }
        Ok(())
    }

    /// Runs the prepared step on the GPU.
    pub(crate) fn run_on_device(&mut self) -> Result<(), NnError> {
        if let Some(moments) = &mut self.on_device {
            let optimiser = moments.optimiser.as_mut().map_err(|error| error.clone())?;
            optimiser.run(&moments.device)?;
        }
        self.steps += 1;
        Ok(())
    }

    /// Counts a step that a CUDA graph has run.
    pub(crate) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Address of the moments on a GPU.
    pub(crate) fn place(&self) -> Option<u64> {
        let moments = self.on_device.as_ref()?.optimiser.as_ref().ok()?.moments();
        Some(moments[0].address())
    }

    /// The moments on a GPU.
    fn send(&self, device: &CudaDevice) -> Result<DeviceMoments, NnError> {
        let lengths: Vec<usize> = (self.first.iter().map(Vec::len))
            .filter(|&length| length > 0)
            .collect();
        let mut optimiser = DeviceOptimiser::new(device, &lengths)?;
        for (to, from) in (optimiser.moments_mut().into_iter()).zip([&self.first, &self.second]) {
            let numbers = from.concat();
            if !numbers.is_empty() {
                device.write(to, single_slice(&numbers)?)?;
            }
        }
        Ok(DeviceMoments {
            device: device.clone(),
            lengths,
            optimiser: Ok(optimiser),
        })
    }

    /// Copies the moments back from a GPU.
    fn move_to_host(&mut self) -> Result<(), NnError> {
        if let Some(moments) = &self.on_device {
            let [first, second] = moments.read()?;
            distribute(&first, &mut self.first)?;
            distribute(&second, &mut self.second)?;
            self.on_device = None;
        }
        Ok(())
    }

    /// Stores rule and state in an archive under `group`.
    ///
    /// # Errors
    /// Parameters other than those it was made for.
    pub fn store(
        &self,
        archive: &mut Archive,
        group: &str,
        parameters: &Parameters<T>,
    ) -> Result<(), NnError> {
        let mut own = Cow::Borrowed(self);
        if self.on_device.is_some() {
            own.to_mut().move_to_host()?;
        }
        archive.set_json(&format!("{group}.method"), &self.method)?;
        archive.set_json(&format!("{group}.steps"), &self.steps)?;
        for (moment, values) in [("first", &own.first), ("second", &own.second)] {
            for (entry, values) in parameters.iter().zip(values) {
                if !values.is_empty() {
                    let name = format!("{group}/{moment}/{}", entry.name());
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
    pub fn load(
        archive: &Archive,
        group: &str,
        parameters: &Parameters<T>,
    ) -> Result<Self, NnError> {
        let method: Method = archive.json(&format!("{group}.method"))?;
        let mut optimiser = Self::new(method, parameters)?;
        optimiser.steps = archive.json(&format!("{group}.steps"))?;
        let mut differences = Vec::new();
        for (moment, values) in [
            ("first", &mut optimiser.first),
            ("second", &mut optimiser.second),
        ] {
            for (entry, values) in parameters.iter().zip(values) {
                if !values.is_empty() {
                    let name = format!("{group}/{moment}/{}", entry.name());
                    archive.read_tensor(&name, entry.shape(), values, &mut differences);
                }
            }
        }
        crate::archive::no_differences(differences)?;
        Ok(optimiser)
    }
}

fn sgd<T: Real>(
    value: &mut [T],
    gradient: &[T],
    momentum: &mut [T],
    rate: f64,
    coefficient: f64,
    decay: f64,
) {
    let (rate, coefficient, decay) = (T::of(rate), T::of(coefficient), T::of(decay));
    value
        .par_chunks_mut(BLOCK)
        .zip(gradient.par_chunks(BLOCK))
        .zip(momentum.par_chunks_mut(BLOCK))
        .for_each(|((value, gradient), momentum)| {
            for ((w, &g), m) in value.iter_mut().zip(gradient).zip(momentum) {
                *m = coefficient * *m + (g + decay * *w);
                *w -= rate * *m;
            }
        });
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
mod tests {
    use super::*;
    use crate::{ParameterId, Role};

    fn one(value: f64) -> (Parameters<f64>, ParameterId, ParameterId) {
        let mut parameters = Parameters::new();
        let weight = parameters
            .add("weight", &[1], Role::Weight, vec![value])
            .unwrap();
        let bias = parameters
            .add("bias", &[1], Role::Offset, vec![value])
            .unwrap();
        parameters
            .add("mean", &[2], Role::Statistic, vec![value; 2])
            .unwrap();
        (parameters, weight, bias)
    }

    /// Values of weight and bias after each step with the given gradients.
    fn run(method: Method, rate: f64, gradients: &[f64]) -> Vec<(f64, f64)> {
        let (mut parameters, weight, bias) = one(1.0);
        let mut optimiser = Optimiser::new(method, &parameters).unwrap();
        gradients
            .iter()
            .map(|&g| {
                parameters.get_mut(weight).gradient_mut()[0] = g;
                parameters.get_mut(bias).gradient_mut()[0] = g;
                optimiser.step(&mut parameters, rate).unwrap();
                let mean = parameters.find("mean").unwrap();
                assert_eq!(parameters.value(mean), [1.0; 2]);
                (parameters.value(weight)[0], parameters.value(bias)[0])
            })
            .collect()
    }

    fn assert_sequence(found: &[(f64, f64)], expected: &[(f64, f64)]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found.0 - expected.0).abs() < 1e-12,
                "{found:?} {expected:?}"
            );
            assert!(
                (found.1 - expected.1).abs() < 1e-12,
                "{found:?} {expected:?}"
            );
        }
    }

    #[test]
    fn sgd_by_hand() {
        let method = Method::Sgd {
            momentum: 0.5,
            weight_decay: 0.1,
        };
        // weight: m = 2.1, w = 0.79; m = 1.05 - 1 + 0.079 = 0.129, w = 0.7771.
        // bias:   m = 2,   w = 0.8;  m = 1 - 1 = 0,                w = 0.8.
        let found = run(method, 0.1, &[2.0, -1.0]);
        assert_sequence(&found, &[(0.79, 0.8), (0.7771, 0.8)]);
    }

    #[test]
    fn adam_by_hand() {
        let method = Method::Adam {
            beta1: 0.5,
            beta2: 0.75,
            epsilon: 1e-12,
            weight_decay: 0.0,
        };
        // Step 1: m = 1, v = 1; m' = 2, v' = 4; w = 1 - 0.1.
        // Step 2 with g = -1: m = 0, v = 0.75 + 0.25 = 1; w stays.
        // Step 3 with g = 2: m = 1, v = 1.75; m' = 1/0.875, v' = 1.75/0.578125.
        let third = 0.9 - 0.1 * (1.0 / 0.875) / (1.75f64 / 0.578125).sqrt();
        let found = run(method, 0.1, &[2.0, -1.0, 2.0]);
        assert_sequence(&found, &[(0.9, 0.9), (0.9, 0.9), (third, third)]);
    }

    #[test]
    fn weight_decay_acts_on_weights_alone_and_is_decoupled_in_adam_w() {
        let (beta1, beta2, epsilon, weight_decay) = (0.9, 0.999, 1e-15, 0.5);
        // The first Adam step is the rate times the sign of the gradient, whatever its size.
        let adam = Method::Adam {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        };
        assert_sequence(&run(adam, 0.1, &[-0.1]), &[(0.9, 1.1)]);
        let adam_w = Method::AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        };
        assert_sequence(&run(adam_w, 0.1, &[-0.1]), &[(1.0 - 0.05 + 0.1, 1.1)]);
    }

    #[test]
    fn every_method_minimises_a_quadratic() {
        for (method, rate) in [
            (Method::sgd(0.0), 0.05),
            (Method::sgd(0.9), 0.01),
            (Method::adam(), 0.02),
            (Method::adam_w(0.0), 0.02),
        ] {
            let mut parameters = Parameters::<f64>::new();
            let x = parameters
                .add("x", &[3], Role::Weight, vec![2.0, -1.0, 0.5])
                .unwrap();
            let mut optimiser = Optimiser::new(method, &parameters).unwrap();
            for _ in 0..3000 {
                let value = parameters.value(x).to_vec();
                let gradient = parameters.get_mut(x).gradient_mut();
                for (i, g) in gradient.iter_mut().enumerate() {
                    *g = (i + 1) as f64 * (value[i] - i as f64);
                }
                optimiser.step(&mut parameters, rate).unwrap();
            }
            for (i, v) in parameters.value(x).iter().enumerate() {
                assert!((v - i as f64).abs() < 1e-6, "{method:?}: {v}");
            }
        }
    }

    #[test]
    fn a_restored_optimiser_continues_bitwise() {
        for method in [Method::sgd(0.9), Method::adam(), Method::adam_w(0.1)] {
            let (mut parameters, weight, _) = one(1.0);
            let mut optimiser = Optimiser::new(method, &parameters).unwrap();
            let step = |parameters: &mut Parameters<f64>, optimiser: &mut Optimiser<f64>| {
                let slope = parameters.value(weight)[0].sin();
                parameters.get_mut(weight).gradient_mut()[0] = slope;
                optimiser.step(parameters, 0.1).unwrap();
            };
            for _ in 0..3 {
                step(&mut parameters, &mut optimiser);
            }
            let mut archive = Archive::new();
            optimiser
                .store(&mut archive, "optimiser", &parameters)
                .unwrap();
            let archive = Archive::from_bytes(&archive.to_bytes().unwrap()).unwrap();
            let mut again = Optimiser::load(&archive, "optimiser", &parameters).unwrap();
            let mut copy = parameters.clone();
            for _ in 0..3 {
                step(&mut parameters, &mut optimiser);
                step(&mut copy, &mut again);
            }
            assert_eq!(parameters.value(weight), copy.value(weight));
            assert_eq!(optimiser.steps(), again.steps());
        }
    }

    #[test]
    fn settings_out_of_range_and_other_parameters_are_refused() {
        let (mut parameters, ..) = one(1.0);
        assert!(Optimiser::new(Method::sgd(1.0), &parameters).is_err());
        assert!(Optimiser::new(Method::adam_w(-1.0), &parameters).is_err());
        let mut optimiser = Optimiser::new(Method::adam(), &parameters).unwrap();
        assert!(optimiser.step(&mut parameters, f64::NAN).is_err());
        assert!(optimiser.step(&mut Parameters::new(), 0.1).is_err());
    }
}
