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
//! Fused: sampling, activation, projection, and optionally the batch normalisation before them, which is
//! applied while loading. Samples stay in registers. Saved: the input;
//! the backward pass computes the samples again. `x` has `V` rows of [`Regular::input`], `y` has `V` rows
//! of [`Regular::output`].

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{arguments, kinds};
use crate::batch_norm::{Affine, MaybeNormalised};
use crate::{Activation, Executor, FeatureType, KernelError, OnDevice, Real};

const FORWARD: &str = "regular forward";
const BACKWARD: &str = "regular backward";

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
/// use gemcnn_kernels::regular::{Forward, Plan, Regular};
/// use gemcnn_kernels::Activation;
/// let config = Regular::new("1x0 + 1x1".parse()?, 3, Activation::Relu);
/// let plan = Plan::<f64>::new(&config)?;
/// // The samples of (0, 1, 0) are 1, -1/2, -1/2; ReLU maps them to 1, 0, 0.
/// let mut y = [0.0; 3];
/// Forward { rows: 1, plan: &plan, norm: None, x: &[0.0, 1.0, 0.0][..], y: &mut y[..] }.on_host()?;
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

    /// The plan for GPUs.
    pub fn cuda(&self) -> &cuda::DevicePlan {
        &self.device
    }

    /// The plan for the device of an executor.
    pub fn on(&self, run: &Executor<'_, T>) -> OnDevice<&Self, &cuda::DevicePlan> {
        match run {
            Executor::Host(_) => OnDevice::Host(self),
            Executor::Cuda(_) => OnDevice::Cuda(&self.device),
        }
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

kinds! {
    /// A plan.
    Planned = &'a Plan<T>, &'a cuda::DevicePlan;
}

arguments! {
    /// `y` = the nonlinearity of `x`, which is normalised first if there is a normalisation. The normalised rows are not
    /// stored. With slots per channel this is batch normalisation of the samples (see [`crate::batch_norm`]).
    Forward = forward(FORWARD) {
        rows: usize;
        plan: Planned,
        norm: MaybeNormalised,
        x: read[rows, plan.input_width()],
        y: write[rows, plan.output_width()];
        if let Some(norm) = norm {
            norm.check(FORWARD)?;
            check_types(FORWARD, &norm.config.kind, &plan.config().input)?;
        }
    }

    /// Overwrites `dx`, from the same `x` and the gradient `dy` of the output, and adds to the gradients of gamma and beta,
    /// which are empty without a normalisation. `dx` holds the gradient of the normalised features in between, so no further
    /// buffer is needed.
    Backward = backward(BACKWARD, scratch) {
        rows: usize;
        plan: Planned,
        norm: MaybeNormalised,
        x: read[rows, plan.input_width()],
        dy: read[rows, plan.output_width()],
        dx: write[rows, plan.input_width()],
        dgamma: add[norm.map_or(0, |norm| norm.gamma.len())],
        dbeta: add[norm.map_or(0, |norm| norm.gamma.len())];
        if let Some(norm) = norm {
            norm.check(BACKWARD)?;
            check_types(BACKWARD, &norm.config.kind, &plan.config().input)?;
        }
    }
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
