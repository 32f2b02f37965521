//! Softmax over the channels of each row.

use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::{Real, dispatch, elementwise};

/// Softmax over the scalars of each row. Saves the result.
///
/// # Shapes
/// `x` and `y`: rows of scalars.
#[derive(Debug, Clone, Copy)]
pub struct RowSoftmax;

impl<T: Real> Operator<T> for RowSoftmax {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_scalars("the input of a softmax")?;
        let mut y = context.buffer(x.values_len())?;
        let width = x.kind().dimension();
        dispatch!(context.executor(), elementwise::softmax(width; x.view(), y.view_mut()));
        let y = Var::new(x.kind().clone(), x.rows(), y);
        Ok((y.clone(), y))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        y: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(y.values_len())?;
        let width = y.kind().dimension();
        dispatch!(
            context.executor(),
            elementwise::softmax_backward(width; y.view(), dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`RowSoftmax`].
    ///
    /// # Errors
    /// Features that are not scalars.
    pub fn softmax(&mut self, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(RowSoftmax, [x])
    }
}
