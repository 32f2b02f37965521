//! The linear map of scalars on a GPU with the pointwise function and the dropout that follow it. The bias is added
//! where the function is applied, and its gradient is summed where the gradient of the product is computed.

use super::cuda::product_gradients;
use super::{Backward, Forward, Linear, OPERATOR};
use crate::activation::cuda::{defines as activation_defines, variants as activations};
use crate::cuda::reduce::{ColumnPartials, MIN_COMPUTED_ROWS, Pieces};
use crate::cuda::{
    CudaDevice, CudaError, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, args,
    check_length, to_u32,
};
use crate::dropout::cuda::Drawn;
use crate::{Activation, Gpu};

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("activated", concat!(include_str!("../dropout/philox.cu"), include_str!("activated.cu")));

/// What follows a linear map.
#[derive(Debug, Clone, Copy)]
pub struct Then<'a> {
    /// The pointwise function.
    pub activation: &'a Activation,
    /// Dropout of the scalars of the result, if there is one.
    pub dropout: Option<Drawn<'a>>,
}

impl Then<'_> {
    fn defines(&self) -> Vec<Define> {
        with_dropout(activation_defines(self.activation), self.dropout.is_some())
    }
}

fn with_dropout(mut defines: Vec<Define>, dropout: bool) -> Vec<Define> {
    defines.push(("DROPOUT", u8::from(dropout).to_string()));
    defines
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    let both = |defines: Vec<Define>| [false, true].map(|drop| with_dropout(defines.clone(), drop));
    activations().into_iter().flat_map(both).collect()
}

impl Linear {
    /// True if [`forward`] and [`backward`] can do the work.
    pub fn can_be_activated(&self) -> bool {
        self.bias && self.inputs > 0 && self.outputs.is_multiple_of(4) && self.outputs <= 1024
    }
}

/// `z = x W^T`, and `y` of the pass = dropout(f(`z` + bias)).
///
/// # Errors
/// Sizes that are not supported ([`Linear::can_be_activated`]), buffers of the wrong length or not aligned to 16 bytes,
/// or a failed call.
pub fn forward(
    device: &CudaDevice,
    then: &Then<'_>,
    pass: Forward<'_, Gpu>,
    z: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    pass.check()?;
    let Forward { op, rows, x, weight, bias, y } = pass;
    check_length(OPERATOR, "z", z.view(), y.len())?;
    check(op, &[bias, z.view(), y.view()])?;
    Product {
        m: rows,
        n: op.outputs,
        k: op.inputs,
        a: Operand::new(x, op.inputs),
        b: Operand::new(weight, op.inputs).transposed(),
        add: false,
        batches: 1,
    }
    .run(device, &z, (op.outputs, 0))?;
    let fours = y.len() / 4;
    let (stream, salt, threshold, scale) = Drawn::numbers(then.dropout, op.outputs)?;
    let function = device.function(SOURCE, &then.defines(), "activate")?;
    // SAFETY: lengths and alignment were checked.
    unsafe {
        function.over(
            fours,
            args![z.view(), bias, &y, to_u32(OPERATOR, op.outputs / 4)?, stream, salt, threshold, scale, fours as u64,],
        )
    }
}

/// Overwrites `dx` of the pass if it is given, and adds to the gradients of the weights; `z` is that of [`forward`].
///
/// # Errors
/// As [`forward`].
pub fn backward(
    device: &CudaDevice,
    then: &Then<'_>,
    pass: Backward<'_, Gpu>,
    bias: DeviceSlice<'_, f32>,
    z: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    pass.check()?;
    let Backward { op, rows, x, weight, dy, dx, dweight, dbias } = pass;
    check_length(OPERATOR, "bias", bias, op.outputs)?;
    check_length(OPERATOR, "z", z, dy.len())?;
    check(op, &[bias, z, dy])?;
    let (fours, pieces) = (op.outputs / 4, Pieces::new(rows, op.outputs, MIN_COMPUTED_ROWS));
    let mut dz: DeviceBuffer<f32> = device.buffer(dy.len())?;
    let mut partials: DeviceBuffer<f64> = device.buffer(pieces.count * op.outputs)?;
    let size = |n: usize| to_u32(OPERATOR, n);
    let (stream, salt, threshold, scale) = Drawn::numbers(then.dropout, op.outputs)?;
    let function = device.function(SOURCE, &then.defines(), "activate_backward")?;
    // SAFETY: lengths and alignment were checked, and there is a partial sum for each block and column.
    unsafe {
        function.run(
            (pieces.count, 1),
            (fours, 256 / fours),
            args![
                z,
                bias,
                dy,
                &dz.view_mut(),
                size(fours)?,
                size(rows)?,
                size(pieces.rows_of_block)?,
                stream,
                salt,
                threshold,
                scale,
                &partials.view_mut(),
            ],
        )?;
    }
    let columns = ColumnPartials::of_partials(partials, op.outputs);
    product_gradients(device, Backward { op, rows, x, weight, dy: dz.view(), dx, dweight, dbias }, &columns)
}

fn check(op: &Linear, aligned: &[DeviceSlice<'_, f32>]) -> Result<(), CudaError> {
    let is_possible = op.can_be_activated() && aligned.iter().all(|slice| slice.is_aligned(4));
    match is_possible {
        true => Ok(()),
        false => Err(CudaError::Kernel(crate::KernelError::Setting {
            operator: OPERATOR,
            problem: "a function of its result needs a bias, and aligned rows of a multiple of 4 \
                      and at most 1,024 numbers"
                .into(),
        })),
    }
}
