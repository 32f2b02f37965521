//! Gauge aggregation on a GPU: one coalesced gather, and its adjoint over the reversed edges.

use super::{Aggregate, Aggregation, OPERATOR, Radial, Row};
use crate::cuda::{
    CudaDevice, CudaError, CudaGraph, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut,
    EdgeArrays, KernelSource, Variant, args, check_length, irrep_count, irreps, key, to_u32,
    variant,
};
use crate::{FeatureType, KernelError};

pub(crate) const GATHER: KernelSource = KernelSource::new("gather", include_str!("gather.cu"));
pub(crate) const ADJOINT: KernelSource = KernelSource::new("adjoint", include_str!("adjoint.cu"));

/// Most sums that a thread keeps in registers.
const MOST_SUMS: usize = 96;

/// As `aggregation` is numbered in the kernels.
fn number(aggregation: Aggregation) -> u32 {
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
    /// Place of every ring and harmonic in a row, negative if it is not wanted.
    destinations: DeviceBuffer<i32>,
    /// `(from, to, width)` of the vertex's own features.
    own: DeviceBuffer<[u32; 4]>,
    row: usize,
    /// Channels that lie together in source and rows: 4, 2 or 1.
    vector: usize,
}

/// What a gather reads and writes.
pub(crate) struct GatherRun<'a> {
    pub edges: EdgeArrays<'a>,
    pub reversed: bool,
    pub aggregation: Aggregation,
    pub x: DeviceSlice<'a, f32>,
    /// First vertex, and how many.
    pub vertices: (usize, usize),
    pub out: &'a DeviceSliceMut<'a, f32>,
    /// Goes to the first numbers of the rows of `y`, which have this width.
    pub bias: (DeviceSlice<'a, f32>, &'a DeviceSliceMut<'a, f32>, usize),
}

impl GatherPlan {
    pub fn new(
        device: &CudaDevice,
        source: &FeatureType,
        rows: &[Row],
        (harmonics, radial): (usize, Radial),
        own: &[[u32; 4]],
        row: usize,
    ) -> Result<Self, CudaError> {
        let mut destinations = vec![-1; radial.rings * harmonics];
        let mut together = source.multiplicities().iter().fold(4, |n, &m| common(n, m));
        together = common(together, row);
        for sum in rows {
            together = common(together, sum.destination);
            destinations[sum.ring * harmonics + sum.harmonic] =
                to_u32(OPERATOR, sum.destination)? as i32;
        }
        let mut vector = together;
        while vector > 1 && 2 * harmonics * vector > MOST_SUMS {
            vector /= 2;
        }
        Ok(Self {
            source: source.clone(),
            harmonics,
            radial,
            destinations: device.upload(&destinations)?,
            own: device.upload(own)?,
            row,
            vector,
        })
    }

    /// Gathers rows for some vertices.
    pub fn run(&self, device: &CudaDevice, run: &GatherRun<'_>) -> Result<(), CudaError> {
        let (first, count) = run.vertices;
        // Slices of larger buffers may start at places that wide loads cannot.
        let mut vector = self.vector;
        while !(run.x.is_aligned(vector) && run.out.view().is_aligned(vector)) {
            vector /= 2;
        }
        let table = irreps(device, &self.source, vector)?;
        let rings = self.radial.rings;
        let together = if 2 * self.harmonics * vector * rings <= MOST_SUMS {
            rings
        } else {
            1
        };
        let group = table.len().next_power_of_two().clamp(1, 32);
        let defines = defines(self.harmonics, together, vector, group, rings > 1);
        let function = device.function(GATHER, &defines, "gather")?;
        let size = |n: usize| to_u32(OPERATOR, n);
        let (bias, y, y_width) = run.bias;
        // SAFETY: the operators checked the lengths of features, rows and results against the graph,
        // whose arrays were checked when it was made.
        unsafe {
            function.run(
                ((count * group).div_ceil(256), rings / together),
                (256, 1),
                args![
                    run.edges.offsets,
                    run.edges.neighbours,
                    run.edges.phases,
                    run.edges.radius,
                    run.x,
                    size(self.source.dimension())?,
                    &*table,
                    size(table.len())?,
                    &self.destinations,
                    run.out,
                    size(self.row)?,
                    size(first)?,
                    size(count)?,
                    number(run.aggregation),
                    u32::from(run.reversed),
                    size(rings)?,
                    self.radial.max_radius as f32,
                    &self.own,
                    size(self.own.len())?,
                    bias,
                    size(bias.len())?,
                    y,
                    size(y_width)?,
                ],
            )
        }
    }
}

