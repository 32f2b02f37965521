//! Norm and gated nonlinearities. Both only scale whole irreps, so they are exactly equivariant.
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
//! Saved: the input; the backward pass computes everything else again. Biases and gates are ordered order
//! by order from order 1, channel by channel.

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{Length, check_count, check_length, check_rows};
use crate::real::compiled;
use crate::{Activation, FeatureType, KernelError, Real, Scratch};

/// Number of irreps of order above 0: biases of a norm, or gates of a gated nonlinearity.
pub fn rotating_irreps(kind: &FeatureType) -> usize {
    kind.multiplicities().iter().skip(1).sum()
}

/// Settings of a norm nonlinearity.
#[derive(Debug, Clone, PartialEq)]
pub struct NormNonlinearity {
    /// Type of input and output.
    pub kind: FeatureType,
    /// The activation `f` of norms and scalars.
    pub activation: Activation,
    /// Added to the squared norm (default 1e-8).
    pub epsilon: f64,
}

impl NormNonlinearity {
    /// Default settings.
    pub fn new(kind: FeatureType, activation: Activation) -> Self {
        Self { kind, activation, epsilon: 1e-8 }
    }

    fn check<S: Length>(
        &self,
        operator: &'static str,
        vertices: usize,
        bias: S,
        maps: &[(&'static str, S)],
    ) -> Result<(), KernelError> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(KernelError::Setting {
                operator,
                problem: format!("epsilon must be positive, but is {}", self.epsilon),
            });
        }
        check_count(operator, "bias", bias.length(), rotating_irreps(&self.kind))?;
        let expected = vertices.saturating_mul(self.kind.dimension());
        maps.iter().try_for_each(|(name, values)| check_count(operator, name, values.length(), expected))
    }
}

/// Settings of a gated nonlinearity.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNonlinearity {
    /// Type of the output.
    pub output: FeatureType,
    /// The activation of the scalars.
    pub activation: Activation,
}

impl GatedNonlinearity {
    /// Type of the input: that of the output, with one more scalar (a gate) for each irrep of order above 0.
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
pub fn norm_forward<T: Real>(
    config: &NormNonlinearity,
    vertices: usize,
    x: &[T],
    bias: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let operator = "norm nonlinearity forward";
    config.check(operator, vertices, bias, &[("x", x), ("y", y)])?;
    compiled!(fast::norm_forward as fn(&NormNonlinearity, &[T], &[T], &mut [T]))(config, x, bias, y);
    Ok(())
}

/// Overwrites `dx` and adds to the gradient of the bias.
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
    let maps = [("x", x), ("dy", dy), ("dx", &*dx)];
    config.check(operator, vertices, bias, &maps)?;
    check_length(operator, "dbias", dbias, bias.len())?;
    compiled!(
        fast::norm_backward as fn(&NormNonlinearity, usize, &[T], &[T], &[T], &mut [T], &mut [T], &mut Scratch<f64>)
    )(config, vertices, x, bias, dy, dx, dbias, scratch);
    Ok(())
}

/// `y` = the gated nonlinearity of `x`. `x` has `vertices` rows of the input type, `y` of the output type.
pub fn gated_forward<T: Real>(
    config: &GatedNonlinearity,
    vertices: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let operator = "gated nonlinearity forward";
    check_rows(operator, "x", x, vertices, config.input().dimension())?;
    check_rows(operator, "y", y, vertices, config.output.dimension())?;
    compiled!(fast::gated_forward as fn(&GatedNonlinearity, &[T], &mut [T]))(config, x, y);
    Ok(())
}

/// Overwrites `dx`, including the gradients of the gates.
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
    compiled!(fast::gated_backward as fn(&GatedNonlinearity, &[T], &[T], &mut [T]))(config, x, dy, dx);
    Ok(())
}

/// `1/(1 + exp(-x))`.
#[inline(always)]
fn sigmoid<T: Real>(x: T) -> T {
    T::one() / (T::one() + (-x).exp())
}

/// The irreps of one order above 0 in a row.
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
            Block { first: first - channels, channels, start }
        })
        .collect()
}
