//! The linear map of each row: `y = x W^T + bias`.
//!
//! One matrix product forward, two backward (`dx = dy W`, `dW += dy^T x`). Nothing is saved beyond
//! `x`. Not equivariant unless the features are scalars.
//!
//! Shapes: `x` is `[rows, inputs]`, `W` is `[outputs, inputs]`, `y` is `[rows, outputs]`.

pub mod activated;
pub mod cuda;
mod fast;
pub(crate) mod few_inputs;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::error::{Length, check_count, check_length};
use crate::real::compiled;
use crate::{KernelError, Real, Scratch};

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

    fn check<S: Length>(
        &self,
        rows: usize,
        x: S,
        (y_name, y): (&'static str, S),
        weight: S,
        (bias_name, bias): (&'static str, S),
    ) -> Result<(), KernelError> {
        check_count(OPERATOR, "x", x.length(), rows * self.inputs)?;
        check_count(OPERATOR, y_name, y.length(), rows * self.outputs)?;
        check_count(OPERATOR, "weight", weight.length(), self.weight_count())?;
        check_count(OPERATOR, bias_name, bias.length(), self.bias_count())
    }
}

/// `y = x W^T + bias`. Without a bias, `bias` is empty.
pub fn forward<T: Real>(
    op: &Linear,
    rows: usize,
    x: &[T],
    weight: &[T],
    bias: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    op.check(rows, x, ("y", y), weight, ("bias", bias))?;
    compiled!(fast::forward as fn(&Linear, &[T], &[T], &[T], &mut [T]))(op, x, weight, bias, y);
    Ok(())
}

/// Overwrites `dx` if it is given, and adds to `dweight` and `dbias`.
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &Linear,
    rows: usize,
    x: &[T],
    weight: &[T],
    dy: &[T],
    dx: Option<&mut [T]>,
    dweight: &mut [T],
    dbias: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(rows, x, ("dy", dy), weight, ("dbias", dbias))?;
    check_length(OPERATOR, "dweight", dweight, op.weight_count())?;
    if let Some(dx) = &dx {
        check_length(OPERATOR, "dx", dx, x.len())?;
    }
    compiled!(
        fast::backward as fn(&Linear, usize, &[T], &[T], &[T], Option<&mut [T]>, &mut [T], &mut [T], &mut Scratch<T>)
    )(op, rows, x, weight, dy, dx, dweight, dbias, scratch);
    Ok(())
}
