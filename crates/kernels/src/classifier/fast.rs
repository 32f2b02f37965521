//! Tiles of rows by blocks of classes.

use super::bf16_factors::{BlockGradient, Factors, Weights};
use super::plan::{CLASS_BLOCK, PARTS, Plan, ROW_BLOCK, class_block, split_rows};
use super::{Classifier, Gradients, OPERATOR, Rows, rounds_to_bf16};
use crate::cross_entropy::softmax::{exponentials, peak, sum_of_exponentials, sum_of_logits};
use crate::cross_entropy::{IGNORE, Score, Tally};
use crate::cuda::ProductMode;
use crate::parallel::Loop;
use crate::real::compiled;
use crate::{Destination, KernelError, Matrix, MatrixMut, Real, Scratch, bf16, product};
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// What one class block knows of one row.
///
/// In this order: peak, sum of exponentials relative to the peak, class of the peak within the block, logit of the
/// label if the block has it, and with label smoothing the sum of the logits. The second half of the work on a tile
/// overwrites the first entry with the result for the whole row.
type Part<T> = [T; PARTS];
const PEAK: usize = 0;
const SUM: usize = 1;
const PLACE: usize = 2;
const LABEL: usize = 3;
const LOGITS: usize = 4;

/// Loss and gradients for the gradient `dloss` of the loss; see the [module](super).
///
/// [`ProductMode::Bf16`] applies to f32 and more than 32 classes on CPUs with AVX512-BF16. All other products
/// are in the precision of `T`.
///
/// ```
/// use gemcnn_kernels::Scratch;
/// use gemcnn_kernels::classifier::{Classifier, Gradients, Rows, loss_and_gradients};
/// use gemcnn_kernels::cross_entropy::Targets;
/// use gemcnn_kernels::cuda::ProductMode;
/// let targets = Targets::new(2, &[0, 1, 1]);
/// let classifier = Classifier { channels: 1, weight: &[1.0, -1.0], bias: &[0.0, 0.0], targets };
/// let (mut features, mut weight, mut bias) = ([0.0; 3], [0.0; 2], [0.0; 2]);
/// let gradients = Gradients { features: &mut features[..], weight: &mut weight, bias: &mut bias };
/// let h = [2.0, -2.0, 0.5];
/// let mut scratch = Scratch::new();
/// let (rows, mode) = (Rows::default(), ProductMode::F32);
/// let score = loss_and_gradients(&classifier, &h, 1.0, gradients, rows, mode, &mut scratch)?;
/// assert_eq!((score.correct, score.counted), (2, 3));
/// assert!(features[2] > 0.0, "the third row should move towards class 1");
/// # Ok::<(), gemcnn_kernels::KernelError>(())
/// ```
///
/// # Errors
/// Buffers of the wrong length, a label that is not a class, or a class weight that is negative or not
/// finite. Ranks are only computed by [`evaluate`]; to request them here is an error.
pub fn loss_and_gradients<T: Real>(
    classifier: &Classifier<'_, T>,
    features: &[T],
    dloss: f64,
    gradients: Gradients<&mut [T]>,
    rows: Rows<'_>,
    products: ProductMode,
    scratch: &mut Scratch<T>,
) -> Result<Score, KernelError> {
    compiled!(
        train_rows
            as fn(
                &Classifier<'_, T>,
                &[T],
                f64,
                Gradients<&mut [T]>,
                Rows<'_>,
                ProductMode,
                &mut Scratch<T>,
            ) -> Result<Score, KernelError>
    )(classifier, features, dloss, gradients, rows, products, scratch)
}

