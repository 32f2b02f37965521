//! Dropout of whole irreps or channels.

use crate::operator::RandomStream;
use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::dropout::{self, Dropout};
use gemcnn_kernels::{OnDevice, Real, View, ViewMut, dispatch};
use std::sync::Arc;

/// Dropout of whole irreps or channels, in training only. Saves its random stream; the backward pass generates the
/// mask again.
///
/// # Shapes
/// `x` and `y`: rows of the type of the dropout.
#[derive(Debug, Clone)]
pub struct DropIrreps(pub Arc<Dropout>);

impl DropIrreps {
    /// Drops features, or gradients: the map is its own adjoint.
    fn run<T: Real>(
        &self,
        context: &mut Context<'_, T>,
        random: &RandomStream,
        rows: usize,
        x: View<'_, T>,
        y: ViewMut<'_, T>,
    ) -> Result<(), NnError> {
        let random = match random {
            OnDevice::Host(stream) => OnDevice::Host(*stream),
            OnDevice::Cuda((stream, salt)) => OnDevice::Cuda((&**stream, *salt)),
        };
        dispatch!(context.executor(), dropout::forward(&self.0; random, rows, x, y));
        Ok(())
    }
}

impl<T: Real> Operator<T> for DropIrreps {
    type Saved = Option<(RandomStream, usize)>;

    fn name(&self) -> &'static str {
        "dropout"
    }

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [x]: [Var<T>; 1],
    ) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_kind("input of a dropout", &self.0.kind)?;
        self.0.units()?;
        let Some(random) = context.random_stream()? else {
            return Ok((x, None));
        };
        let mut y = context.buffer(x.values_len())?;
        self.run(context, &random, x.rows(), x.view(), y.view_mut())?;
        Ok((
            Var::new(x.kind().clone(), x.rows(), y),
            Some((random, x.rows())),
        ))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let Some((random, rows)) = saved else {
            return Ok([Some(dy)]);
        };
        let mut dx = context.buffer(dy.len())?;
        self.run(context, &random, rows, dy.view(), dx.view_mut())?;
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`DropIrreps`].
    ///
    /// # Errors
    /// Input of another type, or settings out of range.
    pub fn dropout(&mut self, config: &Arc<Dropout>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(DropIrreps(Arc::clone(config)), [x])
    }
}
