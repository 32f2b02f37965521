//! The regular nonlinearity: sample the band-limited signal of each channel around the circle,
//! apply a pointwise function, project back.
//!
//! For a type `U x (0 + 1 + ... + B)`, per vertex and channel, with `phi_t = 2 pi t / N`:
//!
//! ```text
//! s_t    = x_0 + sum_{m=1..B} x_a(m) cos(m phi_t) + x_b(m) sin(m phi_t),      t = 0..N-1
//! y_0    = 1/N sum_t f(s_t)
//! y_a(m) = 2/N sum_t f(s_t) cos(m phi_t),  y_b(m) = 2/N sum_t f(s_t) sin(m phi_t),  m = 1..B'
//! ```
//!
//! With `N >= 2B+1` and `f` the identity this is the identity. Fewer samples are allowed and alias (the
//! identity becomes a projection that mixes orders). The map commutes exactly with rotations by multiples
//! of `2 pi / N`. The error for other angles falls as `1/N`; it is zero for a polynomial `f` of degree `k`
//! if `N >= k B + B' + 1`.
//!
//! Fused: sampling, activation, projection, and optionally the batch normalisation before them
//! ([`forward_normalised`]), which is applied while loading. Samples stay in registers. Saved: the input;
//! the backward pass computes the samples again. `x` has `V` rows of [`Regular::input`], `y` has `V` rows
//! of [`Regular::output`].

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::batch_norm::{Affine, HostNormalisation, NormGradients, backward_with};
use crate::error::check_rows;
use crate::parallel::Loop;
use crate::{Activation, FeatureType, KernelError, Real, Resolve, Scratch};
use rayon::prelude::*;
use std::ops::Range;

/// Settings of a regular nonlinearity.
#[derive(Debug, Clone, PartialEq)]
pub struct Regular {
    /// Type of the input: the same multiplicity for every order from 0 to the band limit `B`.
    pub input: FeatureType,
    /// Band limit `B'` of the output (default: that of the input).
    pub output_band_limit: usize,
    /// Number of samples `N`, from 1 to 65,536.
    pub samples: usize,
    /// The activation `f`.
    pub activation: Activation,
}

const MAX_SAMPLES: usize = 1 << 16;
const HIGHEST_BAND_LIMIT: usize = 1 << 10;
/// Rows of one task.
const TASK_ROWS: usize = 64;

impl Regular {
    /// A nonlinearity whose output has the band limit of the input.
    pub fn new(input: FeatureType, samples: usize, activation: Activation) -> Self {
        Self { output_band_limit: input.highest_order(), input, samples, activation }
    }

    /// Type of the output: the multiplicity of the input for every order up to the output's band
    /// limit.
    pub fn output(&self) -> FeatureType {
        FeatureType::uniform(self.input.multiplicity(0), self.output_band_limit)
    }

    fn check(&self) -> Result<usize, KernelError> {
        let setting = |problem: String| KernelError::Setting { operator: "regular nonlinearity", problem };
        if !(1..=MAX_SAMPLES).contains(&self.samples) {
            return Err(setting(format!("{} samples, but 1 to {MAX_SAMPLES} are allowed", self.samples)));
        }
        let band_limit = self.output_band_limit.max(self.input.highest_order());
        if band_limit > HIGHEST_BAND_LIMIT {
            return Err(setting(format!("band limit {band_limit}, but at most {HIGHEST_BAND_LIMIT} is allowed")));
        }
        self.input.uniform_multiplicity().ok_or_else(|| {
            setting(format!(
                "the input needs the same multiplicity for every order from 0 to its band limit, \
                 such as 16x0 + 16x1 + 16x2, but is {}",
                self.input
            ))
        })
    }
}

