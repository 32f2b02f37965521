//! Convolutions with any kernel, and their common settings.

use super::{AngularConvConfig, GemConvConfig};
use crate::error::expect_scalars;
use crate::{Builder, Module, NnError, Result};
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::fmt;
use std::sync::Arc;

/// The kernel of a convolution: which properties of a neighbour its weights depend on. Implement it to use a
/// convolution of your own in blocks and networks ([`NetworkConfig::kernel`](crate::NetworkConfig::kernel)).
pub trait Kernel<T: Real>: fmt::Debug + Send + Sync {
    /// Adds the parameters of a convolution and returns it. `types` are those of input and output, and `moments` are
    /// the [`GemConvConfig::input_moments`].
    ///
    /// Parameters are added with `builder.within(name, ...)`, so that their names are unique. The module may use the
    /// graph: the convolutions and blocks of a network refuse features of whole meshes
    /// ([`Stage::pooled`](crate::Stage::pooled)). A [`LayerConfig`](crate::LayerConfig) that uses a kernel must check
    /// it.
    ///
    /// # Errors
    /// A name that is taken, or types or settings that the kernel does not support.
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        types: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>>;
}

/// A kernel that is chosen at run time.
impl<T: Real, K: Kernel<T> + ?Sized> Kernel<T> for Arc<K> {
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        types: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        (**self).init(config, name, types, moments, builder)
    }
}

/// Weights depend on the direction of the neighbour, equivariantly: a [`GemConv`](super::GemConv) of
/// features of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauge;

/// All neighbours share the same weights: a [`GemConv`](super::GemConv) of scalars, whose kernel can only be isotropic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Isotropic;

/// Weights depend on the angle of the neighbour in the given frames: an
/// [`AngularConv`](super::AngularConv) of scalars, which is not equivariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Angular {
    /// Highest harmonic.
    pub band_limit: usize,
}

/// Settings of a convolution, without its types.
#[derive(Debug, Clone)]
pub struct ConvConfig<T> {
    /// The kernel (default: [`Gauge`]).
    pub kernel: Arc<dyn Kernel<T>>,
    /// Aggregation over neighbours (default: sum).
    pub aggregation: Aggregation,
    /// Number of radial rings of a gauge kernel. With 1, the default, it does not depend on the distance.
    pub rings: usize,
    /// Radius of the last ring, in units of the mesh and the same for all meshes; unused with one ring.
    pub max_radius: f64,
    /// Number of neighbours that the initialisation assumes (default 6).
    pub degree: f64,
}

impl<T: Real> Default for ConvConfig<T> {
    fn default() -> Self {
        let GemConvConfig { aggregation, rings, max_radius, degree, .. } =
            GemConvConfig::new(FeatureType::default(), FeatureType::default());
        Self { kernel: Arc::new(Gauge), aggregation, rings, max_radius, degree }
    }
}

impl<T: Real> ConvConfig<T> {
    /// Adds the parameters of a convolution and returns it, as [`Kernel::init`].
    pub fn init(
        &self,
        name: &str,
        types: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        self.kernel.init(self, name, types, moments, builder)
    }

    /// Checks that a kernel of scalars fits; returns its inputs, outputs and input moment.
    fn scalar_settings(&self, [input, output]: [&FeatureType; 2], moments: &[f64]) -> Result<(usize, usize, f64)> {
        expect_scalars("input", input)?;
        expect_scalars("output", output)?;
        if self.rings != 1 {
            return Err(NnError::setting(
                "rings",
                "only gauge kernels have several; isotropic and angular kernels take 1",
            ));
        }
        let moment = moments.first().copied().unwrap_or(1.0);
        Ok((input.dimension(), output.dimension(), moment))
    }
}

impl<T: Real> Kernel<T> for Gauge {
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        [input, output]: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        let config = GemConvConfig {
            aggregation: config.aggregation,
            rings: config.rings,
            max_radius: config.max_radius,
            degree: config.degree,
            input_moments: moments.to_vec(),
            ..GemConvConfig::new(input.clone(), output.clone())
        };
        Ok(Box::new(config.init(name, builder)?))
    }
}

impl<T: Real> Kernel<T> for Isotropic {
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        types: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        config.scalar_settings(types, moments).map_err(|error| error.in_layer(&builder.path(name)))?;
        Gauge.init(config, name, types, moments, builder)
    }
}

impl<T: Real> Kernel<T> for Angular {
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        types: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        let settings = config.scalar_settings(types, moments);
        let (inputs, outputs, input_moment) = settings.map_err(|error| error.in_layer(&builder.path(name)))?;
        let config = AngularConvConfig {
            aggregation: config.aggregation,
            degree: config.degree,
            input_moment,
            ..AngularConvConfig::new(inputs, outputs, self.band_limit)
        };
        Ok(Box::new(config.init(name, builder)?))
    }
}
