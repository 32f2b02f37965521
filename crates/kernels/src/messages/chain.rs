//! Whole messages, and updates of vertices with them, on a GPU: the values of layers stay in registers.
//!
//! ```text
//! send:    y_p = 1/|N(p)| sum_q rho(theta_pq) phi(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)
//! update:  y_p = x_p + phi(x_p, m_p)
//! ```
//!
//! `phi` is a chain of linear maps with ReLU on samples between them; that of messages also has one at the end. A warp
//! computes 16 or 32 edges (or vertices): on tensor cores, the sums of one product are the factors of the next, and
//! each lane holds all components of its channels, so that rotations and nonlinearities need no exchange. Weights are
//! in shared memory. The maps of the nonlinearity to samples and back are multiplied into the weights before.
//!
//! The backward pass computes the layers again. Some warps of a block go through the chain and back; the others sum up
//! the gradients of the weights, in registers over all edges of the block, and those of the features of the vertices
//! themselves. The gradients of the features of the neighbours are written once for each edge, for as many edges at a
//! time as the tile memory of the device holds, and are then gathered over the reversed edges.
//!
//! Channels are padded to a multiple of 8, the same for all orders.
//!
//! Gain on an H200 (`bench/compare`): as operators one after the other messages take 300 % longer forward and 188 % longer
//! with their backward pass, of which updates of vertices alone are 48 and 24 %.

use super::layout::{Shape, Tables, padded};
use super::{OPERATOR, cuda};
use crate::cuda::reduce::{copy_parts, sum_partials};
use crate::cuda::tiles::{BACKWARD_WARPS, COLLECTORS, FORWARD_WARPS, OCTET, Octets};
use crate::cuda::{
    CudaDevice, CudaError, Define, DeviceBuffer, DeviceEdges, DeviceGraphView, DeviceSlice, DeviceSliceMut,
    KernelSource, Result, args, check_length, key,
};
use crate::linear::Linear;
use crate::regular::cuda::DevicePlan;
use crate::{Activation, FeatureType, KernelError};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "chain",
    concat!(
        include_str!("../cuda/tensor.cu"),
        include_str!("../regular/regular.cu"),
        include_str!("../cuda/tiles.cu"),
        include_str!("chain.cu")
    ),
);

/// One layer of a message function: a linear map with bias and the nonlinearity that follows it.
#[derive(Debug, Clone, Copy)]
pub struct SendLayer<'a> {
    /// The linear map.
    pub map: &'a Linear,
    /// The nonlinearity.
    pub plan: &'a DevicePlan,
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    let cases = [(16, 2, 2, [2, 5], false), (16, 2, 2, [2, 5], true), (5, 1, 3, [1, 7], false)];
    let defines = cases.into_iter().flat_map(|(channels, band_limit, layers, input, is_update)| {
        let kind = FeatureType::uniform(channels, band_limit);
        let samples = 2 * band_limit + 1;
        let config = crate::regular::Regular::new(kind, samples, Activation::Relu);
        let plan = DevicePlan::new(&config).ok();
        plan.into_iter().flat_map(move |plan| {
            let output = [channels.div_ceil(OCTET), samples];
            let shape = Shape { octets: Octets { input, output }, layers, is_update };
            [(FORWARD_WARPS, false), (BACKWARD_WARPS, true)]
                .map(|(warps, is_backward)| shape.defines(&plan, warps, is_backward))
        })
    });
    defines.collect()
}

/// Layers that one kernel can compute.
#[derive(Debug)]
pub struct Chain<'a> {
    shape: Shape,
    plan: &'a DevicePlan,
    /// Numbers of the features and of the result.
    widths: [usize; 2],
    tables: Arc<Tables>,
    backward_warps: Option<usize>,
}

