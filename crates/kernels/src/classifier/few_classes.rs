//! Training with few classes on any GPU: one kernel reads the features once and writes their gradients, another one
//! sums the gradients of weights and bias.
//!
//! All products are in f32, in every [`ProductMode`](crate::cuda::ProductMode): with few classes they take less time
//! than the memory.
//!
//! Gain on an H200 (`bench/compare`): without it the training step of `segmentation` takes 4 to 5 % longer.

use super::Gradients;
use super::cuda::{Classifier, Rows};
use crate::cross_entropy::cuda::{DeviceScore, FEW_CLASSES, ScoreParts};
use crate::cuda::{Arg, CudaDevice, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "classifier_few",
    concat!(include_str!("../cross_entropy/score.cu"), include_str!("few_classes.cu")),
);

/// Most warps that share a row.
const MAX_SLICES: usize = 8;

/// How a block of threads divides rows; see `few_classes.cu`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    channels: usize,
    classes: usize,
    /// Neighbouring channels of a thread.
    vector: usize,
    /// Warps of a row.
    slices: usize,
    /// Groups of as many warps.
    groups: usize,
    /// Rows that a group takes at a time.
    rows: usize,
}

impl Shape {
    /// `None` if these kernels are not made for the work. `aligned`: true if vectors of as many numbers can be loaded.
    fn new(channels: usize, classes: usize, aligned: impl Fn(usize) -> bool) -> Option<Self> {
        // Registers hold a vector of weights and of their gradients for each class. Where half a vector is enough for a
        // warp to hold a row, no lane is left without channels.
        let fits = |&vector: &usize| {
            channels.is_multiple_of(vector) && aligned(vector) && vector * classes <= 64 && channels > 16 * vector
        };
        let vector = [4, 2].into_iter().find(fits).unwrap_or(1);
        let slices = channels.div_ceil(32 * vector);
        // The largest number with enough registers for each.
        let warps = if vector * classes <= 32 { 12 } else { 8 };
        let lanes = classes.next_power_of_two();
        let made = channels > 0 && (1..=FEW_CLASSES).contains(&classes) && slices <= MAX_SLICES;
        made.then(|| Self {
            channels,
            classes,
            vector,
            slices,
            groups: (warps / slices).max(1),
            rows: (32 / lanes).min(8),
        })
    }

    /// That of work on a device.
    pub(super) fn of(
        classifier: &Classifier<'_>,
        features: DeviceSlice<'_, f32>,
        gradients: &Gradients<DeviceSliceMut<'_, f32>>,
    ) -> Option<Self> {
        let loaded = [features, classifier.weight, gradients.features.view()];
        let (channels, classes) = (classifier.channels, classifier.targets.classes());
        Self::new(channels, classes, |vector| loaded.iter().all(|numbers| numbers.is_aligned(vector)))
    }

    fn defines(&self, smoothed: bool) -> Vec<Define> {
        vec![
            ("CHANNELS", self.channels.to_string()),
            ("CLASSES", self.classes.to_string()),
            ("VECTOR", self.vector.to_string()),
            ("GROUPS", self.groups.to_string()),
            ("ROWS", self.rows.to_string()),
            ("SMOOTHED", u8::from(smoothed).to_string()),
        ]
    }
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [
        (1, 1, false),
        (60, 2, true),
        (128, 8, false),
        (256, 10, true),
        (128, 32, false),
        (512, 31, true),
        (255, 32, false),
    ]
    .into_iter()
    .filter_map(|(channels, classes, smoothed)| Some(Shape::new(channels, classes, |_| true)?.defines(smoothed)))
    .collect()
}

/// As [`super::cuda::loss_and_gradients`], for work of this shape that is not empty.
pub(super) fn loss_and_gradients(
    device: &CudaDevice,
    shape: Shape,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    dloss: f64,
    to: Gradients<DeviceSliceMut<'_, f32>>,
    rows: Rows<'_>,
) -> Result<DeviceScore> {
    let Classifier { weight, bias, targets, .. } = *classifier;
    let (labels, class_weights, normaliser) = targets.slices();
    let (count, smoothing) = (targets.rows(), targets.smoothing());
    let defines = shape.defines(smoothing > 0.0);
    let predictions = rows.predictions.as_ref();
    let predictions = predictions.map_or(DeviceSlice::empty(), DeviceSliceMut::view);
    let blocks = count.div_ceil(shape.groups * shape.rows);
    let blocks = blocks.min(device.multiprocessors());
    let results = weight.len() + shape.classes;
    let partials: DeviceBuffer<f32> = device.buffer(blocks * weight.len())?;
    let bias_partials: DeviceBuffer<f32> = device.buffer(blocks * shape.classes)?;
    let scores = ScoreParts::new(device, blocks)?;
    let (parts, score) = (scores.from(0), DeviceScore::new(device)?);
    let train = device.function(SOURCE, &defines, "train")?;
    let finish = device.function(SOURCE, &defines, "finish")?;
    // SAFETY: the operator checked that there are as many rows of features and gradients, and of weights and biases,
    // and labels were checked when the targets were made; vectors are aligned, and there is a place for each partial
    // result.
    unsafe {
        let first: &[Arg] = args![features, count, weight, bias, labels, class_weights, normaliser, dloss, smoothing];
        let last: &[Arg] = args![&to.features, predictions, &partials, &bias_partials, parts];
        train.run((blocks, 1), (32 * shape.groups * shape.slices, 1), &[first, last].concat())?;
        let arguments =
            args![&partials, &bias_partials, parts, blocks, normaliser, &to.weight, &to.bias, score.numbers()];
        finish.run((results.div_ceil(32) + 1, 1), (512, 1), arguments)?;
    }
    Ok(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_channels_and_registers_suffice() {
        let shape = |channels, classes| {
            let shape = Shape::new(channels, classes, |_| true)?;
            Some((shape.vector, shape.slices, shape.groups, shape.rows))
        };
        assert_eq!(shape(128, 8), Some((4, 1, 12, 4)));
        assert_eq!(shape(256, 8), Some((4, 2, 6, 4)));
        assert_eq!(shape(64, 8), Some((2, 1, 12, 4)));
        assert_eq!(shape(16, 1), Some((1, 1, 12, 8)));
        assert_eq!(shape(128, 10), Some((4, 1, 8, 2)));
        assert_eq!(shape(128, 32), Some((2, 2, 4, 1)));
        assert_eq!(shape(512, 32), Some((2, 8, 1, 1)));
        assert_eq!(shape(255, 3), Some((1, 8, 1, 8)));
        for (channels, classes) in [(0, 3), (3, 0), (128, 33), (514, 32), (257, 3)] {
            assert_eq!(shape(channels, classes), None);
        }
        assert_eq!(Shape::new(128, 8, |n| n < 2).unwrap().vector, 1);
    }
}
