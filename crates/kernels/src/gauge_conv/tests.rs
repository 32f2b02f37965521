use super::*;
use crate::GraphArrays;
use crate::aggregate::reference::rotated;
use crate::testing::{
    assert_gradient, assert_same_on_any_threads, difference, dot, gauge_graphs, graphs, parts,
    random, wrong_length,
};
use gemcnn_mesh::GaugeGraph;

fn operators() -> Vec<GaugeConv> {
    let op =
        |input: &str, output: &str| GaugeConv::new(input.parse().unwrap(), output.parse().unwrap());
    vec![
        op("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"),
        op("3x0", "16x0 + 16x1 + 16x2"),
        GaugeConv {
            aggregation: Aggregation::Mean,
            self_term: false,
            ..op("16x0 + 16x1 + 16x2", "16x0")
        },
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
        Weights {
            neighbour: &self.neighbour,
            self_term: &self.own,
            bias: &self.bias,
        }
    }

    fn gradients(&mut self) -> Weights<&mut [T]> {
        Weights {
            neighbour: &mut self.neighbour,
            self_term: &mut self.own,
            bias: &mut self.bias,
        }
    }
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
        reference::forward(op, graph.view(), &x, weights, &mut y).unwrap();
        reference::backward(
            op,
            graph.view(),
            &x,
            weights,
            &dy,
            &mut dx,
            sums.gradients(),
        )
        .unwrap();
    } else {
        let mut scratch = Scratch::new();
        forward(op, graph.view(), &x, weights, &mut y, &mut scratch).unwrap();
        let wanted = Some(&mut dx[..]);
        let gradients = sums.gradients();
        backward(
            op,
            graph.view(),
            &x,
            weights,
            &dy,
            wanted,
            gradients,
            &mut scratch,
        )
        .unwrap();
    }
    [y, dx, sums.neighbour, sums.own, sums.bias]
}

fn check<T: Real>(tolerance: f64) {
    for (name, graph) in graphs::<T>() {
        for op in operators() {
            let (fast, slow) = (run(&op, &graph, false), run(&op, &graph, true));
            for (index, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
                let error = difference(fast, slow);
                assert!(
                    error < tolerance,
                    "{name}, result {index}: {error:e}, {op:?}"
                );
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
        let (weights, gradients) = (parameters.weights(), sums.gradients());
        let mut scratch = Scratch::new();
        backward(
            &op,
            graph.view(),
            &x,
            weights,
            &dy,
            None,
            gradients,
            &mut scratch,
        )
        .unwrap();
        let [_, _, neighbour, own, bias] = run(&op, &graph, false);
        assert!(sums.neighbour == neighbour && sums.own == own && sums.bias == bias);
    }
}

#[test]
fn gradients_equal_finite_differences() {
    let (_, graph) = graphs::<f64>().swap_remove(1);
    for op in operators() {
        let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
        let dy: Vec<f64> = random(graph.vertex_count() * op.output.dimension(), 2);
        let Parameters {
            neighbour,
            own,
            bias,
        } = Parameters::random(3, &op);
        let value = |x: &[f64], neighbour: &[f64], self_term: &[f64], bias: &[f64]| {
            let (mut y, mut scratch) = (vec![0.0; dy.len()], Scratch::new());
            let weights = Weights {
                neighbour,
                self_term,
                bias,
            };
            forward(&op, graph.view(), x, weights, &mut y, &mut scratch).unwrap();
            dot(&y, &dy)
        };
        let [_, dx, d_neighbour, d_own, d_bias] = run(&op, &graph, false);
        // `run` added to random numbers.
        let start = Parameters::random(7, &op);
        let less = |sum: Vec<f64>, start: Vec<f64>| -> Vec<f64> {
            sum.iter().zip(&start).map(|(a, b)| a - b).collect()
        };
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
    for (name, graph) in graphs::<f64>() {
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
    for (_, graph) in graphs::<f32>().iter().take(2) {
        for op in operators() {
            assert_same_on_any_threads(|| run(&op, graph, false).concat());
        }
    }
}

#[test]
fn equivariant_under_any_change_of_gauge() {
    for (name, gauge_graph) in gauge_graphs() {
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
                let mut scratch = Scratch::new();
                forward(
                    &op,
                    graph.view(),
                    x,
                    parameters.weights(),
                    &mut y,
                    &mut scratch,
                )
                .unwrap();
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
                let term =
                    |weights: &[f64], q: usize| dot(&weights[i * 6..][..6], &x[q * 6..][..6]);
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
    let (mut y, mut scratch) = (x.clone(), Scratch::new());
    let mut weights = parameters.weights();
    weights.bias = &[];
    let problem = forward(&op, graph.view(), &x, weights, &mut y, &mut scratch).unwrap_err();
    assert_eq!(wrong_length(problem), ("bias", 0, 2));
    op.rings = 2;
    op.max_radius = f64::NAN;
    let problem = forward(&op, graph.view(), &x, weights, &mut y, &mut scratch).unwrap_err();
    assert!(matches!(problem, KernelError::Setting { .. }));
}