fn train_rows<T: Real>(
    classifier: &Classifier<'_, T>,
    features: &[T],
    dloss: f64,
    gradients: Gradients<&mut [T]>,
    rows: Rows<'_>,
    products: ProductMode,
    scratch: &mut Scratch<T>,
) -> Result<Score, KernelError> {
    classifier.check(features)?;
    classifier.check_gradients(&gradients)?;
    classifier.check_rows(&rows)?;
    if rows.ranks.is_some() {
        return Err(KernelError::Setting {
            operator: OPERATOR,
            problem: "ranks are computed by `evaluate` only".into(),
        });
    }
    let plan = Plan {
        bf16: rounds_to_bf16(products, classifier.targets.classes) && T::NAME == f32::NAME && bf16::is_supported(),
        ..Plan::new(classifier)
    };
    gradients.weight.fill(T::zero());
    gradients.bias.fill(T::zero());
    if plan.is_empty() {
        gradients.features.fill(T::zero());
        return Ok(plan.empty_score(rows));
    }
    let normaliser = classifier.targets.normaliser();
    let (classes, channels) = (classifier.targets.classes, classifier.channels);
    let tiles = plan.slabs * plan.tile_numbers();
    let scratch = scratch.take(plan.weights() + tiles + (plan.slabs - 1) * plan.parameters());
    let (weights, rest) = scratch.split_at_mut(plan.weights());
    let weights = plan.bf16.then(|| Weights::new(classifier, weights));
    let (tiles, sums) = rest.split_at_mut(tiles);
    sums.fill(T::zero());

    // The first slab adds to the given gradients, the others to their own.
    let mut parameters = vec![(&mut *gradients.weight, &mut *gradients.bias)];
    for sums in sums.chunks_exact_mut(plan.parameters()) {
        parameters.push(sums.split_at_mut(classes * channels));
    }
    let tallies: Vec<Tally> = parameters
        .into_par_iter()
        .zip(tiles.par_chunks_mut(plan.tile_numbers()))
        .zip(split_rows(gradients.features, plan.slab_rows, channels, plan.slabs))
        .zip(plan.split(rows.predictions))
        .enumerate()
        .map(|(slab, (((parameters, memory), dfeatures), mut predictions))| {
            let (dweight, dbias) = parameters;
            let mut tally = Tally::default();
            let slab = plan.slab(slab);
            for start in slab.clone().step_by(plan.tile_rows) {
                let range = start..slab.end.min(start + plan.tile_rows);
                let mut tile = Tile::new(classifier, features, range.clone(), weights.as_ref(), memory);
                tile.multiply(Keep::Exponentials);
                let local = start - slab.start..range.end - slab.start;
                let predictions = predictions.as_deref_mut().map(|all| &mut all[local.clone()]);
                tile.join_parts(Some(dloss * normaliser), predictions, &mut tally);
                tile.finish_gradient(dbias);
                let dfeatures = &mut dfeatures[local.start * channels..local.end * channels];
                rayon::join(|| tile.weight_gradient(dweight), || tile.feature_gradient(dfeatures));
            }
            tally
        })
        .collect();
    for sums in sums.chunks_exact(plan.parameters()) {
        let (dweight, dbias) = sums.split_at(classes * channels);
        add_to(gradients.weight, dweight);
        add_to(gradients.bias, dbias);
    }
    Ok(plan.score(&tallies, normaliser))
}

/// Loss, predictions and ranks, without gradients.
pub fn evaluate<T: Real>(
    classifier: &Classifier<'_, T>,
    features: &[T],
    rows: Rows<'_>,
    scratch: &mut Scratch<T>,
) -> Result<Score, KernelError> {
    compiled!(evaluate_rows as fn(&Classifier<'_, T>, &[T], Rows<'_>, &mut Scratch<T>) -> Result<Score, KernelError>)(
        classifier, features, rows, scratch,
    )
}

fn evaluate_rows<T: Real>(
    classifier: &Classifier<'_, T>,
    features: &[T],
    rows: Rows<'_>,
    scratch: &mut Scratch<T>,
) -> Result<Score, KernelError> {
    classifier.check(features)?;
    classifier.check_rows(&rows)?;
    let plan = Plan::new(classifier);
    if plan.is_empty() {
        return Ok(plan.empty_score(rows));
    }
    let memory = scratch.take(plan.slabs * plan.tile_numbers());
    let tallies: Vec<Tally> = memory
        .par_chunks_mut(plan.tile_numbers())
        .zip(plan.split(rows.predictions))
        .zip(plan.split(rows.ranks))
        .enumerate()
        .map(|(slab, ((memory, mut predictions), mut ranks))| {
            let mut tally = Tally::default();
            let slab = plan.slab(slab);
            for start in slab.clone().step_by(plan.tile_rows) {
                let range = start..slab.end.min(start + plan.tile_rows);
                let mut tile = Tile::new(classifier, features, range.clone(), None, memory);
                tile.multiply(Keep::Logits);
                let local = start - slab.start..range.end - slab.start;
                let predictions = predictions.as_deref_mut().map(|all| &mut all[local.clone()]);
                tile.join_parts(None, predictions, &mut tally);
                if let Some(ranks) = &mut ranks {
                    tile.rank(&mut ranks[local]);
                }
            }
            tally
        })
        .collect();
    Ok(plan.score(&tallies, classifier.targets.normaliser()))
}

