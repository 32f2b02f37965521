//! Attention and messages on tensors of PyTorch: operators between the vertices and the edges of a graph.

use crate::graph::{GraphTensors, Sizes, checked, slices};
use crate::settings::{by_type, kind};
use crate::tensor::Place;
use gemcnn_kernels::gauge_conv::{GaugeConv, Weights};
use gemcnn_kernels::{Aggregation, dispatch, edges, messages, weighted_conv};
use pyo3::prelude::*;

/// Of `(input type, output type)`. Weights of edges take the place of the aggregation.
fn convolution((input, output): (&str, &str), bias: bool) -> PyResult<GaugeConv> {
    Ok(GaugeConv {
        input: kind(input)?,
        output: kind(output)?,
        rings: 1,
        max_radius: 1.0,
        aggregation: Aggregation::Sum,
        self_term: false,
        bias,
    })
}

#[pyfunction]
#[pyo3(name = "weighted_conv")]
#[expect(clippy::too_many_arguments, reason = "one for each tensor")]
fn weighted_conv_forward(
    py: Python<'_>,
    types: (&str, &str),
    graph: GraphTensors<'_>,
    factors: &Bound<'_, PyAny>,
    x: &Bound<'_, PyAny>,
    weight: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &convolution(types, bias.is_some())?;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (factors, x) = (place.view::<T>("factors", factors)?, place.view::<T>("x", x)?);
        let weights = Weights {
            neighbour: place.view::<T>("weight", weight)?,
            self_term: place.optional::<T>("self_weight", None)?,
            bias: place.optional::<T>("bias", bias)?,
        };
        let y = place.view_mut::<T>("y", y)?;
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(run, weighted_conv::forward(op; graph, factors, x, weights, y; scratch));
            Ok(())
        })
    })
}

#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one for each tensor")]
fn weighted_conv_backward(
    py: Python<'_>,
    types: (&str, &str),
    graph: GraphTensors<'_>,
    factors: &Bound<'_, PyAny>,
    x: &Bound<'_, PyAny>,
    weight: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    dy: &Bound<'_, PyAny>,
    dx: Option<&Bound<'_, PyAny>>,
    dweight: &Bound<'_, PyAny>,
    dbias: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let op = &convolution(types, bias.is_some())?;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (factors, x) = (place.view::<T>("factors", factors)?, place.view::<T>("x", x)?);
        let weights = Weights {
            neighbour: place.view::<T>("weight", weight)?,
            self_term: place.optional::<T>("self_weight", None)?,
            bias: place.optional::<T>("bias", bias)?,
        };
        let dy = place.view::<T>("dy", dy)?;
        let dx = dx.map(|dx| place.view_mut::<T>("dx", dx)).transpose()?;
        let gradients = Weights {
            neighbour: place.zeros::<T>("dweight", dweight)?,
            self_term: place.optional_zeros::<T>("dself_weight", None)?,
            bias: place.optional_zeros::<T>("dbias", dbias)?,
        };
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(
                run,
                weighted_conv::backward(op; graph, factors, x, weights, dy, dx, gradients; scratch)
            );
            Ok(())
        })
    })
}

#[pyfunction]
fn edge_product(
    py: Python<'_>,
    types: (&str, &str),
    graph: GraphTensors<'_>,
    y: &Bound<'_, PyAny>,
    x: &Bound<'_, PyAny>,
    weight: &Bound<'_, PyAny>,
    products: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = &convolution(types, false)?;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (y, x) = (place.view::<T>("y", y)?, place.view::<T>("x", x)?);
        let weight = place.view::<T>("weight", weight)?;
        let products = place.view_mut::<T>("products", products)?;
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(run, weighted_conv::products(op; graph, y, x, weight, products; scratch));
            Ok(())
        })
    })
}

#[pyfunction]
fn edge_softmax(py: Python<'_>, graph: GraphTensors<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<()> {
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(run, edges::softmax(1; graph, x, y));
            Ok(())
        })
    })
}

#[pyfunction]
fn edge_softmax_backward(
    py: Python<'_>,
    graph: GraphTensors<'_>,
    y: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    dx: &Bound<'_, PyAny>,
) -> PyResult<()> {
    by_type!(y, T => {
        let (place, sizes) = (Place::of(y)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (y, dy) = (place.view::<T>("y", y)?, place.view::<T>("dy", dy)?);
        let dx = place.view_mut::<T>("dx", dx)?;
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            dispatch!(run, edges::softmax_backward(1; graph, y, dy, dx));
            Ok(())
        })
    })
}

/// One of the four ends of messages on the edges of a piece: `gather`, `gather_backward`, `reduce` or
/// `reduce_backward`.
#[pyfunction]
fn messages_at_edges(
    py: Python<'_>,
    which: &str,
    text: &str,
    piece: (usize, usize),
    graph: GraphTensors<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let features = &kind(text)?;
    let range = piece.0..piece.1;
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |run| {
            let graph = checked(graph)?;
            match which {
                "gather" => dispatch!(run, messages::gather(features, range; graph, x, y)),
                "gather_backward" => {
                    dispatch!(run, messages::gather_backward(features, range; graph, x, y))
                }
                "reduce" => dispatch!(run, messages::reduce(features, range; graph, x, y)),
                _ => dispatch!(run, messages::reduce_backward(features, range; graph, x, y)),
            }
            Ok(())
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(weighted_conv_forward, module)?)?;
    module.add_function(wrap_pyfunction!(weighted_conv_backward, module)?)?;
    module.add_function(wrap_pyfunction!(edge_product, module)?)?;
    module.add_function(wrap_pyfunction!(edge_softmax, module)?)?;
    module.add_function(wrap_pyfunction!(edge_softmax_backward, module)?)?;
    module.add_function(wrap_pyfunction!(messages_at_edges, module)?)
}
