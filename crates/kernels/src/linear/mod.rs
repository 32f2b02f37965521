//! The linear map of each row: `y = x W^T + bias`.
//!
//! One matrix product forward, two backward (`dx = dy W`, `dW += dy^T x`). Nothing is saved beyond
//! `x`. Not equivariant unless the features are scalars.
//!
//! Shapes: `x` is `[rows, inputs]`, `W` is `[outputs, inputs]`, `y` is `[rows, outputs]`.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::arguments;

const OPERATOR: &str = "linear";

/// Settings of a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Width of the input.
    pub inputs: usize,
    /// Width of the output.
    pub outputs: usize,
    /// True to add a bias.
    pub bias: bool,
}

impl Linear {
    /// Number of weights, without the bias.
    pub fn weight_count(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Number of biases.
    pub fn bias_count(&self) -> usize {
        if self.bias { self.outputs } else { 0 }
    }
}

arguments! {
    /// `y = x W^T + bias`. Without a bias, `bias` is empty.
    Forward = forward(OPERATOR) {
        op: &'a Linear, rows: usize;
        x: read[rows, op.inputs],
        weight: read[op.weight_count()],
        bias: read[op.bias_count()],
        y: write[rows, op.outputs],
    }

    /// Overwrites `dx` if it is given, and adds to `dweight` and `dbias`.
    Backward = backward(OPERATOR, scratch) {
        op: &'a Linear, rows: usize;
        x: read[rows, op.inputs],
        weight: read[op.weight_count()],
        dy: read[rows, op.outputs],
        dx: write_if[rows, op.inputs],
        dweight: add[op.weight_count()],
        dbias: add[op.bias_count()],
    }
}
