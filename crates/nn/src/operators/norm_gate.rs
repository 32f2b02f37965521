//! The norm and the gated nonlinearity.

use crate::{Keep, ParameterId, Recipe, Result, Tape, Var};
use gemcnn_kernels::Real;
use gemcnn_kernels::norm_gate::{
    GatedBackward, GatedForward, GatedNonlinearity, NormBackward, NormForward, NormNonlinearity,
};
use std::sync::Arc;

impl<'a, T: Real> Tape<'a, T> {
    /// The norm nonlinearity of rows of `config.kind`; the bias is added to the norm of each irrep of order above 0.
    /// Keeps `x`.
    pub fn norm_nonlinearity(
        &mut self,
        config: &Arc<NormNonlinearity>,
        bias: ParameterId,
        x: Var<T>,
    ) -> Result<Var<T>> {
        x.expect_kind("input of a norm nonlinearity", &config.kind)?;
        let (state, output) = ((Arc::clone(config), x.rows()), (config.kind.clone(), x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [Some(bias)], output, keep: Keep::Inputs },
            |&(ref op, rows), run, [x], [bias], y| NormForward { op, rows, x, bias, y }.run(run),
            |&(ref op, rows), run, [(x, dx)], [(bias, dbias)], (_, dy)| {
                NormBackward { op, rows, x, bias, dy, dx, dbias }.run(run)
            },
        )
    }

    /// The gated nonlinearity: irreps times the sigmoid of their gates. Rows of `config.input()`, with the gates after the
    /// other scalars, become rows of `config.output`. Keeps `x`.
    pub fn gated_nonlinearity(&mut self, config: &Arc<GatedNonlinearity>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of a gated nonlinearity", &config.input())?;
        let (state, output) = ((Arc::clone(config), x.rows()), (config.output.clone(), x.rows()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Inputs },
            |&(ref op, rows), run, [x], [], y| GatedForward { op, rows, x, y }.run(run),
            |&(ref op, rows), run, [(x, dx)], [], (_, dy)| GatedBackward { op, rows, x, dy, dx }.run(run),
        )
    }
}
