//! The largest of several blocks of each row.

use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::{FeatureType, Real, dispatch, elementwise};

/// The largest value of each channel over several blocks of a row. Saves its input and its result.
///
/// # Shapes
/// `x`: rows of `blocks` times as many scalars as `y`, block after block.
#[derive(Debug, Clone, Copy)]
pub struct BlockMaximum {
    /// Number of blocks.
    pub blocks: usize,
}

impl<T: Real> Operator<T> for BlockMaximum {
    type Saved = [Var<T>; 2];

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_scalars("the input of a block maximum")?;
        let width = x.kind().dimension() / self.blocks.max(1);
        let mut y = context.buffer(x.rows() * width)?;
        dispatch!(
            context.executor(),
            elementwise::block_maximum(self.blocks, width; x.view(), y.view_mut())
        );
        let y = Var::new(FeatureType::scalars(width), x.rows(), y);
        Ok((y.clone(), [x, y]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [x, y]: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let width = y.kind().dimension();
        dispatch!(
            context.executor(),
            elementwise::block_maximum_backward(
                self.blocks, width; x.view(), y.view(), dy.view(), dx.view_mut()
            )
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`BlockMaximum`].
    ///
    /// # Errors
    /// Features that are not scalars, or whose number is no multiple of that of the blocks.
    pub fn block_maximum(&mut self, blocks: usize, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(BlockMaximum { blocks }, [x])
    }
}
