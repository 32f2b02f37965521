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
#[cfg(test)]
mod tests;

use crate::arguments::arguments;
use crate::{Activation, FeatureType, KernelError, Real};

const NORM: &str = "norm nonlinearity";
const GATED: &str = "gated nonlinearity";

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

    fn check(&self) -> Result<(), KernelError> {
        match self.epsilon > 0.0 && self.epsilon.is_finite() {
            true => Ok(()),
            false => Err(KernelError::Setting {
                operator: NORM,
                problem: format!("epsilon must be positive, but is {}", self.epsilon),
            }),
        }
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

arguments! {
    /// `y` = the norm nonlinearity of `x`.
    NormForward = norm_forward(NORM) {
        op: &'a NormNonlinearity, rows: usize;
        x: read[rows, op.kind.dimension()],
        bias: read[rotating_irreps(&op.kind)],
        y: write[rows, op.kind.dimension()];
        op.check()?;
    }

    /// Overwrites `dx` and adds to the gradient of the bias.
    NormBackward = norm_backward(NORM, scratch) {
        op: &'a NormNonlinearity, rows: usize;
        x: read[rows, op.kind.dimension()],
        bias: read[rotating_irreps(&op.kind)],
        dy: read[rows, op.kind.dimension()],
        dx: write[rows, op.kind.dimension()],
        dbias: add[rotating_irreps(&op.kind)];
        op.check()?;
    }

    /// `y` = the gated nonlinearity of `x`.
    GatedForward = gated_forward(GATED) {
        op: &'a GatedNonlinearity, rows: usize;
        x: read[rows, op.input().dimension()],
        y: write[rows, op.output.dimension()],
    }

    /// Overwrites `dx`, including the gradients of the gates.
    GatedBackward = gated_backward(GATED) {
        op: &'a GatedNonlinearity, rows: usize;
        x: read[rows, op.input().dimension()],
        dy: read[rows, op.output.dimension()],
        dx: write[rows, op.input().dimension()],
    }
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
