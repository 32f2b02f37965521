//! The fused classifier on a GPU: cuBLAS computes the logits of a tile of rows, which are replaced in place
//! by their gradients and used by both products before the next tile.
//!
//! Training with at most 32 classes takes the kernels of `few_classes.cu` instead, in all modes, unless there are too many
//! channels.
//!
//! Rows of logits, and a copy of the weights, are padded with zeros to a multiple of 32 classes, so that
//! all three products work on aligned rows.
//!
//! On Hopper the kernels of `hopper.cu` do the work of [`ProductMode::Tf32`](crate::cuda::ProductMode) and, with factors
//! rounded to bf16, of [`ProductMode::Bf16`](crate::cuda::ProductMode), for more than 32 classes and without storing
//! logits. Elsewhere `Bf16` means `Tf32`.

use super::{Gradients, Map, OPERATOR, RowResults, few_classes, hopper};
use crate::KernelError;
use crate::cross_entropy::cuda::{
    DeviceScore, DeviceTargets, RowScores, SoftmaxRows, empty_score, row_blocks, sums_bias,
};
use crate::cuda::reduce::{add_column_sums, sum_partials};
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, Operand, Product, Result, check_length,
};

/// A [`Map`] on the device.
pub type Classifier<'a> = Map<DeviceSlice<'a, f32>, &'a DeviceTargets>;
/// [`RowResults`] on the device.
pub type Rows<'a> = RowResults<DeviceSliceMut<'a, u32>>;

impl Classifier<'_> {
    fn check(&self, features: DeviceSlice<'_, f32>, rows: &Rows<'_>) -> Result<(), KernelError> {
        let (count, classes) = (self.targets.rows(), self.targets.classes());
        check_length(OPERATOR, "features", features, count * self.channels)?;
        check_length(OPERATOR, "weight", self.weight, classes * self.channels)?;
        check_length(OPERATOR, "bias", self.bias, classes)?;
        for (name, values) in [("predictions", &rows.predictions), ("ranks", &rows.ranks)] {
            if let Some(values) = values {
                check_length(OPERATOR, name, values.view(), count)?;
            }
        }
        Ok(())
    }
}

/// Classes of a padded row.
fn padded(classes: usize) -> usize {
    classes.next_multiple_of(32)
}

/// Rows of a tile.
fn chunk(device: &CudaDevice, stride: usize, rows: usize) -> usize {
    let fitting = device.tile_bytes() / (4 * stride);
    fitting.max(256).min(rows.max(1))
}

/// Weights with rows of zeros after the last class.
fn padded_weight(device: &CudaDevice, classifier: &Classifier<'_>) -> Result<DeviceBuffer<f32>> {
    let mut padded_weight = device.zeros(padded(classifier.targets.classes()) * classifier.channels)?;
    let place = padded_weight.view_mut().slice(0..classifier.weight.len());
    device.copy(classifier.weight, place)?;
    Ok(padded_weight)
}

/// `logits = h W^T` of some rows.
fn multiply(
    device: &CudaDevice,
    (rows, channels, stride): (usize, usize, usize),
    features: Operand<'_>,
    weight: Operand<'_>,
    logits: &mut DeviceBuffer<f32>,
) -> Result<()> {
    if channels == 0 {
        return device.clear(logits.view_mut());
    }
    let (a, b) = (features, weight.transposed());
    let product = Product { m: rows, n: stride, k: channels, a, b, add: false, batches: 1 };
    product.run(device, &logits.view_mut(), (stride, 0))
}

fn part<'a>(values: &'a Option<DeviceSliceMut<'_, u32>>, first: usize) -> DeviceSlice<'a, u32> {
    values.as_ref().map_or(DeviceSlice::empty(), |values| values.view().from(first))
}

