//! The gauge convolution on a GPU: neighbours are gathered into rows that hold all terms of the result, for
//! as many vertices as fit in a tile, and every order of the result is one matrix product.
//! Between types with 16 channels of each order, `warps.rs` does both in registers.

use super::fragments::{Fragments, row_stride};
use super::stacked::{Order, Stack};
use super::warps::Warps;
use super::{Backward, Forward, GaugeConv, OPERATOR, Weights};
use crate::aggregate::Direction;
use crate::aggregate::cuda::{GatherPlan, GatherRun, TensorProduct};
use crate::cuda::reduce::{ColumnPartials, RowProduct, RowProducts, SignedTable, fill_rows};
use crate::cuda::{
    CudaDevice, DeviceBuffer, DeviceGraphView, DeviceSlice, DeviceSliceMut, Operand, Product, ProductMode, Result,
    check_length, key,
};
use crate::{FeatureType, Gpu};
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
    /// The convolution with sums in registers, if the types allow it.
    warps: Option<Warps>,
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

/// Orders of a result that a product is added to.
#[derive(Debug, Clone, Copy)]
enum Add {
    None,
    /// Those with a bias.
    ToScalars,
    ToAll,
}

/// Largest number of stacked weights that every block of vertices reads again: 128 KiB stay in the caches.
pub(crate) const MAX_FUSED_WEIGHTS: usize = 1 << 15;

impl Fused {
    /// For a layout with these parts of the stacked weights: `(place, weight, negative)`.
    fn new(
        device: &CudaDevice,
        stack: &Stack<'_>,
        gather: &GatherPlan,
        parts: &[(usize, usize, bool)],
    ) -> Result<Option<Self>> {
        let (mut fragments, mut reach) = (Fragments::default(), stack.row);
        let mut entries = vec![None; stack.weights];
        for &(place, weight, negative) in parts {
            entries[place] = Some((weight, negative));
        }
        for order in &stack.orders {
            let (terms, results) = ((order.start, order.terms), (order.result, order.width));
            let end =
                fragments.add(terms, results, |term, column| entries[order.weights + term * order.width + column])?;
            reach = reach.max(end);
        }
        let stride = row_stride(reach);
        if fragments.weights > MAX_FUSED_WEIGHTS || !gather.fits_in_shared_memory(stride) {
            return Ok(None);
        }
        Ok(Some(Self {
            columns: device.upload(&fragments.columns)?,
            stride,
            weights: fragments.weights,
            stack: SignedTable::new(device, fragments.weights, 1, fragments.parts)?,
        }))
    }
}

impl Fused {
    fn product<'a>(&'a self, stacked: DeviceSlice<'a, f32>, add: bool) -> TensorProduct<'a> {
        TensorProduct { stacked, columns: &self.columns, stride: self.stride, add }
    }
}

