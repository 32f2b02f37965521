mod reference;

use super::*;
use crate::testing::{
    arrays, assert_adjoint, check_threads, difference, dot, graphs, random, weighted_graphs, wrong_length,
};
use crate::{FeatureType, GraphArrays, Host, Real};
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

fn check<T: Real>(tolerance: f64) {
    // The second kind has coefficients of its own, which the factors replace.
    let graphs = [NeighbourWeights::Count, NeighbourWeights::Jets];
    for (name, graph) in arrays::<T>(graphs.into_iter().flat_map(weighted_graphs).collect()) {
        for op in operators() {
            let [y, x, weight, _] = data(&op, &graph);
            let (op, graph, y, x, weight) = (&op, graph.view(), &y[..], &x[..], &weight[..]);
            let mut expected = vec![T::nan(); graph.edge_count()];
            let mut found = expected.clone();
            reference::products(Products { op, graph, y, x, weight, products: &mut expected });
            Products { op, graph, y, x, weight, products: &mut found[..] }.on_host().unwrap();
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
            let [dy, x, weight, factors] = &data(&op, &graph);
            let (op, graph, bias) = (&op, graph.view(), &[]);
            let (mut y, mut products) = (vec![f64::NAN; dy.len()], vec![f64::NAN; factors.len()]);
            Forward::<Host<_>> { op, graph, factors, x, weight, bias, y: &mut y }.on_host().unwrap();
            reference::products(Products { op, graph, y: dy, x, weight, products: &mut products });
            assert_adjoint(name, dot(&y, dy), factors, &products);
            let (mut dx, mut dweight) = (vec![f64::NAN; x.len()], vec![0.0; weight.len()]);
            let (to, dbias) = (Some(&mut dx[..]), &mut []);
            Backward::<Host<_>> { op, graph, factors, x, weight, bias, dy, dx: to, dweight: &mut dweight, dbias }
                .on_host()
                .unwrap();
            assert_adjoint(name, dot(&y, dy), x, &dx);
            assert_adjoint(name, dot(&y, dy), weight, &dweight);
        }
    }
}

#[test]
fn products_are_the_same_on_any_number_of_threads() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    let op = &operators().swap_remove(0);
    let [y, x, weight, out] = &data(op, &graph);
    let graph = graph.view();
    let run = |op, y, weight| {
        let mut out = out.clone();
        Products::<Host<_>> { op, graph, y, x, weight, products: &mut out }.on_host().map(|()| out)
    };
    check_threads(|| run(op, y, weight).unwrap());
    assert_eq!(wrong_length(run(op, &y[1..], weight).unwrap_err()), ("y", y.len() - 1, y.len()));
    let rings = GaugeConv { rings: 2, ..op.clone() };
    let error = run(&rings, y, &[&weight[..], weight].concat());
    assert!(matches!(error, Err(KernelError::Setting { .. })));
}
