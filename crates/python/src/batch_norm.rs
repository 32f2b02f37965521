//! Batch normalisation on tensors of PyTorch, alone or with the regular nonlinearity after it.

use crate::errors;
use crate::operators::{Planned, plan};
use crate::settings::{by_type, kind};
use crate::tensor::{Place, Scalar};
use gemcnn_kernels::batch_norm::{self, AnyStatistics, BatchNorm, NormGroups};
use gemcnn_kernels::cuda::CudaError;
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Executor, View};
use pyo3::prelude::*;
use std::sync::Arc;

/// `(type, irrep or channel, epsilon)`, then those of the nonlinearity: band limit of the output, samples (0 without
/// one) and activation.
type NormSettings<'a> = (&'a str, &'a str, f64, usize, usize, &'a str);
/// Mean and variance of each slot.
type Moments<'py> = [Bound<'py, PyAny>; 2];

fn settings((text, per, epsilon, ..): NormSettings<'_>) -> PyResult<BatchNorm> {
    let groups = match per {
        "irrep" => NormGroups::PerIrrep,
        "channel" => NormGroups::PerChannel,
        other => {
            return Err(errors::operator(format!("per is `{other}`, but must be irrep or channel")));
        }
    };
    Ok(BatchNorm { epsilon, ..BatchNorm::new(kind(text)?, groups) })
}

/// The nonlinearity, if there is one.
fn nonlinearity<T: Planned>(
    py: Python<'_>,
    (text, _, _, band_limit, samples, activation): NormSettings<'_>,
) -> PyResult<Option<Arc<Plan<T>>>> {
    match samples {
        0 => Ok(None),
        _ => plan(py, (text, band_limit, samples, activation)).map(Some),
    }
}

/// Views of the mean and the variance of each slot, if they are given.
fn moments<'a, T: Scalar>(place: &Place, tensors: Option<&Moments<'a>>) -> PyResult<Option<[View<'a, T>; 2]>> {
    let Some([mean, variance]) = tensors else { return Ok(None) };
    Ok(Some([place.view("mean", mean)?, place.view("variance", variance)?]))
}

/// The running statistics, or else those of the rows.
fn statistics<T: Scalar>(
    run: &mut Executor<'_, T>,
    running: Option<[View<'_, T>; 2]>,
    (config, rows, x): (&BatchNorm, usize, View<'_, T>),
) -> Result<AnyStatistics, CudaError> {
    match running {
        Some(running) => AnyStatistics::running(run, running),
        None => AnyStatistics::of_rows(run, config, rows, x),
    }
}

/// The normalised rows, or their nonlinearity. `tensors` are x, gamma and beta. Without running statistics it uses
/// those of the rows, which `found` follows: they get this weight there, the values before them the rest.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each group of tensors")]
fn batch_norm_forward(
    py: Python<'_>,
    norm: NormSettings<'_>,
    rows: usize,
    tensors: [Bound<'_, PyAny>; 3],
    running: Option<Moments<'_>>,
    y: &Bound<'_, PyAny>,
    found: Moments<'_>,
    weight: f64,
) -> PyResult<()> {
    let config = &settings(norm)?;
    let [x, gamma, beta] = &tensors;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let plan = nonlinearity::<T>(py, norm)?;
        let plan = plan.as_deref();
        let [x, gamma, beta] = [place.view::<T>("x", x)?, place.view("gamma", gamma)?, place.view("beta", beta)?];
        let running = moments::<T>(&place, running.as_ref())?;
        let y = place.view_mut::<T>("y", y)?;
        let [mean, variance] = &found;
        let [mean, variance] = match weight {
            // They may be new, without values.
            1.0 => [place.zeros::<T>("found mean", mean)?, place.zeros("found variance", variance)?],
            _ => [place.view_mut::<T>("found mean", mean)?, place.view_mut("found variance", variance)?],
        };
        place.run::<T>(py, |mut run| {
            let run = &mut run;
            let statistics = statistics(run, running, (config, rows, x))?;
            let norm = statistics.normalisation(config, [gamma, beta])?;
            match plan {
                None => batch_norm::Forward { rows, norm, x, y }.run(run)?,
                Some(plan) => {
                    let (plan, norm) = (plan.on(run), run.option(Some(norm)));
                    regular::Forward { rows, plan, norm, x, y }.run(run)?;
                }
            }
            if running.is_none() {
                statistics.update_running(run, weight, [mean, variance])?;
            }
            Ok(())
        })
    })
}

/// Gradients of the rows, gamma and beta. `tensors` are x, gamma, beta and the gradient of the result. Statistics of
/// the rows are computed again.
#[pyfunction]
fn batch_norm_backward(
    py: Python<'_>,
    norm: NormSettings<'_>,
    rows: usize,
    tensors: [Bound<'_, PyAny>; 4],
    running: Option<Moments<'_>>,
    gradients: [Bound<'_, PyAny>; 3],
) -> PyResult<()> {
    let config = &settings(norm)?;
    let [x, gamma, beta, dy] = &tensors;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let plan = nonlinearity::<T>(py, norm)?;
        let plan = plan.as_deref();
        let [x, gamma, beta] = [place.view::<T>("x", x)?, place.view("gamma", gamma)?, place.view("beta", beta)?];
        let dy = place.view::<T>("dy", dy)?;
        let running = moments::<T>(&place, running.as_ref())?;
        let [dx, dgamma, dbeta] = &gradients;
        let dx = place.view_mut::<T>("dx", dx)?;
        let (dgamma, dbeta) = (place.zeros::<T>("dgamma", dgamma)?, place.zeros::<T>("dbeta", dbeta)?);
        place.run::<T>(py, |mut run| {
            let run = &mut run;
            let statistics = statistics(run, running, (config, rows, x))?;
            let norm = statistics.normalisation(config, [gamma, beta])?;
            Ok(match plan {
                None => batch_norm::Backward { rows, norm, x, dy, dx, dgamma, dbeta }.run(run),
                Some(plan) => {
                    let (plan, norm) = (plan.on(run), run.option(Some(norm)));
                    regular::Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta }.run(run)
                }
            }?)
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(batch_norm_forward, module)?)?;
    module.add_function(wrap_pyfunction!(batch_norm_backward, module)?)
}
