//! Sparse incidences with transport on a GPU.

use super::{IncidenceArrays, Mixture, Normalise, OPERATOR, Target, check};
use crate::aggregate::cuda::number;
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Share, args, over_irreps, to_u32,
};
use crate::{Aggregation, FeatureType};

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
    pub fn new(device: &CudaDevice, incidence: &IncidenceArrays<f32>) -> Result<Self, CudaError> {
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

    /// Numbers of rows and of columns.
    fn counts(&self) -> (usize, usize) {
        (self.row_count(), self.column_count())
    }

    #[allow(clippy::too_many_arguments)]
    fn sum(
        &self,
        device: &CudaDevice,
        features: &FeatureType,
        aggregation: Aggregation,
        target: Target,
        normalise: Normalise,
        x: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let rows = (self.row_offsets.view(), self.columns.view());
        let columns = (self.column_offsets.view(), self.rows.view());
        let ((offsets, sources), (other_offsets, _), places) = match target {
            Target::Rows => (rows, columns, DeviceSlice::empty()),
            Target::Columns => (columns, rows, self.places.view()),
        };
        let normalise = match normalise {
            Normalise::Target => DeviceSlice::empty(),
            Normalise::Source => other_offsets,
        };
        let (kernel, rows) = ((SOURCE, "incidence_sum"), offsets.len() - 1);
        let back = u32::from(target == Target::Columns);
        let arguments = args![
            offsets,
            sources,
            places,
            self.phases.view(),
            self.weights.view(),
            back,
            normalise,
            number(aggregation),
            x,
            y,
        ];
        // SAFETY: lengths were checked, and the arrays when they were made; empty slices are null pointers,
        // which the kernel does not read.
        unsafe { over_irreps(device, kernel, features, Share::Irreps, rows, arguments) }
    }
}

/// Sum or mean over each row of the features of its columns; see [`apply`](super::apply).
pub fn apply(
    device: &CudaDevice,
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &DeviceIncidence,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, incidence.counts(), ("y", y.view()), ("x", x))?;
    let (target, normalise) = (Target::Rows, Normalise::Target);
    incidence.sum(device, features, aggregation, target, normalise, x, &y)
}

/// Overwrites `dx` with the gradient of [`apply`].
pub fn apply_backward(
    device: &CudaDevice,
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &DeviceIncidence,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, incidence.counts(), ("dy", dy), ("dx", dx.view()))?;
    let (target, normalise) = (Target::Columns, Normalise::Source);
    incidence.sum(device, features, aggregation, target, normalise, dy, &dx)
}

/// Sum or mean over each column of the features of its rows; see
/// [`apply_transposed`](super::apply_transposed).
pub fn apply_transposed(
    device: &CudaDevice,
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &DeviceIncidence,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, incidence.counts(), ("x", x), ("y", y.view()))?;
    let (target, normalise) = (Target::Columns, Normalise::Target);
    incidence.sum(device, features, aggregation, target, normalise, x, &y)
}

/// Overwrites `dx` with the gradient of [`apply_transposed`].
pub fn apply_transposed_backward(
    device: &CudaDevice,
    features: &FeatureType,
    aggregation: Aggregation,
    incidence: &DeviceIncidence,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check(features, incidence.counts(), ("dx", dx.view()), ("dy", dy))?;
    let (target, normalise) = (Target::Rows, Normalise::Source);
    incidence.sum(device, features, aggregation, target, normalise, dy, &dx)
}

impl DeviceIncidence {
    fn is_plain(&self) -> bool {
        self.phases.is_empty() && self.weights.is_empty()
    }
}

/// Sums with several weights for every row; see [`mix`](super::mix()).
pub fn mix(
    device: &CudaDevice,
    op: &Mixture,
    incidence: &DeviceIncidence,
    x: DeviceSlice<'_, f32>,
    w: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (is_plain, counts) = (incidence.is_plain(), incidence.counts());
    op.check(is_plain, counts, [("x", x), ("w", w)], ("y", y.view()))?;
    let arguments = args![
        incidence.column_offsets.view(),
        incidence.rows.view(),
        number(op.aggregation),
        x,
        to_u32(OPERATOR, op.channels)?,
        w,
        to_u32(OPERATOR, op.weights)?,
        &y,
    ];
    let function = device.function(SOURCE, &[], "incidence_mix")?;
    let threads = op.outputs().div_ceil(4).next_multiple_of(32).clamp(32, 256);
    // SAFETY: lengths were checked, and the arrays when they were made.
    unsafe { function.run((incidence.column_count(), 1), (threads, 1), arguments) }
}

/// Overwrites `dx` and `dw` with the gradients of [`mix`].
#[allow(clippy::too_many_arguments)]
pub fn mix_backward(
    device: &CudaDevice,
    op: &Mixture,
    incidence: &DeviceIncidence,
    x: DeviceSlice<'_, f32>,
    w: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
    mut dw: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (is_plain, counts) = (incidence.is_plain(), incidence.counts());
    op.check(is_plain, counts, [("x", x), ("w", w)], ("dy", dy))?;
    let gradients = [("dx", dx.view()), ("dw", dw.view())];
    op.check(is_plain, counts, gradients, ("dy", dy))?;
    if op.channels == 0 {
        return device.clear(dw.reborrow());
    }
    let rows = incidence.row_count();
    let arguments = args![
        incidence.row_offsets.view(),
        incidence.columns.view(),
        incidence.column_offsets.view(),
        number(op.aggregation),
        x,
        to_u32(OPERATOR, op.channels)?,
        w,
        to_u32(OPERATOR, op.weights)?,
        dy,
        &dx,
        &dw,
        to_u32(OPERATOR, rows)?,
    ];
    let function = device.function(SOURCE, &[], "incidence_mix_backward")?;
    // SAFETY: lengths were checked, and the arrays when they were made.
    unsafe { function.over(32 * rows, arguments) }
}
