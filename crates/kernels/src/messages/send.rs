//! Whole messages in one kernel, for a forward pass on a GPU.

use super::OPERATOR;
use crate::aggregate::cuda::MOST_SHARED_BYTES;
use crate::cuda::reduce::SignedTable;
use crate::cuda::{
    CudaDevice, CudaError, Define, DeviceBuffer, DeviceGraphView, DeviceSlice, DeviceSliceMut,
    KernelSource, ProductMode, args, check_length, irreps, key, to_u32,
};
use crate::gauge_conv::cuda::MOST_FUSED_WEIGHTS;
use crate::gauge_conv::{Fragments, row_stride};
use crate::linear::Linear;
use crate::regular::cuda::DevicePlan;
use crate::{FeatureType, KernelError};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "send",
    concat!(
        include_str!("../cuda/tensor.cu"),
        include_str!("../regular/regular.cu"),
        include_str!("send.cu")
    ),
);

/// Vertices of a block, edges that it holds at a time, and its threads.
const NODES: usize = 8;
const ROWS: usize = 64;
const THREADS: usize = 256;
/// Most samples of a nonlinearity that are computed in registers.
const MOST_SAMPLES: usize = 16;

/// Layers of a message function, each a linear map with bias and the nonlinearity that follows it.
#[derive(Debug, Clone, Copy)]
pub struct SendLayer<'a> {
    /// The linear map.
    pub map: &'a Linear,
    /// The nonlinearity.
    pub plan: &'a DevicePlan,
}

#[derive(Debug)]
struct Plan {
    columns: DeviceBuffer<[u32; 8]>,
    stack: SignedTable,
    weights: usize,
    /// Numbers of all matrices, before the biases.
    matrices: usize,
    /// Strides of the rows of both ends, and of a layer.
    strides: [usize; 2],
}

fn shared_bytes(strides: [usize; 2], width: usize) -> usize {
    4 * (ROWS * (strides[0] + strides[1]) + NODES * width)
}

