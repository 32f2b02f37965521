//! A linear map of scalars with the activation and the dropout that follow it, on a GPU.

use super::LinearWeights;
use super::dropout::drawn;
use crate::{Context, NnError, Operator, RandomStream, Storage, Var};
use gemcnn_kernels::dropout::Dropout;
use gemcnn_kernels::linear::activated::{self, Then};
use gemcnn_kernels::linear::{Backward, Forward, Linear};
use gemcnn_kernels::{Activation, Executor, FeatureType, KernelError, Real, Resolve};
use std::sync::Arc;

/// Linear map, activation and dropout in training, on a GPU only: elsewhere they are operators of their own. Saves `x`,
/// the product without its bias, and the random stream.
///
/// # Shapes
/// `x`: rows of `config.inputs` scalars; `y`: as many rows of `config.outputs` scalars.
#[derive(Debug, Clone)]
pub struct LinearActivate {
    /// Numbers of inputs and outputs ([`Linear::can_be_activated`]).
    pub config: Linear,
    /// The parameters.
    pub weights: LinearWeights,
    /// The pointwise function.
    pub activation: Activation,
    /// The dropout of the result, if there is one.
    pub dropout: Option<Arc<Dropout>>,
}

impl LinearActivate {
    fn then<'a>(&'a self, random: Option<&'a RandomStream>) -> Then<'a> {
        Then { activation: &self.activation, dropout: drawn(self.dropout.as_deref(), random) }
    }
}

impl<T: Real> Operator<T> for LinearActivate {
    type Saved = (Var<T>, Storage<T>, Option<RandomStream>);

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let input = FeatureType::scalars(self.config.inputs);
        x.expect_kind("input of a linear map", &input)?;
        let random = match &self.dropout {
            Some(_) => context.random_stream()?,
            None => None,
        };
        let (rows, output) = (x.rows(), FeatureType::scalars(self.config.outputs));
        let mut z = context.buffer(rows * output.dimension())?;
        let mut y = context.buffer(rows * output.dimension())?;
        let ([weight, bias], run) = context.values(self.weights.ids())?;
        let Executor::Cuda(device) = run else {
            return Err(KernelError::OtherDevice.into());
        };
        let (from, weight, bias, to) = (x.view().cuda()?, weight.cuda()?, bias.cuda()?, y.view_mut().cuda()?);
        let pass = Forward { op: &self.config, rows, x: from, weight, bias, y: to };
        activated::forward(device, &self.then(random.as_ref()), pass, z.view_mut().cuda()?)?;
        Ok((Var::new(output, rows, y), (x, z, random)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, z, random): Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer_if(wanted, x.values_len())?;
        let ([weight, bias], [dweight, dbias], run) = context.gradients(self.weights.ids())?;
        let Executor::Cuda(device) = run else {
            return Err(KernelError::OtherDevice.into());
        };
        let (rows, x, weight, dy) = (x.rows(), x.view().cuda()?, weight.cuda()?, dy.view().cuda()?);
        let (to, dweight, dbias) = (dx.as_mut().map(Storage::view_mut).cuda()?, dweight.cuda()?, dbias.cuda()?);
        let pass = Backward { op: &self.config, rows, x, weight, dy, dx: to, dweight, dbias };
        activated::backward(device, &self.then(random.as_ref()), pass, bias.cuda()?, z.view().cuda()?)?;
        Ok([dx])
    }
}