/// What a tile holds after the product.
#[derive(Clone, Copy, PartialEq)]
enum Keep {
    Logits,
    /// Of the logits, relative to the peak of their part of the row.
    Exponentials,
}

/// A tile: the logits of some rows, later replaced by gradients, by blocks of classes.
struct Tile<'a, T> {
    classifier: &'a Classifier<'a, T>,
    features: &'a [T],
    labels: &'a [u32],
    rows: usize,
    /// Block after block of `[rows, classes of the block]`.
    numbers: &'a mut [T],
    /// Block after block of one part for each row.
    parts: &'a mut [Part<T>],
    /// Factors in bf16, if products use them.
    factors: Option<Factors<'a>>,
}

impl<'a, T: Real> Tile<'a, T> {
    fn new(
        classifier: &'a Classifier<'a, T>,
        features: &'a [T],
        range: Range<usize>,
        weights: Option<&'a Weights<'a>>,
        memory: &'a mut [T],
    ) -> Self {
        let (rows, classes) = (range.len(), classifier.targets.classes);
        let channels = classifier.channels;
        let features = &features[range.start * channels..range.end * channels];
        let (numbers, rest) = memory.split_at_mut(rows * classes);
        let (parts, rest) = rest.split_at_mut(PARTS * rows * classes.div_ceil(CLASS_BLOCK));
        Self {
            classifier,
            features,
            labels: &classifier.targets.labels[range],
            rows,
            numbers,
            parts: parts.as_chunks_mut().0,
            factors: weights.map(|weights| Factors::new(weights, features, rows, rest)),
        }
    }

