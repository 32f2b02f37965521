//! The gauge convolution on a GPU: neighbours are gathered into rows that hold all terms of the result, for
//! as many vertices as fit in a tile, and every order of the result is one matrix product.

use super::stacked::{Order, Stack};
use super::{GaugeConv, OPERATOR, Weights};
use crate::aggregate::Direction;
use crate::aggregate::cuda::{GatherPlan, GatherRun, TensorProduct};
use crate::cuda::reduce::{RowProduct, RowProducts, SignedTable, add_column_sums, fill_rows};
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceGraphView, DeviceSlice, DeviceSliceMut, Operand,
    Product, ProductMode, check_length, key, to_u32,
};
use crate::{FeatureType, KernelError};
use std::sync::Arc;

/// One direction of a convolution, prepared for the device.
#[derive(Debug)]
struct Plan {
    gather: GatherPlan,
    orders: Vec<Order>,
    /// Length of a gathered row.
    row: usize,
    /// Length of all stacked weights.
    weights: usize,
    /// Length of a result vector.
    result: usize,
    /// Stacked weights from weights.
    stack: SignedTable,
    /// The product on tensor cores, if rows and weights are small enough.
    fused: Option<Fused>,
    /// Gradients of the weights from those of the stacked ones.
    fold: SignedTable,
}

/// How rows in shared memory are multiplied on tensor cores.
#[derive(Debug)]
struct Fused {
    /// As [`TensorProduct::columns`].
    columns: DeviceBuffer<[u32; 8]>,
    /// Stride of the rows.
    stride: usize,
    /// Length of the stacked weights, with zeros for the terms and columns that complete a step.
    weights: usize,
    /// Stacked weights from weights.
    stack: SignedTable,
}

/// Largest number of stacked weights that every block of vertices reads again: 128 KiB stay in the caches.
const MOST_FUSED_WEIGHTS: usize = 1 << 15;

/// Terms of one step of a product on tensor cores, and columns of the result.
const STEP: usize = 16;

impl Fused {
    /// For a layout with these parts of the stacked weights: `(place, weight, negative)`.
    fn new(
        device: &CudaDevice,
        stack: &Stack<'_>,
        gather: &GatherPlan,
        parts: &[(usize, usize, bool)],
    ) -> Result<Option<Self>, CudaError> {
        let (mut columns, mut places) = (Vec::new(), vec![0; stack.weights]);
        let (mut weights, mut reach) = (0, stack.row);
        for order in &stack.orders {
            let steps = order.terms.div_ceil(STEP);
            reach = reach.max(order.start + steps * STEP);
            for first in (0..order.width).step_by(STEP) {
                let count = STEP.min(order.width - first);
                let start = [order.start, steps, weights / 4, order.result + first, count];
                let mut entry = [0; 8];
                for (entry, value) in entry.iter_mut().zip(start) {
                    *entry = to_u32(OPERATOR, value)?;
                }
                columns.push(entry);
                for term in 0..order.terms {
                    for column in 0..count {
                        let place = order.weights + term * order.width + first + column;
                        places[place] = weights + fragment_place(term, column);
                    }
                }
                weights += steps * STEP * STEP;
            }
        }
        // Rows that start 4 banks apart, so that 8 rows by 4 terms are read at once.
        let stride = (reach + 3) / 8 * 8 + 4;
        if weights > MOST_FUSED_WEIGHTS || !gather.fits_in_shared_memory(stride) {
            return Ok(None);
        }
        let parts = parts
            .iter()
            .map(|&(place, weight, negative)| (places[place], weight, negative));
        Ok(Some(Self {
            columns: device.upload(&columns)?,
            stride,
            weights,
            stack: SignedTable::new(device, weights, 1, parts)?,
        }))
    }
}

impl Fused {
    fn product<'a>(&'a self, stacked: DeviceSlice<'a, f32>) -> TensorProduct<'a> {
        TensorProduct {
            stacked,
            columns: &self.columns,
            stride: self.stride,
        }
    }
}

/// Index of a weight among those of its 16 columns: lane `4 g + t` of half `h` takes the terms `t`, `t + 4`,
/// `t + 8` and `t + 12` of each step for the column `8 h + g`, one after the other.
fn fragment_place(term: usize, column: usize) -> usize {
    let (step, term) = (term / STEP, term % STEP);
    let (half, g) = (column / 8, column % 8);
    ((step * 2 + half) * 32 + 4 * g + term % 4) * 4 + term / 4
}

