//! An operator with a CPU and a CUDA version: `y = x / (1 + |x|)` of each scalar.

pub mod cuda;

use gemcnn_kernels::{KernelError, dispatch};
use gemcnn_nn::{Context, NnError, Operator, Real, Storage, Var};

/// The operator; apply it with `tape.apply(Softsign, [x])`. Saves `x`.
///
/// # Shapes
/// `x` and `y`: rows of scalars.
#[derive(Debug, Clone, Copy)]
pub struct Softsign;

/// The CPU versions. `dispatch!` calls `cpu::forward` on the CPU and `cpu::cuda::forward` on a GPU.
mod cpu {
    pub use super::cuda;
    use super::{KernelError, Real};

    /// `y = x / (1 + |x|)`.
    pub fn forward<T: Real>(x: &[T], y: &mut [T]) -> Result<(), KernelError> {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x / (T::one() + x.abs());
        }
        Ok(())
    }

    /// `dx = dy / (1 + |x|)^2`.
    pub fn backward<T: Real>(x: &[T], dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
        for (dx, (&x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
            let scale = T::one() / (T::one() + x.abs());
            *dx = dy * scale * scale;
        }
        Ok(())
    }
}

impl<T: Real> Operator<T> for Softsign {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_scalars("input of a softsign")?;
        let mut y = context.buffer(x.values_len())?;
        dispatch!(context.executor(), cpu::forward(; x.view(), y.view_mut()));
        Ok((Var::new(x.kind().clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        gradient: Storage<T>,
        _wanted: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let run = context.executor();
        dispatch!(run, cpu::backward(; x.view(), gradient.view(), dx.view_mut()));
        Ok([Some(dx)])
    }
}
