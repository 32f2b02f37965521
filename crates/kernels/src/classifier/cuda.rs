//! The fused classifier on a GPU: cuBLAS computes the logits of a tile of rows, which are replaced in place
//! by their gradients and used by both products before the next tile.
//!
//! Training with at most 32 classes takes the kernels of `few_classes.cu` instead, in all modes, unless there are too many
//! channels.
//!
//! Rows of logits, and a copy of the weights, are padded with zeros to a multiple of 32 classes, so that
//! all three products work on aligned rows.
//!
//! With [`ProductMode::Bf16`](crate::cuda::ProductMode) and more than 32 classes the factors of the three products of
//! training are rounded to bf16: features, weights, and the gradients of the logits. So are the logits, after they are
//! summed in f32, which halves the memory that is moved. Softmax, loss, sums and results stay in f32. On Hopper the
//! kernels of `hopper.cu` do this work, and that of [`ProductMode::Tf32`](crate::cuda::ProductMode), without storing
//! logits.

use super::{Gradients, Map, OPERATOR, RowResults, few_classes, hopper, rounds_to_bf16};
use crate::KernelError;
use crate::cross_entropy::cuda::{
    DeviceScore, DeviceTargets, RowNumbers, RowScores, SoftmaxRows, empty_score, round_to_bf16, row_blocks, sums_bias,
};
use crate::cuda::reduce::{add_column_sums, sum_partials};
use crate::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, Operand, Product, check_length};

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

/// Rows of a tile with numbers of this many bytes.
fn chunk(device: &CudaDevice, stride: usize, bytes: usize, rows: usize) -> usize {
    let fitting = device.tile_bytes() / (bytes * stride);
    fitting.max(256).min(rows.max(1))
}

/// Weights with rows of zeros after the last class.
fn padded_weight(device: &CudaDevice, classifier: &Classifier<'_>) -> Result<DeviceBuffer<f32>, CudaError> {
    let mut padded_weight = device.zeros(padded(classifier.targets.classes()) * classifier.channels)?;
    let place = padded_weight.view_mut().slice(0..classifier.weight.len());
    device.copy(classifier.weight, place)?;
    Ok(padded_weight)
}

/// Logits of a tile of rows, which become their gradients.
enum Tile {
    F32(DeviceBuffer<f32>),
    Bf16(DeviceBuffer<u16>),
}

impl Tile {
    fn numbers(&self) -> RowNumbers<'_> {
        match self {
            Self::F32(numbers) => RowNumbers::F32(numbers.view()),
            Self::Bf16(numbers) => RowNumbers::Bf16(numbers.view()),
        }
    }

    fn operand(&self, stride: usize) -> Operand<'_> {
        match self {
            Self::F32(numbers) => Operand::new(numbers.view(), stride),
            Self::Bf16(numbers) => Operand::bf16(numbers.view(), stride),
        }
    }

    /// `logits = h W^T` of some rows.
    fn multiply(
        &mut self,
        device: &CudaDevice,
        (rows, channels, stride): (usize, usize, usize),
        features: Operand<'_>,
        weight: Operand<'_>,
    ) -> Result<(), CudaError> {
        let product =
            Product { m: rows, n: stride, k: channels, a: features, b: weight.transposed(), add: false, batches: 1 };
        match self {
            Self::F32(logits) if channels == 0 => device.clear(logits.view_mut()),
            Self::Bf16(logits) if channels == 0 => device.clear(logits.view_mut()),
            Self::F32(logits) => product.run(device, &logits.view_mut(), (stride, 0)),
            Self::Bf16(logits) => product.run_to_bf16(device, &logits.view_mut(), (stride, 0)),
        }
    }
}

/// Features and weights in bf16.
struct Rounded {
    features: DeviceBuffer<u16>,
    weight: DeviceBuffer<u16>,
}

