//! One linear map in several rotations.

use crate::{Context, IncidenceBatch, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::elementwise::Accumulate;
use gemcnn_kernels::incidence::{Normalise, Sum, Target};
use gemcnn_kernels::linear::{Backward, Forward, Linear};
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::sync::Arc;

/// Linear map of each row of scalars with several rotations of one matrix, `y = (x W_1^T, ..., x W_n^T)`. The rotated
/// matrices are computed in each pass; they are small beside rotated features. Saves `x`.
///
/// # Shapes
/// The incidence maps the weights, as rows of `kind`, to those of the rotated matrices, one after the other. `x`: rows
/// of `inputs` scalars, as many as a row of a matrix; `y`: as many rows of the outputs of all rotations.
#[derive(Debug, Clone)]
pub struct RotatedMap<T> {
    /// The parameter `[outputs, inputs]`.
    pub weight: ParameterId,
    /// The rows that are rotated.
    pub kind: FeatureType,
    /// The rotations.
    pub rotations: Arc<IncidenceBatch<T>>,
    /// Number of scalars of a row of `x`.
    pub inputs: usize,
}

impl<T: Real> RotatedMap<T> {
    fn linear(&self) -> Linear {
        let count = self.rotations.row_count() * self.kind.dimension();
        Linear { inputs: self.inputs, outputs: count / self.inputs.max(1), bias: false }
    }

    fn rotated(&self, context: &mut Context<'_, T>) -> Result<Storage<T>> {
        let mut rotated = context.buffer(self.linear().weight_count())?;
        let arrays = self.rotations.on(context.device())?;
        let ([weight], mut run) = context.values([Some(self.weight)])?;
        let (features, aggregation, normalise) = (&self.kind, Aggregation::Sum, Normalise::Target);
        let (target, incidence, y) = (Target::Rows, arrays.get(), rotated.view_mut());
        Sum { features, aggregation, target, normalise, incidence, x: weight, y }.run(&mut run)?;
        Ok(rotated)
    }
}

impl<T: Real> Operator<T> for RotatedMap<T> {
    type Saved = Var<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        let linear = self.linear();
        let input = FeatureType::scalars(linear.inputs);
        x.expect_kind("input of a rotated linear map", &input)?;
        let rotated = self.rotated(context)?;
        let mut y = context.buffer(x.rows() * linear.outputs)?;
        let ([bias], mut run) = context.values([None])?;
        let (op, rows, weight) = (&linear, x.rows(), rotated.view());
        Forward { op, rows, x: x.view(), weight, bias, y: y.view_mut() }.run(&mut run)?;
        let y = Var::new(FeatureType::scalars(linear.outputs), x.rows(), y);
        Ok((y, x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let linear = self.linear();
        let rotated = self.rotated(context)?;
        let mut dx = context.buffer_if(wanted, x.values_len())?;
        let mut drotated = context.zeros(rotated.len())?;
        let (_, [dbias], mut run) = context.gradients([None])?;
        let (op, rows, weight, to) = (&linear, x.rows(), rotated.view(), dx.as_mut().map(Storage::view_mut));
        let dweight = drotated.view_mut();
        Backward { op, rows, x: x.view(), weight, dy: dy.view(), dx: to, dweight, dbias }.run(&mut run)?;
        let mut sums = context.buffer(self.rotations.column_count() * self.kind.dimension())?;
        let arrays = self.rotations.on(context.device())?;
        let (features, aggregation, normalise) = (&self.kind, Aggregation::Sum, Normalise::Source);
        let (target, incidence, x, y) = (Target::Columns, arrays.get(), drotated.view(), sums.view_mut());
        Sum { features, aggregation, target, normalise, incidence, x, y }.run(&mut context.executor())?;
        let (_, [y], mut run) = context.gradients([Some(self.weight)])?;
        Accumulate { a: sums.view(), y }.run(&mut run)?;
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`RotatedMap`].
    pub fn rotated_map(&mut self, map: RotatedMap<T>, x: Var<T>) -> Result<Var<T>> {
        self.apply(map, [x])
    }
}
