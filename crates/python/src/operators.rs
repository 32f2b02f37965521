//! Operators on tensors of PyTorch, forward and backward. Results are written to tensors of the caller.

use crate::cuda::use_torch;
use crate::errors;
use crate::tensor::{Failure, Place, Scalar, dtype};
use gemcnn_kernels::cuda::{DeviceGraphSlices, DeviceGraphView, ReversedSlices};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, Weights};
use gemcnn_kernels::norm_gate::{self, GatedNonlinearity, NormNonlinearity, rotating_irreps};
use gemcnn_kernels::pool;
use gemcnn_kernels::pool::cuda::{DeviceClusterSlices, DeviceClusterView};
use gemcnn_kernels::pool::transport::{ClusterSlices, ClusterView};
use gemcnn_kernels::regular::{self, Plan, Regular};
use gemcnn_kernels::self_map::{self, SelfMap};
use gemcnn_kernels::{
    Activation, Aggregation, EdgePhases, FeatureType, GraphSlices, GraphView, KernelError,
    OnDevice, Resolve, dispatch,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

fn kind(text: &str) -> PyResult<FeatureType> {
    text.parse().map_err(errors::operator)
}

fn activation(word: &str) -> PyResult<Activation> {
    Ok(match word {
        "identity" => Activation::Identity,
        "relu" => Activation::Relu,
        "elu" => Activation::Elu,
        "gelu" => Activation::Gelu,
        "tanh" => Activation::Tanh,
        other => {
            let problem = "is no activation; they are identity, relu, elu, gelu and tanh";
            return Err(errors::operator(format!("`{other}` {problem}")));
        }
    })
}

/// Calls `$body` with `$T` the type of a tensor.
macro_rules! by_type {
    ($tensor:expr, $T:ident => $body:expr) => {
        match dtype($tensor)?.as_str() {
            "torch.float32" => {
                type $T = f32;
                $body
            }
            "torch.float64" if !$tensor.getattr("is_cuda")?.extract::<bool>()? => {
                type $T = f64;
                $body
            }
            other => Err(errors::operator(format!(
                "features of type {other} are not supported: use torch.float32, or torch.float64 on the CPU"
            ))),
        }
    };
}

/// The tensors of a graph: offsets, neighbours, reverse, phases, radius, coefficients, and the phases, radii and
/// coefficients of the reversed edges.
type GraphTensors<'py> = [Bound<'py, PyAny>; 9];

/// A graph in tensors, before its contents are checked.
type Graph<'a, T> = OnDevice<GraphSlices<'a, T>, DeviceGraphSlices<'a>>;

fn slices<'a, T: Scalar>(
    place: &Place,
    tensors: &'a GraphTensors<'a>,
    ends: &'a [u32; 2],
    columns: usize,
) -> PyResult<Graph<'a, T>> {
    let [
        offsets,
        neighbours,
        reverse,
        phases,
        radius,
        coefficients,
        reversed @ ..,
    ] = tensors;
    let offsets = place.indices("offsets", offsets)?;
    let neighbours = place.indices("neighbours", neighbours)?;
    let reverse = place.indices("reverse", reverse)?;
    let phases = place.groups::<T, EdgePhases<T>, [f32; 4]>("phases", phases)?;
    let radius = place.view::<T>("radius", radius)?;
    let coefficients = place.view::<T>("coefficients", coefficients)?;
    Ok(
        match (offsets, neighbours, reverse, phases, radius, coefficients) {
            (
                OnDevice::Host(offsets),
                OnDevice::Host(neighbours),
                OnDevice::Host(reverse),
                OnDevice::Host(phases),
                OnDevice::Host(radius),
                OnDevice::Host(coefficients),
            ) => OnDevice::Host(GraphSlices {
                offsets,
                neighbours,
                reverse,
                phases,
                radius,
                coefficients: (columns, coefficients),
                mesh_offsets: ends,
            }),
            (
                OnDevice::Cuda(offsets),
                OnDevice::Cuda(neighbours),
                OnDevice::Cuda(reverse),
                OnDevice::Cuda(phases),
                OnDevice::Cuda(radius),
                OnDevice::Cuda(coefficients),
            ) => {
                let [back, back_radius, back_coefficients] = reversed;
                let back = place.groups::<T, EdgePhases<T>, [f32; 4]>("reversed_phases", back)?;
                let back_radius = place.view::<T>("reversed_radius", back_radius)?;
                let back_coefficients =
                    place.view::<T>("reversed_coefficients", back_coefficients)?;
                let reversed = ReversedSlices {
                    phases: Resolve::cuda(back).map_err(Failure::Kernel)?,
                    radius: Resolve::cuda(back_radius).map_err(Failure::Kernel)?,
                    coefficients: Resolve::cuda(back_coefficients).map_err(Failure::Kernel)?,
                };
                OnDevice::Cuda(DeviceGraphSlices {
                    offsets,
                    neighbours,
                    reverse,
                    phases,
                    radius,
                    coefficients: (columns, coefficients),
                    reversed: Some(reversed),
                    // Convolutions do not read them; the host has them.
                    mesh_offsets: offsets.slice(0..2),
                    host_mesh_offsets: ends,
                })
            }
            _ => return Err(Failure::Kernel(KernelError::OtherDevice).into()),
        },
    )
}

