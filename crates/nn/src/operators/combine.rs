//! Sums, multiples, and concatenation and selection of channels.

use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::elementwise::{self, Slice};
use gemcnn_kernels::{FeatureType, Real, dispatch};
use std::sync::Arc;

/// Sum of two features, computed in place if no other variable shares one of them. Saves nothing.
///
/// # Shapes
/// Both inputs and the output: as many rows of the same type.
#[derive(Debug, Clone, Copy)]
pub struct Add;

impl<T: Real> Operator<T, 2> for Add {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [a, b]: [Var<T>; 2]) -> Result<(Var<T>, ()), NnError> {
        b.expect_kind("right operand of a sum", a.kind())?;
        b.expect_rows("the right operand of a sum", a.rows())?;
        let (kind, rows) = (a.kind().clone(), a.rows());
        let (mut a, mut b) = (a.into_storage(), b.into_storage());
        let sum = if let Some(sum) = Arc::get_mut(&mut a) {
            context.workspace.accumulate(sum, &b)?;
            a
        } else if let Some(sum) = Arc::get_mut(&mut b) {
            context.workspace.accumulate(sum, &a)?;
            b
        } else {
            let mut sum = context.buffer(a.len())?;
            dispatch!(context.executor(), elementwise::add(; a.view(), b.view(), sum.view_mut()));
            Arc::new(sum)
        };
        Ok((Var::new(kind, rows, sum), ()))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (): (),
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        Ok(match wanted {
            [true, true] => {
                let copy = context.duplicate(&dy)?;
                [Some(dy), Some(copy)]
            }
            [true, false] => [Some(dy), None],
            [false, right] => [None, right.then_some(dy)],
        })
    }
}

/// Product of features with a constant. Saves nothing.
#[derive(Debug, Clone, Copy)]
pub struct Scale(pub f64);

impl Scale {
    fn run<T: Real>(self, context: &mut Context<'_, T>, x: &Storage<T>) -> Result<Storage<T>, NnError> {
        let mut y = context.buffer(x.len())?;
        dispatch!(context.executor(), elementwise::scale(self.0; x.view(), y.view_mut()));
        Ok(y)
    }
}

impl<T: Real> Operator<T> for Scale {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, ()), NnError> {
        let (kind, rows) = (x.kind().clone(), x.rows());
        Ok((Var::new(kind, rows, self.run(context, &x.into_storage())?), ()))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (): (),
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        Ok([Some(self.run(context, &dy)?)])
    }
}

/// Scales the gradient of a loss of weight 1 to another weight.
pub(super) fn scaled<T: Real>(
    context: &mut Context<'_, T>,
    weight: f64,
    gradient: Storage<T>,
) -> Result<Storage<T>, NnError> {
    match weight == 1.0 {
        true => Ok(gradient),
        false => Scale(weight).run(context, &gradient),
    }
}

/// Concatenation of the channels of two features, order by order. Saves the types.
///
/// # Shapes
/// Inputs: as many rows of any types; output: rows of
/// [`FeatureType::concatenated`](gemcnn_kernels::FeatureType::concatenated).
#[derive(Debug, Clone, Copy)]
pub struct Concatenate;

impl<T: Real> Operator<T, 2> for Concatenate {
    type Saved = ([FeatureType; 2], usize);

    fn forward(&self, context: &mut Context<'_, T>, [a, b]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved), NnError> {
        b.expect_rows("the right operand of a concatenation", a.rows())?;
        let (kinds, rows) = ([a.kind().clone(), b.kind().clone()], a.rows());
        let kind = kinds[0].concatenated(&kinds[1]);
        let mut y = context.buffer(rows * kind.dimension())?;
        let run = context.executor();
        dispatch!(
            run,
            elementwise::concatenate(&kinds[0], &kinds[1], rows; a.view(), b.view(), y.view_mut())
        );
        Ok((Var::new(kind, rows, y), (kinds, rows)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        ([first, second], rows): Self::Saved,
        dy: Storage<T>,
        _: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let mut da = context.buffer(rows * first.dimension())?;
        let mut db = context.buffer(rows * second.dimension())?;
        let run = context.executor();
        dispatch!(
            run,
            elementwise::split(&first, &second, rows; dy.view(), da.view_mut(), db.view_mut())
        );
        Ok([Some(da), Some(db)])
    }
}

/// Selection of a range of channels of each order. Saves nothing.
///
/// # Shapes
/// `x`: rows of `slice.kind`; `y`: as many rows of `slice.output()`.
#[derive(Debug, Clone)]
pub struct SelectChannels(pub Arc<Slice>);

impl<T: Real> Operator<T> for SelectChannels {
    type Saved = usize;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, usize), NnError> {
        x.expect_kind("input of a slice", &self.0.kind)?;
        let kind = self.0.output()?;
        let rows = x.rows();
        let mut y = context.buffer(rows * kind.dimension())?;
        dispatch!(context.executor(), elementwise::slice(&self.0, rows; x.view(), y.view_mut()));
        Ok((Var::new(kind, rows, y), rows))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        rows: usize,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(rows * self.0.kind.dimension())?;
        dispatch!(context.executor(), elementwise::unslice(&self.0, rows; dy.view(), dx.view_mut()));
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Add`].
    ///
    /// # Errors
    /// Different types or numbers of rows.
    pub fn add(&mut self, a: Var<T>, b: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Add, [a, b])
    }

    /// Applies [`Scale`].
    pub fn scale(&mut self, factor: f64, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Scale(factor), [x])
    }

    /// Applies [`Concatenate`].
    ///
    /// # Errors
    /// Different numbers of rows.
    pub fn concatenate(&mut self, a: Var<T>, b: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Concatenate, [a, b])
    }

    /// Applies [`SelectChannels`].
    pub fn slice(&mut self, slice: &Arc<Slice>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(SelectChannels(Arc::clone(slice)), [x])
    }
}