/// Loss and gradients for the gradient `dloss` of the loss; see the [module](super). Ranks are only
/// computed by [`evaluate`].
pub fn loss_and_gradients(
    device: &CudaDevice,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    dloss: f64,
    mut gradients: Gradients<DeviceSliceMut<'_, f32>>,
    rows: Rows<'_>,
) -> Result<DeviceScore> {
    classifier.check(features, &rows)?;
    let (channels, classes) = (classifier.channels, classifier.targets.classes());
    let count = classifier.targets.rows();
    for (name, values, expected) in [
        ("gradients.features", gradients.features.view(), count * channels),
        ("gradients.weight", gradients.weight.view(), classes * channels),
        ("gradients.bias", gradients.bias.view(), classes),
    ] {
        check_length(OPERATOR, name, values, expected)?;
    }
    if rows.ranks.is_some() {
        return Err(CudaError::Kernel(KernelError::Setting {
            operator: OPERATOR,
            problem: "ranks are computed by `evaluate` only".into(),
        }));
    }
    if count == 0 || classes == 0 {
        for values in [gradients.features, gradients.weight, gradients.bias] {
            device.clear(values)?;
        }
        return empty_score(device);
    }
    if let Some(shape) = few_classes::Shape::of(classifier, features, &gradients) {
        return few_classes::loss_and_gradients(device, shape, classifier, features, dloss, gradients, rows);
    }
    if hopper::applies(device, classifier, features, &gradients) {
        return hopper::loss_and_gradients(device, classifier, features, dloss, gradients, rows);
    }
    let stride = padded(classes);
    let fused_bias = sums_bias(classes);
    let weight = padded_weight(device, classifier)?;
    let chunk = chunk(device, stride, count);
    let mut logits = device.buffer(chunk * stride)?;
    let blocks = row_blocks(classes, chunk);
    let bias_partials: DeviceBuffer<f32> = device.buffer(if fused_bias { blocks * classes } else { 0 })?;
    if !fused_bias {
        device.clear(gradients.bias.reborrow())?;
    }
    let mut scores = RowScores::new(device, classes, (count, chunk))?;
    for first in (0..count).step_by(chunk) {
        let rows_here = chunk.min(count - first);
        let h = Operand::new(features.from(first * channels), channels);
        let w = Operand::new(weight.view(), channels);
        multiply(device, (rows_here, channels, stride), h, w, &mut logits)?;
        scores.run(
            device,
            &SoftmaxRows {
                targets: classifier.targets,
                rows: (first, rows_here),
                logits: logits.view(),
                stride,
                bias: classifier.bias,
                gradients: Some((logits.view(), dloss)),
                predictions: part(&rows.predictions, first),
                ranks: DeviceSlice::empty(),
                bias_partials: bias_partials.view(),
            },
        )?;
        if fused_bias {
            let blocks = row_blocks(classes, rows_here);
            sum_partials(device, bias_partials.view(), blocks, &gradients.bias, first > 0)?;
        } else {
            add_column_sums(device, logits.view(), (rows_here, stride, classes), &gradients.bias)?;
        }
        let p = Operand::new(logits.view(), stride);
        let dh = gradients.features.reborrow().slice(first * channels..(first + rows_here) * channels);
        let of_features = Product { m: rows_here, n: channels, k: stride, a: p, b: w, add: false, batches: 1 };
        of_features.run(device, &dh, (channels, 0))?;
        let (a, add) = (p.transposed(), first > 0);
        let of_weight = Product { m: classes, n: channels, k: rows_here, a, b: h, add, batches: 1 };
        of_weight.run(device, &gradients.weight, (channels, 0))?;
    }
    scores.finish(device, classifier.targets)
}

/// Loss, predictions and ranks, without gradients.
pub fn evaluate(
    device: &CudaDevice,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    rows: Rows<'_>,
) -> Result<DeviceScore> {
    classifier.check(features, &rows)?;
    let (channels, classes) = (classifier.channels, classifier.targets.classes());
    let count = classifier.targets.rows();
    if count == 0 || classes == 0 {
        for (values, nothing) in [(rows.predictions, 0), (rows.ranks, u32::MAX)] {
            if let Some(values) = values {
                let fill = vec![nothing; values.len()];
                device.write(values, &fill)?;
            }
        }
        return empty_score(device);
    }
    let stride = padded(classes);
    let chunk = chunk(device, stride, count);
    let weight = padded_weight(device, classifier)?;
    let mut logits = device.buffer(chunk * stride)?;
    let mut scores = RowScores::new(device, classes, (count, chunk))?;
    for first in (0..count).step_by(chunk) {
        let rows_here = chunk.min(count - first);
        let h = Operand::new(features.from(first * channels), channels);
        let w = Operand::new(weight.view(), channels);
        multiply(device, (rows_here, channels, stride), h, w, &mut logits)?;
        scores.run(
            device,
            &SoftmaxRows {
                targets: classifier.targets,
                rows: (first, rows_here),
                logits: logits.view(),
                stride,
                bias: classifier.bias,
                gradients: None,
                predictions: part(&rows.predictions, first),
                ranks: part(&rows.ranks, first),
                bias_partials: DeviceSlice::empty(),
            },
        )?;
    }
    scores.finish(device, classifier.targets)
}