/// A regular nonlinearity with its matrices.
///
/// ```
/// use gemcnn_kernels::regular::{self, Plan, Regular};
/// use gemcnn_kernels::Activation;
/// let config = Regular::new("1x0 + 1x1".parse()?, 3, Activation::Relu);
/// let plan = Plan::<f64>::new(&config)?;
/// // The samples of (0, 1, 0) are 1, -1/2, -1/2; ReLU maps them to 1, 0, 0.
/// let mut y = [0.0; 3];
/// regular::forward(&plan, 1, &[0.0, 1.0, 0.0], &mut y)?;
/// assert!((y[0] - 1.0 / 3.0).abs() < 1e-15 && (y[1] - 2.0 / 3.0).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Plan<T: Real> {
    config: Regular,
    /// Channels, and components per channel of input and output.
    shape: Shape,
    matrices: fast::Matrices<T>,
    device: cuda::DevicePlan,
}

/// A plan serves both devices.
impl<'p, T: Real> Resolve for &'p Plan<T> {
    type Host = Self;
    type Cuda = &'p cuda::DevicePlan;

    fn host(self) -> Result<Self, KernelError> {
        Ok(self)
    }

    fn cuda(self) -> Result<&'p cuda::DevicePlan, KernelError> {
        Ok(&self.device)
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    channels: usize,
    inputs: usize,
    outputs: usize,
}

impl<T: Real> Plan<T> {
    /// Computes the matrices.
    ///
    /// # Errors
    /// Invalid settings, with the allowed range.
    pub fn new(config: &Regular) -> Result<Self, KernelError> {
        let shape = Shape {
            channels: config.check()?,
            inputs: 2 * config.input.highest_order() + 1,
            outputs: 2 * config.output_band_limit + 1,
        };
        Ok(Self {
            config: config.clone(),
            device: cuda::DevicePlan::new(config)?,
            shape,
            matrices: fast::Matrices::new(shape, config.samples),
        })
    }

    /// The settings.
    pub fn config(&self) -> &Regular {
        &self.config
    }

    fn input_width(&self) -> usize {
        self.shape.channels * self.shape.inputs
    }

    fn output_width(&self) -> usize {
        self.shape.channels * self.shape.outputs
    }

    /// Rows of `y` from those of `x`.
    pub(crate) fn apply(&self, x: &[T], y: &mut [T]) {
        self.forward_rows(None, x, y);
    }

    fn forward_rows(&self, affine: Option<&Affine<T>>, x: &[T], y: &mut [T]) {
        let rows = Rows { shape: self.shape, activation: &self.config.activation, affine, x };
        self.matrices.forward(rows, y);
    }

    fn backward_rows(&self, affine: Option<&Affine<T>>, x: &[T], dy: &[T], dx: &mut [T]) {
        let rows = Rows { shape: self.shape, activation: &self.config.activation, affine, x };
        self.matrices.backward(rows, dy, dx);
    }
}

/// A block of rows of the input, with the operation.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    shape: Shape,
    activation: &'a Activation,
    /// Applied to the input while it is loaded.
    affine: Option<&'a Affine<T>>,
    x: &'a [T],
}

/// `y` = the nonlinearity of `x`.
pub fn forward<T: Real>(plan: &Plan<T>, vertices: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    run_forward("regular forward", plan, None, vertices, x, y)
}

/// `dx` from the same `x` and the gradient `dy` of the output.
pub fn backward<T: Real>(plan: &Plan<T>, vertices: usize, x: &[T], dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    check_backward("regular backward", plan, vertices, x, dy, dx)?;
    let (input, output) = (TASK_ROWS * plan.input_width(), TASK_ROWS * plan.output_width());
    dx.par_chunks_mut(input)
        .zip(x.par_chunks(input))
        .zip(dy.par_chunks(output))
        .run(|((dx, x), dy)| plan.backward_rows(None, x, dy, dx));
    Ok(())
}

