//! The theorem's bound on the error of the regular nonlinearity, and the error itself.

use super::{BOUND_STREAM, Draws, Settings};
use gemcnn_kernels::regular::{Forward, Plan, Regular};
use gemcnn_kernels::{Activation, FeatureType, elementwise};
use gemcnn_nn::NnError;
use gemcnn_tasks::TaskError;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Band limit of input and output.
const BAND_LIMIT: usize = 2;

/// Error and bound at one number of samples, for random coefficients and angles, in the 1-norm over the 5
/// coefficients of a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoundRow {
    /// Samples `N`.
    pub samples: usize,
    /// Mean error.
    pub mean_error: f64,
    /// Largest error.
    pub largest_error: f64,
    /// Mean of the bounds.
    pub mean_bound: f64,
    /// Largest ratio of an error to its bound. The theorem says that it is at most 1.
    pub largest_share: f64,
}

/// The bound `(4 pi L / N) ((2B' + 1/2) |dx|_1 + B'(B'+1) |x|_1)` for a channel of coefficients `x_0, x_a(1),
/// x_b(1), ...`, with Lipschitz constant `L = 1` and the same band limit `B'` of input and output.
///
/// ```
/// use gemcnn_experiments::equivariance::theorem_bound;
/// // B' = 1: (4 pi / 10) (2.5 * 1 + 2 * 4)
/// let bound = theorem_bound(&[3.0, 0.0, -1.0], 10);
/// assert!((bound - 1.2566370614 * 10.5).abs() < 1e-8);
/// ```
pub fn theorem_bound(x: &[f64], samples: usize) -> f64 {
    let norm: f64 = x.iter().map(|v| v.abs()).sum();
    // Places 1 and 2 are of order 1, 3 and 4 of order 2.
    let order = |place: usize| place.div_ceil(2) as f64;
    let slope: f64 = x.iter().enumerate().map(|(i, v)| order(i) * v.abs()).sum();
    let limit = order(x.len().saturating_sub(1));
    4.0 * PI / samples as f64 * ((2.0 * limit + 0.5) * slope + limit * (limit + 1.0) * norm)
}

pub(super) fn measure(settings: &Settings) -> Result<Vec<BoundRow>, TaskError> {
    let kind = FeatureType::uniform(1, BAND_LIMIT);
    let mut draws = Draws::new(settings.seed, BOUND_STREAM);
    let angles: Vec<f64> = (0..settings.bound_draws).map(|_| draws.angle()).collect();
    let x: Vec<f64> = (0..settings.bound_draws * kind.dimension()).map(|_| draws.normal()).collect();
    let rows = settings.samples.par_iter();
    rows.map(|&samples| measure_at(&kind, samples, &angles, &x).map_err(|error| NnError::from(error).into())).collect()
}

fn measure_at(
    kind: &FeatureType,
    samples: usize,
    angles: &[f64],
    x: &[f64],
) -> Result<BoundRow, gemcnn_kernels::KernelError> {
    let config = Regular::new(kind.clone(), samples, Activation::Relu);
    let plan = Plan::<f64>::new(&config)?;
    let rotated = |x: &[f64]| {
        let mut rotated = vec![0.0; x.len()];
        elementwise::rotate(kind, angles, x, &mut rotated).map(|()| rotated)
    };
    let applied = |x: &[f64]| {
        let mut y = vec![0.0; x.len()];
        Forward { rows: angles.len(), plan: &plan, norm: None, x, y: &mut y[..] }.on_host().map(|()| y)
    };
    let (found, expected) = (applied(&rotated(x)?)?, rotated(&applied(x)?)?);
    let width = kind.dimension();
    let differences = found.chunks_exact(width).zip(expected.chunks_exact(width));
    let errors: Vec<f64> = differences.map(|(f, e)| f.iter().zip(e).map(|(f, e)| (f - e).abs()).sum()).collect();
    let bounds: Vec<f64> = x.chunks_exact(width).map(|x| theorem_bound(x, samples)).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let shares = errors.iter().zip(&bounds).map(|(error, bound)| error / bound);
    Ok(BoundRow {
        samples,
        mean_error: mean(&errors),
        largest_error: errors.iter().copied().fold(0.0, f64::max),
        mean_bound: mean(&bounds),
        largest_share: shares.fold(0.0, f64::max),
    })
}
