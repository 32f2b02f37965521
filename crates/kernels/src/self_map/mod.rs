//! The equivariant linear map applied to each vertex separately: a 1x1 convolution, the form of `K_self`.
//!
//! Different orders do not mix. Order 0 has one weight for each pair of channels; an order `n > 0` has two,
//! which form a matrix that commutes with rotations:
//!
//! ```text
//! y_0     = W x_0 + bias
//! y_n,cos =  a x_n,cos + b x_n,sin
//! y_n,sin = -b x_n,cos + a x_n,sin
//! ```
//!
//! Nothing is saved: the backward pass needs `x` and `dy` only. Output orders that the input lacks
//! are zero (order 0: the bias).
//!
//! Shapes: `x` is `[V, D_in]`, `y` is `[V, D_out]`, channels as in [`FeatureType`]. Weights are one
//! buffer, order by order: `[out, in]` for order 0, `a [out, in]` then `b [out, in]` for the
//! others, where out and in are the multiplicities of the order.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

pub(crate) use fast::{Block, Matrices, Part, add_bias, blocks, signed};

use crate::arguments::arguments;
use crate::{FeatureType, irrep_dimension};

const OPERATOR: &str = "self_map";

/// Settings of an equivariant linear map.
///
/// ```
/// use gemcnn_kernels::self_map::SelfMap;
/// // The worked example of the paper: 0+1+1 to 1+3 shares only order 1, with 1 x 2 channel pairs.
/// let map = SelfMap { input: "1x0 + 2x1".parse()?, output: "1x1 + 1x3".parse()?, bias: false };
/// assert_eq!(map.parameter_count(), 4);
/// # Ok::<(), gemcnn_kernels::ParseTypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfMap {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// True to add a bias to order 0.
    pub bias: bool,
}

/// Number of weights of an equivariant linear map, without the bias.
pub fn parameter_count(input: &FeatureType, output: &FeatureType) -> usize {
    let pairs = |(order, channels): (usize, usize)| {
        let inputs = irrep_dimension(order).saturating_mul(channels);
        inputs.saturating_mul(output.multiplicity(order))
    };
    input.orders().map(pairs).fold(0, usize::saturating_add)
}

impl SelfMap {
    /// Number of weights, without the bias.
    pub fn parameter_count(&self) -> usize {
        parameter_count(&self.input, &self.output)
    }

    /// Number of biases.
    pub fn bias_count(&self) -> usize {
        if self.bias { self.output.multiplicity(0) } else { 0 }
    }
}

arguments! {
    /// `y = K_self x + bias` for every row. Without a bias, `bias` is empty.
    Forward = forward(OPERATOR, scratch) {
        op: &'a SelfMap, rows: usize;
        x: read[rows, op.input.dimension()],
        weight: read[op.parameter_count()],
        bias: read[op.bias_count()],
        y: write[rows, op.output.dimension()],
    }

    /// Overwrites `dx` if it is given, and adds to `dweight` and `dbias`.
    Backward = backward(OPERATOR, scratch) {
        op: &'a SelfMap, rows: usize;
        x: read[rows, op.input.dimension()],
        weight: read[op.parameter_count()],
        dy: read[rows, op.output.dimension()],
        dx: write_if[rows, op.input.dimension()],
        dweight: add[op.parameter_count()],
        dbias: add[op.bias_count()],
    }
}
