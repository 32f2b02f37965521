//! Softmax cross-entropy on a GPU: one block of threads for each row, with the logits of the row in
//! registers. Rows of few classes take a part of a warp each.
//!
//! Gain of the latter on an H200 (`bench/compare`): where the classifier takes this path, a training step of `segmentation`
//! takes 14 to 28 % longer without it.

use super::{ClassTargets, Score, Targets};
use crate::KernelError;
use crate::cuda::{
    Arg, CudaDevice, CudaError, Define, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args,
    check_length,
};
use bytemuck::Pod;

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("softmax", concat!(include_str!("score.cu"), include_str!("softmax.cu")));

const OPERATOR: &str = "cross-entropy";
/// Largest number of logits that a thread keeps in registers.
const MAX_ITEMS: usize = 32;
/// Logits of a thread that allow several blocks on a multiprocessor.
const FEW_ITEMS: usize = 16;
/// Largest number of blocks of a launch.
const ROW_BLOCKS: usize = 528;
/// Most classes of rows that share a block of threads, and its threads.
pub(crate) const FEW_CLASSES: usize = 32;
const FEW_THREADS: usize = 256;

/// Checked [`Targets`] in device memory.
#[derive(Debug)]
pub struct DeviceTargets {
    classes: usize,
    labels: DeviceBuffer<u32>,
    class_weights: Option<DeviceBuffer<f32>>,
    smoothing: f64,
    /// `1 / sum_v w_v`, and 0 if no row counts.
    normaliser: DeviceBuffer<f64>,
}

impl DeviceTargets {
    /// Checks targets and copies them to a device.
    ///
    /// # Errors
    /// A label that is not a class, a weight that is negative or not finite, or out of memory.
    pub fn new(device: &CudaDevice, targets: &Targets<'_, f32>) -> Result<Self> {
        targets.check(OPERATOR)?;
        let class_weights = match targets.class_weights {
            Some(weights) => Some(device.upload(weights)?),
            None => None,
        };
        Ok(Self {
            classes: targets.classes,
            labels: device.upload(targets.labels)?,
            class_weights,
            smoothing: targets.smoothing,
            normaliser: device.upload(&[targets.normaliser()])?,
        })
    }

    /// Targets whose numbers are on the device already, copied in stream order. `normaliser` holds one number,
    /// `1 / sum_v w_v`, and 0 if no row counts.
    ///
    /// # Safety
    /// Every label is a class or [`IGNORE`](super::IGNORE).
    pub unsafe fn from_device(
        device: &CudaDevice,
        targets: ClassTargets<DeviceSlice<'_, u32>, DeviceSlice<'_, f32>>,
        normaliser: DeviceSlice<'_, f64>,
    ) -> Result<Self> {
        let ClassTargets { classes, labels, class_weights, smoothing } = targets;
        // No labels and weights to check, but the smoothing.
        Targets::<f32> { smoothing, ..Targets::new(classes, &[]) }.check(OPERATOR)?;
        check_length(OPERATOR, "normaliser", normaliser, 1)?;
        if let Some(weights) = class_weights {
            check_length(OPERATOR, "class_weights", weights, classes)?;
        }
        fn copied<T: Pod>(device: &CudaDevice, from: DeviceSlice<'_, T>) -> Result<DeviceBuffer<T>> {
            let mut to = device.buffer(from.len())?;
            device.copy(from, to.view_mut())?;
            Ok(to)
        }
        let class_weights = class_weights.map(|weights| copied(device, weights));
        Ok(Self {
            classes,
            labels: copied(device, labels)?,
            class_weights: class_weights.transpose()?,
            smoothing,
            normaliser: copied(device, normaliser)?,
        })
    }

    /// A copy.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self> {
        let class_weights = match &self.class_weights {
            Some(weights) => Some(weights.duplicate(device)?),
            None => None,
        };
        Ok(Self {
            classes: self.classes,
            labels: self.labels.duplicate(device)?,
            class_weights,
            smoothing: self.smoothing,
            normaliser: self.normaliser.duplicate(device)?,
        })
    }

    /// Copies other targets over these, at the same addresses, for all work that follows.
    ///
    /// # Errors
    /// Targets with another number of rows or classes or another smoothing, or weighted where these are not.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        let form = |targets: &Self| {
            let weighted = targets.class_weights.is_some();
            (targets.classes, weighted, targets.smoothing)
        };
        if form(self) != form(with) {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: OPERATOR,
                problem: "targets can only be overwritten by targets of the same form".into(),
            }));
        }
        self.labels.overwrite(device, &with.labels)?;
        self.normaliser.overwrite(device, &with.normaliser)?;
        match (&self.class_weights, &with.class_weights) {
            (Some(place), Some(weights)) => place.overwrite(device, weights),
            _ => Ok(()),
        }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn smoothing(&self) -> f64 {
        self.smoothing
    }

    /// Labels, weights of the classes (empty for 1), and normaliser.
    pub(crate) fn slices(&self) -> (DeviceSlice<'_, u32>, DeviceSlice<'_, f32>, DeviceSlice<'_, f64>) {
        let weights = self.class_weights.as_ref();
        (self.labels.view(), weights.map_or(DeviceSlice::empty(), DeviceBuffer::view), self.normaliser.view())
    }
}

