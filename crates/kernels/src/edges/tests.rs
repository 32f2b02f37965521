pub(crate) mod reference;

use super::*;
use crate::aggregate::reference::rotated;
use crate::gauge_conv::{self, GaugeConv};
use crate::testing::{
    assert_adjoint, check_close, check_gradient, check_threads, dot, gauge_graphs, graphs, parts, random, turned,
};
use crate::{GraphArrays, GraphView, KernelError};

const FRAMES: [EdgeFrame; 2] = [EdgeFrame::Vertex, EdgeFrame::Edge];
const AGGREGATIONS: [Aggregation; 3] = [Aggregation::Sum, Aggregation::Mean, Aggregation::MeanWithSelf];

fn kinds() -> [FeatureType; 4] {
    ["0x0", "5x0", "3x0 + 7x1 + 1x3", "17x2"].map(|text| text.parse().unwrap())
}

fn reductions() -> Vec<Reduce> {
    let kinds = [("0x0", 2), ("5x0", 1), ("6x0 + 3x1 + 9x3", 3), ("17x2", 1)];
    let mut all = Vec::new();
    for (index, (text, heads)) in kinds.into_iter().enumerate() {
        all.extend(FRAMES.map(|frame| Reduce {
            features: text.parse().unwrap(),
            frame,
            aggregation: AGGREGATIONS[index % 3],
            heads,
        }));
    }
    all
}

fn gather<T: Real>(features: &FeatureType, frame: EdgeFrame, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    Gather { features, frame, graph, x, y }.on_host().unwrap();
}

fn spread<T: Real>(features: &FeatureType, frame: EdgeFrame, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    Spread { op: &Reduce::sum(features.clone(), frame), graph, weights: None, x, y }.on_host().unwrap();
}

fn reduce<T: Real>(op: &Reduce, graph: GraphView<'_, T>, x: &[T], weights: Option<&[T]>, y: &mut [T]) {
    ReduceForward { op, graph, x, weights, y }.on_host().unwrap();
}

fn reduce_backward<T: Real>(
    op: &Reduce,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: Option<&[T]>,
    dy: &[T],
    dx: &mut [T],
    dweights: &mut [T],
) {
    Spread { op, graph, weights, x: dy, y: dx }.on_host().unwrap();
    ReduceBackwardWeights { op, graph, x, dy, dweights }.on_host().unwrap();
}

fn softmax<T: Real>(heads: usize, graph: GraphView<'_, T>, x: &[T], y: &mut [T]) {
    Softmax { heads, graph, x, y }.on_host().unwrap();
}

fn softmax_backward<T: Real>(heads: usize, graph: GraphView<'_, T>, y: &[T], dy: &[T], dx: &mut [T]) {
    SoftmaxBackward { heads, graph, y, dy, dx }.on_host().unwrap();
}