fn defines(plan: &DevicePlan, [ends, hidden]: [usize; 2]) -> Vec<Define> {
    let numbers = [
        ("TENSOR", 1),
        ("VERTICES", ROWS),
        ("NODES", NODES),
        ("THREADS", THREADS),
        ("ENDS", ends),
        ("HIDDEN", hidden),
        ("WIDTH", plan.width()),
        ("CHANNELS", plan.channels()),
    ];
    let text = |(name, value): (&'static str, usize)| (name, value.to_string());
    [plan.defines(), &numbers.map(text)].concat()
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    let config =
        crate::regular::Regular::new(FeatureType::uniform(16, 2), 5, crate::Activation::Relu);
    let plan = DevicePlan::new(&config).ok();
    plan.map(|plan| defines(&plan, [164, 84]))
        .into_iter()
        .collect()
}

/// The strides of rows in shared memory, if one kernel can compute these layers on `input`.
fn strides(
    device: &CudaDevice,
    input: &FeatureType,
    layers: &[SendLayer<'_>],
) -> Option<[usize; 2]> {
    let first = layers.first()?;
    let (width, ends) = (first.plan.width(), 2 * input.dimension());
    let same = layers.iter().enumerate().all(|(index, layer)| {
        let inputs = if index == 0 { ends } else { width };
        layer.map.bias
            && layer.map.inputs == inputs
            && layer.map.outputs == width
            && layer.plan.config() == first.plan.config()
    });
    let config = first.plan.config();
    let is_square = config.input == config.output() && config.samples <= MOST_SAMPLES;
    let weights = layers.iter().map(|layer| {
        layer.map.inputs.next_multiple_of(16) * layer.map.outputs.next_multiple_of(16)
    });
    let strides = [ends, width].map(|n| row_stride(n.next_multiple_of(16)));
    let strides = [strides[0].max(strides[1]), strides[1]];
    let fits = weights.sum::<usize>() <= MOST_FUSED_WEIGHTS
        && shared_bytes(strides, width) <= 3 * MOST_SHARED_BYTES / 2;
    let on_tensor_cores =
        device.product_mode() != ProductMode::F32 && device.capability() >= (8, 0);
    (same && is_square && fits && on_tensor_cores && width * ends > 0).then_some(strides)
}

impl Plan {
    fn new(
        device: &CudaDevice,
        input: &FeatureType,
        layers: &[SendLayer<'_>],
        strides: [usize; 2],
    ) -> Result<Arc<Self>, CudaError> {
        let mut settings = key(&[input, &layers[0].plan.config().input]);
        settings.push(layers.len());
        device.table("send", settings, || {
            let (mut fragments, mut matrices) = (Fragments::default(), 0);
            for layer in layers {
                let (inputs, outputs) = (layer.map.inputs, layer.map.outputs);
                fragments.add((0, inputs), (0, outputs), |term, column| {
                    Some((matrices + column * inputs + term, false))
                })?;
                matrices += inputs * outputs;
            }
            Ok(Self {
                columns: device.upload(&fragments.columns)?,
                weights: fragments.weights,
                stack: SignedTable::new(device, fragments.weights, 1, fragments.parts)?,
                matrices,
                strides,
            })
        })
    }
}

/// True if one kernel can do it: the device multiplies on tensor cores, all layers have a bias and the same nonlinearity, and rows
/// and weights are small enough.
pub fn supports(device: &CudaDevice, input: &FeatureType, layers: &[SendLayer<'_>]) -> bool {
    strides(device, input, layers).is_some()
}

/// Overwrites `y` with the mean of messages over the neighbours of each vertex. `weights` are the matrices of all layers, then
/// all biases.
///
/// # Errors
/// Settings that are not [supported](supports), buffers of the wrong length, or a failed call.
pub fn send(
    device: &CudaDevice,
    input: &FeatureType,
    layers: &[SendLayer<'_>],
    graph: DeviceGraphView<'_>,
    x: DeviceSlice<'_, f32>,
    weights: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let Some(strides) = strides(device, input, layers) else {
        return Err(CudaError::Kernel(KernelError::Setting {
            operator: OPERATOR,
            problem: format!(
                "{} layers on {input} do not fit in one kernel",
                layers.len()
            ),
        }));
    };
    let (vertices, dimension) = (graph.vertex_count(), input.dimension());
    let first = layers[0].plan;
    let plan = Plan::new(device, input, layers, strides)?;
    let biases = layers.len() * first.width();
    check_length(OPERATOR, "x", x, vertices * dimension)?;
    check_length(OPERATOR, "weights", weights, plan.matrices + biases)?;
    check_length(OPERATOR, "y", y.view(), vertices * first.width())?;
    let mut stacked: DeviceBuffer<f32> = device.buffer(plan.weights)?;
    let (to, nothing) = (stacked.view_mut(), DeviceSliceMut::empty());
    let from = [weights, DeviceSlice::empty()];
    plan.stack.apply(device, from, [&to, &nothing], false)?;
    let table = irreps(device, input, 1)?;
    let out_table = irreps(device, &first.config().input, 1)?;
    let bytes = shared_bytes(plan.strides, first.width());
    let defines = defines(first, plan.strides);
    let function = device.function_with_shared(SOURCE, &defines, "send", bytes)?;
    let size = |n: usize| to_u32(OPERATOR, n);
    let edges = graph.edges();
    let arguments = args![
        edges.offsets,
        edges.neighbours,
        edges.phases,
        x,
        size(dimension)?,
        &*table,
        size(table.len())?,
        size(vertices)?,
        &stacked,
        &plan.columns,
        size(plan.columns.len() / layers.len())?,
        size(layers.len())?,
        weights.from(plan.matrices),
        &*out_table,
        size(out_table.len())?,
        &y,
    ];
    let blocks = (vertices.div_ceil(NODES), 1);
    // SAFETY: lengths were checked, the graph when it was made, and the columns are places in rows of these strides.
    unsafe { function.run(blocks, (THREADS, 1), arguments) }
}
