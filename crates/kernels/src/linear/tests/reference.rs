//! The linear map exactly as in its formula.

use crate::error::check_length;
use crate::linear::{Linear, OPERATOR};
use crate::{KernelError, Real};

/// Reference version of [`forward`](crate::linear::forward).
pub fn forward<T: Real>(
    op: &Linear,
    rows: usize,
    x: &[T],
    weight: &[T],
    bias: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    op.check(rows, x, ("y", y), weight, ("bias", bias))?;
    for row in 0..rows {
        for i in 0..op.outputs {
            let mut sum = bias.get(i).copied().unwrap_or(T::zero());
            for j in 0..op.inputs {
                sum += weight[i * op.inputs + j] * x[row * op.inputs + j];
            }
            y[row * op.outputs + i] = sum;
        }
    }
    Ok(())
}

/// Reference version of [`backward`](crate::linear::backward).
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &Linear,
    rows: usize,
    x: &[T],
    weight: &[T],
    dy: &[T],
    dx: &mut [T],
    dweight: &mut [T],
    dbias: &mut [T],
) -> Result<(), KernelError> {
    op.check(rows, x, ("dy", dy), weight, ("dbias", dbias))?;
    check_length(OPERATOR, "dweight", dweight, op.weight_count())?;
    check_length(OPERATOR, "dx", dx, x.len())?;
    dx.fill(T::zero());
    for row in 0..rows {
        for i in 0..op.outputs {
            let dy = dy[row * op.outputs + i];
            if let Some(dbias) = dbias.get_mut(i) {
                *dbias += dy;
            }
            for j in 0..op.inputs {
                dweight[i * op.inputs + j] += dy * x[row * op.inputs + j];
                dx[row * op.inputs + j] += weight[i * op.inputs + j] * dy;
            }
        }
    }
    Ok(())
}
