//! The interface of nonlinearities in blocks and networks.

use super::Regular;
use crate::{Builder, Module, Result};
use gemcnn_kernels::{FeatureType, Real};
use std::fmt;
use std::sync::Arc;

/// Settings of a nonlinearity, without the type of its features. Implement it to use a nonlinearity of your own in
/// blocks and networks.
///
/// ```
/// use gemcnn_nn::layers::{Gates, Nonlinearity, Regular};
/// let hidden = "4x0 + 2x1".parse()?;
/// // Gates need two more scalars, one for each of the two vectors.
/// assert_eq!(Nonlinearity::<f32>::input(&Gates::relu(), &hidden).to_string(), "6x0 + 2x1");
/// assert_eq!(Nonlinearity::<f32>::input(&Regular::relu(5), &hidden), hidden);
/// # Ok::<(), gemcnn_nn::ParseTypeError>(())
/// ```
pub trait Nonlinearity<T: Real>: fmt::Debug + Send + Sync {
    /// First part of the name of the layer in a network, such as `regular`. Its position is the second part.
    fn word(&self) -> &'static str;

    /// Type of the input for an output of type `output` (default: the same type).
    fn input(&self, output: &FeatureType) -> FeatureType {
        output.clone()
    }

    /// Type of the output for an input of type `input` (default: the same type).
    ///
    /// # Errors
    /// An unsupported type.
    fn output(&self, input: &FeatureType) -> Result<FeatureType> {
        Ok(input.clone())
    }

    /// Mean square of an output component of each order for standard normal input, for the initialisation
    /// of the next layer; 1 for orders that are not listed (default: none listed).
    fn moments(&self, _output: &FeatureType) -> Vec<f64> {
        Vec::new()
    }

    /// The settings of a nonlinearity that is [`Regular`], for layers that compute it together with their maps
    /// (default: none).
    fn as_regular(&self) -> Option<&Regular> {
        None
    }

    /// Adds the parameters of the layer and returns it. `output` is the type of its output.
    ///
    /// Parameters are added with `builder.within(name, ...)`, so that their names are unique. The layer acts on each
    /// row and may follow a global pooling, so it must not use the graph. A layer that needs vertices is a
    /// [`LayerConfig`](crate::LayerConfig), which must check [`Stage::pooled`](crate::Stage::pooled).
    ///
    /// # Errors
    /// A name that is taken, or an unsupported type.
    fn init(&self, name: &str, output: &FeatureType, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>>;
}

/// A nonlinearity that is chosen at run time.
impl<T: Real, N: Nonlinearity<T> + ?Sized> Nonlinearity<T> for Arc<N> {
    fn word(&self) -> &'static str {
        (**self).word()
    }

    fn input(&self, output: &FeatureType) -> FeatureType {
        (**self).input(output)
    }

    fn output(&self, input: &FeatureType) -> Result<FeatureType> {
        (**self).output(input)
    }

    fn moments(&self, output: &FeatureType) -> Vec<f64> {
        (**self).moments(output)
    }

    fn as_regular(&self) -> Option<&Regular> {
        (**self).as_regular()
    }

    fn init(&self, name: &str, output: &FeatureType, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        (**self).init(name, output, builder)
    }
}

/// One channel of each order that occurs: all channels of an order have the same moment.
pub(super) fn one_channel_each(kind: &FeatureType) -> FeatureType {
    let present: Vec<usize> = kind.multiplicities().iter().map(|&m| m.min(1)).collect();
    FeatureType::new(&present)
}
