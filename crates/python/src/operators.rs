//! The other operators on tensors of PyTorch, forward and backward. Results are written to tensors of the caller.

use crate::cuda::use_torch;
use crate::errors;
use crate::pass::passes;
use crate::settings::{activation, by_type, kind};
use crate::tensor::{Failure, Place, Scalar};
use gemcnn_kernels::linear::{self, Linear};
use gemcnn_kernels::norm_gate::{
    GatedBackward, GatedForward, GatedNonlinearity, NormBackward, NormForward, NormNonlinearity, rotating_irreps,
};
use gemcnn_kernels::pool::cuda::{DeviceClusterSlices, DeviceClusterView};
use gemcnn_kernels::pool::transport::{ClusterSlices, ClusterView};
use gemcnn_kernels::pool::{Pool, PoolBackward, Unpool, UnpoolBackward};
use gemcnn_kernels::regular::{self, Plan, Regular};
use gemcnn_kernels::self_map::{self, SelfMap};
use gemcnn_kernels::{Executor, KernelError, OnDevice};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The map of scalars as one matrix product, which is faster on the CPU where there are many.
fn of_scalars(op: &SelfMap) -> Option<Linear> {
    let scalars = op.input.highest_order() == 0 && op.output.highest_order() == 0;
    scalars.then(|| Linear { inputs: op.input.dimension(), outputs: op.output.dimension(), bias: op.bias })
}

#[pyfunction]
fn linear_forward(
    py: Python<'_>,
    types: (&str, &str),
    rows: usize,
    x: &Bound<'_, PyAny>,
    weight: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &SelfMap { input: kind(types.0)?, output: kind(types.1)?, bias: bias.is_some() };
    by_type!(x, T => {
        let place = Place::of(x)?;
        let bias = place.optional::<T>("bias", bias)?;
        let (x, weight) = (place.view::<T>("x", x)?, place.view::<T>("weight", weight)?);
        let y = place.view_mut::<T>("y", y)?;
        place.run::<T>(py, |mut run| {
            Ok(match (&run, of_scalars(op)) {
                (Executor::Host(_), Some(op)) => linear::Forward { op: &op, rows, x, weight, bias, y }.run(&mut run),
                _ => self_map::Forward { op, rows, x, weight, bias, y }.run(&mut run),
            }?)
        })
    })
}

#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each tensor")]
fn linear_backward(
    py: Python<'_>,
    types: (&str, &str),
    rows: usize,
    x: &Bound<'_, PyAny>,
    weight: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    dx: Option<&Bound<'_, PyAny>>,
    dweight: &Bound<'_, PyAny>,
    dbias: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let op = &SelfMap { input: kind(types.0)?, output: kind(types.1)?, bias: dbias.is_some() };
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, weight) = (place.view::<T>("x", x)?, place.view::<T>("weight", weight)?);
        let dy = place.view::<T>("dy", dy)?;
        let dx = dx.map(|dx| place.view_mut::<T>("dx", dx)).transpose()?;
        let dweight = place.zeros::<T>("dweight", dweight)?;
        let dbias = place.optional_zeros::<T>("dbias", dbias)?;
        place.run::<T>(py, |mut run| {
            Ok(match (&run, of_scalars(op)) {
                (Executor::Host(_), Some(op)) => {
                    linear::Backward { op: &op, rows, x, weight, dy, dx, dweight, dbias }.run(&mut run)
                }
                _ => self_map::Backward { op, rows, x, weight, dy, dx, dweight, dbias }.run(&mut run),
            }?)
        })
    })
}

/// `(type, band limit of the output, samples, activation)`
pub type RegularSettings<'a> = (&'a str, usize, usize, &'a str);

/// Plans by their settings. The lock is only taken by threads that are attached to Python and do not detach, so no fork
/// sees it locked: a fork holds the GIL, or stops the world first.
pub type Plans<T> = Mutex<HashMap<(String, usize, usize, String), Arc<Plan<T>>>>;

pub trait Planned: Scalar {
    fn plans(py: Python<'_>) -> &Plans<Self>;
}

macro_rules! planned {
    ($kind:ty) => {
        impl Planned for $kind {
            fn plans(py: Python<'_>) -> &Plans<Self> {
                static PLANS: PyOnceLock<Plans<$kind>> = PyOnceLock::new();
                PLANS.get_or_init(py, Plans::default)
            }
        }
    };
}
planned!(f32);
planned!(f64);

pub fn plan<T: Planned>(py: Python<'_>, settings: RegularSettings<'_>) -> PyResult<Arc<Plan<T>>> {
    let (text, output_band_limit, samples, word) = settings;
    let mut plans = T::plans(py).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (text.to_owned(), output_band_limit, samples, word.to_owned());
    if let Some(plan) = plans.get(&key) {
        return Ok(Arc::clone(plan));
    }
    let plan = Plan::new(&Regular { input: kind(text)?, output_band_limit, samples, activation: activation(word)? });
    let plan = Arc::new(plan.map_err(errors::operator)?);
    plans.insert(key, Arc::clone(&plan));
    Ok(plan)
}

#[pyfunction]
fn regular_forward(
    py: Python<'_>,
    settings: RegularSettings<'_>,
    rows: usize,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    by_type!(x, T => {
        let place = Place::of(x)?;
        let plan = &*plan::<T>(py, settings)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |mut run| {
            let (plan, norm) = (plan.on(&run), run.option(None));
            Ok(regular::Forward { rows, plan, norm, x, y }.run(&mut run)?)
        })
    })
}

