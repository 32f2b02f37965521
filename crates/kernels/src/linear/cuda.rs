//! The plain linear map on a GPU: one product forward, two backward. On Hopper, with many outputs and products that are
//! not in f32, the forward product is that of the classifier.

use super::{Linear, OPERATOR, few_inputs};
use crate::classifier::hopper;
use crate::cuda::reduce::{ColumnPartials, Columns, RowProduct, RowProducts, fill_rows};
use crate::cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut, Operand, Product, check_length};

/// `y = x W^T + bias`. Without a bias, `bias` is empty.
pub fn forward(
    device: &CudaDevice,
    op: &Linear,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    bias: DeviceSlice<'_, f32>,
    mut y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(rows, x, ("y", y.view()), weight, ("bias", bias))?;
    if hopper::stores_logits(device, op.inputs, x, weight, bias) {
        return hopper::logits(device, op.inputs, x, weight, bias, &y);
    }
    if few_inputs::applies(op, &[bias, y.view()]) {
        return few_inputs::forward(device, op, rows, x, weight, bias, &y);
    }
    if op.inputs == 0 {
        device.clear(y.reborrow())?;
    }
    fill_rows(device, &y, (rows, op.outputs), bias)?;
    Product {
        m: rows,
        n: op.outputs,
        k: op.inputs,
        a: Operand::new(x, op.inputs),
        b: Operand::new(weight, op.inputs).transposed(),
        add: !bias.is_empty(),
        batches: 1,
    }
    .run(device, &y, (op.outputs, 0))
}

/// Overwrites `dx` if it is given, and adds to `dweight` and `dbias`.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &Linear,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    dweight: DeviceSliceMut<'_, f32>,
    dbias: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(rows, x, ("dy", dy), weight, ("dbias", dbias.view()))?;
    if few_inputs::applies(op, &[dy]) {
        check_length(OPERATOR, "dweight", dweight.view(), op.weight_count())?;
        input_gradient(device, op, rows, x, weight, dy, dx)?;
        return few_inputs::gradients(device, op, rows, x, dy, &dweight, &dbias);
    }
    let columns = ColumnPartials::new(device, dy, (rows, op.outputs, dbias.len()))?;
    let columns = (&columns, &dbias);
    product_gradients(device, op, rows, x, weight, dy, dx, dweight, columns)
}

/// [`backward`], with sums of columns as the gradient of the bias.
#[allow(clippy::too_many_arguments)]
pub(super) fn product_gradients(
    device: &CudaDevice,
    op: &Linear,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    dweight: DeviceSliceMut<'_, f32>,
    columns: Columns<'_>,
) -> Result<(), CudaError> {
    check_length(OPERATOR, "dweight", dweight.view(), op.weight_count())?;
    input_gradient(device, op, rows, x, weight, dy, dx)?;
    if rows == 0 || dweight.is_empty() {
        let (sums, dbias) = columns;
        return sums.add_to(device, dbias);
    }
    let size = op.weight_count();
    let mut sums = RowProducts::new(device, rows, (size, size))?;
    let product = RowProduct { a: (dy, op.outputs), b: (x, op.inputs), m: op.outputs, n: op.inputs, place: 0 };
    sums.add(device, rows, &[product])?;
    sums.finish_with(device, &dweight, columns)
}

/// `dx = dy W`, if it is given.
fn input_gradient(
    device: &CudaDevice,
    op: &Linear,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    let Some(mut dx) = dx else { return Ok(()) };
    check_length(OPERATOR, "dx", dx.view(), x.len())?;
    if op.outputs == 0 {
        device.clear(dx.reborrow())?;
    }
    Product {
        m: rows,
        n: op.inputs,
        k: op.outputs,
        a: Operand::new(dy, op.outputs),
        b: Operand::new(weight, op.inputs),
        add: false,
        batches: 1,
    }
    .run(device, &dx, (op.inputs, 0))
}
