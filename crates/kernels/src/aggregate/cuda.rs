//! Gauge aggregation on a GPU: one coalesced gather, and its adjoint over the reversed edges.

use super::{Aggregation, Backward, Forward, OPERATOR, Radial, Row};
use crate::cuda::{
    Arg, CudaDevice, Define, DeviceBuffer, DeviceEdges, DeviceSlice, DeviceSliceMut, KernelSource, Result, args,
    irrep_count, irrep_rows, irreps, irreps_of_heads, key, to_u32,
};
use crate::{FeatureType, Gpu};
use std::sync::Arc;

pub(crate) const GATHER: KernelSource =
    KernelSource::new("gather", concat!(include_str!("../cuda/tensor.cu"), include_str!("gather.cu")));
pub(crate) const ADJOINT: KernelSource = KernelSource::new("adjoint", include_str!("adjoint.cu"));

/// Largest number of sums that a thread keeps in registers.
const MAX_SUMS: usize = 96;
/// Smallest number of vertices of a block that multiplies their rows.
const TENSOR_VERTICES: usize = 16;
/// Largest size of the edges of a block in shared memory, in bytes.
const EDGE_BYTES: usize = 12 << 10;
/// Largest size of the rows of a block in shared memory, in bytes.
pub(crate) const MAX_SHARED_BYTES: usize = 64 << 10;

/// The number of an aggregation in the kernels.
pub(crate) fn number(aggregation: Aggregation) -> u32 {
    match aggregation {
        Aggregation::Sum => 0,
        Aggregation::Mean => 1,
        Aggregation::MeanWithSelf => 2,
    }
}

/// A gather into rows of any layout.
#[derive(Debug)]
pub(crate) struct GatherPlan {
    source: FeatureType,
    harmonics: usize,
    radial: Radial,
    /// Coefficients of each edge of the graph.
    columns: usize,
    /// Factors of each edge, one for each head of the features, if above 1.
    heads: usize,
    /// Index of every ring and harmonic in a row; negative if it is not needed.
    destinations: DeviceBuffer<i32>,
    /// `(from, to, width)` of the features of the vertex itself.
    own: DeviceBuffer<[u32; 4]>,
    row: usize,
    /// Channels that are loaded together: 4, 2 or 1.
    vector: usize,
}

/// What a gather reads and writes.
pub(crate) struct GatherRun<'a> {
    pub edges: DeviceEdges<'a>,
    pub reversed: bool,
    pub aggregation: Aggregation,
    pub x: DeviceSlice<'a, f32>,
    /// Features of the vertices themselves.
    pub own: DeviceSlice<'a, f32>,
    /// First vertex, and number of vertices.
    pub vertices: (usize, usize),
    /// The rows; empty if they are multiplied in shared memory only.
    pub out: &'a DeviceSliceMut<'a, f32>,
    /// Bias, the result `y` whose first channels are set to it, and the width of `y`.
    pub bias: (DeviceSlice<'a, f32>, &'a DeviceSliceMut<'a, f32>, usize),
}

/// Irreps of the features that are gathered, as a kernel reads them.
type Irreps = Arc<DeviceBuffer<[u32; 4]>>;

/// A kernel over rows of a [`GatherPlan`].
pub(crate) struct RowKernel<'a> {
    /// Macros of `gather.cu`.
    pub defines: Vec<Define>,
    /// Irreps of the features that are gathered.
    pub irreps: Irreps,
    /// Index of every harmonic in a row; negative if it is not needed.
    pub destinations: &'a DeviceBuffer<i32>,
    /// Vertices of a block.
    pub vertices: usize,
    /// Threads of a block.
    pub threads: usize,
    /// Channels that are loaded together, to which features must be aligned.
    pub vector: usize,
}

/// A product of gathered rows on tensor cores.
pub(crate) struct TensorProduct<'a> {
    /// Weights in the order in which lanes take them; see `gather.cu`.
    pub stacked: DeviceSlice<'a, f32>,
    /// `(start, steps, weights, first, count)` for every 16 columns of the result.
    pub columns: &'a DeviceBuffer<[u32; 8]>,
    /// Stride of the rows in shared memory.
    pub stride: usize,
    /// True to add to the result.
    pub add: bool,
}

impl GatherPlan {
    pub fn new(
        device: &CudaDevice,
        source: &FeatureType,
        rows: &[Row],
        (harmonics, radial, columns, heads): (usize, Radial, usize, usize),
        own: &[[u32; 4]],
        row: usize,
    ) -> Result<Self> {
        let mut destinations = vec![-1; radial.rings * harmonics];
        let channels = source.multiplicities().iter().map(|m| m / heads);
        let mut together = channels.fold(4, common);
        together = common(together, row);
        for sum in rows {
            together = common(together, sum.destination);
            destinations[sum.ring * harmonics + sum.harmonic] = to_u32(OPERATOR, sum.destination)? as i32;
        }
        let mut vector = together;
        while vector > 1 && 2 * harmonics * vector > MAX_SUMS {
            vector /= 2;
        }
        Ok(Self {
            source: source.clone(),
            harmonics,
            radial,
            columns,
            heads,
            destinations: device.upload(&destinations)?,
            own: device.upload(own)?,
            row,
            vector,
        })
    }

