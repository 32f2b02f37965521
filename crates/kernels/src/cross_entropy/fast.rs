//! Blocks of rows in parallel, vectorised over classes.

use super::softmax::{exponentials, peak, sum_of_exponentials, sum_of_logits};
use super::{IGNORE, Score, Tally, Targets, check};
use crate::error::check_length;
use crate::parallel::{Loop, piece_length};
use crate::real::compiled;
use crate::{KernelError, Real};
use pulp::Arch;
use rayon::prelude::*;

/// Smallest number of logits of a task.
const MIN_WORK: usize = 1 << 13;

/// Mean cross-entropy of the rows with a label; see the [module](super).
///
/// ```
/// use gemcnn_kernels::cross_entropy::{IGNORE, Targets, forward};
/// let targets = Targets::new(2, &[0, 1, IGNORE]);
/// let score = forward(&targets, &[3.0f32, 3.0, 1.0, 1.0, 9.0, 0.0])?;
/// assert!((score.loss - 2f64.ln()).abs() < 1e-6);
/// assert_eq!((score.correct, score.counted), (1, 2));
/// # Ok::<(), gemcnn_kernels::KernelError>(())
/// ```
pub fn forward<T: Real>(targets: &Targets<'_, T>, logits: &[T]) -> Result<Score, KernelError> {
    compiled!(forward_rows as fn(&Targets<'_, T>, &[T]) -> Result<Score, KernelError>)(targets, logits)
}

fn forward_rows<T: Real>(targets: &Targets<'_, T>, logits: &[T]) -> Result<Score, KernelError> {
    check(targets, logits)?;
    if targets.classes == 0 {
        return Ok(Score::default());
    }
    let rows = rows_of_a_piece(targets);
    let tallies: Vec<Tally> = targets
        .labels
        .par_chunks(rows)
        .zip(logits.par_chunks(rows * targets.classes))
        .map(|(labels, logits)| {
            Arch::new().dispatch(
                #[inline(always)]
                || tally(targets, labels, logits),
            )
        })
        .collect();
    let mut sum = Tally::default();
    tallies.iter().for_each(|tally| sum.add(tally));
    Ok(sum.score(targets.normaliser()))
}

/// `dlogits` for the gradient `dloss` of the loss.
pub fn backward<T: Real>(
    targets: &Targets<'_, T>,
    logits: &[T],
    dloss: f64,
    dlogits: &mut [T],
) -> Result<(), KernelError> {
    compiled!(backward_rows as fn(&Targets<'_, T>, &[T], f64, &mut [T]) -> Result<(), KernelError>)(
        targets, logits, dloss, dlogits,
    )
}

fn backward_rows<T: Real>(
    targets: &Targets<'_, T>,
    logits: &[T],
    dloss: f64,
    dlogits: &mut [T],
) -> Result<(), KernelError> {
    check(targets, logits)?;
    check_length("cross-entropy", "dlogits", dlogits, logits.len())?;
    if targets.classes == 0 {
        return Ok(());
    }
    let rows = rows_of_a_piece(targets);
    let scale = dloss * targets.normaliser();
    targets
        .labels
        .par_chunks(rows)
        .zip(logits.par_chunks(rows * targets.classes))
        .zip(dlogits.par_chunks_mut(rows * targets.classes))
        .run(|((labels, logits), dlogits)| {
            Arch::new().dispatch(
                #[inline(always)]
                || gradient(targets, labels, logits, scale, dlogits),
            )
        });
    Ok(())
}

/// The class with the largest logit in each row, the lower one in ties.
pub fn predict<T: Real>(classes: usize, logits: &[T], predictions: &mut [u32]) -> Result<(), KernelError> {
    compiled!(predict_rows as fn(usize, &[T], &mut [u32]) -> Result<(), KernelError>)(classes, logits, predictions)
}

fn predict_rows<T: Real>(classes: usize, logits: &[T], predictions: &mut [u32]) -> Result<(), KernelError> {
    check_length("prediction", "logits", logits, classes * predictions.len())?;
    for (row, prediction) in predictions.iter_mut().enumerate() {
        *prediction = peak(&logits[row * classes..][..classes]).1 as u32;
    }
    Ok(())
}

fn rows_of_a_piece<T>(targets: &Targets<'_, T>) -> usize {
    piece_length(targets.labels.len(), MIN_WORK / targets.classes)
}

#[inline(always)]
fn tally<T: Real>(targets: &Targets<'_, T>, labels: &[u32], logits: &[T]) -> Tally {
    let mut tally = Tally::default();
    for (&label, row) in labels.iter().zip(logits.chunks_exact(targets.classes)) {
        if label != IGNORE {
            let (most, prediction) = peak(row);
            let sum = sum_of_exponentials(row, most);
            let own = row[label as usize].as_f64();
            let all = match targets.smoothing {
                0.0 => 0.0,
                _ => sum_of_logits(row).as_f64(),
            };
            let loss = targets.row_loss(most.as_f64(), sum.as_f64(), own, all);
            tally.count(targets.weight(label), loss, prediction == label as usize);
        }
    }
    tally
}

#[inline(always)]
fn gradient<T: Real>(targets: &Targets<'_, T>, labels: &[u32], logits: &[T], scale: f64, dlogits: &mut [T]) {
    let rows = logits.chunks_exact(targets.classes);
    let drows = dlogits.chunks_exact_mut(targets.classes);
    for ((&label, row), drow) in labels.iter().zip(rows).zip(drows) {
        let weight = scale * targets.weight(label);
        if weight == 0.0 {
            drow.fill(T::zero());
            continue;
        }
        drow.copy_from_slice(row);
        let sum = exponentials(drow, peak(row).0);
        let factor = T::of(weight / sum.as_f64());
        drow.iter_mut().for_each(|value| *value *= factor);
        if targets.smoothing > 0.0 {
            let even = T::of(weight * targets.even_share());
            drow.iter_mut().for_each(|value| *value -= even);
        }
        drow[label as usize] -= T::of(weight * (1.0 - targets.smoothing));
    }
}
