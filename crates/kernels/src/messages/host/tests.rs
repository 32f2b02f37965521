use super::*;
use crate::messages::reference;
use crate::regular::Regular;
use crate::testing::{check_threads, difference, graphs, random, wrong_length};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};

/// Maps and nonlinearities of a function of features of type `input`, with messages of these types.
fn layers(input: &FeatureType, types: &[&str], activation: &Activation) -> Vec<(Linear, Regular)> {
    let mut inputs = 2 * input.dimension();
    let layer = |text: &&str| {
        let kind: FeatureType = text.parse().unwrap();
        let map = Linear { inputs, outputs: kind.dimension(), bias: kind.multiplicity(0) != 3 };
        inputs = kind.dimension();
        let samples = 2 * kind.highest_order() + 1;
        (map, Regular::new(kind, samples, activation.clone()))
    };
    types.iter().map(layer).collect()
}

struct Case<T: Real> {
    input: FeatureType,
    layers: Vec<(Linear, Regular)>,
    plans: Vec<Plan<T>>,
    weights: Vec<T>,
}

impl<T: Real> Case<T> {
    fn new(input: &str, types: &[&str], activation: &Activation) -> Self {
        let input: FeatureType = input.parse().unwrap();
        let layers = layers(&input, types, activation);
        let counts = layers.iter().map(|(map, _)| map.weight_count() + map.bias_count());
        Self {
            plans: layers.iter().map(|(_, act)| Plan::new(act).unwrap()).collect(),
            weights: random(counts.sum(), 5),
            input,
            layers,
        }
    }

    fn chain(&self) -> Option<HostChain<'_, T>> {
        let layers = self.layers.iter().zip(&self.plans);
        let layers = layers.map(|((map, _), plan)| HostLayer { map, plan });
        HostChain::new(&self.input, &layers.collect::<Vec<_>>())
    }

    fn output(&self) -> usize {
        self.layers.last().unwrap().0.outputs
    }

    /// Messages, gradients of features and of weights.
    fn run(&self, graph: GraphView<'_, T>) -> [Vec<T>; 3] {
        let (chain, vertices) = (self.chain().unwrap(), graph.vertex_count());
        let x: Vec<T> = random(vertices * self.input.dimension(), 1);
        let dy: Vec<T> = random(vertices * self.output(), 2);
        let mut scratch = Scratch::new();
        scratch.take(1 << 20).fill(T::nan());
        let (mut y, mut dx) = (vec![T::nan(); dy.len()], vec![T::nan(); x.len()]);
        let mut gradients = vec![T::one(); self.weights.len()];
        send(&chain, graph, &x, &self.weights, &mut y, &mut scratch).unwrap();
        let mut without = gradients.clone();
        for (dx, gradients) in [(None, &mut without), (Some(&mut *dx), &mut gradients)] {
            let weights = &self.weights;
            send_backward(&chain, graph, &x, weights, &dy, dx, gradients, &mut scratch).unwrap();
        }
        assert!(without == gradients);
        [y, dx, gradients]
    }

    fn expected(&self, graph: GraphView<'_, T>) -> [Vec<T>; 3] {
        let (input, layers, vertices) = (&self.input, &self.layers, graph.vertex_count());
        let x: Vec<T> = random(vertices * input.dimension(), 1);
        let dy: Vec<T> = random(vertices * self.output(), 2);
        let (mut y, mut dx) = (dy.clone(), x.clone());
        let mut gradients = vec![T::one(); self.weights.len()];
        reference::send(input, layers, graph, &x, &self.weights, &mut y).unwrap();
        let weights = &self.weights;
        reference::send_backward(input, layers, graph, &x, weights, &dy, &mut dx, &mut gradients).unwrap();
        [y, dx, gradients]
    }
}

const TYPES: [(&str, &[&str]); 5] = [
    ("16x0 + 16x1 + 16x2", &["16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2"]),
    ("3x0 + 7x1 + 1x3", &["2x0 + 2x1"]),
    ("9x2", &["3x0 + 3x1 + 3x2", "2x0", "5x0 + 5x1 + 5x2 + 5x3 + 5x4"]),
    ("5x0", &["7x0 + 7x1 + 7x2", "3x0 + 3x1 + 3x2"]),
    ("1x0 + 2x1", &["40x0 + 40x1", "1x0 + 1x1"]),
];

fn check<T: Real>(tolerance: f64) {
    let smooth = [Activation::Tanh, Activation::Polynomial(vec![0.3, 1.0, -0.2])];
    for (index, (input, types)) in TYPES.into_iter().enumerate() {
        // In f32 rounding decides some ReLUs near zero.
        let relu = (tolerance < 1e-9).then_some(Activation::Relu);
        for activation in relu.iter().chain(&smooth[index % 2..][..1]) {
            let case = Case::<T>::new(input, types, activation);
            for (name, graph) in graphs::<T>() {
                let (found, expected) = (case.run(graph.view()), case.expected(graph.view()));
                for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let error = difference(found, expected);
                    let what = format!("{name}, {input}, {activation:?}, {part}");
                    assert!(error < tolerance, "{what}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn messages_equal_the_reference() {
    check::<f32>(1e-4);
    check::<f64>(1e-12);
}

/// More edges than a piece has, and rows that chunks cut.
#[test]
fn messages_in_pieces_equal_the_reference_on_any_threads() {
    let mesh = shapes::grid(60, 61, Cells::Triangles).unwrap();
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
    let graph = crate::GraphArrays::<f64>::union(&[crate::testing::parts(&graph)]).unwrap();
    assert!(graph.edge_count() > 1 << 14);
    let case = Case::new("1x0 + 2x1", &["2x0 + 2x1", "2x0 + 2x1"], &Activation::Relu);
    let expected = case.expected(graph.view());
    for (found, expected) in case.run(graph.view()).iter().zip(&expected) {
        assert!(difference(found, expected) < 1e-12);
    }
    check_threads(|| case.run(graph.view()).concat());
}

#[test]
fn other_nonlinearities_and_wrong_lengths_are_refused() {
    let mut case = Case::<f64>::new("2x0", &["2x0 + 2x1"], &Activation::Relu);
    let (_, graph) = graphs::<f64>().swap_remove(0);
    let (chain, mut y) = (case.chain().unwrap(), Vec::new());
    let x = vec![0.0; graph.vertex_count() * 2];
    let error = send(&chain, graph.view(), &x, &case.weights, &mut y, &mut Scratch::new());
    assert_eq!(wrong_length(error.unwrap_err()).0, "y");
    drop(chain);
    case.plans[0] = Plan::new(&Regular::new("2x0 + 2x1".parse().unwrap(), 4, Activation::Relu)).unwrap();
    assert!(case.chain().is_none());
    case.layers.clear();
    assert!(case.chain().is_none());
}
