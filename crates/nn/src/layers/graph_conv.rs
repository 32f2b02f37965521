//! The isotropic baseline: a convolution that sees which vertices are neighbours, but not where.

use super::{GemConv, GemConvConfig};
use crate::{Builder, GraphBatch, NnError, Tape, Var};
use gemcnn_kernels::{Aggregation, FeatureType, Real};

/// Settings of a [`GraphConv`].
#[derive(Debug, Clone, PartialEq)]
pub struct GraphConvConfig {
    /// Scalars of the input.
    pub inputs: usize,
    /// Scalars of the output.
    pub outputs: usize,
    /// How neighbours are put together; their sum by default.
    pub aggregation: Aggregation,
    /// Whether there is a bias; yes by default.
    pub bias: bool,
    /// Number of neighbours that first values are scaled for; 6 by default.
    pub degree: f64,
    /// Mean square of an input number that first values are scaled for; 1 by default.
    pub input_moment: f64,
}

impl GraphConvConfig {
    /// The defaults.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Self {
            inputs,
            outputs,
            aggregation: Aggregation::Sum,
            bias: true,
            degree: 6.0,
            input_moment: 1.0,
        }
    }

    /// Adds the parameters `weight` `[1, outputs, inputs]`, `self_weight` `[outputs * inputs]` and
    /// `bias`.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(
        &self,
        name: &str,
        builder: &mut Builder<'_, T>,
    ) -> Result<GraphConv, NnError> {
        let scalars = FeatureType::scalars;
        let conv = GemConvConfig {
            aggregation: self.aggregation,
            bias: self.bias,
            degree: self.degree,
            input_moments: vec![self.input_moment],
            ..GemConvConfig::new(scalars(self.inputs), scalars(self.outputs))
        };
        Ok(GraphConv {
            conv: conv.init(name, builder)?,
        })
    }
}

/// `y_p = W_self f_p + s_p sum_q W f_q + bias`: a [`GemConv`] on scalars, whose kernel can only be
/// isotropic.
#[derive(Debug, Clone)]
pub struct GraphConv {
    conv: GemConv,
}

impl GraphConv {
    /// Convolves.
    ///
    /// # Shapes
    /// `x`: one row of `inputs` scalars for each vertex; result: one row of `outputs` scalars.
    ///
    /// # Errors
    /// Features of another type or number of rows.
    pub fn forward<'a, T: Real>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.conv.forward(tape, batch, x)
    }
}
