//! Settings of operators as Python gives them.

use crate::errors;
use gemcnn_kernels::{Activation, FeatureType};
use pyo3::PyResult;

/// The feature type of a text.
pub fn kind(text: &str) -> PyResult<FeatureType> {
    text.parse().map_err(errors::operator)
}

/// The activation of a word.
pub fn activation(word: &str) -> PyResult<Activation> {
    Ok(match word {
        "identity" => Activation::Identity,
        "relu" => Activation::Relu,
        "elu" => Activation::Elu,
        "gelu" => Activation::Gelu,
        "tanh" => Activation::Tanh,
        other => {
            let problem = "is no activation; they are identity, relu, elu, gelu and tanh";
            return Err(errors::operator(format!("`{other}` {problem}")));
        }
    })
}

/// Calls `$body` with `$T` the type of a tensor.
macro_rules! by_type {
    ($tensor:expr, $T:ident => $body:expr) => {
        match &*$crate::tensor::dtype($tensor)? {
            "torch.float32" => {
                type $T = f32;
                $body
            }
            "torch.float64" if !$tensor.getattr("is_cuda")?.extract::<bool>()? => {
                type $T = f64;
                $body
            }
            other => Err($crate::errors::operator(format!(
                "features of type {other} are not supported: use torch.float32, or torch.float64 on the CPU"
            ))),
        }
    };
}
pub(crate) use by_type;
