//! Nonlinearities that are exactly equivariant for every angle: they only scale whole irreps.
//!
//! **Norm nonlinearity** ([`NormNonlinearity`]). For each irrep of order `n > 0`, with a learnt bias
//! `b` per irrep,
//!
//! ```text
//! r = sqrt(x_a^2 + x_b^2 + epsilon),     y = x f(r + b) / r
//! ```
//!
//! and `y_0 = f(x_0)`. With ReLU and `b = 0` the orders above 0 pass unchanged; a negative bias is
//! a threshold on the norm. Epsilon keeps it smooth at `x = 0`.
//!
//! **Gated nonlinearity** ([`GatedNonlinearity`]). The input carries one more scalar for each irrep
//! of order `n > 0`, after the scalars that pass through: `y = sigmoid(gate) x`, and
//! `y_0 = f(x_0)`.
//!
//! Saved: the input. Everything else is computed again in the backward pass. Irreps are counted
//! order by order from order 1, channel by channel: so lie the biases and the gates.

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{check_count, check_length, check_rows};
use crate::{Activation, FeatureType, KernelError, Real, Scratch};

/// Number of irreps of order above 0: biases of a norm, or gates of a gated nonlinearity.
pub fn rotating_irreps(kind: &FeatureType) -> usize {
    kind.multiplicities().iter().skip(1).sum()
}

/// The settings of a norm nonlinearity.
#[derive(Debug, Clone, PartialEq)]
pub struct NormNonlinearity {
    /// Type of input and output.
    pub kind: FeatureType,
    /// The function of norms and scalars.
    pub activation: Activation,
    /// Added to the squared norm; 1e-8 by default.
    pub epsilon: f64,
}

impl NormNonlinearity {
    /// Default settings.
    pub fn new(kind: FeatureType, activation: Activation) -> Self {
        Self {
            kind,
            activation,
            epsilon: 1e-8,
        }
    }

    fn check(&self, operator: &'static str, biases: usize) -> Result<usize, KernelError> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(KernelError::Setting {
                operator,
                problem: format!("epsilon is {}, but has to be positive", self.epsilon),
            });
        }
        check_count(operator, "bias", biases, rotating_irreps(&self.kind))?;
        Ok(self.kind.dimension())
    }
}

/// The settings of a gated nonlinearity.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNonlinearity {
    /// Type of the output.
    pub output: FeatureType,
    /// The function of the scalars.
    pub activation: Activation,
}

impl GatedNonlinearity {
    /// Type of the input: the output's, and a scalar gate for each irrep of order above 0.
    ///
    /// ```
    /// use gemcnn_kernels::{Activation, norm_gate::GatedNonlinearity};
    /// let gated = GatedNonlinearity {
    ///     output: "8x0 + 4x1 + 2x2".parse()?,
    ///     activation: Activation::Relu,
    /// };
    /// assert_eq!(gated.input().to_string(), "14x0 + 4x1 + 2x2");
    /// # Ok::<(), gemcnn_kernels::ParseTypeError>(())
    /// ```
    pub fn input(&self) -> FeatureType {
        let gates = FeatureType::scalars(rotating_irreps(&self.output));
        self.output.concatenated(&gates)
    }
}

/// `y` = the norm nonlinearity of `x`; both are `vertices` rows of the type.
///
/// # Errors
/// Invalid settings, or buffers of the wrong length.
pub fn norm_forward<T: Real>(
    config: &NormNonlinearity,
    vertices: usize,
    x: &[T],
    bias: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let operator = "norm nonlinearity forward";
    let width = config.check(operator, bias.len())?;
    check_rows(operator, "x", x, vertices, width)?;
    check_rows(operator, "y", y, vertices, width)?;
    fast::norm_forward(config, x, bias, y);
    Ok(())
}

/// Overwrites `dx` and adds to the gradient of the bias.
///
/// # Errors
/// Invalid settings, or buffers of the wrong length.
#[allow(clippy::too_many_arguments)]
pub fn norm_backward<T: Real>(
    config: &NormNonlinearity,
    vertices: usize,
    x: &[T],
    bias: &[T],
    dy: &[T],
    dx: &mut [T],
    dbias: &mut [T],
    scratch: &mut Scratch<f64>,
) -> Result<(), KernelError> {
    let operator = "norm nonlinearity backward";
    let width = config.check(operator, bias.len())?;
    check_rows(operator, "x", x, vertices, width)?;
    check_rows(operator, "dy", dy, vertices, width)?;
    check_rows(operator, "dx", dx, vertices, width)?;
    check_length(operator, "dbias", dbias, bias.len())?;
    fast::norm_backward(config, vertices, x, bias, dy, dx, dbias, scratch);
    Ok(())
}

/// `y` = the gated nonlinearity of `x`: `vertices` rows of the output type from as many of the
/// input type.
///
/// # Errors
/// Buffers of the wrong length.
pub fn gated_forward<T: Real>(
    config: &GatedNonlinearity,
    vertices: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let operator = "gated nonlinearity forward";
    check_rows(operator, "x", x, vertices, config.input().dimension())?;
    check_rows(operator, "y", y, vertices, config.output.dimension())?;
    fast::gated_forward(config, x, y);
    Ok(())
}

/// Overwrites `dx`, the gradients of the gates among it.
///
/// # Errors
/// Buffers of the wrong length.
pub fn gated_backward<T: Real>(
    config: &GatedNonlinearity,
    vertices: usize,
    x: &[T],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    let operator = "gated nonlinearity backward";
    let input = config.input().dimension();
    check_rows(operator, "x", x, vertices, input)?;
    check_rows(operator, "dy", dy, vertices, config.output.dimension())?;
    check_rows(operator, "dx", dx, vertices, input)?;
    fast::gated_backward(config, x, dy, dx);
    Ok(())
}

/// `1/(1 + exp(-x))`.
#[inline(always)]
fn sigmoid<T: Real>(x: T) -> T {
    T::one() / (T::one() + (-x).exp())
}

/// An irrep of order above 0: where its two components lie in a row, for each channel of an order.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Number of irreps before this order.
    first: usize,
    channels: usize,
    /// Start of the cosine components; the sine components follow them.
    start: usize,
}

/// The orders above 0 of a type.
fn blocks(kind: &FeatureType) -> Vec<Block> {
    let mut first = 0;
    let orders = kind.orders().filter(|&(order, _)| order > 0);
    orders
        .map(|(order, channels)| {
            let start = kind.range(order).start;
            first += channels;
            Block {
                first: first - channels,
                channels,
                start,
            }
        })
        .collect()
}