/// True if a kernel can compute layers of this shape with this nonlinearity.
fn is_possible(device: &CudaDevice, shape: &Shape, plan: &DevicePlan) -> bool {
    let config = plan.config();
    shape.octets.fit(device)
        && shape.layers > 0
        && config.input == config.output()
        && config.samples == shape.octets.output[1]
        && config.activation == Activation::Relu
        && shape.forward_bytes() <= device.shared_bytes()
}

impl<'a> Chain<'a> {
    /// The layers of a message function on features of type `input`; `None` if one kernel cannot do it: the device
    /// multiplies on tensor cores, and all layers have a bias and the same nonlinearity, ReLU of as many samples as
    /// components, and are small enough.
    pub fn messages(device: &CudaDevice, input: &FeatureType, layers: &[SendLayer<'a>]) -> Result<Option<Self>> {
        let Some(&SendLayer { plan, .. }) = layers.first() else { return Ok(None) };
        let (ends, width) = (2 * input.dimension(), plan.input_width());
        let ((octets, places), (hidden, hidden_places)) = (padded(input), padded(&plan.config().input));
        let shape = Shape { octets: Octets { input: octets, output: hidden }, layers: layers.len(), is_update: false };
        let same = layers.iter().enumerate().all(|(index, layer)| {
            let inputs = if index == 0 { ends } else { width };
            layer.map.bias
                && layer.map.inputs == inputs
                && layer.map.outputs == width
                && layer.plan.config() == plan.config()
        });
        if !same || !is_possible(device, &shape, plan) {
            return Ok(None);
        }
        let mut settings = key(&[input, &plan.config().input]);
        settings.push(layers.len());
        let tables =
            device.table("messages", settings, || Tables::messages(device, &shape, &places, &hidden_places))?;
        Ok(Some(Self {
            shape,
            plan,
            widths: [input.dimension(), width],
            tables,
            backward_warps: shape.backward_warps(device.shared_bytes()),
        }))
    }

    /// `layers` equivariant linear maps with bias, from features and messages of type `kind` to the same type, and the
    /// nonlinearity between them; `None` as in [`messages`](Self::messages), and for channels that are not a multiple
    /// of 8.
    pub fn update(
        device: &CudaDevice,
        kind: &FeatureType,
        layers: usize,
        plan: &'a DevicePlan,
    ) -> Result<Option<Self>> {
        let (octets, places) = padded(kind);
        let shape = Shape { octets: Octets { input: octets, output: octets }, layers, is_update: true };
        let width = shape.width();
        if &plan.config().input != kind || places.len() != width || !is_possible(device, &shape, plan) {
            return Ok(None);
        }
        let mut settings = key(&[kind]);
        settings.push(layers);
        let tables = device.table("update", settings, || Tables::update(device, &shape, kind))?;
        Ok(Some(Self {
            shape,
            plan,
            widths: [width; 2],
            tables,
            backward_warps: shape.backward_warps(device.shared_bytes()),
        }))
    }

    /// Length of the weights: the matrices of all layers, then all biases.
    pub fn weight_count(&self) -> usize {
        self.tables.weights
    }

    /// True if the backward pass fits in registers and shared memory.
    pub fn has_backward(&self) -> bool {
        self.backward_warps.is_some()
    }

    /// Weights as the kernels read them.
    fn folded(&self, device: &CudaDevice, weights: DeviceSlice<'_, f32>) -> Result<DeviceBuffer<f32>> {
        check_length(OPERATOR, "weights", weights, self.tables.weights)?;
        let count = self.shape.weights();
        let mut expanded = device.buffer(count)?;
        let (to, nothing) = (expanded.view_mut(), DeviceSliceMut::empty());
        let from = [weights, DeviceSlice::empty()];
        let expand = &self.tables.expand;
        expand.apply(device, from, [&to, &nothing], false)?;
        let mut folded = device.buffer(self.shape.shared_weights())?;
        let defines = self.shape.defines(self.plan, FORWARD_WARPS, false);
        let function = device.function(SOURCE, &defines, "fold")?;
        // SAFETY: both hold the weights of this shape.
        unsafe { function.over(count, args![&expanded, &folded.view_mut()])? };
        Ok(folded)
    }

    /// Gradients of the weights, from sums of those of folded weights for each of `blocks` blocks.
    fn unfold(
        &self,
        device: &CudaDevice,
        sums: &DeviceBuffer<f32>,
        defines: &[Define],
        gradients: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let count = self.shape.weights();
        let mut expanded = device.buffer(count)?;
        let function = device.function(SOURCE, defines, "fold")?;
        // SAFETY: both hold the weights of this shape.
        unsafe { function.over(count, args![sums, &expanded.view_mut()])? };
        let (from, nothing) = (expanded.view(), DeviceSliceMut::empty());
        let fold = &self.tables.fold;
        fold.apply(device, [from, DeviceSlice::empty()], [gradients, &nothing], false)
    }

    /// Checks that rows without padding are aligned for the loads of a kernel.
    fn check_alignment(rows: &[DeviceSlice<'_, f32>]) -> Result<(), KernelError> {
        match rows.iter().all(|rows| rows.is_aligned(4)) {
            true => Ok(()),
            false => Err(KernelError::Setting {
                operator: OPERATOR,
                problem: "the features are not aligned to 4 numbers".into(),
            }),
        }
    }

    /// Rows with padded columns, if columns are padded; of the features (0) or of the result (1).
    fn pad(&self, device: &CudaDevice, which: usize, rows: DeviceSlice<'_, f32>) -> Result<Option<DeviceBuffer<f32>>> {
        let Some([numbers, columns]) = &self.tables.columns[which] else { return Ok(None) };
        let count = rows.len() / columns.len().max(1);
        let mut to = device.buffer(count * numbers.len())?;
        cuda::place_columns(device, numbers, (rows, columns.len()), &to.view_mut())?;
        Ok(Some(to))
    }

    /// Calls `run` with `result`, or with a padded buffer whose columns are then copied to it.
    fn padded_result(
        &self,
        device: &CudaDevice,
        which: usize,
        mut result: DeviceSliceMut<'_, f32>,
        run: impl FnOnce(&mut DeviceSliceMut<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        let Some([numbers, columns]) = &self.tables.columns[which] else { return run(&mut result) };
        let rows = result.len() / columns.len().max(1);
        let mut to = device.buffer(rows * numbers.len())?;
        run(&mut to.view_mut())?;
        cuda::place_columns(device, columns, (to.view(), numbers.len()), &result)
    }
}

/// Copies four parameters to their place in the weights of a chain, one after the other.
pub fn pack(device: &CudaDevice, parameters: [DeviceSlice<'_, f32>; 4], place: &DeviceSliceMut<'_, f32>) -> Result<()> {
    copy_parts(device, OPERATOR, parameters, place.view(), false)
}

/// Adds to the gradients of four parameters, from their place in those of the weights of a chain.
pub fn add_gradients(
    device: &CudaDevice,
    place: DeviceSlice<'_, f32>,
    gradients: [DeviceSliceMut<'_, f32>; 4],
) -> Result<()> {
    let gradients = gradients.each_ref().map(DeviceSliceMut::view);
    copy_parts(device, OPERATOR, gradients, place, true)
}

/// Overwrites `y` with the mean of messages over the neighbours of each vertex. `weights` are the matrices of all
/// layers, then all biases.
pub fn send(
    device: &CudaDevice,
    chain: &Chain<'_>,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let (shape, vertices) = (&chain.shape, graph.vertex_count());
    check_length(OPERATOR, "x", x, vertices * chain.widths[0])?;
    check_length(OPERATOR, "y", y.view(), vertices * chain.widths[1])?;
    Chain::check_alignment(&[x, y.view()])?;
    let folded = chain.folded(device, weights)?;
    let wide = chain.pad(device, 0, x)?;
    let x = wide.as_ref().map_or(x, DeviceBuffer::view);
    let defines = shape.defines(chain.plan, FORWARD_WARPS, false);
    let bytes = shape.forward_bytes();
    let function = device.function_with_shared(SOURCE, &defines, "messages_forward", bytes)?;
    let (reverse, edges) = (graph.reverse(), graph.edge_count());
    let DeviceEdges { offsets, neighbours, phases, .. } = graph.edges();
    chain.padded_result(device, 1, y, |y| {
        let arguments = args![offsets, neighbours, reverse, phases, x, &folded, vertices, edges, &*y];
        let blocks = (device.multiprocessors(), 1);
        // SAFETY: lengths were checked, and the graph when it was made.
        unsafe { function.run(blocks, (32 * FORWARD_WARPS, 1), arguments) }
    })
}

/// What the backward kernel reads and writes, in padded columns.
struct Back<'a> {
    graph: Option<DeviceGraphView<'a>>,
    /// Features of both ends.
    ends: [DeviceSlice<'a, f32>; 2],
    weights: &'a DeviceBuffer<f32>,
    dy: DeviceSlice<'a, f32>,
    /// First row, and the row after the last.
    rows: [usize; 2],
    dx: &'a DeviceSliceMut<'a, f32>,
    dz: &'a DeviceSliceMut<'a, f32>,
}

impl Back<'_> {
    /// Adds to the sums of gradients of the folded weights, or overwrites them.
    fn run(
        &self,
        device: &CudaDevice,
        chain: &Chain<'_>,
        (defines, warps): (&[Define], usize),
        sums: &mut DeviceBuffer<f32>,
        add: bool,
    ) -> Result<()> {
        let blocks = device.multiprocessors();
        let mut partials: DeviceBuffer<f32> = device.buffer(blocks * sums.len())?;
        let nothing = (DeviceSlice::empty(), DeviceSlice::empty());
        let ([offsets, neighbours, reverse], phases) = match &self.graph {
            Some(graph) => {
                let edges = graph.edges();
                ([edges.offsets, edges.neighbours, graph.reverse()], edges.phases)
            }
            None => ([nothing.0; 3], nothing.1),
        };
        let bytes = chain.shape.backward_bytes(warps);
        let function = device.function_with_shared(SOURCE, defines, "backward", bytes)?;
        let Self { ends: [a, b], rows: [first, rows], weights, dy, dx, dz, .. } = *self;
        let to = partials.view_mut();
        let arguments = args![offsets, neighbours, reverse, phases, a, b, weights, dy, first, rows, dx, dz, &to];
        // SAFETY: the callers checked lengths, and there is a partial sum for each block.
        unsafe { function.run((blocks, 1), (32 * (warps + COLLECTORS), 1), arguments)? };
        sum_partials(device, partials.view(), blocks, &sums.view_mut(), add)
    }
}

/// The warps and macros of a backward pass.
fn backward_kernel(chain: &Chain<'_>) -> Result<(usize, Vec<Define>)> {
    let refused = || {
        CudaError::Kernel(KernelError::Setting {
            operator: OPERATOR,
            problem: "the backward pass of these layers does not fit in one kernel".into(),
        })
    };
    let warps = chain.backward_warps.ok_or_else(refused)?;
    Ok((warps, chain.shape.defines(chain.plan, warps, true)))
}

/// Overwrites `dx` with the gradient of [`send`] by `x`, and `gradients` with those of the weights.
#[allow(clippy::too_many_arguments)]
pub fn send_backward(
    device: &CudaDevice,
    chain: &Chain<'_>,
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
    gradients: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let (warps, defines) = backward_kernel(chain)?;
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    check_length(OPERATOR, "x", x, vertices * chain.widths[0])?;
    check_length(OPERATOR, "dx", dx.view(), vertices * chain.widths[0])?;
    check_length(OPERATOR, "dy", dy, vertices * chain.widths[1])?;
    check_length(OPERATOR, "gradients", gradients.view(), weights.len())?;
    Chain::check_alignment(&[x, dy, dx.view()])?;
    let folded = chain.folded(device, weights)?;
    let wide = [chain.pad(device, 0, x)?, chain.pad(device, 1, dy)?];
    let x = wide[0].as_ref().map_or(x, DeviceBuffer::view);
    let dy = wide[1].as_ref().map_or(dy, DeviceBuffer::view);
    let width = chain.shape.input_width();
    let piece = (device.tile_bytes() / (4 * width)).max(1024).min(edges.max(1));
    let mut sums = device.zeros(chain.shape.weights())?;
    let mut dz: DeviceBuffer<f32> = device.buffer(piece * width)?;
    chain.padded_result(device, 0, dx, |dx| {
        device.clear(dx.reborrow())?;
        for first in (0..edges).step_by(piece) {
            let end = edges.min(first + piece);
            let back = Back {
                graph: Some(graph),
                ends: [x, x],
                weights: &folded,
                dy,
                rows: [first, end],
                dx,
                dz: &dz.view_mut(),
            };
            back.run(device, chain, (&defines, warps), &mut sums, true)?;
            let function = device.function(SOURCE, &defines, "neighbour_gradients")?;
            let arguments = args![graph.edges().offsets, graph.reverse(), first, end, &dz, &*dx, vertices];
            // SAFETY: as above; there is a row of `dz` for each of these edges.
            unsafe { function.over(vertices * width / 4, arguments)? };
        }
        Ok(())
    })?;
    chain.unfold(device, &sums, &defines, &gradients)
}

/// Overwrites `y` with `x + phi(x, m)`.
pub fn update(
    device: &CudaDevice,
    chain: &Chain<'_>,
    vertices: usize,
    [x, m]: [DeviceSlice<'_, f32>; 2],
    weights: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let shape = &chain.shape;
    for (name, values) in [("x", x), ("m", m), ("y", y.view())] {
        check_length(OPERATOR, name, values, vertices * shape.width())?;
    }
    Chain::check_alignment(&[x, m, y.view()])?;
    let folded = chain.folded(device, weights)?;
    let defines = shape.defines(chain.plan, FORWARD_WARPS, false);
    let bytes = shape.forward_bytes();
    let function = device.function_with_shared(SOURCE, &defines, "update_forward", bytes)?;
    let arguments = args![x, m, &folded, vertices, &y];
    let blocks = (device.multiprocessors(), 1);
    // SAFETY: lengths were checked.
    unsafe { function.run(blocks, (32 * FORWARD_WARPS, 1), arguments) }
}

/// Overwrites `dx` and `dm` with the gradients of [`update`], and `gradients` with those of the weights.
#[allow(clippy::too_many_arguments)]
pub fn update_backward(
    device: &CudaDevice,
    chain: &Chain<'_>,
    vertices: usize,
    [x, m]: [DeviceSlice<'_, f32>; 2],
    weights: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    [dx, dm]: [DeviceSliceMut<'_, f32>; 2],
    gradients: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let (warps, defines) = backward_kernel(chain)?;
    let width = chain.shape.width();
    let all = [("x", x), ("m", m), ("dy", dy), ("dx", dx.view()), ("dm", dm.view())];
    for (name, values) in all {
        check_length(OPERATOR, name, values, vertices * width)?;
    }
    Chain::check_alignment(&[x, m, dy, dx.view(), dm.view()])?;
    check_length(OPERATOR, "gradients", gradients.view(), weights.len())?;
    let folded = chain.folded(device, weights)?;
    let mut sums = device.buffer(chain.shape.weights())?;
    let back = Back { graph: None, ends: [x, m], weights: &folded, dy, rows: [0, vertices], dx: &dx, dz: &dm };
    back.run(device, chain, (&defines, warps), &mut sums, false)?;
    chain.unfold(device, &sums, &defines, &gradients)
}
