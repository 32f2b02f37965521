//! Diffusion on surfaces without eigenvectors.

use crate::{Builder, HeatBatch, Levels, Module, NnError, ParameterId, Result, Role, Tape, Var, signature};
use gemcnn_kernels::elementwise::Slice;
use gemcnn_kernels::implicit::Implicit;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Settings of an [`ImplicitDiffusion`].
#[derive(Debug, Clone, PartialEq)]
pub struct ImplicitDiffusionConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Appends the gradients of the diffused scalars as channels of order 1 (default false).
    pub gradients: bool,
    /// The times, for surfaces of unit area (default `[0.001, 0.01, 0.1]`).
    pub times: Vec<f64>,
}

impl ImplicitDiffusionConfig {
    /// Default settings.
    pub fn new(input: FeatureType) -> Self {
        Self { input, gradients: false, times: vec![1e-3, 1e-2, 0.1] }
    }

    /// Adds the parameter `mix`, a factor for each time and irrep, initialised uniformly with a mean sum of 1.
    ///
    /// # Errors
    /// A name that is taken, or times that are not positive.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<ImplicitDiffusion> {
        let good = self.times.iter().all(|t| t.is_finite() && *t > 0.0);
        if self.times.is_empty() || !good {
            let problem = format!("{:?} must be positive numbers", self.times);
            return Err(NnError::setting("times of an implicit diffusion", problem));
        }
        builder.within(name, |builder| {
            let config = Implicit { features: self.input.clone(), times: self.times.clone() };
            let shape = [config.times.len(), config.irreps()];
            let range = 0.0..=2.0 / shape[0] as f64;
            let mix = builder.uniform("mix", &shape, Role::Offset, range)?;
            let scalars = self.input.multiplicity(0);
            let gradients = FeatureType::new(&[0, if self.gradients { scalars } else { 0 }]);
            let slice = Slice { kind: self.input.clone(), channels: std::iter::once(0..scalars).collect() };
            Ok(ImplicitDiffusion {
                name: builder.scope().into(),
                mix,
                scalars: self.gradients.then(|| Arc::new(slice)),
                output: self.input.concatenated(&gradients),
                config: Arc::new(config),
            })
        })
    }
}

/// Implicit diffusion of each channel for a few fixed times, and a learned sum of the results. It needs no
/// eigenvectors, does not depend on the frames, and hardly on the meshing.
#[derive(Debug, Clone)]
pub struct ImplicitDiffusion {
    name: String,
    mix: ParameterId,
    /// Selects the scalars, if their gradients are wanted.
    scalars: Option<Arc<Slice>>,
    output: FeatureType,
    config: Arc<Implicit>,
}

impl<T: Real> Module<T> for ImplicitDiffusion {
    signature!(this: this.config.features => this.output);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let run = || {
            let heat: &HeatBatch<T> = levels.get()?;
            let y = tape.diffuse_implicitly(heat, &self.config, self.mix, x)?;
            let Some(scalars) = &self.scalars else { return Ok(y) };
            let scalars = tape.slice(scalars, y.clone())?;
            let gradients = tape.surface_gradient(heat, scalars)?;
            tape.concatenate(y, gradients)
        };
        run().map_err(|error: NnError| error.in_layer(&self.name))
    }
}
