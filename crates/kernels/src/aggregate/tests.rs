pub(crate) mod reference;

use super::*;
use crate::testing::{arrays, check_threads, difference, dot, graphs, random, weighted_graphs, wrong_length};
use gemcnn_mesh::NeighbourWeights;

fn operators() -> Vec<Aggregate> {
    let op = |input: &str, highest_order, rings, aggregation| Aggregate {
        input: input.parse().unwrap(),
        highest_order,
        rings,
        max_radius: 0.4,
        aggregation,
    };
    vec![
        op("16x0 + 16x1 + 16x2", 2, 1, Aggregation::Sum),
        op("3x0", 2, 1, Aggregation::Mean),
        op("5x0 + 17x2", 3, 2, Aggregation::MeanWithSelf),
        op("33x1", 0, 3, Aggregation::Sum),
        op("0x0", 1, 1, Aggregation::Sum),
    ]
}

/// `x` to `a`, and `da` to `dx`.
fn run<T: Real>(
    op: &Aggregate,
    graph: GraphView<'_, T>,
    [x, da]: [&[T]; 2],
    [a, dx]: [&mut [T]; 2],
) -> Result<(), KernelError> {
    Forward { op, graph, x, a }.on_host()?;
    Backward { op, graph, da, dx }.on_host()
}

fn check<T: Real>(tolerance: f64) {
    let areas = arrays(weighted_graphs(NeighbourWeights::Area));
    for (name, graph) in graphs::<T>().into_iter().chain(areas) {
        for op in operators() {
            let vertices = graph.vertex_count();
            let x: Vec<T> = random(vertices * op.input.dimension(), 1);
            let da: Vec<T> = random(vertices * op.dimension(), 2);
            let (mut a, mut dx) = (vec![T::nan(); da.len()], vec![T::nan(); x.len()]);
            let (mut slow_a, mut slow_dx) = (a.clone(), dx.clone());
            run(&op, graph.view(), [&x, &da], [&mut a, &mut dx]).unwrap();
            reference::forward(&op, graph.view(), &x, &mut slow_a).unwrap();
            reference::backward(&op, graph.view(), &da, &mut slow_dx).unwrap();
            assert!(difference(&a, &slow_a) < tolerance, "{name}: {op:?}");
            assert!(difference(&dx, &slow_dx) < tolerance, "{name}: {op:?}");
            // Adjointness, in the precision of T.
            let (left, right) = (dot(&a, &da), dot(&x, &dx));
            let size = (dot(&a, &a) * dot(&da, &da)).sqrt().max(1.0);
            assert!((left - right).abs() <= tolerance * size, "{name}: {op:?}");
        }
    }
}

#[test]
fn fast_equals_reference_and_backward_is_the_adjoint() {
    check::<f32>(2e-6);
    check::<f64>(1e-13);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    for op in operators() {
        let x: Vec<f32> = random(graph.vertex_count() * op.input.dimension(), 3);
        check_threads(|| {
            let mut a = vec![0.0; graph.vertex_count() * op.dimension()];
            let (mut dx, da) = (vec![0.0; x.len()], random::<f32>(a.len(), 4));
            run(&op, graph.view(), [&x, &da], [&mut a, &mut dx]).unwrap();
            a.extend(dx);
            a
        });
    }
}

#[test]
fn rings_are_hat_functions_that_sum_to_one() {
    let radial = Radial { rings: 3, max_radius: 2.0 };
    let at = |radius: f64| [0, 1, 2].map(|ring| radial.weight(ring, radius));
    assert_eq!(at(0.0), [1.0, 0.0, 0.0]);
    assert_eq!(at(0.25), [0.75, 0.25, 0.0]);
    assert_eq!(at(1.5), [0.0, 0.5, 0.5]);
    assert_eq!(at(7.0), [0.0, 0.0, 1.0]);
}

#[test]
fn settings_and_lengths_are_checked() {
    let (_, graph) = graphs::<f64>().swap_remove(0);
    let mut op = operators().swap_remove(2);
    let refused = |op: &Aggregate| run(op, graph.view(), [&[], &[]], [&mut [], &mut []]).unwrap_err();
    let error = refused(&op);
    let (buffer, found, _) = wrong_length(error);
    assert_eq!((buffer, found), ("x", 0));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        op.max_radius = bad;
        assert!(matches!(refused(&op), KernelError::Setting { .. }));
    }
    op.rings = 0;
    assert!(matches!(refused(&op), KernelError::Setting { .. }));
}
