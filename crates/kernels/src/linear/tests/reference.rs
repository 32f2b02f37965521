//! The linear map exactly as in its formula.

use crate::Real;
use crate::linear::Linear;

/// The same as [`Forward`](crate::linear::Forward).
pub fn forward<T: Real>(op: &Linear, rows: usize, x: &[T], weight: &[T], bias: &[T], y: &mut [T]) {
    for row in 0..rows {
        for i in 0..op.outputs {
            let mut sum = bias.get(i).copied().unwrap_or(T::zero());
            for j in 0..op.inputs {
                sum += weight[i * op.inputs + j] * x[row * op.inputs + j];
            }
            y[row * op.outputs + i] = sum;
        }
    }
}

/// The same as [`Backward`](crate::linear::Backward).
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
) {
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
}