/// Greatest common divisor.
fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

fn defines(
    harmonics: usize,
    rings: usize,
    vector: usize,
    group: usize,
    radial: bool,
) -> Vec<Define> {
    let blocks = match 2 * harmonics * rings * vector {
        0..=20 => 4,
        21..=40 => 3,
        41..=64 => 2,
        _ => 1,
    };
    [
        ("HARMONICS", harmonics),
        ("RINGS", rings),
        ("VECTOR", vector),
        ("GROUP", group),
        ("RADIAL", usize::from(radial)),
        ("BLOCKS", blocks),
    ]
    .map(|(name, value)| (name, value.to_string()))
    .into()
}

pub(crate) fn variants() -> Vec<Variant> {
    [
        (5, 1, 4, 16, false),
        (1, 1, 1, 4, false),
        (3, 2, 2, 32, true),
        (7, 1, 1, 8, true),
    ]
    .map(|(harmonics, rings, vector, group, radial)| {
        variant(&defines(harmonics, rings, vector, group, radial))
    })
    .into()
}

impl Aggregate {
    fn check_device(
        &self,
        graph: &CudaGraph,
        (x_name, x): (&'static str, DeviceSlice<'_, f32>),
        (a_name, a): (&'static str, DeviceSlice<'_, f32>),
    ) -> Result<(), KernelError> {
        self.radial().check(OPERATOR)?;
        let vertices = graph.vertex_count();
        check_length(OPERATOR, x_name, x, vertices * self.input.dimension())?;
        check_length(OPERATOR, a_name, a, vertices * self.dimension())
    }
}

/// `a = G x`.
///
/// # Errors
/// Buffers or settings that do not fit, or a failed call.
pub fn forward(
    device: &CudaDevice,
    op: &Aggregate,
    graph: &CudaGraph,
    x: DeviceSlice<'_, f32>,
    a: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check_device(graph, ("x", x), ("a", a.view()))?;
    let mut settings = key(&[&op.input]);
    settings.extend([op.highest_order, op.rings, op.max_radius.to_bits() as usize]);
    let plan = device.table("aggregate", settings, || {
        let dimension = op.input.dimension();
        let rows: Vec<Row> = (0..op.rings * op.harmonics())
            .map(|place| Row {
                harmonic: place % op.harmonics(),
                ring: place / op.harmonics(),
                destination: place * dimension,
            })
            .collect();
        let sums = (op.harmonics(), op.radial());
        GatherPlan::new(device, &op.input, &rows, sums, &[], op.dimension())
    })?;
    plan.run(
        device,
        &GatherRun {
            edges: graph.edges(),
            reversed: false,
            aggregation: op.aggregation,
            x,
            vertices: (0, graph.vertex_count()),
            out: &a,
            bias: (DeviceSlice::empty(), &DeviceSliceMut::empty(), 0),
        },
    )
}

/// `dx = G^T da`.
///
/// # Errors
/// Buffers or settings that do not fit, or a failed call.
pub fn backward(
    device: &CudaDevice,
    op: &Aggregate,
    graph: &CudaGraph,
    da: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check_device(graph, ("dx", dx.view()), ("da", da))?;
    let values = graph.reversed(device)?;
    let edges = graph.arrays(&values);
    let table = irreps(device, &op.input, 1)?;
    let count = irrep_count(&op.input);
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(ADJOINT, &[], "adjoint")?;
    // SAFETY: lengths were checked above.
    unsafe {
        function.over(
            graph.vertex_count() * count,
            args![
                edges.offsets,
                edges.neighbours,
                edges.phases,
                edges.radius,
                da,
                &*table,
                size(count)?,
                size(op.input.dimension())?,
                size(op.harmonics())?,
                size(op.rings)?,
                op.max_radius as f32,
                number(op.aggregation),
                &dx,
                size(graph.vertex_count())?,
            ],
        )
    }
}