/// The checked graph: on the host all indices, on a GPU lengths only.
fn checked<'a, T: Scalar>(
    graph: Graph<'a, T>,
) -> Result<OnDevice<GraphView<'a, T>, DeviceGraphView<'a>>, Failure> {
    Ok(match graph {
        OnDevice::Host(slices) => OnDevice::Host(GraphView::new(slices)?),
        // SAFETY: `gemcnn.torch.Graph` is made from checked graphs, and its documentation says that it must be.
        OnDevice::Cuda(slices) => OnDevice::Cuda(unsafe { DeviceGraphView::new(slices)? }),
    })
}

/// Number of vertices of a graph, as the offsets of a single mesh.
fn ends(tensors: &GraphTensors<'_>) -> PyResult<[u32; 2]> {
    let offsets: usize = tensors[0].call_method0("numel")?.extract()?;
    Ok([0, offsets.saturating_sub(1) as u32])
}

/// `(input type, output type, rings, largest radius, aggregation, coefficients of each edge)`
type ConvSettings<'a> = (&'a str, &'a str, usize, f64, &'a str, usize);

fn convolution(settings: ConvSettings<'_>, self_term: bool, bias: bool) -> PyResult<GaugeConv> {
    let (input, output, rings, max_radius, aggregation, _) = settings;
    Ok(GaugeConv {
        input: kind(input)?,
        output: kind(output)?,
        rings,
        max_radius,
        aggregation: match aggregation {
            "sum" => Aggregation::Sum,
            "mean" => Aggregation::Mean,
            "mean_with_self" => Aggregation::MeanWithSelf,
            other => {
                let problem = "is no aggregation; they are sum, mean and mean_with_self";
                return Err(errors::operator(format!("`{other}` {problem}")));
            }
        },
        self_term,
        bias,
    })
}

/// Tensors of the neighbour weights, self weights and bias.
type WeightTensors<'py> = (
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

#[pyfunction]
#[pyo3(name = "gauge_conv")]
fn gauge_conv_forward(
    py: Python<'_>,
    settings: ConvSettings<'_>,
    graph: GraphTensors<'_>,
    x: &Bound<'_, PyAny>,
    weights: WeightTensors<'_>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    fn run<T: Scalar>(
        py: Python<'_>,
        op: &GaugeConv,
        columns: usize,
        tensors: &GraphTensors<'_>,
        x: &Bound<'_, PyAny>,
        weights: &WeightTensors<'_>,
        y: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let place = Place::of(x)?;
        let ends = ends(tensors)?;
        let graph = slices::<T>(&place, tensors, &ends, columns)?;
        let x = place.view::<T>("x", x)?;
        let weights = Weights {
            neighbour: place.view::<T>("weight", &weights.0)?,
            self_term: place.optional::<T>("self_weight", weights.1.as_ref())?,
            bias: place.optional::<T>("bias", weights.2.as_ref())?,
        };
        let y = place.view_mut::<T>("y", y)?;
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(run, gauge_conv::forward(op; graph, x, weights, y; scratch));
            Ok(())
        })
    }
    let op = convolution(settings, weights.1.is_some(), weights.2.is_some())?;
    by_type!(x, T => run::<T>(py, &op, settings.5, &graph, x, &weights, y))
}

