//! The plain linear map on a GPU: one product forward, two backward. On Hopper, with many outputs and products that are
//! not in f32, the forward product is that of the classifier.

use super::{Backward, Forward};
use crate::Gpu;
use crate::classifier::hopper;
use crate::cuda::reduce::{ColumnPartials, RowProduct, RowProducts, fill_rows};
use crate::cuda::{CudaDevice, Operand, Product, Result};

pub(crate) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, rows, x, weight, bias, mut y } = pass;
    if hopper::stores_logits(device, op.inputs, x, weight, bias) {
        return hopper::logits(device, op.inputs, x, weight, bias, &y);
    }
    if op.inputs == 0 {
        device.clear(y.reborrow())?;
    }
    fill_rows(device, &y, (rows, op.outputs), bias)?;
    let (a, b) = (Operand::new(x, op.inputs), Operand::new(weight, op.inputs).transposed());
    let product = Product { m: rows, n: op.outputs, k: op.inputs, a, b, add: !bias.is_empty(), batches: 1 };
    product.run(device, &y, (op.outputs, 0))
}

pub(crate) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, rows, x, weight, dy, dx, dweight, dbias } = pass;
    let columns = ColumnPartials::new(device, dy, (rows, op.outputs, dbias.len()))?;
    if let Some(mut dx) = dx {
        if op.outputs == 0 {
            device.clear(dx.reborrow())?;
        }
        let (a, b) = (Operand::new(dy, op.outputs), Operand::new(weight, op.inputs));
        let product = Product { m: rows, n: op.inputs, k: op.outputs, a, b, add: false, batches: 1 };
        product.run(device, &dx, (op.inputs, 0))?;
    }
    if rows == 0 || dweight.is_empty() {
        return columns.add_to(device, &dbias);
    }
    let size = op.weight_count();
    let mut sums = RowProducts::new(device, rows, (size, size))?;
    let product = RowProduct { a: (dy, op.outputs), b: (x, op.inputs), m: op.outputs, n: op.inputs, place: 0 };
    sums.add(device, rows, &[product])?;
    sums.finish_with(device, &dweight, (&columns, &dbias))
}