impl Plan {
    fn new(
        device: &CudaDevice,
        op: &GaugeConv,
        columns: usize,
        direction: Direction,
    ) -> Result<Arc<Self>, CudaError> {
        let mut settings = key(&[&op.input, &op.output]);
        let [rings, radius] = [op.rings, op.max_radius.to_bits() as usize];
        settings.extend([
            rings,
            radius,
            columns,
            usize::from(op.self_term),
            usize::from(direction == Direction::Backward),
        ]);
        device.table("gauge_conv", settings, || {
            let stack = Stack::new(op, columns, direction);
            let source: &FeatureType = match direction {
                Direction::Forward => &op.input,
                Direction::Backward => &op.output,
            };
            let own: Vec<[u32; 4]> = stack
                .own
                .iter()
                .map(|own| [own.from, own.to, own.width, 0].map(|n| n as u32))
                .collect();
            let neighbours = op.neighbour_count();
            let mut parts = Vec::with_capacity(stack.weights);
            let mut own_parts = Vec::new();
            stack.visit(
                |place, weight, negative| parts.push((place, weight, negative)),
                |place, part| own_parts.push((place, neighbours + part.weight, part.negative)),
            );
            parts.append(&mut own_parts);
            let folded = parts
                .iter()
                .map(|&(place, weight, negative)| (weight, place, negative));
            let parameters = neighbours + op.self_count();
            // Numbers of places of a weight: as part of a real matrix, or of a complex number times another.
            let places = if columns > 1 { 4 } else { 2 };
            let gather = GatherPlan::new(
                device,
                source,
                stack.gather.rows(),
                (stack.gather.harmonic_count(), op.radial(), columns),
                &own,
                stack.row,
            )?;
            Ok(Self {
                fused: Fused::new(device, &stack, &gather, &parts)?,
                gather,
                stack: SignedTable::new(device, stack.weights, 1, parts.iter().copied())?,
                fold: SignedTable::new(device, parameters, places, folded)?,
                orders: stack.orders,
                row: stack.row,
                weights: stack.weights,
                result: stack.result,
            })
        })
    }

    /// Vertices of a tile.
    fn chunk(&self, device: &CudaDevice, vertices: usize) -> usize {
        let fitting = device.tile_bytes() / (4 * self.row.max(1));
        if fitting >= vertices {
            vertices.max(1)
        } else {
            (fitting / 256 * 256).max(1024)
        }
    }

    /// The product on tensor cores, if it is possible and the device uses tf32.
    fn fused(&self, device: &CudaDevice) -> Option<&Fused> {
        self.fused
            .as_ref()
            .filter(|_| device.product_mode() != ProductMode::F32 && device.capability() >= (8, 0))
    }

    fn stacked(
        &self,
        device: &CudaDevice,
        weights: Weights<DeviceSlice<'_, f32>>,
    ) -> Result<DeviceBuffer<f32>, CudaError> {
        let (stack, count) = match self.fused(device) {
            Some(fused) => (&fused.stack, fused.weights),
            None => (&self.stack, self.weights),
        };
        let mut stacked = device.buffer(count)?;
        let from = [weights.neighbour, weights.self_term];
        let to = stacked.view_mut();
        stack.apply(device, from, [&to, &DeviceSliceMut::empty()], false)?;
        Ok(stacked)
    }

    /// `result = rows x stacked weights`, order by order; orders for which `add` says so are added to.
    fn multiply(
        &self,
        device: &CudaDevice,
        (first, count): (usize, usize),
        rows: DeviceSlice<'_, f32>,
        stacked: DeviceSlice<'_, f32>,
        result: &mut DeviceSliceMut<'_, f32>,
        add_to_scalars: bool,
    ) -> Result<(), CudaError> {
        for order in &self.orders {
            let start = first * self.result + order.result;
            Product {
                m: count,
                n: order.width,
                k: order.terms,
                a: Operand::new(rows.from(order.start), self.row),
                b: Operand::new(stacked.from(order.weights), order.width),
                add: add_to_scalars && order.order == 0,
                batches: 1,
            }
            .run(
                device,
                &result.reborrow().slice(start..usize::MAX),
                (self.result, 0),
            )?;
        }
        Ok(())
    }
}

impl GaugeConv {
    fn check_device(
        &self,
        graph: DeviceGraphView<'_>,
        x: DeviceSlice<'_, f32>,
        (y_name, y): (&'static str, DeviceSlice<'_, f32>),
        weights: Weights<DeviceSlice<'_, f32>>,
    ) -> Result<(), KernelError> {
        self.radial().check(OPERATOR)?;
        let vertices = graph.vertex_count();
        for (name, values, expected) in [
            ("x", x, vertices * self.input.dimension()),
            (y_name, y, vertices * self.output.dimension()),
            (
                "neighbour weights",
                weights.neighbour,
                self.neighbour_count(),
            ),
            ("self weights", weights.self_term, self.self_count()),
            ("bias", weights.bias, self.bias_count()),
        ] {
            check_length(OPERATOR, name, values, expected)?;
        }
        Ok(())
    }
}

