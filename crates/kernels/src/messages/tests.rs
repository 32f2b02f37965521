pub(crate) mod reference;

use super::*;
use crate::Real;
use crate::testing::{check_threads, difference, graphs, random};

const TYPES: [&str; 4] = ["16x0 + 16x1 + 16x2", "3x0 + 7x1 + 1x3", "5x0", "9x2"];

/// Ranges that cut rows, and all edges together.
fn pieces(edges: usize) -> Vec<Vec<Range<usize>>> {
    let size = edges / 3 + 1;
    let cut = (0..edges).step_by(size).map(|first| first..edges.min(first + size));
    vec![std::iter::once(0..edges).collect(), cut.collect()]
}

fn check<T: Real>(tolerance: f64) {
    for (name, graph) in graphs::<T>() {
        for text in TYPES {
            let kind: FeatureType = text.parse().unwrap();
            let (width, edges) = (kind.dimension(), graph.edge_count());
            let x: Vec<T> = random(graph.vertex_count() * width, 1);
            let z: Vec<T> = random(edges * 2 * width, 2);
            let v: Vec<T> = random(edges * width, 3);
            let view = graph.view();
            // Both maps to vertices add to what is there.
            let (mut dx, mut y) = (x.clone(), x.clone());
            reference::gather_backward(&kind, view, &z, &mut dx);
            reference::reduce(&kind, view, &v, &mut y);
            let expected = [reference::gather(&kind, view, &x), dx, y, reference::reduce_backward(&kind, view, &x)];
            for ranges in pieces(edges) {
                let (mut found_z, mut found_v) = (z.clone(), v.clone());
                let (mut dx, mut y) = (x.clone(), x.clone());
                for range in ranges {
                    let rows = |width: usize| range.start * width..range.end * width;
                    let (at_z, at_v) = (rows(2 * width), rows(width));
                    let (features, range, graph) = (&kind, &range, view);
                    Gather { features, range, graph, x: &x[..], z: &mut found_z[at_z.clone()] }.on_host().unwrap();
                    GatherBackward { features, range, graph, dz: &z[at_z], dx: &mut dx[..] }.on_host().unwrap();
                    Reduce { features, range, graph, values: &v[at_v.clone()], y: &mut y[..] }.on_host().unwrap();
                    ReduceBackward { features, range, graph, dy: &x[..], dvalues: &mut found_v[at_v] }
                        .on_host()
                        .unwrap();
                }
                for (index, (found, expected)) in [found_z, dx, y, found_v].iter().zip(&expected).enumerate() {
                    let error = difference(found, expected);
                    assert!(error < tolerance, "{name}, {text}, {index}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn ranges_of_edges_equal_the_reference() {
    check::<f32>(5e-6);
    check::<f64>(1e-13);
}

#[test]
fn gradients_are_the_same_on_any_number_of_threads() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    let kind: FeatureType = TYPES[0].parse().unwrap();
    let edges = graph.edge_count();
    let dz: Vec<f32> = random(edges * 2 * kind.dimension(), 1);
    let gradient = |range: &Range<usize>| {
        let (features, graph, mut dx) = (&kind, graph.view(), vec![0.0; graph.vertex_count() * kind.dimension()]);
        GatherBackward { features, range, graph, dz: &dz[..], dx: &mut dx[..] }.on_host().map(|()| dx)
    };
    check_threads(|| gradient(&(0..edges)).unwrap());
    assert!(matches!(gradient(&(1..edges + 1)), Err(KernelError::Setting { .. })));
}
