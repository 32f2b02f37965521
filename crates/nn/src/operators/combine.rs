//! Sums, multiples, concatenation and selection of channels, softmax, and maxima over blocks of them.

use crate::{Context, Keep, Operator, Recipe, Result, Storage, Tape, Var};
use gemcnn_kernels::elementwise::{
    self, BlockMaximum, BlockMaximumBackward, Concatenate, Scale, Select, Slice, Softmax, SoftmaxBackward, Split,
    Unselect,
};
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Sum of two features, computed in place if no other variable shares one of them. Saves nothing.
///
/// # Shapes
/// Both inputs and the output: as many rows of the same type.
#[derive(Debug, Clone, Copy)]
pub struct Add;

impl<T: Real> Operator<T, 2> for Add {
    type Saved = ();

    fn forward(&self, context: &mut Context<'_, T>, [a, b]: [Var<T>; 2]) -> Result<(Var<T>, ())> {
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
            elementwise::Add { a: a.view(), b: b.view(), y: sum.view_mut() }.run(&mut context.executor())?;
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
    ) -> Result<[Option<Storage<T>>; 2]> {
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

/// Scales the gradient of a loss of weight 1 to another weight.
pub(super) fn scaled<T: Real>(context: &mut Context<'_, T>, weight: f64, gradient: Storage<T>) -> Result<Storage<T>> {
    if weight == 1.0 {
        return Ok(gradient);
    }
    let mut y = context.buffer(gradient.len())?;
    Scale { factor: weight, x: gradient.view(), y: y.view_mut() }.run(&mut context.executor())?;
    Ok(y)
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Add`].
    ///
    /// # Errors
    /// Different types or numbers of rows.
    pub fn add(&mut self, a: Var<T>, b: Var<T>) -> Result<Var<T>> {
        self.apply(Add, [a, b])
    }

    /// Product of features with a constant. Keeps nothing.
    pub fn scale(&mut self, factor: f64, x: Var<T>) -> Result<Var<T>> {
        let output = (x.kind().clone(), x.rows());
        self.record(
            Recipe { state: factor, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&factor, run, [x], [], y| Scale { factor, x, y }.run(run),
            |&factor, run, [(_, y)], [], (_, x)| Scale { factor, x, y }.run(run),
        )
    }

    /// Concatenation of the channels of two features, order by order: rows of
    /// [`FeatureType::concatenated`](gemcnn_kernels::FeatureType::concatenated). Keeps the types.
    ///
    /// # Errors
    /// Different numbers of rows.
    pub fn concatenate(&mut self, a: Var<T>, b: Var<T>) -> Result<Var<T>> {
        b.expect_rows("the right operand of a concatenation", a.rows())?;
        let (first, second, rows) = (a.kind().clone(), b.kind().clone(), a.rows());
        let output = (first.concatenated(&second), rows);
        self.record(
            Recipe { state: (first, second, rows), inputs: [a, b], parameters: [], output, keep: Keep::Nothing },
            |&(ref first, ref second, rows), run, [a, b], [], y| Concatenate { first, second, rows, a, b, y }.run(run),
            |&(ref first, ref second, rows), run, [(_, a), (_, b)], [], (_, y)| {
                Split { first, second, rows, y, a, b }.run(run)
            },
        )
    }

    /// Selection of a range of channels of each order: rows of `slice.kind` become as many rows of `slice.output()`. Keeps
    /// nothing.
    pub fn slice(&mut self, slice: &Arc<Slice>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of a slice", &slice.kind)?;
        let (state, output) = ((Arc::clone(slice), x.rows()), (slice.output()?, x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref slice, rows), run, [x], [], y| Select { slice, rows, x, y }.run(run),
            |&(ref slice, rows), run, [(_, dx)], [], (_, dy)| Unselect { slice, rows, dy, dx }.run(run),
        )
    }

    /// Softmax over the scalars of each row. Keeps the result.
    ///
    /// # Errors
    /// Features that are not scalars.
    pub fn softmax(&mut self, x: Var<T>) -> Result<Var<T>> {
        x.expect_scalars("the input of a softmax")?;
        let (state, output) = ((x.kind().dimension(), x.rows()), (x.kind().clone(), x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Output },
            |&(width, rows), run, [x], [], y| Softmax { width, rows, x, y }.run(run),
            |&(width, rows), run, [(_, dx)], [], (y, dy)| SoftmaxBackward { width, rows, y, dy, dx }.run(run),
        )
    }

    /// The largest value of each channel over several blocks of a row: rows of `blocks` times as many scalars as those of
    /// the result, block after block. Keeps its input and its result.
    ///
    /// # Errors
    /// Features that are not scalars, or whose number is no multiple of that of the blocks.
    pub fn block_maximum(&mut self, blocks: usize, x: Var<T>) -> Result<Var<T>> {
        x.expect_scalars("the input of a block maximum")?;
        let (width, rows) = (x.kind().dimension() / blocks.max(1), x.rows());
        let (state, output) = ((blocks, width, rows), (FeatureType::scalars(width), rows));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::InputsAndOutput },
            |&(blocks, width, rows), run, [x], [], y| BlockMaximum { blocks, width, rows, x, y }.run(run),
            |&(blocks, width, rows), run, [(x, dx)], [], (y, dy)| {
                BlockMaximumBackward { blocks, width, rows, x, y, dy, dx }.run(run)
            },
        )
    }
}
