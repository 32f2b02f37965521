//! The gauge convolution on tensors of PyTorch.

use crate::errors;
use crate::graph::{GraphTensors, Sizes, checked, slices};
use crate::settings::{by_type, kind};
use crate::tensor::{Place, Scalar};
use gemcnn_kernels::gauge_conv::{Backward, Forward, GaugeConv};
use gemcnn_kernels::{Aggregation, View};
use pyo3::prelude::*;

/// `(input type, output type, rings, largest radius, aggregation)`
type ConvSettings<'a> = (&'a str, &'a str, usize, f64, &'a str);

fn convolution(settings: ConvSettings<'_>, self_term: bool, bias: bool) -> PyResult<GaugeConv> {
    let (input, output, rings, max_radius, aggregation) = settings;
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
type WeightTensors<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

fn weights<'a, T: Scalar>(place: &Place, tensors: &WeightTensors<'a>) -> PyResult<[View<'a, T>; 3]> {
    Ok([
        place.view("weight", &tensors.0)?,
        place.optional("self_weight", tensors.1.as_ref())?,
        place.optional("bias", tensors.2.as_ref())?,
    ])
}

#[pyfunction]
#[pyo3(name = "gauge_conv")]
fn gauge_conv_forward(
    py: Python<'_>,
    settings: ConvSettings<'_>,
    graph: GraphTensors<'_>,
    x: &Bound<'_, PyAny>,
    tensors: WeightTensors<'_>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &convolution(settings, tensors.1.is_some(), tensors.2.is_some())?;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let [neighbour, self_term, bias] = weights::<T>(&place, &tensors)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |mut run| {
            let graph = checked(graph)?;
            Ok(Forward { op, graph, x, neighbour, self_term, bias, y }.run(&mut run)?)
        })
    })
}

#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each group of tensors")]
fn gauge_conv_backward(
    py: Python<'_>,
    settings: ConvSettings<'_>,
    graph: GraphTensors<'_>,
    x: &Bound<'_, PyAny>,
    tensors: WeightTensors<'_>,
    dy: &Bound<'_, PyAny>,
    dx: Option<&Bound<'_, PyAny>>,
    gradients: WeightTensors<'_>,
) -> PyResult<()> {
    let op = &convolution(settings, tensors.1.is_some(), tensors.2.is_some())?;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let [neighbour, self_term, bias] = weights::<T>(&place, &tensors)?;
        let (x, dy) = (place.view::<T>("x", x)?, place.view::<T>("dy", dy)?);
        let dx = dx.map(|dx| place.view_mut::<T>("dx", dx)).transpose()?;
        let dneighbour = place.zeros::<T>("dweight", &gradients.0)?;
        let dself_term = place.optional_zeros::<T>("dself_weight", gradients.1.as_ref())?;
        let dbias = place.optional_zeros::<T>("dbias", gradients.2.as_ref())?;
        place.run::<T>(py, |mut run| {
            let graph = checked(graph)?;
            let pass = Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias };
            Ok(pass.run(&mut run)?)
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(gauge_conv_forward, module)?)?;
    module.add_function(wrap_pyfunction!(gauge_conv_backward, module)?)
}
