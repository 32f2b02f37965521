//! Linear maps of each row, equivariant and of scalars.

use crate::{Keep, ParameterId, Recipe, Result, Tape, Var};
use gemcnn_kernels::linear::Linear;
use gemcnn_kernels::self_map::SelfMap;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Parameters of a linear map.
#[derive(Debug, Clone, Copy)]
pub struct LinearWeights {
    /// The matrix.
    pub weight: ParameterId,
    /// The bias, if there is one.
    pub bias: Option<ParameterId>,
}

impl LinearWeights {
    pub(super) fn ids(self) -> [Option<ParameterId>; 2] {
        [Some(self.weight), self.bias]
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Equivariant linear map of each row: rows of `config.input` become as many rows of `config.output`. Keeps `x`.
    pub fn self_map(&mut self, config: &Arc<SelfMap>, weights: LinearWeights, x: Var<T>) -> Result<Var<T>> {
        use gemcnn_kernels::self_map::{Backward, Forward};
        x.expect_kind("input of an equivariant linear map", &config.input)?;
        let (state, output) = ((Arc::clone(config), x.rows()), (config.output.clone(), x.rows()));
        self.record_wanted(
            Recipe { state, inputs: [x], parameters: weights.ids(), output, keep: Keep::Inputs },
            |&(ref op, rows), run, [x], [weight, bias], y| Forward { op, rows, x, weight, bias, y }.run(run),
            |&(ref op, rows), run, [(x, dx)], [(weight, dweight), (_, dbias)], (_, dy)| {
                Backward { op, rows, x, weight, dy, dx, dweight, dbias }.run(run)
            },
        )
    }

    /// Linear map of each row of scalars: rows of `op.inputs` scalars become as many rows of `op.outputs` scalars. Keeps `x`.
    pub fn linear(&mut self, op: Linear, weights: LinearWeights, x: Var<T>) -> Result<Var<T>> {
        use gemcnn_kernels::linear::{Backward, Forward};
        x.expect_kind("input of a linear map", &FeatureType::scalars(op.inputs))?;
        let (state, output) = ((op, x.rows()), (FeatureType::scalars(op.outputs), x.rows()));
        self.record_wanted(
            Recipe { state, inputs: [x], parameters: weights.ids(), output, keep: Keep::Inputs },
            |&(ref op, rows), run, [x], [weight, bias], y| Forward { op, rows, x, weight, bias, y }.run(run),
            |&(ref op, rows), run, [(x, dx)], [(weight, dweight), (_, dbias)], (_, dy)| {
                Backward { op, rows, x, weight, dy, dx, dweight, dbias }.run(run)
            },
        )
    }
}
