//! The linear map of each row: `y = x W^T + bias`.
//!
//! One matrix product forward, two backward (`dx = dy W`, `dW += dy^T x`). Nothing is saved beyond
//! `x`. Not equivariant unless the features are scalars.
//!
//! Shapes: `x` is `[rows, inputs]`, `W` is `[outputs, inputs]`, `y` is `[rows, outputs]`.

pub mod activated;
pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::check_length;
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

    fn check<T>(
        &self,
        rows: usize,
        x: &[T],
        (y_name, y): (&'static str, &[T]),
        weight: &[T],
        (bias_name, bias): (&'static str, &[T]),
    ) -> Result<(), KernelError> {
        check_length(OPERATOR, "x", x, rows * self.inputs)?;
        check_length(OPERATOR, y_name, y, rows * self.outputs)?;
        check_length(OPERATOR, "weight", weight, self.weight_count())?;
        check_length(OPERATOR, bias_name, bias, self.bias_count())
    }
}

/// `y = x W^T + bias`. Without a bias, `bias` is empty.
///
/// # Errors
/// Buffers of the wrong length.
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
///
/// # Errors
/// Buffers of the wrong length.
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
        fast::backward
            as fn(
                &Linear,
                usize,
                &[T],
                &[T],
                &[T],
                Option<&mut [T]>,
                &mut [T],
                &mut [T],
                &mut Scratch<T>,
            )
    )(op, rows, x, weight, dy, dx, dweight, dbias, scratch);
    Ok(())
}
