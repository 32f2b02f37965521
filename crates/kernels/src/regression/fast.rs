//! Blocks of vertices in parallel, vectorised over channels.

use super::{OPERATOR, Penalty, Regression};
use crate::error::check_length;
use crate::parallel::{Loop, piece_length};
use crate::real::compiled;
use crate::{KernelError, Real};
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// Smallest number of vertices of a task.
const MIN_VERTICES: usize = 256;

/// The loss; see the [module](super).
///
/// ```
/// use gemcnn_kernels::FeatureType;
/// use gemcnn_kernels::regression::{Penalty, Regression, forward};
/// let tangent_vector: FeatureType = "1x1".parse()?;
/// let loss = Regression { features: &tangent_vector, penalty: Penalty::L1, mask: None };
/// assert_eq!(forward(&loss, &[3.0, 4.0, 1.0, 1.0], &[0.0, 0.0, 1.0, 1.0])?, 2.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forward<T: Real>(regression: &Regression<'_>, prediction: &[T], target: &[T]) -> Result<f64, KernelError> {
    compiled!(forward_rows as fn(&Regression<'_>, &[T], &[T]) -> Result<f64, KernelError>)(
        regression, prediction, target,
    )
}

fn forward_rows<T: Real>(regression: &Regression<'_>, prediction: &[T], target: &[T]) -> Result<f64, KernelError> {
    let vertices = regression.check(prediction, target)?;
    let dimension = regression.features.dimension();
    if dimension == 0 {
        return Ok(0.0);
    }
    let piece = piece_length(vertices, MIN_VERTICES);
    let sums: Vec<f64> = prediction
        .par_chunks(piece * dimension)
        .zip(target.par_chunks(piece * dimension))
        .enumerate()
        .map(|(index, (prediction, target))| {
            Arch::new().dispatch(
                #[inline(always)]
                || sum_of_losses(regression, index * piece, prediction, target),
            )
        })
        .collect();
    Ok(sums.iter().sum::<f64>() * regression.normaliser(vertices))
}

/// Gradient of the prediction for the gradient `dloss` of the loss.
pub fn backward<T: Real>(
    regression: &Regression<'_>,
    prediction: &[T],
    target: &[T],
    dloss: f64,
    dprediction: &mut [T],
) -> Result<(), KernelError> {
    compiled!(backward_rows as fn(&Regression<'_>, &[T], &[T], f64, &mut [T]) -> Result<(), KernelError>)(
        regression,
        prediction,
        target,
        dloss,
        dprediction,
    )
}

fn backward_rows<T: Real>(
    regression: &Regression<'_>,
    prediction: &[T],
    target: &[T],
    dloss: f64,
    dprediction: &mut [T],
) -> Result<(), KernelError> {
    let vertices = regression.check(prediction, target)?;
    check_length(OPERATOR, "dprediction", dprediction, prediction.len())?;
    let dimension = regression.features.dimension();
    if dimension == 0 {
        return Ok(());
    }
    let scale = T::of(dloss * regression.normaliser(vertices));
    let piece = piece_length(vertices, MIN_VERTICES);
    prediction
        .par_chunks(piece * dimension)
        .zip(target.par_chunks(piece * dimension))
        .zip(dprediction.par_chunks_mut(piece * dimension))
        .enumerate()
        .run(|(index, ((prediction, target), dprediction))| {
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    for (place, gradient) in dprediction.chunks_exact_mut(dimension).enumerate() {
                        if regression.counts(index * piece + place) {
                            let range = place * dimension..(place + 1) * dimension;
                            let (x, t) = (&prediction[range.clone()], &target[range]);
                            gradient_of_vertex(regression, x, t, scale, gradient);
                        } else {
                            gradient.fill(T::zero());
                        }
                    }
                },
            );
        });
    Ok(())
}

#[inline(always)]
fn sum_of_losses<T: Real>(regression: &Regression<'_>, first: usize, prediction: &[T], target: &[T]) -> f64 {
    let dimension = regression.features.dimension();
    let rows = prediction.chunks_exact(dimension).zip(target.chunks_exact(dimension));
    let mut sum = 0.0;
    for (place, (x, t)) in rows.enumerate() {
        if !regression.counts(first + place) {
            continue;
        }
        let mut loss = T::zero();
        match regression.penalty {
            Penalty::MeanSquare => {
                for (&x, &t) in x.iter().zip(t) {
                    loss += (x - t) * (x - t);
                }
            }
            Penalty::L1 => {
                for (order, channels) in regression.features.orders() {
                    let range = regression.features.range(order);
                    let (x, t) = (&x[range.clone()], &t[range]);
                    if order == 0 {
                        for (&x, &t) in x.iter().zip(t) {
                            loss += (x - t).abs();
                        }
                    } else {
                        let ([xa, xb], [ta, tb]) = (components(x), components(t));
                        for c in 0..channels {
                            loss += length(xa[c] - ta[c], xb[c] - tb[c]);
                        }
                    }
                }
            }
        }
        sum += loss.as_f64();
    }
    sum
}

#[inline(always)]
fn gradient_of_vertex<T: Real>(regression: &Regression<'_>, x: &[T], t: &[T], scale: T, gradient: &mut [T]) {
    if regression.penalty == Penalty::MeanSquare {
        let twice = scale + scale;
        for ((g, &x), &t) in gradient.iter_mut().zip(x).zip(t) {
            *g = twice * (x - t);
        }
        return;
    }
    // A length that is not above 0 is 0 or NaN; both are passed on.
    let unit = |part: T, length: T| {
        if length > T::zero() { scale * part / length } else { scale * length }
    };
    for (order, channels) in regression.features.orders() {
        let range: Range<usize> = regression.features.range(order);
        let (x, t, g) = (&x[range.clone()], &t[range.clone()], &mut gradient[range]);
        if order == 0 {
            for ((g, &x), &t) in g.iter_mut().zip(x).zip(t) {
                *g = unit(x - t, (x - t).abs());
            }
        } else {
            let ([xa, xb], [ta, tb]) = (components(x), components(t));
            let (ga, gb) = g.split_at_mut(channels);
            for c in 0..channels {
                let (a, b) = (xa[c] - ta[c], xb[c] - tb[c]);
                let length = length(a, b);
                ga[c] = unit(a, length);
                gb[c] = unit(b, length);
            }
        }
    }
}

/// The cosine and the sine coefficients of a block of order above 0.
#[inline(always)]
fn components<T>(block: &[T]) -> [&[T]; 2] {
    let (cosines, sines) = block.split_at(block.len() / 2);
    [cosines, sines]
}

#[inline(always)]
fn length<T: Real>(a: T, b: T) -> T {
    (a * a + b * b).sqrt()
}
