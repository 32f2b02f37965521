//! Batch normalisation on a GPU: partial sums in f64, then one pass over the features.

use super::{Backward, BatchNorm, Forward, NormGroups, Normalisation, Origin};
use crate::cuda::reduce::{MIN_ROWS, Pieces};
use crate::cuda::{
    Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args, check_length, key,
};
use crate::{Gpu, KernelError};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new("batch_norm", include_str!("batch_norm.cu"));

/// Mean and variance of every slot, on the device.
#[derive(Debug)]
pub struct DeviceStatistics {
    mean: DeviceBuffer<f64>,
    variance: DeviceBuffer<f64>,
    origin: Origin,
    /// The map of every column with the gamma and beta of a training step.
    affine: Option<Arc<Affine>>,
}

impl DeviceStatistics {
    /// Running statistics, for evaluation.
    pub fn running(device: &CudaDevice, mean: DeviceSlice<'_, f32>, variance: DeviceSlice<'_, f32>) -> Result<Self> {
        check_length("batch norm", "variance", variance, mean.len())?;
        let widened = |from: DeviceSlice<'_, f32>| -> Result<DeviceBuffer<f64>> {
            let mut to = device.buffer(from.len())?;
            let function = device.function(SOURCE, &[], "widen")?;
            // SAFETY: both have the same length.
            unsafe { function.over(from.len(), args![from, &to.view_mut(), from.len()])? };
            Ok(to)
        };
        Ok(Self { mean: widened(mean)?, variance: widened(variance)?, origin: Origin::Running, affine: None })
    }

    /// Updates running averages: `r <- (1 - momentum) r + momentum s`. A batch without vertices changes
    /// nothing.
    pub fn update_running(
        &self,
        device: &CudaDevice,
        momentum: f64,
        mean: DeviceSliceMut<'_, f32>,
        variance: DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let slots = self.mean.len();
        check_length("batch norm", "running mean", mean.view(), slots)?;
        check_length("batch norm", "running variance", variance.view(), slots)?;
        if self.origin == (Origin::Batch { vertices: 0 }) {
            return Ok(());
        }
        let function = device.function(SOURCE, &[], "update_running")?;
        // SAFETY: all have one number for each slot.
        unsafe { function.over(slots, args![&self.mean, &self.variance, momentum, &mean, &variance, slots]) }
    }

    /// Mean and variance, on the host.
    pub fn read(&self, device: &CudaDevice) -> Result<(Vec<f64>, Vec<f64>)> {
        Ok((self.mean.to_vec(device)?, self.variance.to_vec(device)?))
    }
}

/// A [`Normalisation`] on the device.
pub type DeviceNormalisation<'a> = Normalisation<'a, &'a DeviceStatistics, DeviceSlice<'a, f32>>;

/// Which columns belong to which slot.
#[derive(Debug)]
pub(crate) struct Slots {
    /// `(first column, columns to the next member, members)` of each slot.
    members: DeviceBuffer<[u32; 4]>,
    /// Slot of each column.
    slot_of: DeviceBuffer<u32>,
}

impl Slots {
    fn new(device: &CudaDevice, config: &BatchNorm) -> Result<Arc<Self>> {
        let mut settings = key(&[&config.kind]);
        settings.push(usize::from(config.groups == NormGroups::PerChannel));
        device.table("batch norm slots", settings, || {
            let columns: Vec<usize> = config.columns().map(|(slot, _)| slot).collect();
            let slots = columns.iter().map(|slot| slot + 1).max().unwrap_or(0);
            let mut members = vec![[0u32; 4]; slots];
            for (column, &slot) in columns.iter().enumerate() {
                let [first, stride, count, _] = &mut members[slot];
                match *count {
                    0 => *first = column as u32,
                    1 => *stride = column as u32 - *first,
                    _ => {}
                }
                *count += 1;
            }
            let slot_of: Vec<u32> = columns.iter().map(|&slot| slot as u32).collect();
            Ok(Self { members: device.upload(&members)?, slot_of: device.upload(&slot_of)? })
        })
    }
}

