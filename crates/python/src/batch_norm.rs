//! Batch normalisation on tensors of PyTorch.

use crate::errors;
use crate::settings::{by_type, kind};
use crate::tensor::Place;
use gemcnn_kernels::batch_norm::cuda::DeviceStatistics;
use gemcnn_kernels::batch_norm::{
    self, BatchNorm, NormGradients, NormGroups, Normalisation, Statistics,
};
use gemcnn_kernels::{Executor, Resolve};
use pyo3::prelude::*;

/// `(type, irrep or channel, epsilon)`
type NormSettings<'a> = (&'a str, &'a str, f64);
/// Mean and variance of each slot.
type Moments<'py> = [Bound<'py, PyAny>; 2];

fn settings((text, per, epsilon): NormSettings<'_>) -> PyResult<BatchNorm> {
    let groups = match per {
        "irrep" => NormGroups::PerIrrep,
        "channel" => NormGroups::PerChannel,
        other => {
            return Err(errors::operator(format!(
                "per is `{other}`, but must be irrep or channel"
            )));
        }
    };
    Ok(BatchNorm {
        epsilon,
        ..BatchNorm::new(kind(text)?, groups)
    })
}

/// The normalised rows. `tensors` are x, gamma and beta. Without running statistics it uses those of the rows, which `found` follows:
/// they get this weight there, the values before them the rest.
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
                    batch_norm::forward(Normalisation { config, statistics, gamma, beta }, rows, x, y.host()?)?;
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
                    batch_norm::cuda::forward(device, norm, rows, x, y.cuda()?)?;
                    if of_rows {
                        statistics.update_running(device, weight, mean.cuda()?, variance.cuda()?)?;
                    }
                }
            }
            Ok(())
        })
    })
}

/// Gradients of the rows, gamma and beta. `tensors` are x, gamma, beta and the gradient of the result. Statistics of the rows are
/// computed again.
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
                    batch_norm::backward(norm, rows, x, dy.host()?, dx.host()?, gradients.host()?, scratch.wide)?;
                }
                Executor::Cuda(device) => {
                    let (x, gamma, beta) = (x.cuda()?, gamma.cuda()?, beta.cuda()?);
                    let statistics = &match running {
                        Some((mean, variance)) => DeviceStatistics::running(device, mean.cuda()?, variance.cuda()?)?,
                        None => batch_norm::cuda::statistics(device, config, rows, x)?,
                    };
                    let norm = Normalisation { config, statistics, gamma, beta };
                    batch_norm::cuda::backward(device, norm, rows, x, dy.cuda()?, dx.cuda()?, gradients.cuda()?)?;
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
