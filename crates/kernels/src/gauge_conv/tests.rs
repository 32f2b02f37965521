pub(crate) mod reference;

use super::*;
use crate::GraphArrays;
use crate::aggregate::reference::rotated;
use crate::testing::{
    arrays, assert_gradient, check_threads, difference, dot, graphs, parts, random, weighted_graphs, wrong_length,
};
use crate::{GraphParts, GraphSlices, GraphView, KernelError, Real};
use gemcnn_mesh::{GaugeGraph, NeighbourWeights};

/// Graphs with all weights of neighbours.
fn all_gauge_graphs() -> Vec<(&'static str, GaugeGraph)> {
    let weights = [NeighbourWeights::Count, NeighbourWeights::Area, NeighbourWeights::Jets];
    weights.into_iter().flat_map(weighted_graphs).collect()
}

fn operators() -> Vec<GaugeConv> {
    let op = |input: &str, output: &str| GaugeConv::new(input.parse().unwrap(), output.parse().unwrap());
    vec![
        op("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"),
        op("3x0", "16x0 + 16x1 + 16x2"),
        GaugeConv { aggregation: Aggregation::Mean, self_term: false, ..op("16x0 + 16x1 + 16x2", "16x0") },
        GaugeConv {
            aggregation: Aggregation::MeanWithSelf,
            rings: 2,
            max_radius: 0.5,
            ..op("3x0 + 17x1 + 2x3", "5x0 + 9x2 + 3x3")
        },
        GaugeConv {
            rings: 3,
            max_radius: 0.3,
            bias: false,
            aggregation: Aggregation::MeanWithSelf,
            ..op("4x1 + 1x2", "2x1 + 1x4")
        },
        op("7x0", "18x0"),
        op("0x0", "2x0 + 1x1"),
        op("2x0 + 1x1", "0x0"),
    ]
}

struct Parameters<T> {
    neighbour: Vec<T>,
    own: Vec<T>,
    bias: Vec<T>,
}

impl<T: Real> Parameters<T> {
    fn random(seed: u64, op: &GaugeConv) -> Self {
        Self {
            neighbour: random(op.neighbour_count(), seed),
            own: random(op.self_count(), seed + 1),
            bias: random(op.bias_count(), seed + 2),
        }
    }

    fn weights(&self) -> Weights<&[T]> {
        Weights { neighbour: &self.neighbour, self_term: &self.own, bias: &self.bias }
    }

    fn gradients(&mut self) -> Weights<&mut [T]> {
        Weights { neighbour: &mut self.neighbour, self_term: &mut self.own, bias: &mut self.bias }
    }
}

fn forward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    x: &[T],
    Weights { neighbour, self_term, bias }: Weights<&[T]>,
    y: &mut [T],
) -> Result<(), KernelError> {
    Forward { op, graph, x, neighbour, self_term, bias, y }.on_host()
}

fn backward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    (x, dy): (&[T], &[T]),
    Weights { neighbour, self_term, bias }: Weights<&[T]>,
    dx: Option<&mut [T]>,
    Weights { neighbour: dneighbour, self_term: dself_term, bias: dbias }: Weights<&mut [T]>,
) {
    let pass = Backward { op, graph, x, neighbour, self_term, bias, dy, dx, dneighbour, dself_term, dbias };
    pass.on_host().unwrap();
}

/// `y`, `dx` and the gradients on top of what was there.
fn run<T: Real>(op: &GaugeConv, graph: &GraphArrays<T>, slow: bool) -> [Vec<T>; 5] {
    let x: Vec<T> = random(graph.vertex_count() * op.input.dimension(), 1);
    let dy: Vec<T> = random(graph.vertex_count() * op.output.dimension(), 2);
    let parameters = Parameters::random(3, op);
    let weights = parameters.weights();
    let mut sums = Parameters::random(7, op);
    let (mut y, mut dx) = (vec![T::nan(); dy.len()], vec![T::nan(); x.len()]);
    if slow {
        reference::forward(op, graph.view(), &x, weights, &mut y);
        reference::backward(op, graph.view(), &x, weights, &dy, &mut dx, sums.gradients());
    } else {
        forward(op, graph.view(), &x, weights, &mut y).unwrap();
        backward(op, graph.view(), (&x, &dy), weights, Some(&mut dx), sums.gradients());
    }
    [y, dx, sums.neighbour, sums.own, sums.bias]
}

