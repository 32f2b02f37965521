//! Sparse incidences with transport on a GPU.

use super::{IncidenceArrays, Mix, MixBackward, Normalise, Sum, Target};
use crate::Gpu;
use crate::aggregate::cuda::number;
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, KernelSource, Result, Share, args, over_irreps};

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("incidence", concat!(include_str!("../cuda/rotated_sum.cu"), include_str!("incidence.cu")));

/// [`IncidenceArrays`] on a device.
#[derive(Debug)]
pub struct DeviceIncidence {
    row_offsets: DeviceBuffer<u32>,
    columns: DeviceBuffer<u32>,
    column_offsets: DeviceBuffer<u32>,
    rows: DeviceBuffer<u32>,
    places: DeviceBuffer<u32>,
    phases: DeviceBuffer<[f32; 2]>,
    weights: DeviceBuffer<f32>,
}

impl DeviceIncidence {
    /// Copies an incidence to a device.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &CudaDevice, incidence: &IncidenceArrays<f32>) -> Result<Self> {
        Ok(Self {
            row_offsets: device.upload(&incidence.rows.offsets)?,
            columns: device.upload(&incidence.rows.others)?,
            column_offsets: device.upload(&incidence.columns.offsets)?,
            rows: device.upload(&incidence.columns.others)?,
            places: device.upload(&incidence.places)?,
            phases: device.upload(&incidence.phases)?,
            weights: device.upload(&incidence.weights)?,
        })
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.row_offsets.len() - 1
    }

    /// Number of columns.
    pub fn column_count(&self) -> usize {
        self.column_offsets.len() - 1
    }

    /// Number of rows or of columns.
    pub fn count(&self, target: Target) -> usize {
        match target {
            Target::Rows => self.row_count(),
            Target::Columns => self.column_count(),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.phases.is_empty() && self.weights.is_empty()
    }
}

pub(super) fn sum(device: &CudaDevice, pass: Sum<'_, Gpu>) -> Result<()> {
    let Sum { features, aggregation, target, normalise, incidence, x, y } = pass;
    let rows = (incidence.row_offsets.view(), incidence.columns.view());
    let columns = (incidence.column_offsets.view(), incidence.rows.view());
    let ((offsets, sources), (other_offsets, _), places) = match target {
        Target::Rows => (rows, columns, DeviceSlice::empty()),
        Target::Columns => (columns, rows, incidence.places.view()),
    };
    let normalise = match normalise {
        Normalise::Target => DeviceSlice::empty(),
        Normalise::Source => other_offsets,
    };
    let (back, aggregation) = (u32::from(target == Target::Columns), number(aggregation));
    let DeviceIncidence { phases, weights, .. } = incidence;
    let arguments = args![offsets, sources, places, phases, weights, back, normalise, aggregation, x, &y];
    // SAFETY: lengths were checked, and the arrays when they were made; empty slices are null pointers,
    // which the kernel does not read.
    unsafe { over_irreps(device, (SOURCE, "incidence_sum"), features, Share::Irreps, offsets.len() - 1, arguments) }
}

pub(super) fn mix(device: &CudaDevice, Mix { op, incidence, x, w, y }: Mix<'_, Gpu>) -> Result<()> {
    let (offsets, rows) = (&incidence.column_offsets, &incidence.rows);
    let arguments = args![offsets, rows, number(op.aggregation), x, op.channels, w, op.weights, &y];
    let function = device.function(SOURCE, &[], "incidence_mix")?;
    let threads = op.outputs().div_ceil(4).next_multiple_of(32).clamp(32, 256);
    // SAFETY: lengths were checked, and the arrays when they were made.
    unsafe { function.run((incidence.column_count(), 1), (threads, 1), arguments) }
}

pub(super) fn mix_backward(device: &CudaDevice, pass: MixBackward<'_, Gpu>) -> Result<()> {
    let MixBackward { op, incidence, x, w, dy, dx, mut dw } = pass;
    if op.channels == 0 {
        return device.clear(dw.reborrow());
    }
    let rows = incidence.row_count();
    let DeviceIncidence { row_offsets, columns, column_offsets, .. } = incidence;
    let (aggregation, channels, weights) = (number(op.aggregation), op.channels, op.weights);
    let arguments =
        args![row_offsets, columns, column_offsets, aggregation, x, channels, w, weights, dy, &dx, &dw, rows];
    let function = device.function(SOURCE, &[], "incidence_mix_backward")?;
    // SAFETY: lengths were checked, and the arrays when they were made.
    unsafe { function.over(32 * rows, arguments) }
}