    /// Gathers rows for some vertices.
    pub fn run(&self, device: &CudaDevice, run: &GatherRun<'_>) -> Result<()> {
        let (table, shape) = self.shape(device, run)?;
        let function = device.function(GATHER, &shape.defines(None), "gather")?;
        let (vertices, threads) = shape.block(false);
        let blocks = (run.vertices.1.div_ceil(vertices), self.radial.rings / shape.rings);
        // SAFETY: the operators checked the lengths of features, rows and results against the graph,
        // whose arrays were checked when it was made.
        unsafe { function.run(blocks, (threads, 1), &self.arguments(run, &table)) }
    }

    /// True if rows of this stride fit in shared memory.
    pub fn fits_in_shared_memory(&self, stride: usize) -> bool {
        let units = irrep_rows(&self.source, self.vector).len();
        let shape = self.shape_of(self.vector, units);
        shape.rings == self.radial.rings && shape.shared_bytes(stride) <= MAX_SHARED_BYTES
    }

    /// What another kernel that holds rows of this stride in shared memory is compiled for and reads.
    pub fn row_kernel(&self, device: &CudaDevice, stride: usize) -> Result<RowKernel<'_>> {
        let irreps = irreps(device, &self.source, self.vector)?;
        let shape = self.shape_of(self.vector, irreps.len());
        let (vertices, threads) = shape.block(true);
        Ok(RowKernel {
            defines: shape.defines(Some(stride)),
            irreps,
            destinations: &self.destinations,
            vertices,
            threads,
            vector: self.vector,
        })
    }

    /// Gathers rows for some vertices in shared memory, and multiplies them there.
    pub fn convolve(&self, device: &CudaDevice, run: &GatherRun<'_>, product: &TensorProduct<'_>) -> Result<()> {
        let (table, shape) = self.shape(device, run)?;
        let bytes = shape.shared_bytes(product.stride);
        let defines = shape.defines(Some(product.stride));
        let function = device.function_with_shared(GATHER, &defines, "convolve", bytes)?;
        let (vertices, threads) = shape.block(true);
        let blocks = (run.vertices.1.div_ceil(vertices), 1);
        let mut arguments = self.arguments(run, &table);
        arguments.extend(args![product.stacked, product.columns, product.columns.len(), u32::from(product.add)]);
        // SAFETY: as in `run`; the columns are places in rows of `stride` numbers and in the stacked
        // weights, as the operator laid them out.
        unsafe { function.run(blocks, (threads, 1), &arguments) }
    }

    /// The shape of the kernel for a run, and its irreps.
    fn shape(&self, device: &CudaDevice, run: &GatherRun<'_>) -> Result<(Irreps, Shape)> {
        // Slices may start at addresses that are not aligned for wide loads.
        let mut vector = self.vector;
        while !(run.x.is_aligned(vector) && run.out.view().is_aligned(vector)) {
            vector /= 2;
        }
        let table = irreps_of_heads(device, &self.source, vector, self.heads)?;
        let shape = self.shape_of(vector, table.len());
        Ok((table, shape))
    }

    fn shape_of(&self, vector: usize, units: usize) -> Shape {
        let rings = self.radial.rings;
        let together = 2 * self.harmonics * vector * rings <= MAX_SUMS;
        Shape {
            harmonics: self.harmonics,
            rings: if together { rings } else { 1 },
            vector,
            group: units.next_power_of_two().clamp(1, 32),
            radial: rings > 1,
            orders: self.source.highest_order() + 1,
            columns: self.columns,
            heads: self.heads,
        }
    }

    fn arguments(&self, run: &GatherRun<'_>, table: &DeviceBuffer<[u32; 4]>) -> Vec<Arg> {
        let ((first, count), (bias, y, y_width)) = (run.vertices, run.bias);
        // Coefficients of edges take the place of the scale.
        let aggregation = match self.columns {
            0 => run.aggregation,
            _ => Aggregation::Sum,
        };
        let DeviceEdges { offsets, neighbours, phases, radius, coefficients } = run.edges;
        let Radial { rings, max_radius } = self.radial;
        let graph: &[Arg] = args![offsets, neighbours, phases, radius, coefficients];
        let features: &[Arg] = args![run.x, self.source.dimension(), table, table.len()];
        let terms: &[Arg] = args![number(aggregation), u32::from(run.reversed), rings, max_radius as f32];
        let places: &[Arg] = args![&self.destinations, &self.own, self.own.len(), first, count];
        let results: &[Arg] = args![run.out, self.row, bias, bias.len(), y, y_width, run.own];
        [graph, features, terms, places, results].concat()
    }
}

/// Greatest common divisor.
fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

/// What a kernel is compiled for.
#[derive(Debug, Clone, Copy)]
struct Shape {
    harmonics: usize,
    /// Rings that are summed together.
    rings: usize,
    /// Channels of one lane.
    vector: usize,
    /// Lanes of one vertex.
    group: usize,
    /// True if there is more than one ring in all.
    radial: bool,
    /// Orders of the features, from 0.
    orders: usize,
    /// Coefficients of each edge.
    columns: usize,
    /// Factors of each edge.
    heads: usize,
}