/// A score in device memory.
#[derive(Debug)]
pub struct DeviceScore {
    /// Loss, correct rows, counted rows.
    numbers: DeviceBuffer<f64>,
}

impl DeviceScore {
    /// A place for a score.
    pub(crate) fn new(device: &CudaDevice) -> Result<Self> {
        Ok(Self { numbers: device.buffer(SCORE)? })
    }

    /// A copy, made in stream order.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self> {
        Ok(Self { numbers: self.numbers.duplicate(device)? })
    }

    /// Loss, correct rows and counted rows, on the device.
    pub fn numbers(&self) -> DeviceSlice<'_, f64> {
        self.numbers.view()
    }

    /// The score. Waits for all work queued before.
    pub fn read(&self, device: &CudaDevice) -> Result<Score> {
        let mut numbers = [0.0; SCORE];
        self.numbers.read(device, &mut numbers)?;
        let [loss, correct, counted] = numbers;
        Ok(Score { loss, correct: correct as usize, counted: counted as usize })
    }
}

/// Scores of the rows of each block of threads, before they are summed.
#[derive(Debug)]
pub(crate) struct RowScores {
    parts: ScoreParts,
    used: usize,
}

/// Numbers of a [`DeviceScore`], and of a part of it: `Score` there.
const SCORE: usize = 3;

/// Places for parts of a score.
#[derive(Debug)]
pub(crate) struct ScoreParts(DeviceBuffer<f64>);

impl ScoreParts {
    pub fn new(device: &CudaDevice, count: usize) -> Result<Self> {
        Ok(Self(device.buffer(SCORE * count)?))
    }

    /// The parts from one on.
    pub fn from(&self, part: usize) -> DeviceSlice<'_, f64> {
        self.0.view().from(SCORE * part)
    }
}

/// Some rows of logits, and the outputs for them.
pub(crate) struct SoftmaxRows<'a> {
    pub targets: &'a DeviceTargets,
    /// First row among those of the targets, and number of rows.
    pub rows: (usize, usize),
    pub logits: DeviceSlice<'a, f32>,
    /// Stride of the rows of logits and gradients.
    pub stride: usize,
    /// Added to the logits; may be empty.
    pub bias: DeviceSlice<'a, f32>,
    /// Destination of the gradients, possibly that of the logits, for this gradient of the loss.
    pub gradients: Option<(DeviceSlice<'a, f32>, f64)>,
    pub predictions: DeviceSlice<'a, u32>,
    pub ranks: DeviceSlice<'a, u32>,
    /// `[blocks, classes]`: gradients of the bias of the rows of each block; may be empty.
    pub bias_partials: DeviceSlice<'a, f32>,
}

/// Threads of a block and logits of each, for a number of classes.
fn shape(classes: usize) -> (usize, usize) {
    if classes <= FEW_CLASSES {
        return (FEW_THREADS, 1);
    }
    let threads = [64, 128, 256, 512, 1024].into_iter().find(|&threads| classes <= threads * FEW_ITEMS).unwrap_or(1024);
    let items = classes.div_ceil(threads);
    (threads, if items <= MAX_ITEMS { items.max(1) } else { 0 })
}

/// Threads of a row, where several rows share a block of threads; else 0.
fn lanes(classes: usize) -> usize {
    if classes <= FEW_CLASSES { classes.next_power_of_two() } else { 0 }
}

/// Blocks of threads for a number of rows.
pub(crate) fn row_blocks(classes: usize, rows: usize) -> usize {
    let rows_of_block = match lanes(classes) {
        0 => 1,
        lanes => FEW_THREADS / lanes,
    };
    rows.div_ceil(rows_of_block).min(ROW_BLOCKS)
}

/// True if the kernel can sum the gradients of the bias for this number of classes.
pub(crate) fn sums_bias(classes: usize) -> bool {
    classes > FEW_CLASSES && shape(classes).1 > 0
}

fn defines(classes: usize, smoothed: bool) -> Vec<Define> {
    let (threads, items) = shape(classes);
    vec![
        ("THREADS", threads.to_string()),
        ("ITEMS", items.to_string()),
        ("ROW_LANES", lanes(classes).to_string()),
        ("SMOOTHED", u8::from(smoothed).to_string()),
    ]
}

pub(crate) fn variants() -> Vec<Vec<Define>> {
    [2, 10, 6890, 40_000]
        .into_iter()
        .flat_map(|classes| [false, true].map(|smoothed| defines(classes, smoothed)))
        .collect()
}

impl RowScores {
    /// For rows that come in tiles of `chunk` rows.
    pub fn new(device: &CudaDevice, classes: usize, (rows, chunk): (usize, usize)) -> Result<Self> {
        let parts = rows.div_ceil(chunk.max(1)) * row_blocks(classes, chunk);
        Ok(Self { parts: ScoreParts::new(device, parts)?, used: 0 })
    }

