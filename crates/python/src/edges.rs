//! Attention and messages on tensors of PyTorch: operators between the vertices and the edges of a graph.

use crate::graph::{GraphTensors, Sizes, checked, slices};
use crate::pass::passes;
use crate::settings::{by_type, kind};
use crate::tensor::Place;
use gemcnn_kernels::edges::{Softmax, SoftmaxBackward};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::messages::{Gather, GatherBackward, Reduce, ReduceBackward};
use gemcnn_kernels::weighted_conv::{Backward, Forward, Products};
use pyo3::prelude::*;

/// Of `(input type, output type, bias)`. Weights of edges take the place of the aggregation.
fn convolution((input, output, bias): (&str, &str, bool)) -> PyResult<GaugeConv> {
    Ok(GaugeConv { self_term: false, bias, ..GaugeConv::new(kind(input)?, kind(output)?) })
}

passes! {
    weighted_conv = convolution(&str, &str, bool) => Forward();
    weighted_conv_backward = convolution(&str, &str, bool) => Backward();
    edge_product = convolution(&str, &str, bool) => Products();
    edge_softmax = Softmax(heads: usize);
    edge_softmax_backward = SoftmaxBackward(heads: usize);
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
    let range = &(piece.0..piece.1);
    by_type!(x, T => {
        let (place, sizes) = (Place::of(x)?, Sizes::of(&graph)?);
        let graph = slices::<T>(&place, &graph, &sizes)?;
        let (x, y) = (place.view::<T>("x", x)?, place.view_mut::<T>("y", y)?);
        place.run::<T>(py, |mut run| {
            let graph = checked(graph)?;
            match which {
                "gather" => Gather { features, range, graph, x, z: y }.run(&mut run)?,
                "gather_backward" => GatherBackward { features, range, graph, dz: x, dx: y }.run(&mut run)?,
                "reduce" => Reduce { features, range, graph, values: x, y }.run(&mut run)?,
                _ => ReduceBackward { features, range, graph, dy: x, dvalues: y }.run(&mut run)?,
            }
            Ok(())
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_passes(module)?;
    module.add_function(wrap_pyfunction!(messages_at_edges, module)?)
}