/// `(scale, shift, centre, 1/deviation)` of every column.
pub(crate) type Affine = DeviceBuffer<[f32; 4]>;
/// The terms of every column that pass through the statistics: `(C/V in order 0, w A/V)`.
pub(crate) type StatisticsTerms = DeviceBuffer<[f32; 2]>;

impl DeviceNormalisation<'_> {
    pub(crate) fn check(&self, operator: &'static str) -> Result<(), KernelError> {
        let slots = self.config.slots()?;
        check_length(operator, "mean", self.statistics.mean.view(), slots)?;
        check_length(operator, "variance", self.statistics.variance.view(), slots)?;
        check_length(operator, "gamma", self.gamma, slots)?;
        check_length(operator, "beta", self.beta, slots)
    }

    pub(crate) fn affine(&self, device: &CudaDevice) -> Result<Arc<Affine>> {
        if let Some(affine) = &self.statistics.affine {
            return Ok(affine.clone());
        }
        let &Self { config, statistics: DeviceStatistics { mean, variance, .. }, gamma, beta } = self;
        let slots = Slots::new(device, config)?;
        let (scalars, width) = (config.kind.multiplicity(0), config.kind.dimension());
        let mut affine: Affine = device.buffer(width)?;
        let to = affine.view_mut();
        let function = device.function(SOURCE, &[], "make_affine")?;
        let arguments = args![mean, variance, gamma, beta, &slots.slot_of, scalars, config.epsilon, width, &to];
        // SAFETY: every column has its slot, and all slots their statistics and parameters.
        unsafe { function.over(width, arguments)? };
        Ok(Arc::new(affine))
    }

    /// Adds to the gradients, from partial sums of `dy z` of all columns and of `dy` of the columns of
    /// order 0, and returns the terms of `dx` that pass through the statistics.
    pub(crate) fn finish_sums(
        &self,
        device: &CudaDevice,
        partials: &DeviceBuffer<f64>,
        count: usize,
        [dgamma, dbeta]: [&DeviceSliceMut<'_, f32>; 2],
    ) -> Result<StatisticsTerms> {
        let slots = Slots::new(device, self.config)?;
        let (scalars, width) = (self.config.kind.multiplicity(0), self.config.kind.dimension());
        let mut through: StatisticsTerms = device.buffer(width)?;
        let to = through.view_mut();
        let inverse = match self.statistics.origin {
            Origin::Batch { vertices } => 1.0 / (vertices as f64).max(1.0),
            Origin::Running => 0.0,
        };
        let function = device.function(SOURCE, &[], "finish_backward_sums")?;
        let arguments = args![partials, count, width, scalars, &slots.members, inverse, dgamma, dbeta, &to];
        // SAFETY: the partial sums were made for these columns, and gradients were checked.
        unsafe { function.run((self.gamma.len(), 1), (256, 1), arguments)? };
        Ok(through)
    }
}

/// What a training step changes and uses with the statistics of a batch, one number for each slot.
#[derive(Debug)]
pub struct TrainingSlots<'a> {
    /// Scale.
    pub gamma: DeviceSlice<'a, f32>,
    /// Shift.
    pub beta: DeviceSlice<'a, f32>,
    /// Running mean, which is updated as by [`DeviceStatistics::update_running`].
    pub mean: DeviceSliceMut<'a, f32>,
    /// Running variance, likewise.
    pub variance: DeviceSliceMut<'a, f32>,
}

/// Mean and variance of a batch: `x` is `vertices` rows of the type.
pub fn statistics(
    device: &CudaDevice,
    config: &BatchNorm,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
) -> Result<DeviceStatistics> {
    moments(device, config, vertices, x, None)
}

/// [`statistics`] for a training step: also updates the running averages, in the same launch. The result is for
/// normalisations with this gamma and beta.
pub fn training_statistics(
    device: &CudaDevice,
    config: &BatchNorm,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    slots: TrainingSlots<'_>,
) -> Result<DeviceStatistics> {
    let count = config.slots()?;
    for (name, values) in [
        ("gamma", slots.gamma),
        ("beta", slots.beta),
        ("running mean", slots.mean.view()),
        ("running variance", slots.variance.view()),
    ] {
        check_length("batch norm statistics", name, values, count)?;
    }
    moments(device, config, vertices, x, Some(slots))
}