    /// Computes losses, predictions and gradients of some rows.
    pub fn run(&mut self, device: &CudaDevice, rows: &SoftmaxRows<'_>) -> Result<()> {
        let (first, count) = rows.rows;
        let classes = rows.targets.classes;
        let (threads, _) = shape(classes);
        let (gradients, dloss) = rows.gradients.unwrap_or((DeviceSlice::empty(), 0.0));
        let weights = rows.targets.class_weights.as_ref();
        let smoothing = rows.targets.smoothing;
        let defines = defines(classes, smoothing > 0.0);
        let function = device.function(SOURCE, &defines, "softmax_rows")?;
        let blocks = row_blocks(classes, count);
        let scores = self.parts.from(self.used);
        assert!(SCORE * blocks <= scores.len(), "too few parts of a score");
        self.used += blocks;
        let (labels, normaliser) = (rows.targets.labels.view().from(first), &rows.targets.normaliser);
        let weights = weights.map_or(DeviceSlice::empty(), DeviceBuffer::view);
        let first: &[Arg] =
            args![rows.logits, gradients, rows.stride, count, classes, rows.bias, labels, weights, normaliser];
        let last: &[Arg] = args![dloss, smoothing, scores, rows.predictions, rows.ranks, rows.bias_partials];
        // SAFETY: the operators checked that logits and gradients have `count` rows and that the rows are among those
        // of the targets; labels were checked when the targets were made. There is a score for each block.
        unsafe { function.run((blocks, 1), (threads, 1), &[first, last].concat()) }
    }

    /// The score of all rows.
    pub fn finish(self, device: &CudaDevice, targets: &DeviceTargets) -> Result<DeviceScore> {
        let score = DeviceScore::new(device)?;
        let defines = [("THREADS", "256"), ("ITEMS", "0"), ("ROW_LANES", "0"), ("SMOOTHED", "0")]
            .map(|(name, value)| (name, value.to_string()));
        let function = device.function(SOURCE, &defines, "tally")?;
        // SAFETY: as many parts were computed.
        unsafe {
            let arguments = args![self.parts.from(0), self.used, &targets.normaliser, score.numbers()];
            function.run((1, 1), (256, 1), arguments)?;
        }
        Ok(score)
    }
}

/// Score without rows or classes.
pub(crate) fn empty_score(device: &CudaDevice) -> Result<DeviceScore> {
    Ok(DeviceScore { numbers: device.zeros(SCORE)? })
}

/// Mean cross-entropy of the rows with a label; see the [module](super).
pub fn forward(device: &CudaDevice, targets: &DeviceTargets, logits: DeviceSlice<'_, f32>) -> Result<DeviceScore> {
    run(device, targets, logits, None)
}

/// `dlogits` for the gradient `dloss` of the loss, and the score.
pub fn backward(
    device: &CudaDevice,
    targets: &DeviceTargets,
    logits: DeviceSlice<'_, f32>,
    dloss: f64,
    dlogits: DeviceSliceMut<'_, f32>,
) -> Result<DeviceScore> {
    check_length(OPERATOR, "dlogits", dlogits.view(), logits.len())?;
    let gradients = Some((dlogits.view(), dloss));
    run(device, targets, logits, gradients)
}

fn run(
    device: &CudaDevice,
    targets: &DeviceTargets,
    logits: DeviceSlice<'_, f32>,
    gradients: Option<(DeviceSlice<'_, f32>, f64)>,
) -> Result<DeviceScore> {
    let (rows, classes) = (targets.rows(), targets.classes);
    check_length(OPERATOR, "logits", logits, rows * classes)?;
    if classes == 0 {
        return empty_score(device);
    }
    let mut scores = RowScores::new(device, classes, (rows, rows))?;
    scores.run(
        device,
        &SoftmaxRows {
            targets,
            rows: (0, rows),
            logits,
            stride: classes,
            bias: DeviceSlice::empty(),
            gradients,
            predictions: DeviceSlice::empty(),
            ranks: DeviceSlice::empty(),
            bias_partials: DeviceSlice::empty(),
        },
    )?;
    scores.finish(device, targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_in_registers_up_to_32768_classes() {
        assert_eq!(shape(33), (64, 1));
        assert_eq!(shape(6890), (512, 14));
        assert_eq!(shape(16_385), (1024, 17));
        assert_eq!(shape(32_768), (1024, 32));
        assert_eq!(shape(32_769), (1024, 0));
    }

    #[test]
    fn rows_of_few_classes_share_blocks() {
        assert_eq!([1, 8, 9, 32, 33].map(lanes), [1, 8, 16, 32, 0]);
        assert_eq!(row_blocks(8, 33), 2);
        assert_eq!(row_blocks(33, 33), 33);
        assert_eq!(row_blocks(8, 1_000_000), ROW_BLOCKS);
    }
}
