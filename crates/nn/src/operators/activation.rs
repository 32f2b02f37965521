//! Pointwise functions of scalars.

use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::{Activation, Real, activation, dispatch};

/// `y = f(x)` for each scalar. Saves `x`.
///
/// # Shapes
/// `x` and `y`: rows of scalars.
#[derive(Debug, Clone)]
pub struct Pointwise(pub Activation);

impl<T: Real> Operator<T> for Pointwise {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_scalars("input of an activation")?;
        let mut y = context.buffer(x.values_len())?;
        dispatch!(context.executor(), activation::forward(&self.0; x.view(), y.view_mut()));
        Ok((Var::new(x.kind().clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let run = context.executor();
        dispatch!(run, activation::backward(&self.0; x.view(), dy.view(), dx.view_mut()));
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Pointwise`].
    ///
    /// # Errors
    /// Features that are not scalars.
    pub fn activation(&mut self, function: &Activation, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Pointwise(function.clone()), [x])
    }
}
