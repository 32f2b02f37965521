//! Activation functions on a GPU.

use super::{Activation, Backward, Forward};
use crate::Gpu;
use crate::cuda::{CudaDevice, Define, KernelSource, Result, args};

pub(crate) const SOURCE: KernelSource = KernelSource::new("activation", include_str!("activation.cu"));

/// The macros that select an activation.
pub(crate) fn defines(activation: &Activation) -> Vec<Define> {
    let number = match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Elu => 2,
        Activation::Gelu => 3,
        Activation::Tanh => 4,
        Activation::Polynomial(_) => 5,
    };
    let mut defines = vec![("ACTIVATION", number.to_string())];
    if let Activation::Polynomial(coefficients) = activation {
        defines.push(("COEFFICIENTS", literals(coefficients.iter().copied())));
    }
    defines
}

/// A list of CUDA C++ literals; a zero if it is empty.
pub(crate) fn literals(values: impl IntoIterator<Item = f64>) -> String {
    let list: Vec<String> = values
        .into_iter()
        .map(|value| {
            let value = value as f32;
            if value.is_finite() {
                format!("{value:e}f")
            } else {
                format!("__int_as_float({})", value.to_bits() as i32)
            }
        })
        .collect();
    if list.is_empty() { "0.0f".into() } else { list.join(",") }
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [
        Activation::Identity,
        Activation::Relu,
        Activation::Elu,
        Activation::Gelu,
        Activation::Tanh,
        Activation::Polynomial(vec![0.5, -1.0, 3e-5]),
    ]
    .map(|activation| defines(&activation))
    .into()
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { activation, x, y } = pass;
    let function = device.function(SOURCE, &defines(activation), "activation_forward")?;
    // SAFETY: both slices have the same length.
    unsafe { function.over_fours(x.len(), args![x, &y, x.len() as u64]) }
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { activation, x, dy, dx } = pass;
    let function = device.function(SOURCE, &defines(activation), "activation_backward")?;
    // SAFETY: all slices have the same length.
    unsafe { function.over_fours(x.len(), args![x, dy, &dx, x.len() as u64]) }
}

#[cfg(test)]
mod tests {
    use super::literals;

    #[test]
    fn literals_are_floats_of_cuda() {
        assert_eq!(literals([1.0, -0.5, 3e-9]), "1e0f,-5e-1f,3e-9f");
        assert_eq!(literals([]), "0.0f");
        assert_eq!(literals([1e300]), "__int_as_float(2139095040)");
    }
}