fn check_fast<T: Real>(tolerance: f64) {
    for (name, graph) in graphs::<T>() {
        let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
        let nan = |count: usize| (vec![T::nan(); count], vec![T::nan(); count]);
        for features in kinds() {
            let width = features.dimension();
            let x: Vec<T> = random(vertices * width, 1);
            let dy: Vec<T> = random(edges * width, 2);
            for frame in FRAMES {
                let (mut fast, mut slow) = nan(dy.len());
                gather(&features, frame, graph.view(), &x, &mut fast);
                reference::gather(&features, frame, graph.view(), &x, &mut slow);
                check_close(&fast, &slow, tolerance, name);
                spread(&features, frame, graph.view(), &x, &mut fast);
                reference::spread(&features, frame, graph.view(), &x, &mut slow);
                check_close(&fast, &slow, tolerance, name);
                let (mut fast, mut slow) = nan(x.len());
                GatherBackward { features: &features, frame, graph: graph.view(), dy: &dy[..], dx: &mut fast[..] }
                    .on_host()
                    .unwrap();
                reference::gather_backward(&features, frame, graph.view(), &dy, &mut slow);
                check_close(&fast, &slow, tolerance, name);
            }
        }
        for op in reductions() {
            let width = op.features.dimension();
            let values: Vec<T> = random(edges * width, 1);
            let given: Vec<T> = random(edges * op.heads, 2);
            let dy: Vec<T> = random(vertices * width, 3);
            for w in [None, Some(&given[..])] {
                let (mut fast, mut slow) = nan(dy.len());
                reduce(&op, graph.view(), &values, w, &mut fast);
                reference::reduce(&op, graph.view(), &values, w, &mut slow);
                check_close(&fast, &slow, tolerance, name);
                let ((mut dv, mut slow_dv), (mut dw, mut slow_dw)) = (nan(values.len()), nan(given.len()));
                reduce_backward(&op, graph.view(), &values, w, &dy, &mut dv, &mut dw);
                reference::reduce_backward(&op, graph.view(), &values, w, &dy, &mut slow_dv, &mut slow_dw);
                check_close(&dv, &slow_dv, tolerance, name);
                check_close(&dw, &slow_dw, tolerance, name);
            }
        }
        for heads in [0, 1, 3] {
            let x: Vec<T> = random(edges * heads, 1);
            let dy: Vec<T> = random(edges * heads, 2);
            let (mut y, mut slow) = nan(x.len());
            softmax(heads, graph.view(), &x, &mut y);
            reference::softmax(heads, graph.view(), &x, &mut slow);
            check_close(&y, &slow, tolerance, name);
            let (mut dx, mut slow) = nan(x.len());
            softmax_backward(heads, graph.view(), &y, &dy, &mut dx);
            reference::softmax_backward(heads, graph.view(), &y, &dy, &mut slow);
            check_close(&dx, &slow, tolerance, name);
        }
    }
}

#[test]
fn fast_equals_reference() {
    check_fast::<f32>(3e-6);
    check_fast::<f64>(1e-13);
}

#[test]
fn backward_passes_are_adjoint() {
    for (name, graph) in graphs::<f64>() {
        let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
        for features in kinds() {
            let width = features.dimension();
            let (x, dy): (Vec<f64>, Vec<f64>) = (random(vertices * width, 1), random(edges * width, 2));
            let (mut y, mut dx) = (vec![f64::NAN; dy.len()], vec![f64::NAN; x.len()]);
            for frame in FRAMES {
                gather(&features, frame, graph.view(), &x, &mut y);
                GatherBackward { features: &features, frame, graph: graph.view(), dy: &dy[..], dx: &mut dx[..] }
                    .on_host()
                    .unwrap();
                assert_adjoint(name, dot(&y, &dy), &x, &dx);
                spread(&features, frame, graph.view(), &x, &mut y);
                reduce(&Reduce::sum(features.clone(), frame), graph.view(), &dy, None, &mut dx);
                assert_adjoint(name, dot(&y, &dy), &x, &dx);
            }
        }
        for op in reductions() {
            let width = op.features.dimension();
            let (v, dy): (Vec<f64>, Vec<f64>) = (random(edges * width, 1), random(vertices * width, 2));
            let w: Vec<f64> = random(edges * op.heads, 3);
            let (mut y, mut dv) = (vec![f64::NAN; dy.len()], vec![f64::NAN; v.len()]);
            let mut dw = vec![f64::NAN; w.len()];
            reduce(&op, graph.view(), &v, Some(&w), &mut y);
            reduce_backward(&op, graph.view(), &v, Some(&w), &dy, &mut dv, &mut dw);
            assert_adjoint(name, dot(&y, &dy), &v, &dv);
            assert_adjoint(name, dot(&y, &dy), &w, &dw);
        }
    }
}

