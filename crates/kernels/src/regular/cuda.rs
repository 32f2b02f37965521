//! The regular nonlinearity on a GPU: samples stay in registers, and the batch normalisation before it is
//! applied while loading. The backward pass computes the gradient of the normalised features twice, once
//! for the sums over vertices and once for the result, and never stores it.

use super::{Backward, Forward, Regular, harmonic};
use crate::activation::cuda::{defines as activation_defines, literals};
use crate::batch_norm::cuda::{Affine, StatisticsTerms};
use crate::cuda::reduce::{MIN_COMPUTED_ROWS, Pieces, column_threads};
use crate::cuda::{CudaDevice, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args};
use crate::{Activation, FeatureType, Gpu, KernelError};

pub(crate) const SOURCE: KernelSource = KernelSource::new("regular", include_str!("regular.cu"));

/// Largest number of harmonics that are constants of the source; more are computed by the kernel.
const MAX_LITERALS: usize = 4096;
/// Vertices of one thread, unless there are too few for this number of blocks.
const VERTICES_OF_THREAD: usize = 4;
const MANY_BLOCKS: usize = 1024;

/// A regular nonlinearity prepared for a device.
#[derive(Debug, Clone)]
pub struct DevicePlan {
    config: Regular,
    channels: usize,
    inputs: usize,
    outputs: usize,
    defines: Vec<Define>,
}

impl DevicePlan {
    /// Prepares a nonlinearity.
    ///
    /// # Errors
    /// Invalid settings, with the allowed range.
    pub fn new(config: &Regular) -> Result<Self, KernelError> {
        let channels = config.check()?;
        let inputs = 2 * config.input.highest_order() + 1;
        let outputs = 2 * config.output_band_limit + 1;
        let components = inputs.max(outputs);
        let mut defines = activation_defines(&config.activation);
        for (name, value) in
            [("INPUTS", inputs), ("OUTPUTS", outputs), ("COMPONENTS", components), ("SAMPLES", config.samples)]
        {
            defines.push((name, value.to_string()));
        }
        if config.samples * components <= MAX_LITERALS {
            let entry = |place: usize| harmonic(place / components, place % components, config.samples);
            let values = literals((0..config.samples * components).map(entry));
            defines.push(("VALUES", values));
        }
        Ok(Self { config: config.clone(), channels, inputs, outputs, defines })
    }

    /// The settings.
    pub fn config(&self) -> &Regular {
        &self.config
    }

    /// Macros of `regular.cu`.
    pub(crate) fn defines(&self) -> &[Define] {
        &self.defines
    }

    /// Length of a row of the input.
    pub(crate) fn input_width(&self) -> usize {
        self.channels * self.inputs
    }

    /// Length of a row of the output.
    pub(super) fn output_width(&self) -> usize {
        self.channels * self.outputs
    }

    /// Blocks and threads over vertices and channels.
    fn grid(&self, vertices: usize) -> ((usize, usize), (usize, usize)) {
        let threads = column_threads(self.channels);
        let across = self.channels.div_ceil(threads.0);
        let mut rows = vertices.div_ceil(threads.1);
        if rows * across > MANY_BLOCKS {
            rows = rows.div_ceil(VERTICES_OF_THREAD);
        }
        ((rows, across), threads)
    }

    fn run_backward(
        &self,
        device: &CudaDevice,
        norm: Option<(&Affine, &StatisticsTerms)>,
        vertices: usize,
        (x, dy): (DeviceSlice<'_, f32>, DeviceSlice<'_, f32>),
        dx: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let (blocks, threads) = self.grid(vertices);
        let function = device.function(SOURCE, &self.defines, "regular_backward")?;
        let affine = norm.map_or(DeviceSlice::empty(), |(affine, _)| affine.view());
        let through = norm.map_or(DeviceSlice::empty(), |(_, through)| through.view());
        // SAFETY: lengths were checked.
        unsafe { function.run(blocks, threads, args![x, dy, dx, affine, through, self.channels, vertices]) }
    }
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [
        (FeatureType::uniform(16, 2), 2, 5, Activation::Relu),
        (FeatureType::uniform(3, 3), 1, 101, Activation::Elu),
        (FeatureType::uniform(1, 40), 40, 300, Activation::Tanh),
        (FeatureType::scalars(4), 0, 1, Activation::Polynomial(vec![0.0, 1.0])),
    ]
    .into_iter()
    .filter_map(|(input, output_band_limit, samples, activation)| {
        let config = Regular { output_band_limit, ..Regular::new(input, samples, activation) };
        Some(DevicePlan::new(&config).ok()?.defines)
    })
    .collect()
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { rows, plan, norm, x, y } = pass;
    let affine = norm.map(|norm| norm.affine(device)).transpose()?;
    let affine = affine.as_ref().map_or(DeviceSlice::empty(), |affine| affine.view());
    let (blocks, threads) = plan.grid(rows);
    let function = device.function(SOURCE, &plan.defines, "regular_forward")?;
    // SAFETY: lengths were checked.
    unsafe { function.run(blocks, threads, args![x, &y, affine, plan.channels, rows]) }
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta } = pass;
    let Some(norm) = norm else { return plan.run_backward(device, None, rows, (x, dy), &dx) };
    if x.is_empty() {
        return Ok(());
    }
    let affine = norm.affine(device)?;
    let pieces = Pieces::new(rows, plan.channels, MIN_COMPUTED_ROWS);
    let columns = (plan.inputs + 1) * plan.channels;
    let mut partials: DeviceBuffer<f64> = device.buffer(pieces.count * columns)?;
    let function = device.function(SOURCE, &plan.defines, "regular_backward_sums")?;
    // SAFETY: lengths were checked, and there is a partial sum for each block and column.
    unsafe {
        let arguments = args![x, dy, &*affine, plan.channels, rows, pieces.rows_of_block, &partials.view_mut()];
        function.run(pieces.blocks, pieces.threads, arguments)?;
    }
    let through = norm.finish_sums(device, &partials, pieces.count, [&dgamma, &dbeta])?;
    plan.run_backward(device, Some((&*affine, &through)), rows, (x, dy), &dx)
}