#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each group of tensors")]
fn gauge_conv_backward(
    py: Python<'_>,
    settings: ConvSettings<'_>,
    graph: GraphTensors<'_>,
    x: &Bound<'_, PyAny>,
    weights: WeightTensors<'_>,
    dy: &Bound<'_, PyAny>,
    dx: Option<&Bound<'_, PyAny>>,
    gradients: WeightTensors<'_>,
) -> PyResult<()> {
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn run<T: Scalar>(
        py: Python<'_>,
        op: &GaugeConv,
        columns: usize,
        tensors: &GraphTensors<'_>,
        x: &Bound<'_, PyAny>,
        weights: &WeightTensors<'_>,
        dy: &Bound<'_, PyAny>,
        dx: Option<&Bound<'_, PyAny>>,
        gradients: &WeightTensors<'_>,
    ) -> PyResult<()> {
        let place = Place::of(x)?;
        let ends = ends(tensors)?;
        let graph = slices::<T>(&place, tensors, &ends, columns)?;
        let x = place.view::<T>("x", x)?;
        let weights = Weights {
            neighbour: place.view::<T>("weight", &weights.0)?,
            self_term: place.optional::<T>("self_weight", weights.1.as_ref())?,
            bias: place.optional::<T>("bias", weights.2.as_ref())?,
        };
        let dy = place.view::<T>("dy", dy)?;
        let dx = dx.map(|dx| place.view_mut::<T>("dx", dx)).transpose()?;
        let gradients = Weights {
            neighbour: place.view_mut::<T>("dweight", &gradients.0)?,
            self_term: place.optional_mut::<T>("dself_weight", gradients.1.as_ref())?,
            bias: place.optional_mut::<T>("dbias", gradients.2.as_ref())?,
        };
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(
                run,
                gauge_conv::backward(op; graph, x, weights, dy, dx, gradients; scratch)
            );
            Ok(())
        })
    }
    let op = convolution(settings, weights.1.is_some(), weights.2.is_some())?;
    let columns = settings.5;
    by_type!(x, T => run::<T>(py, &op, columns, &graph, x, &weights, dy, dx, &gradients))
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
    let op = &SelfMap {
        input: kind(types.0)?,
        output: kind(types.1)?,
        bias: bias.is_some(),
    };
    by_type!(x, T => {
        let place = Place::of(x)?;
        let bias = place.optional::<T>("bias", bias)?;
        let (x, weight) = (place.view::<T>("x", x)?, place.view::<T>("weight", weight)?);
        let y = place.view_mut::<T>("y", y)?;
        place.run::<T>(py, |run| {
            dispatch!(run, self_map::forward(op; rows, x, weight, bias, y; scratch));
            Ok(())
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
    let op = &SelfMap {
        input: kind(types.0)?,
        output: kind(types.1)?,
        bias: dbias.is_some(),
    };
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, weight) = (place.view::<T>("x", x)?, place.view::<T>("weight", weight)?);
        let dy = place.view::<T>("dy", dy)?;
        let dx = dx.map(|dx| place.view_mut::<T>("dx", dx)).transpose()?;
        let dweight = place.view_mut::<T>("dweight", dweight)?;
        let dbias = place.optional_mut::<T>("dbias", dbias)?;
        place.run::<T>(py, |run| {
            dispatch!(run, self_map::backward(op; rows, x, weight, dy, dx, dweight, dbias; scratch));
            Ok(())
        })
    })
}

/// `(type, band limit of the output, samples, activation)`
type RegularSettings<'a> = (&'a str, usize, usize, &'a str);

/// Plans by their settings. The lock is only taken with the GIL held, so no fork sees it locked.
type Plans<T> = Mutex<HashMap<(String, usize, usize, String), Arc<Plan<T>>>>;