#[test]
fn softmax_rows_sum_to_one_and_have_the_gradient() {
    let (heads, graphs) = (3, graphs::<f64>());
    for (name, graph) in &graphs {
        let scores: Vec<f64> = random(graph.edge_count() * heads, 1);
        // Far beyond the range of the exponential.
        let scores: Vec<f64> = scores.iter().map(|x| 1000.0 * x).collect();
        let mut y = vec![f64::NAN; scores.len()];
        softmax(heads, graph.view(), &scores, &mut y);
        for vertex in (0..graph.vertex_count()).filter(|&v| !graph.view().row(v).is_empty()) {
            for head in 0..heads {
                let sum: f64 = graph.view().row(vertex).map(|edge| y[edge * heads + head]).sum();
                assert!((sum - 1.0).abs() < 1e-14, "{name}: {sum}");
            }
        }
    }
    let (_, graph) = &graphs[2];
    let x: Vec<f64> = random(graph.edge_count() * heads, 2);
    let dy: Vec<f64> = random(x.len(), 3);
    let forward = |x: &[f64]| {
        let mut y = vec![f64::NAN; x.len()];
        softmax(heads, graph.view(), x, &mut y);
        y
    };
    let mut dx = vec![f64::NAN; x.len()];
    softmax_backward(heads, graph.view(), &forward(&x), &dy, &mut dx);
    check_gradient(&x, &dx, |x| dot(&forward(x), &dy));
    // Masked edges, and a vertex whose edges are all masked.
    let mut masked = x;
    masked[0] = f64::NEG_INFINITY;
    let last = graph.view().row(1);
    masked[last.start * heads..last.end * heads].fill(f64::NEG_INFINITY);
    let y = forward(&masked);
    assert!(y[0] == 0.0 && y[heads] > 0.0 && y.iter().all(|y| y.is_finite()));
    assert!(last.clone().all(|edge| y[edge * heads] == 0.0));
}

#[test]
fn a_change_of_gauge_rotates_the_results() {
    let features: FeatureType = "2x0 + 3x1 + 2x4".parse().unwrap();
    let width = features.dimension();
    for (name, gauge_graph) in gauge_graphs() {
        let angles: Vec<f64> = random::<f64>(gauge_graph.vertex_count(), 5);
        let angles: Vec<f64> = angles.iter().map(|a| 7.0 * a).collect();
        let moved_graph = gauge_graph.clone().gauge_transform(&angles).unwrap();
        let [graph, moved] =
            [&gauge_graph, &moved_graph].map(|graph| GraphArrays::<f64>::union(&[parts(graph)]).unwrap());
        let x: Vec<f64> = random(angles.len() * width, 1);
        let moved_x = turned(&features, &x, &angles);
        let edges = graph.edge_count();
        // The frame of p of every edge, or no change in the frame of the edge.
        let of_edges: Vec<f64> = (0..angles.len()).flat_map(|p| vec![angles[p]; graph.view().row(p).len()]).collect();
        for frame in FRAMES {
            let seen = |values: &[f64]| match frame {
                EdgeFrame::Vertex => turned(&features, values, &of_edges),
                EdgeFrame::Edge => values.to_vec(),
            };
            let (mut y, mut moved_y) = (vec![0.0; edges * width], vec![0.0; edges * width]);
            gather(&features, frame, graph.view(), &x, &mut y);
            gather(&features, frame, moved.view(), &moved_x, &mut moved_y);
            check_close(&moved_y, &seen(&y), 1e-12, name);
            spread(&features, frame, graph.view(), &x, &mut y);
            spread(&features, frame, moved.view(), &moved_x, &mut moved_y);
            check_close(&moved_y, &seen(&y), 1e-12, name);
            let op = Reduce::sum(features.clone(), frame);
            let values: Vec<f64> = random(edges * width, 2);
            let weights: Vec<f64> = random(edges, 3);
            let (mut y, mut moved_y) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            reduce(&op, graph.view(), &values, Some(&weights), &mut y);
            reduce(&op, moved.view(), &seen(&values), Some(&weights), &mut moved_y);
            check_close(&moved_y, &turned(&features, &y, &angles), 1e-12, name);
        }
    }
}

