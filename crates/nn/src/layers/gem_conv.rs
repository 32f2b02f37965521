//! The gauge equivariant convolution.

use crate::operators::ConvWeights;
use crate::{Builder, Levels, Module, Result, Role, Tape, Var, initialisation, signature};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::sync::Arc;

/// Settings of a [`GemConv`].
#[derive(Debug, Clone, PartialEq)]
pub struct GemConvConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Aggregation over neighbours (default: sum).
    pub aggregation: Aggregation,
    /// Number of radial rings. With 1, the default, the kernel does not depend on the distance.
    pub rings: usize,
    /// Radius of the last ring, in units of the mesh and the same for all meshes; unused with one ring.
    pub max_radius: f64,
    /// Adds a linear map of the vertex itself (default true).
    pub self_term: bool,
    /// Adds a bias to scalars (default true). It is initialised to zero.
    pub bias: bool,
    /// Number of neighbours that the initialisation assumes (default 6, as on a triangle mesh).
    pub degree: f64,
    /// Mean square of an input component of each order that the initialisation assumes; 1 for orders
    /// that are not listed (default: none listed). [`Nonlinearity::moments`](super::Nonlinearity::moments)
    /// gives those after a nonlinearity.
    pub input_moments: Vec<f64>,
}

impl GemConvConfig {
    /// Default settings.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        Self {
            input,
            output,
            aggregation: Aggregation::Sum,
            rings: 1,
            max_radius: 1.0,
            self_term: true,
            bias: true,
            degree: 6.0,
            input_moments: Vec::new(),
        }
    }

    /// Adds the parameters `weight` `[rings, D_out, D_in]`, `self_weight` and `bias`.
    ///
    /// # Errors
    /// A name that is taken.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<GemConv> {
        builder.within(name, |builder| {
            let config = GaugeConv {
                input: self.input.clone(),
                output: self.output.clone(),
                rings: self.rings,
                max_radius: self.max_radius,
                aggregation: self.aggregation,
                self_term: self.self_term,
                bias: self.bias,
            };
            let variances = initialisation::conv_variances(&config, self.degree, &self.input_moments);
            let shape = [self.rings, self.output.dimension(), self.input.dimension()];
            let neighbour = builder.random("weight", &shape, Role::Weight, |place| variances.neighbour(place))?;
            let self_count = config.self_count();
            let self_term = match self_count {
                0 => None,
                count => {
                    Some(builder.random("self_weight", &[count], Role::Weight, |place| variances.self_term(place))?)
                }
            };
            let bias = match config.bias_count() {
                0 => None,
                count => Some(builder.constant("bias", &[count], Role::Offset, 0.0)?),
            };
            Ok(GemConv {
                name: builder.scope().into(),
                config: Arc::new(config),
                weights: ConvWeights { neighbour, self_term, bias },
            })
        })
    }
}

/// A gauge equivariant convolution:
///
/// ```text
/// y_p = K_self f_p + s_p sum_q K(theta_pq) rho(g_pq) f_q + bias
/// K(theta) = rho_out(theta) W rho_in(-theta)
/// ```
///
/// with `s_p` 1 for a sum, `1/|N(p)|` for a mean.
#[derive(Debug, Clone)]
pub struct GemConv {
    name: String,
    config: Arc<GaugeConv>,
    weights: ConvWeights,
}

impl<T: Real> Module<T> for GemConv {
    signature!(this: this.config.input => this.config.output, reach 1);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        tape.gauge_conv(&self.config, levels.graph()?, self.weights, x, None)
            .map_err(|error| error.in_layer(&self.name))
    }

    fn forward_added<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
        skipped: Var<T>,
    ) -> Result<Var<T>> {
        let (graph, skipped) = (levels.graph()?, Some(skipped));
        tape.gauge_conv(&self.config, graph, self.weights, x, skipped).map_err(|error| error.in_layer(&self.name))
    }
}

impl GemConv {
    /// Settings of the operator.
    pub fn config(&self) -> &Arc<GaugeConv> {
        &self.config
    }

    /// Ids of its parameters.
    pub fn weights(&self) -> ConvWeights {
        self.weights
    }
}
