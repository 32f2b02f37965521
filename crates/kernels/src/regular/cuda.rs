//! The regular nonlinearity on a GPU: samples stay in registers, and the batch normalisation before it is
//! applied while loading. The backward pass computes the gradient of the normalised features twice, once
//! for the sums over vertices and once for the result, and never stores it.

use super::{Regular, check_types, harmonic};
use crate::KernelError;
use crate::activation::cuda::{defines as activation_defines, literals};
use crate::batch_norm::NormGradients;
use crate::batch_norm::cuda::{Affine, DeviceNormalisation, StatisticsTerms};
use crate::cuda::reduce::{MIN_COMPUTED_ROWS, Pieces, column_threads};
use crate::cuda::{
    CudaDevice, CudaError, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, args, check_length, to_u32,
};
use crate::{Activation, FeatureType};

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
    pub(crate) fn width(&self) -> usize {
        self.channels * self.inputs
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

    fn check_lengths(
        &self,
        operator: &'static str,
        vertices: usize,
        inputs: &[(&'static str, DeviceSlice<'_, f32>)],
        (name, output): (&'static str, DeviceSlice<'_, f32>),
    ) -> Result<(), KernelError> {
        for &(name, values) in inputs {
            let expected = vertices * self.channels * self.inputs;
            check_length(operator, name, values, expected)?;
        }
        let expected = vertices * self.channels * self.outputs;
        check_length(operator, name, output, expected)
    }

    fn run_forward(
        &self,
        device: &CudaDevice,
        affine: Option<&Affine>,
        vertices: usize,
        x: DeviceSlice<'_, f32>,
        y: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let size = |n: usize| to_u32("regular forward", n);
        let (blocks, threads) = self.grid(vertices);
        let function = device.function(SOURCE, &self.defines, "regular_forward")?;
        let affine = affine.map_or(DeviceSlice::empty(), DeviceBuffer::view);
        // SAFETY: lengths were checked.
        unsafe { function.run(blocks, threads, args![x, y, affine, size(self.channels)?, size(vertices)?]) }
    }

    fn run_backward(
        &self,
        device: &CudaDevice,
        norm: Option<(&Affine, &StatisticsTerms)>,
        vertices: usize,
        (x, dy): (DeviceSlice<'_, f32>, DeviceSlice<'_, f32>),
        dx: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let size = |n: usize| to_u32("regular backward", n);
        let (blocks, threads) = self.grid(vertices);
        let function = device.function(SOURCE, &self.defines, "regular_backward")?;
        let affine = norm.map_or(DeviceSlice::empty(), |(affine, _)| affine.view());
        let through = norm.map_or(DeviceSlice::empty(), |(_, through)| through.view());
        // SAFETY: lengths were checked.
        unsafe {
            function.run(blocks, threads, args![x, dy, dx, affine, through, size(self.channels)?, size(vertices)?])
        }
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

/// `y` = the nonlinearity of `x`.
pub fn forward(
    device: &CudaDevice,
    plan: &DevicePlan,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    plan.check_lengths("regular forward", vertices, &[("x", x)], ("y", y.view()))?;
    plan.run_forward(device, None, vertices, x, &y)
}

/// `dx` from the same `x` and the gradient `dy` of the output.
pub fn backward(
    device: &CudaDevice,
    plan: &DevicePlan,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let inputs = [("x", x), ("dx", dx.view())];
    plan.check_lengths("regular backward", vertices, &inputs, ("dy", dy))?;
    plan.run_backward(device, None, vertices, (x, dy), &dx)
}

/// `y` = the nonlinearity of the normalised `x`, which is not stored.
pub fn forward_normalised(
    device: &CudaDevice,
    plan: &DevicePlan,
    normalisation: DeviceNormalisation<'_>,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let operator = "normalised regular forward";
    normalisation.check(operator)?;
    check_types(operator, &normalisation.config.kind, &plan.config.input)?;
    plan.check_lengths(operator, vertices, &[("x", x)], ("y", y.view()))?;
    let affine = normalisation.affine(device)?;
    plan.run_forward(device, Some(&affine), vertices, x, &y)
}

/// `dx` through nonlinearity and normalisation; adds to the gradients of gamma and beta.
#[allow(clippy::too_many_arguments)]
pub fn backward_normalised(
    device: &CudaDevice,
    plan: &DevicePlan,
    normalisation: DeviceNormalisation<'_>,
    vertices: usize,
    x: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
    gradients: NormGradients<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    let operator = "normalised regular backward";
    normalisation.check(operator)?;
    check_types(operator, &normalisation.config.kind, &plan.config.input)?;
    gradients.check(operator, &normalisation)?;
    let inputs = [("x", x), ("dx", dx.view())];
    plan.check_lengths(operator, vertices, &inputs, ("dy", dy))?;
    if x.is_empty() {
        return Ok(());
    }
    let affine = normalisation.affine(device)?;
    let pieces = Pieces::new(vertices, plan.channels, MIN_COMPUTED_ROWS);
    let columns = (plan.inputs + 1) * plan.channels;
    let mut partials: DeviceBuffer<f64> = device.buffer(pieces.count * columns)?;
    let size = |n: usize| to_u32(operator, n);
    let function = device.function(SOURCE, &plan.defines, "regular_backward_sums")?;
    // SAFETY: lengths were checked, and there is a partial sum for each block and column.
    unsafe {
        function.run(
            pieces.blocks,
            pieces.threads,
            args![
                x,
                dy,
                &*affine,
                size(plan.channels)?,
                size(vertices)?,
                size(pieces.rows_of_block)?,
                &partials.view_mut(),
            ],
        )?;
    }
    let through = normalisation.finish_sums(device, &partials, pieces.count, &gradients)?;
    let norm = Some((&*affine, &through));
    plan.run_backward(device, norm, vertices, (x, dy), &dx)
}
