//! The non-equivariant baseline: a band-limited kernel of the angle in the given frames.

use crate::operators::LinearWeights;
use crate::{Builder, Levels, Module, Result, Role, Tape, Var, initialisation, signature};
use gemcnn_kernels::aggregate::Aggregate;
use gemcnn_kernels::linear::Linear;
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`AngularConv`].
#[derive(Debug, Clone, PartialEq)]
pub struct AngularConvConfig {
    /// Number of scalars of the input.
    pub inputs: usize,
    /// Number of scalars of the output.
    pub outputs: usize,
    /// Highest harmonic `B` of the kernel.
    pub band_limit: usize,
    /// Aggregation over neighbours (default: sum).
    pub aggregation: Aggregation,
    /// Number of neighbours that the initialisation assumes (default 6).
    pub degree: f64,
    /// Mean square of an input value that the initialisation assumes (default 1).
    pub input_moment: f64,
}

impl AngularConvConfig {
    /// Default settings.
    pub fn new(inputs: usize, outputs: usize, band_limit: usize) -> Self {
        Self { inputs, outputs, band_limit, aggregation: Aggregation::Sum, degree: 6.0, input_moment: 1.0 }
    }

    /// Adds the parameters `self_weight` `[outputs, inputs]` and `weight`
    /// `[outputs, 2B+1, inputs]`: `(2B+2) inputs outputs` values in total.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<AngularConv> {
        builder.within(name, |builder| {
            let harmonics = 2 * self.band_limit + 1;
            let scale = initialisation::squared_scale(self.aggregation, self.degree);
            let self_variance = 0.5 / (self.inputs.max(1) as f64 * self.input_moment);
            // The mean square of the sum over similar neighbours is the degree squared for the constant harmonic.
            // Each other harmonic has the mean square 1/2, and its sum at most the degree.
            let degree = self.degree.max(1.0);
            let sum = (degree * degree).max(degree * (1.0 + self.band_limit as f64));
            let variance = self_variance / (sum * scale);
            let own = builder.random("self_weight", &[self.outputs, self.inputs], Role::Weight, |_| self_variance)?;
            let neighbour =
                builder.random("weight", &[self.outputs, harmonics, self.inputs], Role::Weight, |_| variance)?;
            let map = |inputs| Linear { inputs, outputs: self.outputs, bias: false };
            let weights = |weight| LinearWeights { weight, bias: None };
            Ok(AngularConv {
                name: builder.scope().into(),
                aggregate: Arc::new(Aggregate {
                    input: FeatureType::scalars(self.inputs),
                    highest_order: self.band_limit,
                    rings: 1,
                    max_radius: 1.0,
                    aggregation: self.aggregation,
                }),
                self_map: (map(self.inputs), weights(own)),
                neighbour_map: (map(harmonics * self.inputs), weights(neighbour)),
                output: FeatureType::scalars(self.outputs),
            })
        })
    }
}

/// A convolution with an anisotropic kernel in the frames of the graph:
///
/// ```text
/// y_p = w_0 f_p + s_p sum_q (w_1 + sum_{n=1..B} w_2n cos(n theta_pq) + w_2n+1 sin(n theta_pq)) f_q
/// ```
///
/// Features are scalars, but the kernel depends on the angle in the frame, so the result depends on the choice of
/// frames. It is a baseline for gauge equivariant convolutions.
#[derive(Debug, Clone)]
pub struct AngularConv {
    name: String,
    aggregate: Arc<Aggregate>,
    self_map: (Linear, LinearWeights),
    neighbour_map: (Linear, LinearWeights),
    output: FeatureType,
}

impl<T: Real> Module<T> for AngularConv {
    signature!(this: this.aggregate.input => this.output, reach 1);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let mut run = || {
            let sums = tape.aggregate(&self.aggregate, levels.graph()?, x.clone())?;
            let neighbours = tape.linear(self.neighbour_map.0, self.neighbour_map.1, sums)?;
            let own = tape.linear(self.self_map.0, self.self_map.1, x.clone())?;
            tape.add(neighbours, own)
        };
        run().map_err(|error| error.in_layer(&self.name))
    }
}