#[pyfunction]
fn regular_backward(
    py: Python<'_>,
    settings: RegularSettings<'_>,
    rows: usize,
    x: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    dx: &Bound<'_, PyAny>,
) -> PyResult<()> {
    by_type!(x, T => {
        let place = Place::of(x)?;
        let plan = &*plan::<T>(py, settings)?;
        let (x, dy) = (place.view::<T>("x", x)?, place.view::<T>("dy", dy)?);
        let dx = place.view_mut::<T>("dx", dx)?;
        let [dgamma, dbeta] = ["dgamma", "dbeta"].map(|name| place.optional_zeros::<T>(name, None));
        let (dgamma, dbeta) = (dgamma?, dbeta?);
        place.run::<T>(py, |mut run| {
            let (plan, norm) = (plan.on(&run), run.option(None));
            Ok(regular::Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta }.run(&mut run)?)
        })
    })
}

/// Of `(type, activation, epsilon)`.
fn norm((text, word, epsilon): (&str, &str, f64)) -> PyResult<NormNonlinearity> {
    Ok(NormNonlinearity { kind: kind(text)?, activation: activation(word)?, epsilon })
}

/// Of `(type, activation)`.
fn gated((text, word): (&str, &str)) -> PyResult<GatedNonlinearity> {
    Ok(GatedNonlinearity { output: kind(text)?, activation: activation(word)? })
}

passes! {
    norm_forward = norm(&str, &str, f64) => NormForward(rows: usize);
    norm_backward = norm(&str, &str, f64) => NormBackward(rows: usize);
    gated_forward = gated(&str, &str) => GatedForward(rows: usize);
    gated_backward = gated(&str, &str) => GatedBackward(rows: usize);
}

/// Tensors of clusters: offsets, members, cluster of each vertex, and phases.
type ClusterTensors<'py> = [Bound<'py, PyAny>; 4];

/// One of the four transports between levels: `pool`, `pool_backward`, `unpool` or `unpool_backward`.
#[pyfunction]
fn transport_pool(
    py: Python<'_>,
    which: &str,
    text: &str,
    clusters: ClusterTensors<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let features = &kind(text)?;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let [offsets, members, cluster_of, phases] = &clusters;
        let offsets = place.indices("offsets", offsets)?;
        let members = place.indices("members", members)?;
        let cluster_of = place.indices("cluster_of", cluster_of)?;
        let phases = place.groups::<T, [T; 2], [f32; 2]>("phases", phases)?;
        let slices = match (offsets, members, cluster_of, phases) {
            (
                OnDevice::Host(offsets),
                OnDevice::Host(members),
                OnDevice::Host(cluster_of),
                OnDevice::Host(phases),
            ) => OnDevice::Host(ClusterSlices { offsets, members, cluster_of, phases }),
            (
                OnDevice::Cuda(offsets),
                OnDevice::Cuda(members),
                OnDevice::Cuda(cluster_of),
                OnDevice::Cuda(phases),
            ) => OnDevice::Cuda(DeviceClusterSlices { offsets, members, cluster_of, phases }),
            _ => return Err(Failure::Kernel(KernelError::OtherDevice).into()),
        };
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |mut run| {
            let clusters = match slices {
                OnDevice::Host(slices) => OnDevice::Host(ClusterView::new(slices)?),
                // SAFETY: as in `checked`.
                OnDevice::Cuda(slices) => OnDevice::Cuda(unsafe { DeviceClusterView::new(slices)? }),
            };
            match which {
                "pool" => Pool { features, clusters, x, y }.run(&mut run)?,
                "pool_backward" => PoolBackward { features, clusters, dy: x, dx: y }.run(&mut run)?,
                "unpool" => Unpool { features, clusters, x, y }.run(&mut run)?,
                _ => UnpoolBackward { features, clusters, dy: x, dx: y }.run(&mut run)?,
            }
            Ok(())
        })
    })
}

/// The multiplicity of each order of a feature type from 0, and its standard form.
#[pyfunction]
fn feature_type(text: &str) -> PyResult<(Vec<usize>, String)> {
    let kind = kind(text)?;
    Ok((kind.multiplicities().to_vec(), kind.to_string()))
}

/// Numbers of the self weights of a convolution or linear map, and of rotating irreps of its output.
#[pyfunction]
fn counts(input: &str, output: &str) -> PyResult<(usize, usize)> {
    let (input, output) = (kind(input)?, kind(output)?);
    let weights = self_map::parameter_count(&input, &output);
    Ok((weights, rotating_irreps(&output)))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(use_torch, module)?)?;
    module.add_function(wrap_pyfunction!(feature_type, module)?)?;
    module.add_function(wrap_pyfunction!(counts, module)?)?;
    module.add_function(wrap_pyfunction!(linear_forward, module)?)?;
    module.add_function(wrap_pyfunction!(linear_backward, module)?)?;
    module.add_function(wrap_pyfunction!(regular_forward, module)?)?;
    module.add_function(wrap_pyfunction!(regular_backward, module)?)?;
    add_passes(module)?;
    module.add_function(wrap_pyfunction!(transport_pool, module)?)
}
