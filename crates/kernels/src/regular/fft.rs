//! A Fourier transform of each channel, for band limits where the matrices are large.
//!
//! With `h_m = (x_a(m) - i x_b(m))/2` at frequency `m mod N` and its conjugate at `-m mod N`, the
//! unnormalised inverse transform is the samples; the forward transform `F` of the values gives
//! `sum_t v_t cos(m phi_t) = Re F_m` and `sum_t v_t sin(m phi_t) = -Im F_m`.

use super::{Rows, projection_weight};
use crate::Real;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::fmt;
use std::sync::Arc;

/// Numbers whose Fourier transforms can be planned.
pub trait Transforms: Sized {
    /// The transform of so many samples, and the inverse one.
    fn transforms(samples: usize) -> TransformPair<Self>;
}

type TransformPair<T> = (Arc<dyn RealToComplex<T>>, Arc<dyn ComplexToReal<T>>);

impl Transforms for f32 {
    fn transforms(samples: usize) -> TransformPair<Self> {
        let mut planner = RealFftPlanner::new();
        (
            planner.plan_fft_forward(samples),
            planner.plan_fft_inverse(samples),
        )
    }
}

impl Transforms for f64 {
    fn transforms(samples: usize) -> TransformPair<Self> {
        let mut planner = RealFftPlanner::new();
        (
            planner.plan_fft_forward(samples),
            planner.plan_fft_inverse(samples),
        )
    }
}

/// The planned transforms.
pub(super) struct Transform<T: Real> {
    forward: Arc<dyn RealToComplex<T>>,
    inverse: Arc<dyn ComplexToReal<T>>,
}

impl<T: Real> fmt::Debug for Transform<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transform of {} samples", self.forward.len())
    }
}

/// Working memory of one task.
struct Buffers<T> {
    spectrum: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
}

/// Where a frequency is found in the half spectrum.
enum Place {
    /// At 0 or at half the samples, where the spectrum is real.
    Real(usize),
    /// In between.
    Direct(usize),
    /// As the conjugate of its mirror frequency.
    Mirrored(usize),
}

impl<T: Real> Transform<T> {
    pub(super) fn new(samples: usize) -> Self {
        let (forward, inverse) = T::transforms(samples);
        Self { forward, inverse }
    }

    fn buffers(&self) -> Buffers<T> {
        let scratch = self
            .forward
            .get_scratch_len()
            .max(self.inverse.get_scratch_len());
        let zero = Complex::new(T::zero(), T::zero());
        Buffers {
            spectrum: vec![zero; self.forward.len() / 2 + 1],
            scratch: vec![zero; scratch],
        }
    }

    fn place(&self, order: usize) -> Place {
        let samples = self.forward.len();
        let frequency = order % samples;
        if frequency == 0 || 2 * frequency == samples {
            Place::Real(frequency)
        } else if 2 * frequency < samples {
            Place::Direct(frequency)
        } else {
            Place::Mirrored(samples - frequency)
        }
    }

    /// Samples of the signal with the given coefficients (`component -> number`).
    fn synthesise(
        &self,
        components: usize,
        coefficient: impl Fn(usize) -> T,
        samples: &mut [T],
        buffers: &mut Buffers<T>,
    ) {
        let half = T::of(0.5);
        buffers.spectrum.fill(Complex::new(T::zero(), T::zero()));
        buffers.spectrum[0].re = coefficient(0);
        for order in 1..=components / 2 {
            let (a, b) = (coefficient(2 * order - 1), coefficient(2 * order));
            match self.place(order) {
                Place::Real(at) => buffers.spectrum[at].re += a,
                Place::Direct(at) => {
                    buffers.spectrum[at].re += half * a;
                    buffers.spectrum[at].im -= half * b;
                }
                Place::Mirrored(at) => {
                    buffers.spectrum[at].re += half * a;
                    buffers.spectrum[at].im += half * b;
                }
            }
        }
        self.inverse
            .process_with_scratch(&mut buffers.spectrum, samples, &mut buffers.scratch)
            .expect("buffers have the planned lengths, and the ends of the spectrum are real");
    }

    /// `sum_t value_t harmonic(t, k)` for every component `k`; uses up the values.
    fn analyse(
        &self,
        components: usize,
        values: &mut [T],
        buffers: &mut Buffers<T>,
        mut put: impl FnMut(usize, T),
    ) {
        self.forward
            .process_with_scratch(values, &mut buffers.spectrum, &mut buffers.scratch)
            .expect("buffers have the planned lengths");
        put(0, buffers.spectrum[0].re);
        for order in 1..=components / 2 {
            let (a, b) = match self.place(order) {
                Place::Real(at) => (buffers.spectrum[at].re, T::zero()),
                Place::Direct(at) => (buffers.spectrum[at].re, -buffers.spectrum[at].im),
                Place::Mirrored(at) => (buffers.spectrum[at].re, buffers.spectrum[at].im),
            };
            put(2 * order - 1, a);
            put(2 * order, b);
        }
    }

    fn input_samples(
        &self,
        rows: &Rows<'_, T>,
        x: &[T],
        channel: usize,
        samples: &mut [T],
        buffers: &mut Buffers<T>,
    ) {
        let coefficient = |k: usize| {
            let at = k * rows.shape.channels + channel;
            match rows.affine {
                None => x[at],
                Some(affine) => (x[at] - affine.centre[at]) * affine.scale[at] + affine.shift[at],
            }
        };
        self.synthesise(rows.shape.inputs, coefficient, samples, buffers);
    }

    pub(super) fn forward(&self, rows: Rows<'_, T>, y: &mut [T]) {
        let (channels, outputs) = (rows.shape.channels, rows.shape.outputs);
        let count = self.forward.len();
        let mut samples = vec![T::zero(); count];
        let mut buffers = self.buffers();
        let inputs = rows.x.chunks_exact(channels * rows.shape.inputs);
        for (x, y) in inputs.zip(y.chunks_exact_mut(channels * outputs)) {
            for channel in 0..channels {
                self.input_samples(&rows, x, channel, &mut samples, &mut buffers);
                for sample in &mut samples {
                    *sample = rows.activation.value(*sample);
                }
                self.analyse(outputs, &mut samples, &mut buffers, |k, sum| {
                    y[k * channels + channel] = sum * T::of(projection_weight(k, count));
                });
            }
        }
    }

    pub(super) fn backward(&self, rows: Rows<'_, T>, dy: &[T], dx: &mut [T]) {
        let (channels, inputs) = (rows.shape.channels, rows.shape.inputs);
        let outputs = rows.shape.outputs;
        let count = self.forward.len();
        let (mut samples, mut gradients) = (vec![T::zero(); count], vec![T::zero(); count]);
        let mut buffers = self.buffers();
        let row_inputs =
            (rows.x.chunks_exact(channels * inputs)).zip(dy.chunks_exact(channels * outputs));
        for ((x, dy), dx) in row_inputs.zip(dx.chunks_exact_mut(channels * inputs)) {
            for channel in 0..channels {
                self.input_samples(&rows, x, channel, &mut samples, &mut buffers);
                let coefficient =
                    |k: usize| dy[k * channels + channel] * T::of(projection_weight(k, count));
                self.synthesise(outputs, coefficient, &mut gradients, &mut buffers);
                for (gradient, &sample) in gradients.iter_mut().zip(&samples) {
                    *gradient *= rows.activation.slope(sample);
                }
                self.analyse(inputs, &mut gradients, &mut buffers, |k, sum| {
                    dx[k * channels + channel] = sum;
                });
            }
        }
    }
}