fn check<T: Real>(tolerance: f64) {
    for (name, graph) in arrays::<T>(all_gauge_graphs()) {
        for op in operators() {
            let (fast, slow) = (run(&op, &graph, false), run(&op, &graph, true));
            for (index, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
                let error = difference(fast, slow);
                assert!(error < tolerance, "{name}, result {index}: {error:e}, {op:?}");
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    check::<f32>(5e-6);
    check::<f64>(1e-13);
}

#[test]
fn weight_gradients_do_not_need_dx() {
    let (_, graph) = graphs::<f64>().swap_remove(1);
    for op in operators() {
        let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
        let dy: Vec<f64> = random(graph.vertex_count() * op.output.dimension(), 2);
        let parameters = Parameters::random(3, &op);
        let mut sums = Parameters::random(7, &op);
        backward(&op, graph.view(), (&x, &dy), parameters.weights(), None, sums.gradients());
        let [_, _, neighbour, own, bias] = run(&op, &graph, false);
        assert!(sums.neighbour == neighbour && sums.own == own && sums.bias == bias);
    }
}

#[test]
fn gradients_equal_finite_differences() {
    let open = arrays::<f64>(all_gauge_graphs()).into_iter();
    let open: Vec<_> = open.filter(|(name, _)| *name == "open").collect();
    assert_eq!(open.len(), 3);
    for ((_, graph), op) in open.iter().flat_map(|g| operators().into_iter().map(move |op| (g, op))) {
        let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
        let dy: Vec<f64> = random(graph.vertex_count() * op.output.dimension(), 2);
        let Parameters { neighbour, own, bias } = Parameters::random(3, &op);
        let value = |x: &[f64], neighbour: &[f64], self_term: &[f64], bias: &[f64]| {
            let mut y = vec![0.0; dy.len()];
            forward(&op, graph.view(), x, Weights { neighbour, self_term, bias }, &mut y).unwrap();
            dot(&y, &dy)
        };
        let [_, dx, d_neighbour, d_own, d_bias] = run(&op, graph, false);
        // `run` added to random numbers.
        let start = Parameters::random(7, &op);
        let less =
            |sum: Vec<f64>, start: Vec<f64>| -> Vec<f64> { sum.iter().zip(&start).map(|(a, b)| a - b).collect() };
        let d_neighbour = less(d_neighbour, start.neighbour);
        let (d_own, d_bias) = (less(d_own, start.own), less(d_bias, start.bias));
        assert_gradient("dx", |x| value(x, &neighbour, &own, &bias), &x, &dx);
        assert_gradient("W", |w| value(&x, w, &own, &bias), &neighbour, &d_neighbour);
        assert_gradient("self", |w| value(&x, &neighbour, w, &bias), &own, &d_own);
        assert_gradient("bias", |b| value(&x, &neighbour, &own, b), &bias, &d_bias);
    }
}

#[test]
fn gradient_of_the_input_is_the_adjoint() {
    for (name, graph) in arrays::<f64>(all_gauge_graphs()) {
        for mut op in operators() {
            op.bias = false;
            let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
            let dy: Vec<f64> = random(graph.vertex_count() * op.output.dimension(), 2);
            let [y, dx, ..] = run(&op, &graph, false);
            let size = (dot(&y, &y) * dot(&dy, &dy)).sqrt().max(1.0);
            let error = (dot(&y, &dy) - dot(&x, &dx)).abs() / size;
            assert!(error < 1e-12, "{name}: {error:e}, {op:?}");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (_, graph) in arrays::<f32>(all_gauge_graphs()).iter().step_by(3) {
        for op in operators() {
            check_threads(|| run(&op, graph, false).concat());
        }
    }
}

#[test]
fn equivariant_under_any_change_of_gauge() {
    for (name, gauge_graph) in all_gauge_graphs() {
        let vertices = gauge_graph.vertex_count();
        let angles: Vec<f64> = random::<f64>(vertices, 5).iter().map(|a| 7.0 * a).collect();
        let turned_graph = gauge_graph.clone().gauge_transform(&angles).unwrap();
        // Frames turn by +a, so coefficients turn by -a.
        let turn = |kind: &FeatureType, features: &[f64]| -> Vec<f64> {
            let dimension = kind.dimension();
            let vertex = |p: usize| {
                let phase = [angles[p].cos(), -angles[p].sin()];
                rotated(kind, phase, &features[p * dimension..][..dimension])
            };
            (0..vertices).flat_map(vertex).collect()
        };
        for op in operators() {
            let x: Vec<f64> = random(vertices * op.input.dimension(), 1);
            let parameters = Parameters::random(3, &op);
            let apply = |graph: &GaugeGraph, x: &[f64]| {
                let graph = GraphArrays::union(&[parts(graph)]).unwrap();
                let mut y = vec![0.0; vertices * op.output.dimension()];
                forward(&op, graph.view(), x, parameters.weights(), &mut y).unwrap();
                y
            };
            let before = apply(&turned_graph, &turn(&op.input, &x));
            let after = turn(&op.output, &apply(&gauge_graph, &x));
            let error = difference(&before, &after);
            assert!(error < 1e-12, "{name}: {error:e}, {op:?}");
        }
    }
}

#[test]
fn on_scalars_it_is_a_plain_graph_convolution() {
    let op = GaugeConv::new("6x0".parse().unwrap(), "5x0".parse().unwrap());
    for (name, graph) in graphs::<f64>() {
        let x: Vec<f64> = random(graph.vertex_count() * 6, 1);
        let parameters = Parameters::<f64>::random(3, &op);
        let [y, ..] = run(&op, &graph, false);
        let expected = (0..graph.vertex_count()).flat_map(|p| {
            let neighbours = &graph.view().neighbours()[graph.view().row(p)];
            let parameters = &parameters;
            let x = &x;
            (0..5).map(move |i| {
                let term = |weights: &[f64], q: usize| dot(&weights[i * 6..][..6], &x[q * 6..][..6]);
                let around = neighbours.iter().map(|&q| q as usize);
                let sum: f64 = around.map(|q| term(&parameters.neighbour, q)).sum();
                parameters.bias[i] + term(&parameters.own, p) + sum
            })
        });
        let expected: Vec<f64> = expected.collect();
        assert!(difference(&y, &expected) < 1e-14, "{name}");
    }
}

#[test]
fn lengths_and_settings_are_checked() {
    let (_, graph) = graphs::<f32>().swap_remove(0);
    let mut op = GaugeConv::new("2x0".parse().unwrap(), "2x0".parse().unwrap());
    let parameters = Parameters::random(1, &op);
    let x = vec![0.0; 2 * graph.vertex_count()];
    let mut y = x.clone();
    let mut weights = parameters.weights();
    weights.bias = &[];
    let problem = forward(&op, graph.view(), &x, weights, &mut y).unwrap_err();
    assert_eq!(wrong_length(problem), ("bias", 0, 2));
    op.rings = 2;
    op.max_radius = f64::NAN;
    let problem = forward(&op, graph.view(), &x, weights, &mut y).unwrap_err();
    assert!(matches!(problem, KernelError::Setting { .. }));
}

/// The weights of the same convolution with harmonics of angles: `[[a, b]]` of each pair as a matrix.
fn as_matrix(op: &GaugeConv, weights: &[f64]) -> Vec<f64> {
    let inputs = op.input.dimension();
    let size = inputs * op.output.dimension();
    let mut matrix = weights.to_vec();
    for (ring, matrix) in matrix.chunks_exact_mut(size.max(1)).enumerate() {
        for (m, outputs_of) in op.output.orders() {
            for (n, inputs_of) in op.input.orders().filter(|&(n, _)| n > 0) {
                for o in op.output.range(m).take(outputs_of) {
                    for i in op.input.range(n).take(inputs_of) {
                        let at = |k: usize, l: usize| (o + k * outputs_of) * inputs + i + l * inputs_of;
                        let weight = |k, l| weights[ring * size + at(k, l)];
                        if m == 0 {
                            matrix[at(0, 1)] = -weight(0, 1);
                            continue;
                        }
                        let [p, q, r, s] = [weight(0, 0), weight(1, 0), weight(0, 1), weight(1, 1)];
                        matrix[at(0, 0)] = p + r;
                        matrix[at(0, 1)] = s - q;
                        matrix[at(1, 0)] = q + s;
                        matrix[at(1, 1)] = p - r;
                    }
                }
            }
        }
    }
    matrix
}

#[test]
fn harmonics_as_coefficients_give_the_same_convolution() {
    for (name, graph) in weighted_graphs(NeighbourWeights::Count) {
        let plain = GraphArrays::<f64>::union(&[parts(&graph)]).unwrap();
        for op in operators() {
            let op = GaugeConv { aggregation: Aggregation::Mean, ..op };
            let highest = op.input.highest_order() + op.output.highest_order();
            let columns = 2 * highest + 1;
            let mut coefficients = Vec::new();
            for p in 0..graph.vertex_count() {
                let row = graph.row(p);
                let scale = 1.0 / row.len() as f64;
                for edge in row {
                    coefficients.push(scale);
                    for k in 1..=highest {
                        let (sine, cosine) = (k as f64 * graph.theta()[edge]).sin_cos();
                        coefficients.extend([scale * cosine, scale * sine]);
                    }
                }
            }
            let given =
                GraphArrays::union(&[GraphParts { coefficients: (columns, &coefficients), ..parts(&graph) }]).unwrap();
            let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
            let parameters = Parameters::random(3, &op);
            let [y, ..] = run(&op, &given, false);
            let mut expected = vec![0.0; y.len()];
            let weights = Weights { neighbour: &as_matrix(&op, &parameters.neighbour)[..], ..parameters.weights() };
            forward(&op, plain.view(), &x, weights, &mut expected).unwrap();
            let error = difference(&y, &expected);
            assert!(error < 1e-12, "{name}: {error:e}, {op:?}");
        }
    }
}

#[test]
fn coefficients_are_checked() {
    let (_, graph) = graphs::<f64>().swap_remove(0);
    let view = graph.view();
    let edges = view.edge_count();
    let slices = GraphSlices {
        offsets: view.offsets(),
        neighbours: view.neighbours(),
        reverse: view.reverse(),
        phases: view.phases(),
        radius: view.radius(),
        coefficients: (0, &[]),
        mesh_offsets: view.mesh_offsets(),
    };
    let numbers = vec![0.0; 4 * edges];
    for (columns, length) in [(2, 2 * edges), (4, 4 * edges), (1, 0), (3, edges), (0, 1)] {
        let coefficients = (columns, &numbers[..length]);
        let found = GraphView::new(GraphSlices { coefficients, ..slices });
        assert!(matches!(found, Err(KernelError::Graph { .. })), "{columns}");
    }
    let coefficients = (3, &numbers[..3 * edges]);
    let given = GraphView::new(GraphSlices { coefficients, ..slices }).unwrap();
    assert!(matches!(GraphArrays::join(&[given, view]), Err(KernelError::Graph { .. })));
    let op = crate::aggregate::Aggregate {
        input: "1x0".parse().unwrap(),
        highest_order: 1,
        rings: 1,
        max_radius: 1.0,
        aggregation: Aggregation::Mean,
    };
    let (x, mut a) = (vec![0.0; view.vertex_count()], vec![0.0; 3 * view.vertex_count()]);
    let refused = crate::aggregate::Forward { op: &op, graph: given, x: &x[..], a: &mut a[..] }.on_host();
    assert!(matches!(refused, Err(KernelError::Setting { .. })));
}