impl Rounded {
    fn new(
        device: &CudaDevice,
        features: DeviceSlice<'_, f32>,
        weight: DeviceSlice<'_, f32>,
    ) -> Result<Self, CudaError> {
        let mut rounded = Self { features: device.buffer(features.len())?, weight: device.buffer(weight.len())? };
        round_to_bf16(device, features, &rounded.features.view_mut())?;
        round_to_bf16(device, weight, &rounded.weight.view_mut())?;
        Ok(rounded)
    }
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
) -> Result<DeviceScore, CudaError> {
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
    // Without fused sums of the bias, its gradients are sums of those of the logits in f32.
    let in_bf16 = rounds_to_bf16(device.product_mode(), classes) && device.capability() >= (8, 0) && fused_bias;
    let (rounded, chunk, mut tile) = if in_bf16 {
        let rounded = Rounded::new(device, features, weight.view())?;
        let chunk = chunk(device, stride, 2, count);
        let tile = Tile::Bf16(device.buffer(chunk * stride)?);
        (Some(rounded), chunk, tile)
    } else {
        let chunk = chunk(device, stride, 4, count);
        (None, chunk, Tile::F32(device.buffer(chunk * stride)?))
    };
    let blocks = row_blocks(classes, chunk);
    let bias_partials: DeviceBuffer<f32> = device.buffer(if fused_bias { blocks * classes } else { 0 })?;
    if !fused_bias {
        device.clear(gradients.bias.reborrow())?;
    }
    let mut scores = RowScores::new(device, classes, (count, chunk))?;
    for first in (0..count).step_by(chunk) {
        let rows_here = chunk.min(count - first);
        let (h, w) = match &rounded {
            Some(rounded) => (
                Operand::bf16(rounded.features.view().from(first * channels), channels),
                Operand::bf16(rounded.weight.view(), channels),
            ),
            None => (Operand::new(features.from(first * channels), channels), Operand::new(weight.view(), channels)),
        };
        tile.multiply(device, (rows_here, channels, stride), h, w)?;
        scores.run(
            device,
            &SoftmaxRows {
                targets: classifier.targets,
                rows: (first, rows_here),
                logits: tile.numbers(),
                stride,
                bias: classifier.bias,
                gradients: Some((tile.numbers(), dloss)),
                predictions: part(&rows.predictions, first),
                ranks: DeviceSlice::empty(),
                bias_partials: bias_partials.view(),
            },
        )?;
        match &tile {
            Tile::F32(sums) if !fused_bias => {
                let shape = (rows_here, stride, classes);
                add_column_sums(device, sums.view(), shape, &gradients.bias)?;
            }
            _ => {
                let sums = bias_partials.view();
                let blocks = row_blocks(classes, rows_here);
                sum_partials(device, sums, blocks, &gradients.bias, first > 0)?;
            }
        }
        let p = tile.operand(stride);
        let dh = gradients.features.reborrow().slice(first * channels..(first + rows_here) * channels);
        Product { m: rows_here, n: channels, k: stride, a: p, b: w, add: false, batches: 1 }.run(
            device,
            &dh,
            (channels, 0),
        )?;
        Product { m: classes, n: channels, k: rows_here, a: p.transposed(), b: h, add: first > 0, batches: 1 }.run(
            device,
            &gradients.weight,
            (channels, 0),
        )?;
    }
    scores.finish(device, classifier.targets)
}

/// Loss, predictions and ranks, without gradients.
pub fn evaluate(
    device: &CudaDevice,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    rows: Rows<'_>,
) -> Result<DeviceScore, CudaError> {
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
    let chunk = chunk(device, stride, 4, count);
    let weight = padded_weight(device, classifier)?;
    let mut tile = Tile::F32(device.buffer(chunk * stride)?);
    let mut scores = RowScores::new(device, classes, (count, chunk))?;
    for first in (0..count).step_by(chunk) {
        let rows_here = chunk.min(count - first);
        let h = Operand::new(features.from(first * channels), channels);
        let w = Operand::new(weight.view(), channels);
        tile.multiply(device, (rows_here, channels, stride), h, w)?;
        scores.run(
            device,
            &SoftmaxRows {
                targets: classifier.targets,
                rows: (first, rows_here),
                logits: tile.numbers(),
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