impl Plan {
    fn new(
        device: &CudaDevice,
        op: &GaugeConv,
        (columns, heads): (usize, usize),
        direction: Direction,
    ) -> Result<Arc<Self>> {
        let mut settings = key(&[&op.input, &op.output]);
        let [rings, radius] = [op.rings, op.max_radius.to_bits() as usize];
        settings.extend([
            rings,
            radius,
            columns,
            heads,
            usize::from(op.self_term),
            usize::from(direction == Direction::Backward),
        ]);
        device.table("gauge_conv", settings, || {
            let stack = Stack::new(op, columns, direction);
            let source: &FeatureType = match direction {
                Direction::Forward => &op.input,
                Direction::Backward => &op.output,
            };
            let own: Vec<[u32; 4]> =
                stack.own.iter().map(|own| [own.from, own.to, own.width, 0].map(|n| n as u32)).collect();
            let neighbours = op.neighbour_count();
            let mut parts = Vec::with_capacity(stack.weights);
            let mut own_parts = Vec::new();
            stack.visit(
                |place, weight, negative| parts.push((place, weight, negative)),
                |place, part| own_parts.push((place, neighbours + part.weight, part.negative)),
            );
            parts.append(&mut own_parts);
            let folded = parts.iter().map(|&(place, weight, negative)| (weight, place, negative));
            let parameters = neighbours + op.self_count();
            // Numbers of places of a weight: as part of a real matrix, or of a complex number times another.
            let places = if columns > 1 { 4 } else { 2 };
            let gather = GatherPlan::new(
                device,
                source,
                stack.gather.rows(),
                (stack.gather.harmonic_count(), op.radial(), columns, heads),
                &own,
                stack.row,
            )?;
            let warps = Warps::new(device, op, &stack, (direction, columns, heads), &parts)?;
            Ok(Self {
                warps,
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

    /// Vertices of a tile: about as many in each.
    fn chunk(&self, device: &CudaDevice, vertices: usize) -> usize {
        let fitting = device.tile_bytes() / (4 * self.row.max(1));
        let tiles = vertices.div_ceil((fitting / 256 * 256).max(1024));
        vertices.div_ceil(tiles.max(1)).next_multiple_of(256).min(vertices.max(1))
    }

    /// The product on tensor cores, if it is possible and the device uses tf32.
    fn fused(&self, device: &CudaDevice) -> Option<&Fused> {
        self.fused.as_ref().filter(|_| uses_tf32(device))
    }

    /// The convolution with sums in registers, if it is possible for a run and the device uses tf32.
    fn warps(&self, device: &CudaDevice, run: &GatherRun<'_>, x: DeviceSlice<'_, f32>) -> Option<&Warps> {
        let warps = self.warps.as_ref().filter(|_| uses_tf32(device))?;
        warps.reads(run, x).then_some(warps)
    }

    fn stacked(&self, device: &CudaDevice, weights: Weights<DeviceSlice<'_, f32>>) -> Result<DeviceBuffer<f32>> {
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
        add: Add,
    ) -> Result<()> {
        for order in &self.orders {
            let start = first * self.result + order.result;
            let a = Operand::new(rows.from(order.start), self.row);
            let b = Operand::new(stacked.from(order.weights), order.width);
            let add = match add {
                Add::None => false,
                Add::ToScalars => order.order == 0,
                Add::ToAll => true,
            };
            let product = Product { m: count, n: order.width, k: order.terms, a, b, add, batches: 1 };
            product.run(device, &result.reborrow().slice(start..usize::MAX), (self.result, 0))?;
        }
        Ok(())
    }
}

fn uses_tf32(device: &CudaDevice) -> bool {
    device.product_mode() != ProductMode::F32 && device.capability() >= (8, 0)
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, graph, x, neighbour, self_term, bias, mut y } = pass;
    let weights = Weights { neighbour, self_term, bias };
    let vertices = graph.vertex_count();
    if op.input.dimension() == 0 {
        device.clear(y.reborrow())?;
        return fill_rows(device, &y, (vertices, op.output.dimension()), weights.bias);
    }
    if y.is_empty() {
        return Ok(());
    }
    let kind = (graph.columns(), graph.heads());
    let plan = Plan::new(device, op, kind, Direction::Forward)?;
    let nothing = DeviceSliceMut::empty();
    let whole = GatherRun {
        edges: graph.edges(),
        reversed: false,
        aggregation: op.aggregation,
        x,
        own: x,
        vertices: (0, vertices),
        out: &nothing,
        bias: (weights.bias, &y, plan.result),
    };
    if let Some(warps) = plan.warps(device, &whole, x) {
        return warps.convolve(device, &whole, [weights.neighbour, weights.self_term]);
    }
    let stacked = plan.stacked(device, weights)?;
    if let Some(fused) = plan.fused(device) {
        let product = fused.product(stacked.view(), false);
        return plan.gather.convolve(device, &whole, &product);
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
                own: x,
                vertices: (first, count),
                out: &rows.view_mut(),
                bias: (weights.bias, &y, plan.result),
            },
        )?;
        let range = (first, count);
        let (gathered, stacked) = (rows.view(), stacked.view());
        let add = if op.bias { Add::ToScalars } else { Add::None };
        plan.multiply(device, range, gathered, stacked, &mut y, add)?;
    }
    Ok(())
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias } = pass;
    let weights = Weights { neighbour, self_term, bias };
    let gradients = Weights { neighbour: dneighbour, self_term: dself_term, bias: dbias };
    let shape = (graph.vertex_count(), op.output.dimension(), op.bias_count());
    let columns = ColumnPartials::of_rows(device, dy, shape)?;
    transposed(device, op, graph, x, weights, [dy, dy], dx, false, gradients, columns)
}

/// [`Backward`] for gradients `dy` that reach the neighbours and `own` that reach the vertex itself, and with `add` to
/// add to `dx`. The gradient of the bias is the sum of `columns`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn transposed(
    device: &CudaDevice,
    op: &GaugeConv,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: Weights<DeviceSlice<'_, f32>>,
    [dy, own]: [DeviceSlice<'_, f32>; 2],
    mut dx: Option<DeviceSliceMut<'_, f32>>,
    add: bool,
    gradients: Weights<DeviceSliceMut<'_, f32>>,
    columns: ColumnPartials<'_>,
) -> Result<()> {
    op.radial().check(OPERATOR)?;
    let vertices = graph.vertex_count();
    for (name, values, expected) in [
        ("x", x, vertices * op.input.dimension()),
        ("dy", dy, vertices * op.output.dimension()),
        ("own dy", own, dy.len()),
        ("dx", dx.as_ref().map_or(x, |dx| dx.view()), x.len()),
        ("neighbour", weights.neighbour, op.neighbour_count()),
        ("self_term", weights.self_term, op.self_count()),
        ("bias", weights.bias, op.bias_count()),
        ("dneighbour", gradients.neighbour.view(), op.neighbour_count()),
        ("dself_term", gradients.self_term.view(), op.self_count()),
    ] {
        check_length(OPERATOR, name, values, expected)?;
    }
    if op.output.dimension() == 0
        && !add
        && let Some(dx) = &mut dx
    {
        device.clear(dx.reborrow())?;
    }
    if x.is_empty() || dy.is_empty() {
        return columns.in_parts(device)?.add_to(device, &gradients.bias);
    }
    let to = [&gradients.neighbour, &gradients.self_term];
    let kind = (graph.columns(), graph.heads());
    let plan = Plan::new(device, op, kind, Direction::Backward)?;
    let reversed = graph.reversed_edges(device)?;
    let nothing = DeviceSliceMut::empty();
    let whole = GatherRun {
        edges: reversed,
        reversed: true,
        aggregation: op.aggregation,
        x: dy,
        own,
        vertices: (0, vertices),
        out: &nothing,
        bias: (DeviceSlice::empty(), dx.as_ref().unwrap_or(&nothing), plan.result),
    };
    if let Some(warps) = plan.warps(device, &whole, x) {
        let factors = [weights.neighbour, weights.self_term];
        let (partials, count, columns) = warps.differentiate(device, &whole, factors, x, add, columns)?;
        let (sizes, columns) = ((count, plan.weights), (&columns, &gradients.bias));
        return (plan.fold).fold_partials(device, partials.view(), sizes, to, columns);
    }
    let stacked = match &dx {
        Some(_) => Some(plan.stacked(device, weights)?),
        None => None,
    };
    let chunk = plan.chunk(device, vertices);
    let mut rows: DeviceBuffer<f32> = device.buffer(chunk.min(vertices) * plan.row)?;
    let largest = plan.orders.iter().map(|order| order.terms * order.width);
    let sizes = (plan.weights, largest.max().unwrap_or(0));
    let mut sums = RowProducts::new(device, chunk.min(vertices), sizes)?;
    for first in (0..vertices).step_by(chunk) {
        let count = chunk.min(vertices - first);
        let run = GatherRun {
            edges: reversed,
            reversed: true,
            aggregation: op.aggregation,
            x: dy,
            own,
            vertices: (first, count),
            out: &rows.view_mut(),
            bias: (DeviceSlice::empty(), dx.as_ref().unwrap_or(&nothing), plan.result),
        };
        match (plan.fused(device), &stacked) {
            (Some(fused), Some(stacked)) => {
                let product = fused.product(stacked.view(), add);
                plan.gather.convolve(device, &run, &product)?;
            }
            _ => plan.gather.run(device, &run)?,
        }
        if plan.fused(device).is_none()
            && let (Some(dx), Some(stacked)) = (&mut dx, &stacked)
        {
            let range = (first, count);
            let add = if add { Add::ToAll } else { Add::None };
            plan.multiply(device, range, rows.view(), stacked.view(), dx, add)?;
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
    let (partials, count) = sums.partials();
    let columns = columns.in_parts(device)?;
    let (sizes, columns) = ((count, plan.weights), (&columns, &gradients.bias));
    plan.fold.fold_partials(device, partials, sizes, to, columns)
}