fn moments(
    device: &CudaDevice,
    config: &BatchNorm,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    training: Option<TrainingSlots<'_>>,
) -> Result<DeviceStatistics> {
    let count = config.slots()?;
    let (scalars, width) = (config.kind.multiplicity(0), config.kind.dimension());
    check_length("batch norm statistics", "x", x, vertices * width)?;
    let slots = Slots::new(device, config)?;
    let pieces = Pieces::new(vertices, width, MIN_ROWS);
    let mut partials: DeviceBuffer<[f64; 2]> = device.buffer(pieces.count * width)?;
    let mut statistics = DeviceStatistics {
        mean: device.buffer(count)?,
        variance: device.buffer(count)?,
        origin: Origin::Batch { vertices },
        affine: None,
    };
    let is_training = training.is_some();
    let mut affine: Affine = device.buffer(if is_training { width } else { 0 })?;
    let TrainingSlots { gamma, beta, mean, variance } = training.unwrap_or_else(|| TrainingSlots {
        gamma: DeviceSlice::empty(),
        beta: DeviceSlice::empty(),
        mean: DeviceSliceMut::empty(),
        variance: DeviceSliceMut::empty(),
    });
    let found = [&mut statistics.mean, &mut statistics.variance].map(DeviceBuffer::view_mut);
    // SAFETY: `x` was checked; there is a partial sum for each block and column, a mean and a
    // variance for each slot, and in training a map for each column, and parameters, which were checked.
    unsafe {
        if width > 0 {
            let function = device.function(SOURCE, &[], "moments")?;
            let arguments = args![x, vertices, width, pieces.rows_of_block, &partials.view_mut()];
            function.run(pieces.blocks, pieces.threads, arguments)?;
        }
        let first: &[Arg] = args![&partials, pieces.count, width, &slots.members, scalars, vertices as f64];
        let BatchNorm { epsilon, momentum, .. } = *config;
        let (found, to) = ([&found[0], &found[1]].map(Arg::from), affine.view_mut());
        let last: &[Arg] = args![gamma, beta, epsilon, momentum, &mean, &variance, &to];
        let arguments = [first, &found, last].concat();
        device.function(SOURCE, &[], "finish_moments")?.run((count, 1), (256, 1), &arguments)?;
    }
    statistics.affine = is_training.then(|| Arc::new(affine));
    Ok(statistics)
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { norm, x, y, .. } = pass;
    let affine = norm.affine(device)?;
    let function = device.function(SOURCE, &[], "norm_forward")?;
    let (width, count) = (norm.config.kind.dimension(), x.len() as u64);
    // SAFETY: lengths were checked.
    unsafe { function.over(x.len(), args![x, &y, &*affine, width, count]) }
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { rows, norm, x, dy, dx, dgamma, dbeta } = pass;
    let width = norm.config.kind.dimension();
    let scalars = norm.config.kind.multiplicity(0);
    if width == 0 {
        return Ok(());
    }
    let affine = norm.affine(device)?;
    let pieces = Pieces::new(rows, width, MIN_ROWS);
    let mut partials: DeviceBuffer<f64> = device.buffer(pieces.count * (width + scalars))?;
    // SAFETY: lengths were checked, and there is a partial sum for each block and column.
    unsafe {
        let function = device.function(SOURCE, &[], "norm_backward_sums")?;
        let arguments = args![x, dy, &*affine, rows, width, scalars, pieces.rows_of_block, &partials.view_mut()];
        function.run(pieces.blocks, pieces.threads, arguments)?;
    }
    let through = norm.finish_sums(device, &partials, pieces.count, [&dgamma, &dbeta])?;
    let function = device.function(SOURCE, &[], "norm_backward")?;
    let count = x.len() as u64;
    // SAFETY: lengths were checked.
    unsafe { function.over(x.len(), args![x, dy, &dx, &*affine, &through, width, count]) }
}