/// `y` = the nonlinearity of the normalised `x`, which is not stored. With slots per channel this
/// is batch normalisation of the samples (see [`crate::batch_norm`]).
pub fn forward_normalised<T: Real>(
    plan: &Plan<T>,
    normalisation: HostNormalisation<'_, T>,
    vertices: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let operator = "normalised regular forward";
    normalisation.check(operator)?;
    check_types(operator, &normalisation.config.kind, &plan.config.input)?;
    let affine = Affine::new(&normalisation);
    run_forward(operator, plan, Some(&affine), vertices, x, y)
}

/// `dx` through nonlinearity and normalisation; adds to the gradients of gamma and beta. `dx` holds the
/// gradient of the normalised features in between, so no further buffer is needed.
#[allow(clippy::too_many_arguments)]
pub fn backward_normalised<T: Real>(
    plan: &Plan<T>,
    normalisation: HostNormalisation<'_, T>,
    vertices: usize,
    x: &[T],
    dy: &[T],
    dx: &mut [T],
    mut gradients: NormGradients<&mut [T]>,
    scratch: &mut Scratch<f64>,
) -> Result<(), KernelError> {
    let operator = "normalised regular backward";
    normalisation.check(operator)?;
    check_types(operator, &normalisation.config.kind, &plan.config.input)?;
    gradients.check(operator, &normalisation)?;
    check_backward(operator, plan, vertices, x, dy, dx)?;
    let affine = Affine::new(&normalisation);
    let (input, output) = (plan.input_width(), plan.output_width());
    let fill = |rows: Range<usize>, gradient: &mut [T]| {
        let x = &x[rows.start * input..rows.end * input];
        let dy = &dy[rows.start * output..rows.end * output];
        plan.backward_rows(Some(&affine), x, dy, gradient);
    };
    backward_with(&normalisation, vertices, x, dx, &mut gradients, scratch, &fill);
    Ok(())
}

fn run_forward<T: Real>(
    operator: &'static str,
    plan: &Plan<T>,
    affine: Option<&Affine<T>>,
    vertices: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check_rows(operator, "x", x, vertices, plan.input_width())?;
    check_rows(operator, "y", y, vertices, plan.output_width())?;
    let (input, output) = (TASK_ROWS * plan.input_width(), TASK_ROWS * plan.output_width());
    y.par_chunks_mut(output).zip(x.par_chunks(input)).run(|(y, x)| plan.forward_rows(affine, x, y));
    Ok(())
}

fn check_backward<T: Real>(
    operator: &'static str,
    plan: &Plan<T>,
    vertices: usize,
    x: &[T],
    dy: &[T],
    dx: &[T],
) -> Result<(), KernelError> {
    check_rows(operator, "x", x, vertices, plan.input_width())?;
    check_rows(operator, "dy", dy, vertices, plan.output_width())?;
    check_rows(operator, "dx", dx, vertices, plan.input_width())
}

/// Checks that a normalisation has the type of a nonlinearity.
fn check_types(operator: &'static str, normalised: &FeatureType, input: &FeatureType) -> Result<(), KernelError> {
    match normalised == input {
        true => Ok(()),
        false => Err(KernelError::Setting {
            operator,
            problem: format!("the normalisation is for {normalised}, but the nonlinearity for {input}"),
        }),
    }
}

/// Entry `(t, k)` of the samples matrix: `1, cos phi_t, sin phi_t, cos 2 phi_t, sin 2 phi_t, ...`
pub(crate) fn harmonic(t: usize, component: usize, samples: usize) -> f64 {
    let order = component.div_ceil(2);
    // Reduced modulo one turn first, so that high orders keep full precision.
    let turn = (order * t % samples) as f64 / samples as f64;
    let angle = std::f64::consts::TAU * turn;
    if component % 2 == 1 || component == 0 { angle.cos() } else { angle.sin() }
}

/// Weight of a component in the projection: `1/N` for order 0, else `2/N`.
pub(crate) fn projection_weight(component: usize, samples: usize) -> f64 {
    if component == 0 { 1.0 / samples as f64 } else { 2.0 / samples as f64 }
}
