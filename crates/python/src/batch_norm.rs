//! Batch normalisation on tensors of PyTorch, alone or with the regular nonlinearity after it.

use crate::errors;
use crate::operators::{Planned, plan};
use crate::settings::{by_type, kind};
use crate::tensor::Place;
use gemcnn_kernels::batch_norm::cuda::DeviceStatistics;
use gemcnn_kernels::batch_norm::{self, BatchNorm, NormGradients, NormGroups, Normalisation, Statistics};
use gemcnn_kernels::regular::{self, Plan};
use gemcnn_kernels::{Executor, Resolve};
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
        let running = match &running {
            Some([mean, variance]) => Some((place.view::<T>("mean", mean)?, place.view::<T>("variance", variance)?)),
            None => None,
        };
        let y = place.view_mut::<T>("y", y)?;
        let [mean, variance] = &found;
        let [mean, variance] = match weight {
            // They may be new, without values.
            1.0 => [place.zeros::<T>("found mean", mean)?, place.zeros("found variance", variance)?],
            _ => [place.view_mut::<T>("found mean", mean)?, place.view_mut("found variance", variance)?],
        };
        place.run::<T>(py, |run| {
            match run {
                Executor::Host(scratch) => {
                    let (x, gamma, beta) = (x.host()?, gamma.host()?, beta.host()?);
                    let of_rows = running.is_none();
                    let statistics = &match running {
                        Some((mean, variance)) => Statistics::running(mean.host()?, variance.host()?),
                        None => batch_norm::statistics(config, rows, x, scratch.wide)?,
                    };
                    let norm = Normalisation { config, statistics, gamma, beta };
                    match plan {
                        None => batch_norm::forward(norm, rows, x, y.host()?)?,
                        Some(plan) => regular::forward_normalised(plan, norm, rows, x, y.host()?)?,
                    }
                    if of_rows {
                        statistics.update_running(weight, mean.host()?, variance.host()?)?;
                    }
                }
                Executor::Cuda(device) => {
                    let (x, gamma, beta) = (x.cuda()?, gamma.cuda()?, beta.cuda()?);
                    let of_rows = running.is_none();
                    let statistics = &match running {
                        Some((mean, variance)) => DeviceStatistics::running(device, mean.cuda()?, variance.cuda()?)?,
                        None => batch_norm::cuda::statistics(device, config, rows, x)?,
                    };
                    let norm = Normalisation { config, statistics, gamma, beta };
                    match plan {
                        None => batch_norm::cuda::forward(device, norm, rows, x, y.cuda()?)?,
                        Some(plan) => regular::cuda::forward_normalised(device, plan.cuda()?, norm, rows, x, y.cuda()?)?,
                    }
                    if of_rows {
                        statistics.update_running(device, weight, mean.cuda()?, variance.cuda()?)?;
                    }
                }
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
        let running = match &running {
            Some([mean, variance]) => Some((place.view::<T>("mean", mean)?, place.view::<T>("variance", variance)?)),
            None => None,
        };
        let [dx, dgamma, dbeta] = &gradients;
        let dx = place.view_mut::<T>("dx", dx)?;
        let gradients = NormGradients {
            gamma: place.zeros::<T>("dgamma", dgamma)?,
            beta: place.zeros::<T>("dbeta", dbeta)?,
        };
        place.run::<T>(py, |run| {
            match run {
                Executor::Host(scratch) => {
                    let (x, gamma, beta) = (x.host()?, gamma.host()?, beta.host()?);
                    let statistics = &match running {
                        Some((mean, variance)) => Statistics::running(mean.host()?, variance.host()?),
                        None => batch_norm::statistics(config, rows, x, scratch.wide)?,
                    };
                    let norm = Normalisation { config, statistics, gamma, beta };
                    let (dy, dx, gradients) = (dy.host()?, dx.host()?, gradients.host()?);
                    match plan {
                        None => batch_norm::backward(norm, rows, x, dy, dx, gradients, scratch.wide)?,
                        Some(plan) => regular::backward_normalised(plan, norm, rows, x, dy, dx, gradients, scratch.wide)?,
                    }
                }
                Executor::Cuda(device) => {
                    let (x, gamma, beta) = (x.cuda()?, gamma.cuda()?, beta.cuda()?);
                    let statistics = &match running {
                        Some((mean, variance)) => DeviceStatistics::running(device, mean.cuda()?, variance.cuda()?)?,
                        None => batch_norm::cuda::statistics(device, config, rows, x)?,
                    };
                    let norm = Normalisation { config, statistics, gamma, beta };
                    let (dy, dx, gradients) = (dy.cuda()?, dx.cuda()?, gradients.cuda()?);
                    match plan {
                        None => batch_norm::cuda::backward(device, norm, rows, x, dy, dx, gradients)?,
                        Some(plan) => regular::cuda::backward_normalised(
                            device, plan.cuda()?, norm, rows, x, dy, dx, gradients,
                        )?,
                    }
                }
            }
            Ok(())
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(batch_norm_forward, module)?)?;
    module.add_function(wrap_pyfunction!(batch_norm_backward, module)?)
}
