//! The definition in f64, irrep by irrep.

use crate::error::check_length;
use crate::regression::{OPERATOR, Penalty, Regression};
use crate::{KernelError, Real, irrep_dimension};

/// The loss; see the [module](crate::regression).
pub fn forward<T: Real>(regression: &Regression<'_>, prediction: &[T], target: &[T]) -> Result<f64, KernelError> {
    let vertices = regression.check(prediction, target)?;
    let mut loss = 0.0;
    for_each_irrep(regression, vertices, |places| {
        let squared = squared_length(places, prediction, target);
        loss += match regression.penalty {
            Penalty::MeanSquare => squared,
            Penalty::L1 => squared.sqrt(),
        };
    });
    Ok(loss * regression.normaliser(vertices))
}

/// Gradient of the prediction for the gradient `dloss` of the loss.
pub fn backward<T: Real>(
    regression: &Regression<'_>,
    prediction: &[T],
    target: &[T],
    dloss: f64,
    dprediction: &mut [T],
) -> Result<(), KernelError> {
    let vertices = regression.check(prediction, target)?;
    check_length(OPERATOR, "dprediction", dprediction, prediction.len())?;
    let scale = dloss * regression.normaliser(vertices);
    dprediction.fill(T::zero());
    for_each_irrep(regression, vertices, |places| {
        let length = squared_length(places, prediction, target).sqrt();
        for &at in places {
            let difference = prediction[at].as_f64() - target[at].as_f64();
            dprediction[at] = T::of(match regression.penalty {
                Penalty::MeanSquare => scale * 2.0 * difference,
                Penalty::L1 if length == 0.0 => 0.0,
                Penalty::L1 => scale * difference / length,
            });
        }
    });
    Ok(())
}

/// Visits the indices of the components of each irrep of the counted vertices.
fn for_each_irrep(regression: &Regression<'_>, vertices: usize, mut visit: impl FnMut(&[usize])) {
    for vertex in (0..vertices).filter(|&vertex| regression.counts(vertex)) {
        for (order, multiplicity) in regression.features.orders() {
            let start = vertex * regression.features.dimension() + regression.features.range(order).start;
            for channel in 0..multiplicity {
                let places = [start + channel, start + multiplicity + channel];
                visit(&places[..irrep_dimension(order)]);
            }
        }
    }
}

fn squared_length<T: Real>(places: &[usize], prediction: &[T], target: &[T]) -> f64 {
    let difference = |&at: &usize| prediction[at].as_f64() - target[at].as_f64();
    places.iter().map(|at| difference(at).powi(2)).sum()
}
