//! The norm and the gated nonlinearity.

use crate::{Context, NnError, Operator, ParameterId, Storage, Tape, Var};
use gemcnn_kernels::norm_gate::{self, GatedNonlinearity, NormNonlinearity};
use gemcnn_kernels::{Real, dispatch};
use std::sync::Arc;

/// The norm nonlinearity. Saves `x`.
///
/// # Shapes
/// `x` and `y`: rows of `config.kind`.
#[derive(Debug, Clone)]
pub struct NormActivate {
    /// Type and function.
    pub config: Arc<NormNonlinearity>,
    /// Added to the norm of each irrep of order above 0.
    pub bias: ParameterId,
}

impl<T: Real> Operator<T> for NormActivate {
    type Saved = Var<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        x.expect_kind("input of a norm nonlinearity", &self.config.kind)?;
        let mut y = context.buffer(x.values_len())?;
        let ([bias], run) = context.values([Some(self.bias)])?;
        dispatch!(
            run,
            norm_gate::norm_forward(&self.config, x.rows(); x.view(), bias, y.view_mut())
        );
        Ok((Var::new(x.kind().clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let ([bias], [dbias], run) = context.gradients([Some(self.bias)])?;
        dispatch!(
            run,
            norm_gate::norm_backward(
                &self.config, x.rows();
                x.view(), bias, dy.view(), dx.view_mut(), dbias;
                wide_scratch
            )
        );
        Ok([Some(dx)])
    }
}

/// The gated nonlinearity: irreps times the sigmoid of their gates. Saves `x`.
///
/// # Shapes
/// `x`: rows of `config.input()`, the gates after the other scalars; `y`: as many rows of
/// `config.output`.
#[derive(Debug, Clone)]
pub struct Gate(pub Arc<GatedNonlinearity>);

impl<T: Real> Operator<T> for Gate {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let config = &*self.0;
        x.expect_kind("input of a gated nonlinearity", &config.input())?;
        let mut y = context.buffer(x.rows() * config.output.dimension())?;
        let run = context.executor();
        dispatch!(run, norm_gate::gated_forward(config, x.rows(); x.view(), y.view_mut()));
        Ok((Var::new(config.output.clone(), x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        let run = context.executor();
        dispatch!(
            run,
            norm_gate::gated_backward(&self.0, x.rows(); x.view(), dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`NormActivate`].
    pub fn norm_nonlinearity(
        &mut self,
        config: &Arc<NormNonlinearity>,
        bias: ParameterId,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(NormActivate { config, bias }, [x])
    }

    /// Applies [`Gate`].
    pub fn gated_nonlinearity(&mut self, config: &Arc<GatedNonlinearity>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Gate(Arc::clone(config)), [x])
    }
}