trait Planned: Scalar {
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

fn plan<T: Planned>(py: Python<'_>, settings: RegularSettings<'_>) -> PyResult<Arc<Plan<T>>> {
    let (text, output_band_limit, samples, word) = settings;
    let mut plans = T::plans(py).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (text.to_owned(), output_band_limit, samples, word.to_owned());
    if let Some(plan) = plans.get(&key) {
        return Ok(Arc::clone(plan));
    }
    let plan = Plan::new(&Regular {
        input: kind(text)?,
        output_band_limit,
        samples,
        activation: activation(word)?,
    });
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
        place.run::<T>(py, |run| {
            dispatch!(run, regular::forward(; plan, rows, x, y));
            Ok(())
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
        place.run::<T>(py, |run| {
            dispatch!(run, regular::backward(; plan, rows, x, dy, dx));
            Ok(())
        })
    })
}

/// Of `(type, activation, epsilon)`.
fn norm((text, word, epsilon): (&str, &str, f64)) -> PyResult<NormNonlinearity> {
    Ok(NormNonlinearity {
        kind: kind(text)?,
        activation: activation(word)?,
        epsilon,
    })
}

#[pyfunction]
fn norm_forward(
    py: Python<'_>,
    settings: (&str, &str, f64),
    rows: usize,
    x: &Bound<'_, PyAny>,
    bias: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &norm(settings)?;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, bias) = (place.view::<T>("x", x)?, place.view::<T>("bias", bias)?);
        let y = place.view_mut::<T>("y", y)?;
        place.run::<T>(py, |run| {
            dispatch!(run, norm_gate::norm_forward(op; rows, x, bias, y));
            Ok(())
        })
    })
}

#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each tensor")]
fn norm_backward(
    py: Python<'_>,
    settings: (&str, &str, f64),
    rows: usize,
    x: &Bound<'_, PyAny>,
    bias: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    dx: &Bound<'_, PyAny>,
    dbias: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &norm(settings)?;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, bias) = (place.view::<T>("x", x)?, place.view::<T>("bias", bias)?);
        let dy = place.view::<T>("dy", dy)?;
        let dx = place.view_mut::<T>("dx", dx)?;
        let dbias = place.view_mut::<T>("dbias", dbias)?;
        place.run::<T>(py, |run| {
            dispatch!(run, norm_gate::norm_backward(op; rows, x, bias, dy, dx, dbias; wide_scratch));
            Ok(())
        })
    })
}

/// Of `(type, activation)`.
fn gated((text, word): (&str, &str)) -> PyResult<GatedNonlinearity> {
    Ok(GatedNonlinearity {
        output: kind(text)?,
        activation: activation(word)?,
    })
}

#[pyfunction]
fn gated_forward(
    py: Python<'_>,
    settings: (&str, &str),
    rows: usize,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &gated(settings)?;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |run| {
            dispatch!(run, norm_gate::gated_forward(op; rows, x, y));
            Ok(())
        })
    })
}

#[pyfunction]
fn gated_backward(
    py: Python<'_>,
    settings: (&str, &str),
    rows: usize,
    x: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    dx: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &gated(settings)?;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, dy) = (place.view::<T>("x", x)?, place.view::<T>("dy", dy)?);
        let dx = place.view_mut::<T>("dx", dx)?;
        place.run::<T>(py, |run| {
            dispatch!(run, norm_gate::gated_backward(op; rows, x, dy, dx));
            Ok(())
        })
    })
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
        place.run::<T>(py, |run| {
            let clusters = match slices {
                OnDevice::Host(slices) => OnDevice::Host(ClusterView::new(slices)?),
                // SAFETY: as in `checked`.
                OnDevice::Cuda(slices) => OnDevice::Cuda(unsafe { DeviceClusterView::new(slices)? }),
            };
            match which {
                "pool" => dispatch!(run, pool::pool(; clusters, features, x, y)),
                "pool_backward" => dispatch!(run, pool::pool_backward(; clusters, features, x, y)),
                "unpool" => dispatch!(run, pool::unpool(; clusters, features, x, y)),
                _ => dispatch!(run, pool::unpool_backward(; clusters, features, x, y)),
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
    module.add_function(wrap_pyfunction!(gauge_conv_forward, module)?)?;
    module.add_function(wrap_pyfunction!(gauge_conv_backward, module)?)?;
    module.add_function(wrap_pyfunction!(linear_forward, module)?)?;
    module.add_function(wrap_pyfunction!(linear_backward, module)?)?;
    module.add_function(wrap_pyfunction!(regular_forward, module)?)?;
    module.add_function(wrap_pyfunction!(regular_backward, module)?)?;
    module.add_function(wrap_pyfunction!(norm_forward, module)?)?;
    module.add_function(wrap_pyfunction!(norm_backward, module)?)?;
    module.add_function(wrap_pyfunction!(gated_forward, module)?)?;
    module.add_function(wrap_pyfunction!(gated_backward, module)?)?;
    module.add_function(wrap_pyfunction!(transport_pool, module)?)
}
