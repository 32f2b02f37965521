//! Any of the convolutions, with the settings that they share.

use super::{AngularConv, AngularConvConfig, GemConv, GemConvConfig, GraphConv, GraphConvConfig};
use crate::error::expect_scalars;
use crate::{Builder, GraphBatch, NnError, Tape, Var, text};
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use serde::{Deserialize, Serialize};

/// What the weights of a convolution may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernel {
    /// On the direction of the neighbour, equivariantly: a [`GemConv`] of features of any type.
    #[default]
    Gauge,
    /// On nothing: a [`GraphConv`] of scalars.
    Graph,
    /// On the angle of the neighbour in whatever frames there are: an [`AngularConv`] of scalars, which
    /// is not equivariant.
    Angular {
        /// Highest harmonic.
        band_limit: usize,
    },
}

/// How a convolution puts neighbours together, whatever its types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConvConfig {
    /// What its weights depend on; gauge equivariant by default.
    pub kernel: Kernel,
    /// How neighbours are put together; their sum by default.
    #[serde(with = "text::aggregation")]
    pub aggregation: Aggregation,
    /// Number of radial rings of a gauge kernel; 1 by default: it does not depend on the distance.
    pub rings: usize,
    /// Radius of the last ring, a fixed number of the data set; not used with one ring.
    pub max_radius: f64,
    /// Number of neighbours that first values are scaled for; 6 by default.
    pub degree: f64,
}

impl Default for ConvConfig {
    fn default() -> Self {
        let GemConvConfig {
            aggregation,
            rings,
            max_radius,
            degree,
            ..
        } = GemConvConfig::new(FeatureType::default(), FeatureType::default());
        Self {
            kernel: Kernel::default(),
            aggregation,
            rings,
            max_radius,
            degree,
        }
    }
}

impl ConvConfig {
    /// Adds the parameters of a convolution between two types. `moments` are as
    /// [`GemConvConfig::input_moments`].
    ///
    /// # Errors
    /// A name that is taken, or types or rings that the kernel does not know.
    pub fn init<T: Real>(
        &self,
        name: &str,
        [input, output]: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Convolution, NnError> {
        if self.kernel != Kernel::Gauge {
            self.check_scalar_kernel(input, output)
                .map_err(|error| error.in_layer(&builder.path(name)))?;
        }
        let (inputs, outputs) = (input.dimension(), output.dimension());
        let input_moment = moments.first().copied().unwrap_or(1.0);
        Ok(match self.kernel {
            Kernel::Gauge => {
                let config = GemConvConfig {
                    aggregation: self.aggregation,
                    rings: self.rings,
                    max_radius: self.max_radius,
                    degree: self.degree,
                    input_moments: moments.to_vec(),
                    ..GemConvConfig::new(input.clone(), output.clone())
                };
                Convolution::Gauge(config.init(name, builder)?)
            }
            Kernel::Graph => {
                let config = GraphConvConfig {
                    aggregation: self.aggregation,
                    degree: self.degree,
                    input_moment,
                    ..GraphConvConfig::new(inputs, outputs)
                };
                Convolution::Graph(config.init(name, builder)?)
            }
            Kernel::Angular { band_limit } => {
                let config = AngularConvConfig {
                    aggregation: self.aggregation,
                    degree: self.degree,
                    input_moment,
                    ..AngularConvConfig::new(inputs, outputs, band_limit)
                };
                Convolution::Angular(config.init(name, builder)?)
            }
        })
    }

    fn check_scalar_kernel(
        &self,
        input: &FeatureType,
        output: &FeatureType,
    ) -> Result<(), NnError> {
        expect_scalars("input", input)?;
        expect_scalars("output", output)?;
        match self.rings {
            1 => Ok(()),
            _ => Err(NnError::setting(
                "rings",
                "only gauge kernels have several; graph and angular kernels take 1",
            )),
        }
    }
}

/// A convolution of any kernel.
#[derive(Debug, Clone)]
pub enum Convolution {
    /// Gauge equivariant.
    Gauge(GemConv),
    /// Isotropic.
    Graph(GraphConv),
    /// Not equivariant.
    Angular(AngularConv),
}

impl Convolution {
    /// Convolves.
    ///
    /// # Shapes
    /// `x`: one row of the input type for each vertex; result: one row of the output type.
    ///
    /// # Errors
    /// Features of another type or number of rows.
    pub fn forward<'a, T: Real>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        match self {
            Self::Gauge(conv) => conv.forward(tape, batch, x),
            Self::Graph(conv) => conv.forward(tape, batch, x),
            Self::Angular(conv) => conv.forward(tape, batch, x),
        }
    }
}