    /// `z = h W^T + b`, and what each block sees of each row.
    fn multiply(&mut self, keep: Keep) {
        let (classifier, rows, labels) = (self.classifier, self.rows, self.labels);
        let channels = classifier.channels;
        let features = Matrix::new(self.features, rows, channels, channels);
        let smooths = classifier.targets.smoothing > 0.0;
        let factors = self.factors.as_ref();
        self.numbers.par_chunks_mut(rows * CLASS_BLOCK).zip(self.parts.par_chunks_mut(rows)).enumerate().run(
            |(block, (numbers, parts))| {
                let classes = class_block(block, classifier.targets.classes);
                let width = classes.len();
                match factors {
                    Some(factors) => factors.logits(block, width, numbers),
                    None => product(
                        &mut MatrixMut::new(numbers, rows, width, width),
                        Destination::Set,
                        features,
                        weight_block(classifier, &classes).transposed(),
                    ),
                }
                let bias = &classifier.bias[classes.clone()];
                let label_place = |label: u32| (label as usize).wrapping_sub(classes.start);
                Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        let each = numbers.chunks_exact_mut(width).zip(parts).zip(labels);
                        for ((row, part), &label) in each {
                            for (z, &b) in row.iter_mut().zip(bias) {
                                *z += b;
                            }
                            let (most, place) = peak(row);
                            let own = row.get(label_place(label)).copied().unwrap_or(T::zero());
                            let logits = if smooths { sum_of_logits(row) } else { T::zero() };
                            let sum = match keep {
                                Keep::Logits => sum_of_exponentials(row, most),
                                Keep::Exponentials => exponentials(row, most),
                            };
                            // The place is below 256, exact in any float.
                            *part = [most, sum, T::of(place as f64), own, logits];
                        }
                    },
                );
            },
        );
    }

    /// Joins the parts of every row: counts its loss and writes its prediction. With a `scale` it
    /// leaves in the first place of every part the factor that takes the block's exponentials to
    /// `scale * w_v` times probabilities, in place of the label what to subtract there, and in place of
    /// the logits what to subtract from all classes.
    fn join_parts(&mut self, scale: Option<f64>, predictions: Option<&mut [u32]>, tally: &mut Tally) {
        let targets = &self.classifier.targets;
        let rows = self.rows;
        let mut predictions = predictions.map(|all| all.iter_mut());
        for (row, &label) in self.labels.iter().enumerate() {
            let parts = || self.parts[row..].iter().step_by(rows);
            let (mut most, mut prediction) = (T::neg_infinity(), 0);
            for (block, part) in parts().enumerate() {
                if part[PEAK] > most {
                    most = part[PEAK];
                    prediction = block * CLASS_BLOCK + part[PLACE].as_f64() as usize;
                }
            }
            let share = |part: &Part<T>| (part[PEAK] - most).exp_of_negative().as_f64();
            let sum: f64 = parts().map(|part| share(part) * part[SUM].as_f64()).sum();
            if let Some(place) = predictions.as_mut().and_then(Iterator::next) {
                *place = prediction as u32;
            }
            let weight = targets.weight(label);
            if label != IGNORE {
                let own = self.parts[label as usize / CLASS_BLOCK * rows + row][LABEL].as_f64();
                let logits = parts().map(|part| part[LOGITS].as_f64()).sum();
                let loss = targets.row_loss(most.as_f64(), sum, own, logits);
                tally.count(weight, loss, prediction == label as usize);
            }
            if let Some(scale) = scale {
                let gradient = scale * weight;
                for part in self.parts[row..].iter_mut().step_by(rows) {
                    // Rows that are not counted must not pass a NaN on.
                    part[PEAK] = match gradient {
                        0.0 => T::zero(),
                        _ => T::of(share(part) / sum * gradient),
                    };
                    part[LABEL] = T::of(gradient * (1.0 - targets.smoothing));
                    part[LOGITS] = T::of(gradient * targets.even_share());
                }
            }
        }
    }

    /// Exponentials to `P`, also as factor in bf16, and its sums over rows into `db`.
    fn finish_gradient(&mut self, dbias: &mut [T]) {
        let (rows, labels) = (self.rows, self.labels);
        let blocks = dbias.len().div_ceil(CLASS_BLOCK);
        let factors: Vec<Option<BlockGradient<'_>>> = match &mut self.factors {
            Some(factors) => factors.gradients().map(Some).collect(),
            None => (0..blocks).map(|_| None).collect(),
        };
        self.numbers
            .par_chunks_mut(rows * CLASS_BLOCK)
            .zip(self.parts.par_chunks(rows))
            .zip(dbias.par_chunks_mut(CLASS_BLOCK))
            .zip(factors)
            .enumerate()
            .run(|(block, (((numbers, parts), dbias), mut factors))| {
                let label_place = |label: u32| (label as usize).wrapping_sub(block * CLASS_BLOCK);
                Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        let width = dbias.len();
                        let two_rows = numbers.chunks_mut(2 * width).zip(parts.chunks(2));
                        for ((first, (two, parts)), labels) in (0..).step_by(2).zip(two_rows).zip(labels.chunks(2)) {
                            let each = two.chunks_exact_mut(width).zip(parts).zip(labels);
                            for ((row, part), &label) in each {
                                finish_row(row, part, label_place(label), dbias);
                            }
                            if let Some(factors) = &mut factors {
                                factors.set(first, two, width);
                            }
                        }
                    },
                );
            });
    }

    /// `dW += P^T h`, block by block.
    fn weight_gradient(&self, dweight: &mut [T]) {
        let (rows, channels) = (self.rows, self.classifier.channels);
        let features = Matrix::new(self.features, rows, channels, channels);
        dweight
            .par_chunks_mut((CLASS_BLOCK * channels).max(1))
            .zip(self.numbers.par_chunks(rows * CLASS_BLOCK))
            .enumerate()
            .run(|(block, (dweight, numbers))| {
                let width = numbers.len() / rows;
                if let Some(factors) = &self.factors {
                    return factors.weight_gradient(block, width, dweight);
                }
                product(
                    &mut MatrixMut::new(dweight, width, channels, channels),
                    Destination::Add,
                    Matrix::new(numbers, rows, width, width).transposed(),
                    features,
                );
            });
    }

    /// `dh = P W`, for some rows at a time.
    fn feature_gradient(&self, dfeatures: &mut [T]) {
        let (rows, channels) = (self.rows, self.classifier.channels);
        dfeatures.par_chunks_mut((ROW_BLOCK * channels).max(1)).enumerate().run(|(index, dfeatures)| {
            let count = dfeatures.len() / channels;
            if let Some(factors) = &self.factors {
                let first = index * ROW_BLOCK;
                return factors.feature_gradient(first..first + count, dfeatures);
            }
            let mut dfeatures = MatrixMut::new(dfeatures, count, channels, channels);
            let blocks = self.numbers.chunks(rows * CLASS_BLOCK).enumerate();
            for (block, numbers) in blocks {
                let classes = class_block(block, self.classifier.targets.classes);
                let width = classes.len();
                let destination = if block == 0 { Destination::Set } else { Destination::Add };
                let numbers = &numbers[index * ROW_BLOCK * width..];
                let p = Matrix::new(numbers, count, width, width);
                let weight = weight_block(self.classifier, &classes);
                product(&mut dfeatures, destination, p, weight);
            }
        });
    }

    /// Counts the classes before that of the label; the tile must hold logits.
    fn rank(&mut self, ranks: &mut [u32]) {
        let (rows, labels) = (self.rows, self.labels);
        for (row, &label) in labels.iter().enumerate() {
            if label != IGNORE {
                let own = self.parts[label as usize / CLASS_BLOCK * rows + row][LABEL];
                self.parts[row..].iter_mut().step_by(rows).for_each(|part| part[LABEL] = own);
            }
        }
        self.numbers.par_chunks(rows * CLASS_BLOCK).zip(self.parts.par_chunks_mut(rows)).enumerate().run(
            |(block, (numbers, parts))| {
                let width = numbers.len() / rows;
                for ((row, part), &label) in numbers.chunks_exact(width).zip(parts).zip(labels) {
                    let own = part[LABEL];
                    let place = label as usize;
                    let after = |class: usize, z: T| z < own || (z == own && block * CLASS_BLOCK + class >= place);
                    let before = row.iter().enumerate().filter(|&(k, &z)| !after(k, z));
                    part[PLACE] = T::of(before.count() as f64);
                }
            },
        );
        for (row, (rank, &label)) in ranks.iter_mut().zip(labels).enumerate() {
            let parts = self.parts[row..].iter().step_by(rows);
            let before = parts.map(|part| part[PLACE].as_f64() as u32).sum();
            *rank = if label == IGNORE { IGNORE } else { before };
        }
    }
}

/// Exponentials of one row to its part of `P`, added to the sums.
#[inline(always)]
fn finish_row<T: Real>(row: &mut [T], part: &Part<T>, label: usize, sums: &mut [T]) {
    let factor = part[PEAK];
    if factor == T::zero() {
        row.fill(T::zero());
    } else {
        row.iter_mut().for_each(|p| *p *= factor);
    }
    let even = part[LOGITS];
    if even != T::zero() {
        row.iter_mut().for_each(|p| *p -= even);
    }
    if let Some(own) = row.get_mut(label) {
        *own -= part[LABEL];
    }
    for (sum, &p) in sums.iter_mut().zip(&*row) {
        *sum += p;
    }
}

fn weight_block<'a, T>(classifier: &Classifier<'a, T>, classes: &Range<usize>) -> Matrix<'a, T> {
    let channels = classifier.channels;
    let weight = &classifier.weight[classes.start * channels..classes.end * channels];
    Matrix::new(weight, classes.len(), channels, channels)
}

fn add_to<T: Real>(sums: &mut [T], values: &[T]) {
    sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += value);
}
