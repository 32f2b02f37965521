//! Training in tf32 and bf16 on GPUs of compute capability 9.0, with no logits in memory.
//!
//! For [`ProductMode::Tf32`] the factors are in fp16, which has the same mantissa and twice the speed. Scales by powers
//! of two make up for its smaller range.
//!
//! The logits of a tile stay in registers, as the scores of attention do. A first pass over the classes gives the
//! statistics of a row and the gradient of its features; a second pass, over the rows, computes the logits again for
//! the gradients of weights and bias. That is four products instead of three, but no logits are written or read.
//!
//! Inference that needs the logits takes [`logits`]: the first of these products, in fp16 in both modes, which writes
//! them once.
//!
//! Gain on an H200 (`bench/compare`): without it a training step of `correspondence` takes 122 % longer in tf32 and 63 %
//! in bf16, one of `diffusion` 46 to 118 %; without [`logits`] `correspondence_inference` takes 62 to 97 % longer.

use super::Gradients;
use super::cuda::{Classifier, Rows};
use crate::cross_entropy::cuda::{DeviceScore, DeviceTargets, FEW_CLASSES, ScoreParts};
use crate::cuda::reduce::add_column_sums;
use crate::cuda::{
    Arg, CudaDevice, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, ProductMode, Result, args,
};

pub(crate) const SOURCE: KernelSource = KernelSource::new(
    "classifier_hopper",
    concat!(include_str!("../cuda/hopper.cu"), include_str!("../cross_entropy/score.cu"), include_str!("hopper.cu")),
);

/// Rows or classes that a block of threads holds, and those of a tile that it streams: BM and BN there.
const HELD: usize = 128;
const TILE: usize = 96;
/// A multiple of both.
const ROUND: usize = 384;
/// Rows of features that the same threads pack: TOGETHER there.
const TOGETHER: usize = 4;
/// Rows of a launch of the first pass. Its partial results take as much memory as their features, and 17 MB.
const CHUNK: usize = 160 * ROUND;

/// Numbers beside the features of a row of a tile: COLUMN there.
const COLUMN: usize = 6;

/// Shared memory of a block of threads: its held rows, aligned to 1,024 bytes, and tiles with their columns.
const SHARED_BYTES: usize = 226 << 10;

/// Tiles in shared memory.
fn stages(channels: usize) -> usize {
    let left = SHARED_BYTES - 1024 - HELD * channels * 2;
    (left / (TILE * (channels * 2 + COLUMN * 4))).min(8)
}

fn defines(channels: usize, smoothed: bool, fp16: bool) -> Vec<Define> {
    vec![
        ("CHANNELS", channels.to_string()),
        ("STAGES", stages(channels).to_string()),
        ("SMOOTHED", u8::from(smoothed).to_string()),
        ("FP16", u8::from(fp16).to_string()),
    ]
}

fn has_scales(defines: &[Define]) -> bool {
    defines.contains(&("FP16", "1".into()))
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    vec![defines(64, true, false), defines(192, true, true), defines(256, false, false), defines(256, false, true)]
}

/// True if these kernels can do the work, and are faster than stored logits: those of few classes take little memory,
/// and most of a tile of classes would be empty.
pub(super) fn applies(
    device: &CudaDevice,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    gradients: &Gradients<DeviceSliceMut<'_, f32>>,
) -> bool {
    let aligned = [features, classifier.weight, gradients.features.view(), gradients.weight.view()];
    multiplies(device, classifier.channels, &aligned) && classifier.targets.classes() > FEW_CLASSES
}

/// True if [`logits`] supports these sizes and is faster than cuBLAS, which needs the bias at the start of each row,
/// and is slow if rows are not aligned.
pub(crate) fn stores_logits(
    device: &CudaDevice,
    channels: usize,
    features: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    bias: DeviceSlice<'_, f32>,
) -> bool {
    multiplies(device, channels, &[features, weight]) && !features.is_empty() && bias.len() >= MANY_CLASSES
}

/// Fewest classes for which it pays to pack features and weights.
const MANY_CLASSES: usize = 1024;