/// Overwrites `y` with the convolution of `x`.
///
/// # Errors
/// Buffers of the wrong length, invalid settings, or a failed call.
pub fn forward(
    device: &CudaDevice,
    op: &GaugeConv,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: Weights<DeviceSlice<'_, f32>>,
    mut y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check_device(graph, x, ("y", y.view()), weights)?;
    let vertices = graph.vertex_count();
    if op.input.dimension() == 0 {
        device.clear(y.reborrow())?;
        return fill_rows(device, &y, (vertices, op.output.dimension()), weights.bias);
    }
    if y.is_empty() {
        return Ok(());
    }
    let plan = Plan::new(device, op, graph.columns(), Direction::Forward)?;
    let stacked = plan.stacked(device, weights)?;
    if let Some(fused) = plan.fused(device) {
        return plan.gather.convolve(
            device,
            &GatherRun {
                edges: graph.edges(),
                reversed: false,
                aggregation: op.aggregation,
                x,
                vertices: (0, vertices),
                out: &DeviceSliceMut::empty(),
                bias: (weights.bias, &y, plan.result),
            },
            &fused.product(stacked.view()),
        );
    }
    let chunk = plan.chunk(device, vertices);
    let mut rows = device.buffer(chunk.min(vertices) * plan.row)?;
    for first in (0..vertices).step_by(chunk) {
        let count = chunk.min(vertices - first);
        plan.gather.run(
            device,
            &GatherRun {
                edges: graph.edges(),
                reversed: false,
                aggregation: op.aggregation,
                x,
                vertices: (first, count),
                out: &rows.view_mut(),
                bias: (weights.bias, &y, plan.result),
            },
        )?;
        let range = (first, count);
        let (gathered, stacked) = (rows.view(), stacked.view());
        plan.multiply(device, range, gathered, stacked, &mut y, op.bias)?;
    }
    Ok(())
}

/// Overwrites `dx` if it is given, and adds to the gradients of the weights.
///
/// # Errors
/// Buffers of the wrong length, invalid settings, or a failed call.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &GaugeConv,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: Weights<DeviceSlice<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    mut dx: Option<DeviceSliceMut<'_, f32>>,
    gradients: Weights<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    op.check_device(graph, x, ("dy", dy), weights)?;
    for (name, values, expected) in [
        ("dx", dx.as_ref().map_or(x, |dx| dx.view()), x.len()),
        (
            "neighbour gradients",
            gradients.neighbour.view(),
            op.neighbour_count(),
        ),
        (
            "self gradients",
            gradients.self_term.view(),
            op.self_count(),
        ),
        ("bias gradients", gradients.bias.view(), op.bias_count()),
    ] {
        check_length(OPERATOR, name, values, expected)?;
    }
    let vertices = graph.vertex_count();
    let outputs = op.output.dimension();
    let biases = op.bias_count();
    add_column_sums(device, dy, (vertices, outputs, biases), &gradients.bias)?;
    if outputs == 0
        && let Some(dx) = &mut dx
    {
        device.clear(dx.reborrow())?;
    }
    if x.is_empty() || dy.is_empty() {
        return Ok(());
    }
    let plan = Plan::new(device, op, graph.columns(), Direction::Backward)?;
    let stacked = match &dx {
        Some(_) => Some(plan.stacked(device, weights)?),
        None => None,
    };
    let reversed = graph.reversed_edges(device)?;
    let chunk = plan.chunk(device, vertices);
    let mut rows: DeviceBuffer<f32> = device.buffer(chunk.min(vertices) * plan.row)?;
    let mut sums = RowProducts::new(device, chunk.min(vertices), plan.weights)?;
    for first in (0..vertices).step_by(chunk) {
        let count = chunk.min(vertices - first);
        let nothing = DeviceSliceMut::empty();
        let run = GatherRun {
            edges: reversed,
            reversed: true,
            aggregation: op.aggregation,
            x: dy,
            vertices: (first, count),
            out: &rows.view_mut(),
            bias: (
                DeviceSlice::empty(),
                dx.as_ref().unwrap_or(&nothing),
                plan.result,
            ),
        };
        match (plan.fused(device), &stacked) {
            (Some(fused), Some(stacked)) => {
                let product = fused.product(stacked.view());
                plan.gather.convolve(device, &run, &product)?;
            }
            _ => plan.gather.run(device, &run)?,
        }
        if plan.fused(device).is_none()
            && let (Some(dx), Some(stacked)) = (&mut dx, &stacked)
        {
            let range = (first, count);
            plan.multiply(device, range, rows.view(), stacked.view(), dx, false)?;
        }
        let products: Vec<RowProduct<'_>> = plan
            .orders
            .iter()
            .map(|order| RowProduct {
                a: (rows.view().from(order.start), plan.row),
                b: (x.from(first * plan.result + order.result), plan.result),
                m: order.terms,
                n: order.width,
                place: order.weights,
            })
            .collect();
        sums.add(device, count, &products)?;
    }
    let mut total: DeviceBuffer<f32> = device.buffer(plan.weights)?;
    sums.finish(device, &total.view_mut(), false)?;
    plan.fold.apply(
        device,
        [total.view(), DeviceSlice::empty()],
        [&gradients.neighbour, &gradients.self_term],
        true,
    )
}
