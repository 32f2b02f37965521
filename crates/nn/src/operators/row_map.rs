//! Linear maps of each row: equivariant ([`EquivariantMap`]) and of scalars ([`LinearMap`]).

use crate::{Context, NnError, Operator, ParameterId, Storage, Tape, Var};
use gemcnn_kernels::linear::{self, Linear};
use gemcnn_kernels::self_map::{self, SelfMap};
use gemcnn_kernels::{FeatureType, Real, dispatch};
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

/// Equivariant linear map of each row. Saves `x`.
///
/// # Shapes
/// `x`: rows of `config.input`; `y`: as many rows of `config.output`.
#[derive(Debug, Clone)]
pub struct EquivariantMap {
    /// Input and output types.
    pub config: Arc<SelfMap>,
    /// The parameters.
    pub weights: LinearWeights,
}

/// Linear map of each row of scalars. Saves `x`.
///
/// # Shapes
/// `x`: rows of `config.inputs` scalars; `y`: as many rows of `config.outputs` scalars.
#[derive(Debug, Clone, Copy)]
pub struct LinearMap {
    /// Numbers of inputs and outputs.
    pub config: Linear,
    /// The parameters.
    pub weights: LinearWeights,
}

/// Both maps take the same arguments, except for the scratch memory of the forward pass.
macro_rules! row_map {
    ($name:ident, $operator:ident, $label:literal, $types:expr $(, $scratch:ident)?) => {
        impl<T: Real> Operator<T> for $name {
            type Saved = Var<T>;

            fn has_parameters(&self) -> bool {
                true
            }

            fn forward(
                &self,
                context: &mut Context<'_, T>,
                [x]: [Var<T>; 1],
            ) -> Result<(Var<T>, Self::Saved), NnError> {
                let (input, output): (FeatureType, FeatureType) = $types(&self.config);
                x.expect_kind(concat!("input of a ", $label), &input)?;
                let mut y = context.buffer(x.rows() * output.dimension())?;
                let ([weight, bias], run) = context.values(self.weights.ids())?;
                dispatch!(
                    run,
                    $operator::forward(&self.config, x.rows(); x.view(), weight, bias, y.view_mut() $(; $scratch)?)
                );
                Ok((Var::new(output, x.rows(), y), x))
            }

            fn backward(
                &self,
                context: &mut Context<'_, T>,
                x: Self::Saved,
                dy: Storage<T>,
                [wanted]: [bool; 1],
            ) -> Result<[Option<Storage<T>>; 1], NnError> {
                let mut dx = context.buffer_if(wanted, x.values_len())?;
                let ([weight, _], [dweight, dbias], run) = context.gradients(self.weights.ids())?;
                dispatch!(
                    run,
                    $operator::backward(
                        &self.config, x.rows();
                        x.view(),
                        weight,
                        dy.view(),
                        dx.as_mut().map(Storage::view_mut),
                        dweight,
                        dbias;
                        scratch
                    )
                );
                Ok([dx])
            }
        }
    };
}

row_map!(
    EquivariantMap,
    self_map,
    "equivariant linear map",
    |config: &Arc<SelfMap>| (config.input.clone(), config.output.clone()),
    scratch
);
row_map!(LinearMap, linear, "linear map", |config: &Linear| (
    FeatureType::scalars(config.inputs),
    FeatureType::scalars(config.outputs)
));

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`EquivariantMap`].
    pub fn self_map(&mut self, config: &Arc<SelfMap>, weights: LinearWeights, x: Var<T>) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(EquivariantMap { config, weights }, [x])
    }

    /// Applies [`LinearMap`].
    pub fn linear(&mut self, config: Linear, weights: LinearWeights, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(LinearMap { config, weights }, [x])
    }
}
