//! Pointwise functions of scalars.

use crate::{Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::activation::{Backward, Forward};
use gemcnn_kernels::{Activation, Real};

impl<'a, T: Real> Tape<'a, T> {
    /// A function of each number of scalars. Keeps `x`.
    pub fn activation(&mut self, function: &Activation, x: Var<T>) -> Result<Var<T>> {
        x.expect_scalars("input of an activation")?;
        let (state, output) = (function.clone(), (x.kind().clone(), x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Inputs },
            |activation, run, [x], [], y| Forward { activation, x, y }.run(run),
            |activation, run, [(x, dx)], [], (_, dy)| Backward { activation, x, dy, dx }.run(run),
        )
    }
}
