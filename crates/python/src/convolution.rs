//! The gauge convolution on tensors of PyTorch.

use crate::errors;
use crate::settings::{by_type, kind};
use crate::tensor::{Failure, Place, Scalar};
use gemcnn_kernels::cuda::{DeviceGraphSlices, DeviceGraphView, ReversedSlices};
use gemcnn_kernels::gauge_conv::{self, GaugeConv, Weights};
use gemcnn_kernels::{
    Aggregation, EdgePhases, GraphSlices, GraphView, KernelError, OnDevice, Resolve, dispatch,
};
use pyo3::prelude::*;

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

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(gauge_conv_forward, module)?)?;
    module.add_function(wrap_pyfunction!(gauge_conv_backward, module)?)
}
