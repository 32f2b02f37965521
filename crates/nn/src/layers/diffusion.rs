//! Learned diffusion on surfaces.

use crate::operators::DiffusionWeights;
use crate::{Builder, Levels, Module, NnError, Result, Role, Tape, Var, signature};
use gemcnn_kernels::{FeatureType, Real};

/// Settings of a [`Diffusion`] layer.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffusionConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Appends the gradient of each diffused scalar to the output, as a channel of order 1 (default false).
    pub gradients: bool,
    /// Shortest and longest time at initialisation, for surfaces of unit area (default `[1e-3, 0.3]`). The logarithms
    /// are uniformly distributed.
    pub times: [f64; 2],
}

impl DiffusionConfig {
    /// Default settings.
    pub fn new(input: FeatureType) -> Self {
        Self { input, gradients: false, times: [1e-3, 0.3] }
    }

    /// Adds the parameters `log_time` and `band`, one number for each irrep. Bands are initialised to zero.
    ///
    /// # Errors
    /// A name that is taken, or times that are not positive and in order.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<Diffusion> {
        let [low, high] = self.times;
        if !(low > 0.0 && high >= low && high.is_finite()) {
            let problem = format!("[{low}, {high}] must be positive, the shorter time first");
            return Err(NnError::setting("times of a diffusion", problem));
        }
        builder.within(name, |builder| {
            let count = self.input.multiplicities().iter().sum();
            let (low, high) = (low.ln(), high.ln());
            let log_times = builder.uniform("log_time", &[count], Role::Offset, low..=high)?;
            let bands = builder.constant("band", &[count], Role::Offset, 0.0)?;
            let gradients = match self.gradients {
                true => FeatureType::new(&[0, self.input.multiplicity(0)]),
                false => FeatureType::default(),
            };
            Ok(Diffusion {
                name: builder.scope().into(),
                weights: DiffusionWeights { log_times, bands },
                gradients: self.gradients,
                output: self.input.concatenated(&gradients),
                input: self.input.clone(),
            })
        })
    }
}

/// Diffusion of each channel for a learned time, in the eigenbasis of the connection Laplacian of its order. It does
/// not depend on the frames, and hardly on the meshing.
#[derive(Debug, Clone)]
pub struct Diffusion {
    name: String,
    weights: DiffusionWeights,
    gradients: bool,
    input: FeatureType,
    output: FeatureType,
}

impl Diffusion {
    /// Ids of its parameters.
    pub fn weights(&self) -> DiffusionWeights {
        self.weights
    }
}

impl<T: Real> Module<T> for Diffusion {
    signature!(this: this.input => this.output);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let run = || {
            x.expect_kind("input of a diffusion", &self.input)?;
            tape.diffuse(levels.get()?, self.weights, self.gradients, x)
        };
        run().map_err(|error| error.in_layer(&self.name))
    }
}