impl Shape {
    /// Vertices of a block, and its threads. If the rows are multiplied there, as many as tensor cores multiply at a
    /// time.
    fn block(&self, is_multiplied: bool) -> (usize, usize) {
        let least = if is_multiplied { TENSOR_VERTICES } else { 1 };
        let vertices = (256 / self.group).max(least);
        (vertices, vertices * self.group)
    }

    /// Shared memory of the rows of a block.
    fn shared_bytes(&self, stride: usize) -> usize {
        4 * self.block(true).0 * stride
    }

    /// Macros of the kernel. `tensor`: stride of the rows in shared memory, if they are multiplied there.
    fn defines(&self, tensor: Option<usize>) -> Vec<Define> {
        let blocks = match 2 * self.harmonics * self.rings * self.vector {
            0..=20 => 4,
            21..=40 => 3,
            41..=64 => 2,
            _ => 1,
        };
        let edge_bytes = 8 * self.orders + 4 * (self.harmonics + self.rings + self.heads) + 16;
        let (vertices, threads) = self.block(tensor.is_some());
        let edges = (8 * vertices).min(EDGE_BYTES / edge_bytes).max(8);
        let mut defines = vec![
            ("HARMONICS", self.harmonics),
            ("RINGS", self.rings),
            ("VECTOR", self.vector),
            ("GROUP", self.group),
            ("RADIAL", usize::from(self.radial)),
            ("ORDERS", self.orders),
            ("COLUMNS", self.columns),
            ("HEADS", self.heads),
            ("EDGES", edges),
            ("THREADS", threads),
            ("BLOCKS", (256 * blocks / threads).max(1)),
            ("TENSOR", usize::from(tensor.is_some())),
        ];
        if let Some(stride) = tensor {
            defines.extend([("VERTICES", vertices), ("ROW", stride)]);
        }
        let text = |(name, value): (&'static str, usize)| (name, value.to_string());
        defines.into_iter().map(text).collect()
    }
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [
        (5, 1, 4, 16, false, 3, 0, 1, None),
        (1, 1, 1, 4, false, 1, 0, 1, None),
        (3, 2, 2, 32, true, 2, 1, 1, None),
        (7, 1, 1, 8, true, 65, 0, 1, None),
        (5, 1, 4, 16, false, 3, 5, 1, None),
        (5, 1, 4, 16, false, 3, 1, 1, Some(484)),
        (5, 1, 4, 16, false, 3, 0, 1, Some(484)),
        (5, 1, 1, 4, false, 3, 5, 1, Some(36)),
        (3, 2, 2, 32, true, 2, 0, 1, Some(100)),
        (5, 1, 1, 4, false, 1, 0, 1, Some(36)),
        (5, 1, 4, 16, false, 3, 1, 2, Some(484)),
    ]
    .map(|(harmonics, rings, vector, group, radial, orders, columns, heads, tensor)| {
        let shape = Shape { harmonics, rings, vector, group, radial, orders, columns, heads };
        shape.defines(tensor)
    })
    .into()
}

pub(super) fn forward(device: &CudaDevice, Forward { op, graph, x, a }: Forward<'_, Gpu>) -> Result<()> {
    let mut settings = key(&[&op.input]);
    let radius = op.max_radius.to_bits() as usize;
    settings.extend([op.highest_order, op.rings, radius, graph.columns()]);
    let plan = device.table("aggregate", settings, || {
        let dimension = op.input.dimension();
        let rows: Vec<Row> = (0..op.rings * op.harmonics())
            .map(|place| Row {
                harmonic: place % op.harmonics(),
                ring: place / op.harmonics(),
                destination: place * dimension,
            })
            .collect();
        let sums = (op.harmonics(), op.radial(), graph.columns(), 1);
        GatherPlan::new(device, &op.input, &rows, sums, &[], op.dimension())
    })?;
    plan.run(
        device,
        &GatherRun {
            edges: graph.edges(),
            reversed: false,
            aggregation: op.aggregation,
            x,
            own: x,
            vertices: (0, graph.vertex_count()),
            out: &a,
            bias: (DeviceSlice::empty(), &DeviceSliceMut::empty(), 0),
        },
    )
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, graph, da, dx } = pass;
    let DeviceEdges { offsets, neighbours, phases, radius, coefficients } = graph.reversed_edges(device)?;
    let table = irreps(device, &op.input, 1)?;
    let (vertices, count) = (graph.vertex_count(), irrep_count(&op.input));
    let function = device.function(ADJOINT, &[], "adjoint")?;
    let graph: &[Arg] = args![offsets, neighbours, phases, radius, coefficients, da, &*table, count];
    let terms: &[Arg] = args![op.input.dimension(), op.harmonics(), op.rings, op.max_radius as f32];
    let last: &[Arg] = args![number(op.aggregation), &dx, vertices];
    // SAFETY: lengths were checked.
    unsafe { function.over(vertices * count, &[graph, terms, last].concat()) }
}
