//! The equivariant linear map on a GPU: the weights of each order are laid out as a full matrix, and each
//! order is one product. Order 0 alone needs no layout.

use super::{Backward, Block, Forward, SelfMap, blocks};
use crate::cuda::reduce::{ColumnPartials, RowProduct, RowProducts, SignedTable, fill_rows};
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, Operand, Product, Result, key};
use crate::linear::{self, Linear};
use crate::{FeatureType, Gpu};
use std::sync::Arc;

/// The full matrices `[in, out]` of all orders, concatenated.
#[derive(Debug)]
pub(crate) struct Plan {
    blocks: Vec<(Block, usize)>,
    numbers: usize,
    fill: SignedTable,
    fold: SignedTable,
}

impl Plan {
    pub fn new(device: &CudaDevice, op: &SelfMap) -> Result<Arc<Self>> {
        device.table("self_map", key(&[&op.input, &op.output]), || {
            let mut numbers = 0;
            let (mut placed, mut parts) = (Vec::new(), Vec::new());
            for block in blocks(&op.input, &op.output) {
                let (inputs, outputs) = (block.in_width(), block.out_width());
                for from in 0..inputs {
                    for to in 0..outputs {
                        let part = block.part(to, from);
                        let place = numbers + from * outputs + to;
                        parts.push((place, part.weight, part.negative));
                    }
                }
                placed.push((block, numbers));
                numbers += inputs * outputs;
            }
            let folded = parts.iter().map(|&(place, weight, negative)| (weight, place, negative));
            Ok(Self {
                blocks: placed,
                numbers,
                fill: SignedTable::new(device, numbers, 1, parts.iter().copied())?,
                fold: SignedTable::new(device, op.parameter_count(), 2, folded)?,
            })
        })
    }

    pub fn matrices(&self, device: &CudaDevice, weight: DeviceSlice<'_, f32>) -> Result<DeviceBuffer<f32>> {
        let mut matrices = device.buffer(self.numbers)?;
        let to = matrices.view_mut();
        let nothing = DeviceSliceMut::empty();
        self.fill.apply(device, [weight, DeviceSlice::empty()], [&to, &nothing], false)?;
        Ok(matrices)
    }

    /// Adds gradients of the matrices to those of the weights.
    pub fn add_gradients(
        &self,
        device: &CudaDevice,
        matrices: DeviceSlice<'_, f32>,
        dweight: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let nothing = DeviceSliceMut::empty();
        let from = [matrices, DeviceSlice::empty()];
        self.fold.apply(device, from, [dweight, &nothing], true)
    }
}

/// The matrices of a map as factors of products.
struct Factors<'a> {
    /// `None` if order 0 is alone: the weights `[out, in]` are its matrix.
    laid_out: Option<DeviceBuffer<f32>>,
    weight: DeviceSlice<'a, f32>,
}

impl<'a> Factors<'a> {
    fn new(device: &CudaDevice, plan: &Plan, weight: DeviceSlice<'a, f32>) -> Result<Self> {
        let alone = plan.blocks.iter().all(|(block, _)| block.order == 0);
        let laid_out = if alone { None } else { Some(plan.matrices(device, weight)?) };
        Ok(Self { laid_out, weight })
    }

    /// `[in, out]`.
    fn of(&self, &(block, place): &(Block, usize)) -> Operand<'_> {
        match &self.laid_out {
            Some(matrices) => Operand::new(matrices.view().from(place), block.out_width()),
            None => Operand::new(self.weight, block.in_width()).transposed(),
        }
    }
}

impl SelfMap {
    /// The same map if all features are scalars.
    fn of_scalars(&self) -> Option<Linear> {
        let is_plain = [&self.input, &self.output].map(|kind| kind.highest_order() == 0);
        (is_plain == [true, true]).then(|| Linear {
            inputs: self.input.dimension(),
            outputs: self.output.dimension(),
            bias: self.bias,
        })
    }
}

/// True if every order of `kind` is one of the blocks, so that the products write all of it.
fn covers(plan: &Plan, kind: &FeatureType) -> bool {
    plan.blocks.len() == kind.orders().count()
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, rows, x, weight, bias, mut y } = pass;
    if let Some(map) = op.of_scalars() {
        return linear::cuda::forward(device, linear::Forward { op: &map, rows, x, weight, bias, y });
    }
    let plan = Plan::new(device, op)?;
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    if !covers(&plan, &op.output) {
        device.clear(y.reborrow())?;
    }
    fill_rows(device, &y, (rows, outputs), bias)?;
    let factors = Factors::new(device, &plan, weight)?;
    for placed in &plan.blocks {
        let block = &placed.0;
        let (a, b) = (Operand::new(x.from(block.in_start), inputs), factors.of(placed));
        Product {
            m: rows,
            n: block.out_width(),
            k: block.in_width(),
            a,
            b,
            add: block.order == 0 && !bias.is_empty(),
            batches: 1,
        }
        .run(device, &y.reborrow().slice(block.out_start..usize::MAX), (outputs, 0))?;
    }
    Ok(())
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, rows, x, weight, dy, dx, dweight, dbias } = pass;
    if let Some(map) = op.of_scalars() {
        let pass = linear::Backward { op: &map, rows, x, weight, dy, dx, dweight, dbias };
        return linear::cuda::backward(device, pass);
    }
    let plan = Plan::new(device, op)?;
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    if let Some(mut dx) = dx {
        if !covers(&plan, &op.input) {
            device.clear(dx.reborrow())?;
        }
        let factors = Factors::new(device, &plan, weight)?;
        for placed in &plan.blocks {
            let block = &placed.0;
            let (a, b) = (Operand::new(dy.from(block.out_start), outputs), factors.of(placed).transposed());
            let product = Product { m: rows, n: block.in_width(), k: block.out_width(), a, b, add: false, batches: 1 };
            product.run(device, &dx.reborrow().slice(block.in_start..usize::MAX), (inputs, 0))?;
        }
    }
    let columns = ColumnPartials::new(device, dy, (rows, outputs, dbias.len()))?;
    if rows == 0 || plan.numbers == 0 {
        return columns.add_to(device, &dbias);
    }
    let columns = (&columns, &dbias);
    let sizes = plan.blocks.iter().map(|(block, _)| block.in_width() * block.out_width());
    let sizes = (plan.numbers, sizes.max().unwrap_or(0));
    let mut sums = RowProducts::new(device, rows, sizes)?;
    let products: Vec<RowProduct<'_>> = plan
        .blocks
        .iter()
        .map(|&(block, place)| RowProduct {
            a: (x.from(block.in_start), inputs),
            b: (dy.from(block.out_start), outputs),
            m: block.in_width(),
            n: block.out_width(),
            place,
        })
        .collect();
    sums.add(device, rows, &products)?;
    let (partials, count) = sums.partials();
    let (sizes, nothing) = ((count, plan.numbers), DeviceSliceMut::empty());
    (plan.fold).fold_partials(device, partials, sizes, [&dweight, &nothing], columns)
}