/// True if the kernels exist for these channels and numbers.
fn multiplies(device: &CudaDevice, channels: usize, aligned: &[DeviceSlice<'_, f32>]) -> bool {
    device.product_mode() != ProductMode::F32
        && device.capability() == (9, 0)
        && [64, 128, 192, 256].contains(&channels)
        && aligned.iter().all(|numbers| numbers.is_aligned(4))
}

/// `to = features weight^T + bias`, for work that [`stores_logits`]; lengths were checked.
pub(crate) fn logits(
    device: &CudaDevice,
    channels: usize,
    features: DeviceSlice<'_, f32>,
    weight: DeviceSlice<'_, f32>,
    bias: DeviceSlice<'_, f32>,
    to: &DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let defines = defines(channels, false, true);
    let (rows, classes) = (features.len() / channels, bias.len());
    let packed = Packed::new(device, &defines, (rows, channels), features, weight, bias, None)?;
    let (blocks, tiles) = (rows.div_ceil(HELD), classes.div_ceil(TILE));
    let function = device.function_with_shared(SOURCE, &defines, "store_logits", SHARED_BYTES)?;
    let Packed { features, scales, weight, largest, bias } = &packed;
    let arguments = args![features, scales, weight, largest, bias, blocks, tiles, to, rows, classes];
    // SAFETY: features and weights are padded to whole blocks and tiles, and there is a place for each logit.
    unsafe { function.run((device.multiprocessors().min(blocks * tiles), 1), (384, 1), arguments) }
}

/// Scaled and rounded factors with rows up to a multiple of [`ROUND`], and the bias likewise.
struct Packed {
    features: DeviceBuffer<u8>,
    /// Of the rows of features.
    scales: DeviceBuffer<f32>,
    weight: DeviceBuffer<u8>,
    bias: DeviceBuffer<f32>,
    /// `Largest` there. Only factors with scales have it.
    largest: DeviceBuffer<u32>,
}

impl Packed {
    /// With targets and the gradient of the loss, also finds the largest share of a row in the gradients.
    fn new(
        device: &CudaDevice,
        defines: &[Define],
        (rows, channels): (usize, usize),
        features: DeviceSlice<'_, f32>,
        weight: DeviceSlice<'_, f32>,
        bias: DeviceSlice<'_, f32>,
        loss: Option<(&DeviceTargets, f64)>,
    ) -> Result<Self> {
        let classes = bias.len();
        let kernel = |name| device.function(SOURCE, defines, name);
        let (padded_rows, padded_classes) = (rows.next_multiple_of(ROUND), classes.next_multiple_of(ROUND));
        let packed = Self {
            features: device.buffer(padded_rows * channels * 2)?,
            scales: device.buffer(padded_rows)?,
            weight: device.buffer(padded_classes * channels * 2)?,
            bias: device.buffer(padded_classes)?,
            largest: device.buffer(2)?,
        };
        let nothing = (DeviceSlice::empty(), DeviceSlice::empty(), DeviceSlice::empty());
        let (labels, class_weights, normaliser) = loss.map_or(nothing, |(targets, _)| targets.slices());
        let feature_threads = padded_rows / TOGETHER * (channels / 8).next_power_of_two();
        let feature_blocks = feature_threads.div_ceil(256);
        let (weight_threads, fp16) = (padded_classes * channels / 8, has_scales(defines));
        let weight_blocks = if fp16 { 2 * device.multiprocessors() } else { weight_threads.div_ceil(256) };
        // The largest number of each block.
        let found: DeviceBuffer<u32> = device.buffer(feature_blocks + weight_blocks)?;
        let weights: &[Arg] = args![weight, classes, padded_classes, &packed.weight, bias, &packed.bias];
        let features: &[Arg] = args![
            features,
            rows,
            padded_rows,
            labels,
            class_weights,
            normaliser,
            loss.map_or(0.0, |(_, dloss)| dloss),
            &packed.features,
            &packed.scales,
            &found,
            feature_blocks,
        ];
        // SAFETY: there are `rows` rows of features, with labels if with any, `classes` rows of weights with biases,
        // and room for the padded ones.
        unsafe {
            kernel("pack_features")?.run(
                (feature_blocks + weight_blocks, 1),
                (256, 1),
                &[features, weights].concat(),
            )?;
            if fp16 {
                let parts = [feature_blocks, feature_blocks + weight_blocks];
                let parts: &[Arg] = args![&found, parts[0], parts[1], &packed.largest];
                kernel("pack_weight")?.over(weight_threads, &[weights, parts].concat())?;
            }
        }
        Ok(packed)
    }
}

/// How a pass is split: into held blocks and tiles, whose pairs the blocks of threads share, and memory for their
/// results.
struct Pass {
    blocks: usize,
    tiles: usize,
    parts: usize,
    sums: DeviceBuffer<f32>,
    row_sums: DeviceBuffer<f32>,
}

impl Pass {
    /// `row_numbers`: results of a held row beside its sums.
    fn new(device: &CudaDevice, channels: usize, (held, streamed): (usize, usize), row_numbers: usize) -> Result<Self> {
        let (blocks, tiles) = (held.div_ceil(HELD), streamed.div_ceil(TILE));
        let parts = device.multiprocessors().min(blocks * tiles);
        // One of the two grows from each partial result to the next.
        let slots = blocks + parts - 1;
        Ok(Self {
            blocks,
            tiles,
            parts,
            sums: device.buffer(slots * HELD * channels)?,
            row_sums: device.buffer(slots * HELD * row_numbers)?,
        })
    }
}

/// As [`super::cuda::loss_and_gradients`], for work to which this [`applies`] and that is not empty.
pub(super) fn loss_and_gradients(
    device: &CudaDevice,
    classifier: &Classifier<'_>,
    features: DeviceSlice<'_, f32>,
    dloss: f64,
    gradients: Gradients<DeviceSliceMut<'_, f32>>,
    rows: Rows<'_>,
) -> Result<DeviceScore> {
    let (channels, targets) = (classifier.channels, classifier.targets);
    let (classes, smoothing) = (targets.classes(), targets.smoothing());
    let count = targets.rows();
    let fp16 = device.product_mode() == ProductMode::Tf32;
    let defines = defines(channels, smoothing > 0.0, fp16);
    let kernel = |name| device.function(SOURCE, &defines, name);
    let (labels, class_weights, normaliser) = targets.slices();
    let loss = Some((targets, dloss));
    let packed = Packed::new(device, &defines, (count, channels), features, classifier.weight, classifier.bias, loss)?;
    let Packed { features, scales, weight, bias, largest } = &packed;
    let padded_rows = count.next_multiple_of(ROUND);
    let mut weight_sums = device.zeros(if smoothing > 0.0 { channels + 1 } else { 0 })?;
    if smoothing > 0.0 {
        let (sums, bias_sum) = weight_sums.view_mut().split_at(channels);
        let shape = (classes, channels, channels);
        add_column_sums(device, classifier.weight, shape, &sums)?;
        add_column_sums(device, classifier.bias, (classes, 1, 1), &bias_sum)?;
    }
    let columns: DeviceBuffer<f32> = device.buffer(COLUMN * padded_rows)?;
    let (score_parts, score) = (ScoreParts::new(device, padded_rows / 8)?, DeviceScore::new(device)?);
    let predictions = rows.predictions.as_ref();
    let predictions = predictions.map_or(DeviceSlice::empty(), DeviceSliceMut::view);
    for first in (0..count).step_by(CHUNK) {
        let end = count.min(first + CHUNK);
        let padded = padded_rows.min(first + CHUNK);
        let Pass { blocks, tiles, parts, sums, row_sums } = Pass::new(device, channels, (end - first, classes), 3)?;
        let classify = device.function_with_shared(SOURCE, &defines, "classify", SHARED_BYTES)?;
        // SAFETY: features and weights are padded to whole blocks and tiles, and there is a place for each partial
        // result. The other buffers have one number for each row, class or channel, as the operator checked; the
        // columns are padded.
        unsafe {
            let from = (features.view().from(first * channels * 2), scales.view().from(first));
            let arguments = args![from.0, from.1, weight, largest, bias, blocks, tiles, &sums, &row_sums];
            classify.run((parts, 1), (384, 1), arguments)?;
            let sums: &[Arg] = args![&sums, &row_sums, blocks, tiles, parts, first, end];
            let factors: &[Arg] = args![features, scales, weight, largest, bias, classes];
            let loss: &[Arg] = args![labels, class_weights, normaliser, dloss, smoothing, &weight_sums];
            let to: &[Arg] = args![score_parts.from(0), predictions, &gradients.features, &columns];
            kernel("finish_rows")?.over(32 * (padded - first), &[sums, factors, loss, to].concat())?;
        }
    }
    let Pass { blocks, tiles, parts, sums, row_sums } = Pass::new(device, channels, (classes, count), 1)?;
    let weigh = device.function_with_shared(SOURCE, &defines, "weigh", SHARED_BYTES)?;
    // SAFETY: as above.
    unsafe {
        let (shared, own) = ((smoothing / classes as f64) as f32, (1.0 - smoothing) as f32);
        let arguments = args![weight, features, &columns, bias, blocks, tiles, shared, own, &sums, &row_sums];
        weigh.run((parts, 1), (384, 1), arguments)?;
        let sign = if dloss < 0.0 { -1.0f32 } else { 1.0 };
        let first: &[Arg] = args![&sums, &row_sums, blocks, tiles, parts, classes, sign, largest];
        let (to, scores) = (&gradients, score_parts.from(0));
        let last: &[Arg] = args![&to.weight, &to.bias, scores, padded_rows / 8, normaliser, score.numbers()];
        let blocks = (classes * channels / 4).div_ceil(256) + 1;
        kernel("finish_weights")?.run((blocks, 1), (256, 1), &[first, last].concat())?;
    }
    Ok(score)
}