#[test]
fn gather_product_and_reduce_are_a_gauge_convolution() {
    let input: FeatureType = "4x0 + 3x1 + 2x2".parse().unwrap();
    let output: FeatureType = "3x0 + 2x1 + 5x2".parse().unwrap();
    let (inputs, outputs) = (input.dimension(), output.dimension());
    let weight: Vec<f64> = random(inputs * outputs, 1);
    for (name, graph) in graphs::<f64>() {
        let x: Vec<f64> = random(graph.vertex_count() * inputs, 2);
        for aggregation in AGGREGATIONS {
            let conv = GaugeConv {
                aggregation,
                self_term: false,
                bias: false,
                ..GaugeConv::new(input.clone(), output.clone())
            };
            let mut expected = vec![0.0; graph.vertex_count() * outputs];
            let (neighbour, y) = (&weight[..], &mut expected[..]);
            let (self_term, bias) = (&[][..], &[][..]);
            let pass = gauge_conv::Forward { op: &conv, graph: graph.view(), x: &x[..], neighbour, self_term, bias, y };
            pass.on_host().unwrap();

            let mut gathered = vec![0.0; graph.edge_count() * inputs];
            gather(&input, EdgeFrame::Edge, graph.view(), &x, &mut gathered);
            let messages: Vec<f64> = gathered
                .chunks_exact(inputs)
                .flat_map(|u| weight.chunks_exact(inputs).map(move |row| dot(row, u)))
                .collect();
            let op = Reduce { aggregation, ..Reduce::sum(output.clone(), EdgeFrame::Edge) };
            let mut y = vec![f64::NAN; expected.len()];
            reduce(&op, graph.view(), &messages, None, &mut y);
            check_close(&y, &expected, 1e-12, name);
        }
    }
}

#[test]
fn frames_of_an_edge_differ_by_its_angle() {
    let features: FeatureType = "1x0 + 2x1".parse().unwrap();
    let (_, graph) = graphs::<f64>().swap_remove(1);
    let x: Vec<f64> = random(graph.vertex_count() * 5, 1);
    let [at_vertex, at_edge] = FRAMES.map(|frame| {
        let mut y = vec![0.0; graph.edge_count() * 5];
        gather(&features, frame, graph.view(), &x, &mut y);
        y
    });
    let back = at_edge.chunks_exact(5).zip(graph.view().phases());
    let back: Vec<f64> = back.flat_map(|(y, phases)| rotated(&features, phases.angle, y)).collect();
    check_close(&back, &at_vertex, 1e-14, "frames");
}

#[test]
fn settings_and_lengths_are_checked_and_threads_do_not_matter() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    let features: FeatureType = "4x0 + 2x1".parse().unwrap();
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let x: Vec<f32> = random(vertices * 8, 1);
    let scores: Vec<f32> = random(edges * 2, 2);
    let op = Reduce { heads: 2, ..Reduce::sum(features.clone(), EdgeFrame::Edge) };
    check_threads(|| {
        let (mut v, mut w, mut y) = (vec![0.0; edges * 8], scores.clone(), x.clone());
        gather(&features, EdgeFrame::Edge, graph.view(), &x, &mut v);
        softmax(2, graph.view(), &scores, &mut w);
        reduce(&op, graph.view(), &v, Some(&w), &mut y);
        reduce_backward(&op, graph.view(), &v.clone(), None, &x, &mut v, &mut w);
        (y, v, w)
    });
    let mut y = x.clone();
    let (op, graph, y) = (&op, graph.view(), &mut y[..]);
    assert!(Gather { features: &features, frame: EdgeFrame::Edge, graph, x: &x[..], y: &mut *y }.on_host().is_err());
    let (v, weights) = (&vec![0.0; edges * 8][..], Some(&scores[1..]));
    assert!(ReduceForward { op, graph, x: v, weights, y: &mut *y }.on_host().is_err());
    for heads in [0, 3] {
        let op = &Reduce { heads, ..op.clone() };
        let problem = ReduceForward { op, graph, x: v, weights: None, y: &mut *y }.on_host().unwrap_err();
        assert!(matches!(problem, KernelError::Setting { .. }), "{problem}");
    }
    assert!(Softmax { heads: 2, graph, x: &scores[..], y }.on_host().is_err());
}
