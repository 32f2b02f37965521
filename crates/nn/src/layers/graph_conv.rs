//! The isotropic baseline: a convolution that uses the neighbours of a vertex, but not their directions.

use super::{GemConv, GemConvConfig};
use crate::{Builder, NnError};
use gemcnn_kernels::{Aggregation, FeatureType, Real};

/// Settings of an isotropic convolution `y_p = W_self f_p + s_p sum_q W f_q + bias`: a [`GemConv`] on
/// scalars, whose kernel can only be isotropic.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphConvConfig {
    /// Number of scalars of the input.
    pub inputs: usize,
    /// Number of scalars of the output.
    pub outputs: usize,
    /// Aggregation over neighbours (default: sum).
    pub aggregation: Aggregation,
    /// Adds a bias (default true).
    pub bias: bool,
    /// Number of neighbours that the initialisation assumes (default 6).
    pub degree: f64,
    /// Mean square of an input value that the initialisation assumes (default 1).
    pub input_moment: f64,
}

impl GraphConvConfig {
    /// Default settings.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs, aggregation: Aggregation::Sum, bias: true, degree: 6.0, input_moment: 1.0 }
    }

    /// Adds the parameters `weight` `[1, outputs, inputs]`, `self_weight` `[outputs * inputs]` and
    /// `bias`.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<GemConv, NnError> {
        let scalars = FeatureType::scalars;
        let conv = GemConvConfig {
            aggregation: self.aggregation,
            bias: self.bias,
            degree: self.degree,
            input_moments: vec![self.input_moment],
            ..GemConvConfig::new(scalars(self.inputs), scalars(self.outputs))
        };
        conv.init(name, builder)
    }
}
