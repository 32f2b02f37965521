use super::*;
use crate::testing::{
    arrays, assert_adjoint, assert_same_on_any_threads, difference, dot, graphs, random, weighted_graphs, wrong_length,
};
use crate::{FeatureType, GraphArrays};
use gemcnn_mesh::NeighbourWeights;

fn operators() -> Vec<GaugeConv> {
    [
        ("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"),
        ("3x0", "8x0 + 8x1"),
        ("3x0 + 17x1 + 2x3", "5x0 + 9x2 + 3x3"),
        ("4x1 + 1x2", "2x1 + 1x4"),
        ("5x0", "1x0"),
        ("0x0", "2x0 + 1x1"),
        ("2x0 + 1x1", "0x0"),
    ]
    .map(|(input, output)| GaugeConv {
        self_term: false,
        bias: false,
        ..GaugeConv::new(input.parse().unwrap(), output.parse().unwrap())
    })
    .into()
}

/// `y`, `x`, weights and factors.
fn data<T: Real>(op: &GaugeConv, graph: &GraphArrays<T>) -> [Vec<T>; 4] {
    let rows = |kind: &FeatureType| graph.vertex_count() * kind.dimension();
    [
        random(rows(&op.output), 1),
        random(rows(&op.input), 2),
        random(op.neighbour_count(), 3),
        random(graph.edge_count(), 4),
    ]
}

fn weights<T>(neighbour: &[T]) -> Weights<&[T]> {
    Weights { neighbour, self_term: &[], bias: &[] }
}

fn check<T: Real>(tolerance: f64) {
    // The second kind has coefficients of its own, which the factors replace.
    let graphs = [NeighbourWeights::Count, NeighbourWeights::Jets];
    for (name, graph) in arrays::<T>(graphs.into_iter().flat_map(weighted_graphs).collect()) {
        for op in operators() {
            let [y, x, weight, _] = data(&op, &graph);
            let mut expected = vec![T::nan(); graph.edge_count()];
            reference::products(&op, graph.view(), &y, &x, &weight, &mut expected).unwrap();
            let mut found = vec![T::nan(); graph.edge_count()];
            let mut scratch = Scratch::new();
            products(&op, graph.view(), &y, &x, &weight, &mut found, &mut scratch).unwrap();
            let error = difference(&found, &expected);
            assert!(error < tolerance, "{name}: {error:e}, {op:?}");
        }
    }
}

#[test]
fn fast_products_equal_the_reference() {
    check::<f32>(5e-6);
    check::<f64>(1e-13);
}

#[test]
fn products_are_the_derivative_by_the_factors() {
    for (name, graph) in graphs::<f64>() {
        for op in operators() {
            let [dy, x, weight, factors] = data(&op, &graph);
            let (mut y, mut scratch) = (vec![f64::NAN; dy.len()], Scratch::new());
            let view = graph.view();
            forward(&op, view, &factors, &x, weights(&weight), &mut y, &mut scratch).unwrap();
            let mut gradient = vec![f64::NAN; factors.len()];
            reference::products(&op, view, &dy, &x, &weight, &mut gradient).unwrap();
            assert_adjoint(name, dot(&y, &dy), &factors, &gradient);
            let (mut dx, mut dweight) = (vec![f64::NAN; x.len()], vec![0.0; weight.len()]);
            let gradients = Weights { neighbour: &mut dweight[..], self_term: &mut [], bias: &mut [] };
            let wanted = Some(&mut dx[..]);
            let values = weights(&weight[..]);
            backward(&op, view, &factors, &x, values, &dy, wanted, gradients, &mut scratch).unwrap();
            assert_adjoint(name, dot(&y, &dy), &x, &dx);
            assert_adjoint(name, dot(&y, &dy), &weight, &dweight);
        }
    }
}

#[test]
fn products_are_the_same_on_any_number_of_threads() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    let op = operators().swap_remove(0);
    let [y, x, weight, mut out] = data(&op, &graph);
    assert_same_on_any_threads(|| {
        let (mut out, mut scratch) = (out.clone(), Scratch::new());
        products(&op, graph.view(), &y, &x, &weight, &mut out, &mut scratch).unwrap();
        out
    });
    let error = products(&op, graph.view(), &y[1..], &x, &weight, &mut out, &mut Scratch::new());
    assert_eq!(wrong_length(error.unwrap_err()), ("y", y.len() - 1, y.len()));
    let rings = GaugeConv { rings: 2, ..op };
    let weight = [&weight[..], &weight].concat();
    let error = products(&rings, graph.view(), &y, &x, &weight, &mut out, &mut Scratch::new());
    assert!(matches!(error, Err(KernelError::Setting { .. })));
}
