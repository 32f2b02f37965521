//! The least that a piece of work has to move and compute, counted from its sizes.
//!
//! Operations are those of the matrix products, two for each multiply-add. Sums over neighbours,
//! nonlinearities and normalisations are not counted. Bytes are those that memory has to deliver or take
//! once, in f32: for each layer the rows of its input and output, its weights, and the edges if it has
//! neighbours. Intermediate values that can stay in a cache (gathered neighbours, logits, messages) are not counted.

use super::case::{Passes, Work};
use super::layers::{Layer, Layers};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::self_map;
use gemcnn_mesh::{Frame, GaugeGraph, Mesh};
use gemcnn_nn::{FeatureType, irrep_dimension};
use std::ops::Add;

/// Bytes to move and operations to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations of matrix products, two for each multiply-add.
    pub flops: u64,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, flops: self.flops + other.flops }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Self::add)
    }
}

/// Bytes of an f32.
const NUMBER: u64 = size_of::<f32>() as u64;
/// Bytes of a directed edge: neighbour, and cosine and sine of two angles.
const EDGE: u64 = 4 + 4 * NUMBER;
/// Numbers that Adam reads and writes for each weight: it reads weight, gradient and two moments, and writes
/// all but the gradient.
const ADAM: u64 = 7;

/// Sizes of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GraphSize {
    pub vertices: u64,
    pub edges: u64,
}

/// What one layer has to move and compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LayerCost {
    /// Numbers read for each vertex.
    inputs: u64,
    /// Numbers written for each vertex.
    outputs: u64,
    weights: u64,
    /// Multiply-adds for each vertex.
    products: u64,
    /// Multiply-adds for each directed edge.
    edge_products: u64,
    reads_edges: bool,
    /// True if its input is data, which needs no gradient.
    on_data: bool,
}

impl LayerCost {
    /// A gauge convolution. Each output order is a product of weights with the neighbour sums (weighted by
    /// the cosine and, above order 0, the sine of that order) and with the vertex's own features of that
    /// order.
    pub fn convolution(op: &GaugeConv) -> Self {
        let products = op.output.orders().map(|(order, _)| {
            let neighbours = op.rings * irrep_dimension(order) * op.input.dimension();
            let own = if op.self_term { op.input.range(order).len() } else { 0 };
            op.output.range(order).len() * (neighbours + own)
        });
        let products: usize = products.sum();
        Self {
            inputs: op.input.dimension() as u64,
            outputs: op.output.dimension() as u64,
            weights: (op.neighbour_count() + op.self_count() + op.bias_count()) as u64,
            products: products as u64,
            reads_edges: true,
            ..Self::default()
        }
    }

    /// Attention with `heads` of type `head`: queries from the vertex itself, then their products with the weights of
    /// the keys, and those of the weighted sums with the weights of the values, both as in a convolution. No key and no
    /// value of an edge is computed.
    pub fn attention(input: &FeatureType, head: &FeatureType, heads: usize) -> Self {
        let key = GaugeConv { self_term: false, ..GaugeConv::new(input.clone(), head.clone()) };
        let conv = Self::convolution(&key);
        let weights = self_map::parameter_count(input, head) + 2 * key.neighbour_count() + key.bias_count();
        let products = self_products(input, head) + 2 * conv.products;
        Self {
            outputs: heads as u64 * conv.outputs,
            weights: (heads * weights) as u64,
            products: heads as u64 * products,
            ..conv
        }
    }

    /// A block of messages of one type, with some layers for edges and for vertices. The first layer of an edge is a
    /// sum over both ends and the harmonics of their angles, and its weights are applied once for each vertex, end and
    /// harmonic.
    pub fn messages(kind: &FeatureType, edge_layers: usize, node_layers: usize) -> Self {
        let width = kind.dimension();
        let harmonics = |order| irrep_dimension(order) * kind.range(order).len();
        let harmonics: usize = kind.orders().map(|(order, _)| harmonics(order)).sum();
        let both = kind.concatenated(kind);
        let update = |input| {
            let weights = self_map::parameter_count(input, kind) + kind.range(0).len();
            (weights as u64, self_products(input, kind))
        };
        let ((first, first_products), (next, next_products)) = (update(&both), update(kind));
        let (ends, edge) = (Self::linear(2 * width, width), Self::linear(width, width));
        let (edge_layers, node_layers) = (edge_layers as u64 - 1, node_layers as u64 - 1);
        Self {
            weights: ends.weights + edge_layers * edge.weights + first + node_layers * next,
            products: (2 * width * harmonics) as u64 + first_products + node_layers * next_products,
            edge_products: edge_layers * edge.products,
            reads_edges: true,
            ..Self::pointwise(width)
        }
    }

    /// The skip connection of a residual block. Its result is added to that of the convolutions in place,
    /// so it is not counted as written.
    fn skip(input: &FeatureType, output: &FeatureType) -> Self {
        let mut layer = Self { inputs: input.dimension() as u64, ..Self::default() };
        if input != output {
            layer.weights = self_map::parameter_count(input, output) as u64;
            layer.products = self_products(input, output);
        }
        layer
    }

    fn linear(inputs: usize, outputs: usize) -> Self {
        Self {
            inputs: inputs as u64,
            outputs: outputs as u64,
            weights: (inputs * outputs + outputs) as u64,
            products: (inputs * outputs) as u64,
            ..Self::default()
        }
    }

    /// A function of each number by itself.
    fn pointwise(width: usize) -> Self {
        Self { inputs: width as u64, outputs: width as u64, ..Self::default() }
    }

    fn edges(&self, graph: GraphSize) -> u64 {
        if self.reads_edges { EDGE * graph.edges + 4 * (graph.vertices + 1) } else { 0 }
    }

    /// Reads input, weights and edges; writes the output.
    pub fn forward(&self, graph: GraphSize) -> Cost {
        Cost {
            bytes: NUMBER * (graph.vertices * (self.inputs + self.outputs) + self.weights) + self.edges(graph),
            flops: self.flops(graph),
        }
    }

    fn flops(&self, graph: GraphSize) -> u64 {
        2 * (graph.vertices * self.products + graph.edges * self.edge_products)
    }

    /// Reads input, gradient of the output, weights and edges; writes the gradient of the weights, and that
    /// of the input unless it is data. One product for each gradient.
    pub fn backward(&self, graph: GraphSize) -> Cost {
        let gradients = if self.on_data { 1 } else { 2 };
        let rows = graph.vertices * (gradients * self.inputs + self.outputs);
        Cost {
            bytes: NUMBER * (rows + gradients * self.weights) + self.edges(graph),
            flops: gradients * self.flops(graph),
        }
    }
}

/// Multiply-adds of an equivariant linear map of one vertex.
fn self_products(input: &FeatureType, output: &FeatureType) -> u64 {
    let orders = output.orders();
    let products = orders.map(|(order, _)| output.range(order).len() * input.range(order).len());
    products.sum::<usize>() as u64
}

/// The least that some work on a graph has to move and compute; zeros if a layer is not counted.
pub(super) fn of(work: &Work, graph: GraphSize) -> Cost {
    let Some(costs) = layer_costs(&work.network) else { return Cost::default() };
    let forward = || costs.iter().map(|layer| layer.forward(graph));
    match work.passes {
        Passes::Forward => forward().sum(),
        Passes::Step => training_step(&costs, graph),
        Passes::Backward => {
            forward().chain(costs.iter().map(|&layer| LayerCost { on_data: false, ..layer }.backward(graph))).sum()
        }
    }
}

/// The costs of all layers, and of the parts of residual blocks; `None` if some are not counted.
fn layer_costs(layers: &Layers) -> Option<Vec<LayerCost>> {
    let convolution = |input: &FeatureType, output: &FeatureType| {
        LayerCost::convolution(&GaugeConv::new(input.clone(), output.clone()))
    };
    let (mut costs, mut kind) = (Vec::new(), layers.input.0.clone());
    for layer in &layers.layers {
        let (next, parts) = match layer {
            Layer::Conv { output } => (&**output, vec![convolution(&kind, output)]),
            Layer::Attention { output, heads } => {
                let head: Vec<usize> = output.multiplicities().iter().map(|count| count / heads).collect();
                (&**output, vec![LayerCost::attention(&kind, &FeatureType::new(&head), *heads)])
            }
            Layer::Messages { output, edge_layers, node_layers, .. } => {
                (&**output, vec![LayerCost::messages(output, *edge_layers, *node_layers)])
            }
            Layer::Residual { middle, output, .. } => {
                let skip = LayerCost::skip(&kind, output);
                let nonlinearities = [middle, output].map(|kind| LayerCost::pointwise(kind.dimension()));
                // The first convolution and the skip connection read the input.
                let convolutions = [convolution(&kind, middle), skip, convolution(middle, output)];
                (&**output, [&convolutions[..], &nonlinearities].concat())
            }
            Layer::Linear { outputs } => {
                (&FeatureType::scalars(*outputs), vec![LayerCost::linear(kind.dimension(), *outputs)])
            }
            Layer::Regular { .. } | Layer::Relu | Layer::Dropout { .. } => {
                (&kind.clone(), vec![LayerCost::pointwise(kind.dimension())])
            }
            Layer::MaxPool | Layer::Map { .. } | Layer::Diffusion { .. } => return None,
        };
        let readers = if matches!(layer, Layer::Residual { .. }) { 2 } else { 1 };
        let is_first = costs.is_empty();
        costs.extend(
            parts
                .into_iter()
                .enumerate()
                .map(|(place, part)| LayerCost { on_data: is_first && place < readers, ..part }),
        );
        kind = next.clone();
    }
    Some(costs)
}

/// Forward and backward pass of a classification of each vertex, and Adam. The last layer gives logits,
/// which are not counted as written or read.
fn training_step(layers: &[LayerCost], graph: GraphSize) -> Cost {
    let passes = layers.iter().enumerate().map(|(place, &layer)| {
        let outputs = if place + 1 == layers.len() { 0 } else { layer.outputs };
        let layer = LayerCost { outputs, ..layer };
        layer.forward(graph) + layer.backward(graph)
    });
    let weights: u64 = layers.iter().map(|layer| layer.weights).sum();
    let optimiser = Cost { bytes: NUMBER * ADAM * weights, flops: 0 };
    passes.sum::<Cost>() + optimiser
}

/// The geometry of a mesh, in f64: reads positions and faces, writes the graph.
pub(super) fn geometry(mesh: &Mesh, graph: &GaugeGraph) -> Cost {
    let index = size_of::<u32>();
    let read = size_of_val(mesh.vertices()) + size_of_val(mesh.faces().corners());
    let written = index * (graph.offsets().len() + 2 * graph.edge_count())
        + size_of::<f64>() * 3 * graph.edge_count()
        + size_of::<Frame>() * graph.vertex_count();
    Cost { bytes: (read + written) as u64, flops: 0 }
}

#[cfg(test)]
mod tests {
    use super::super::case::Works;
    use super::super::layers::Kind;
    use super::*;
    use gemcnn_mesh::{GeometryOptions, shapes};

    /// A graph small enough for counting by hand.
    const GRAPH: GraphSize = GraphSize { vertices: 10, edges: 60 };
    /// 60 edges of 20 bytes, and 11 offsets.
    const EDGES: u64 = 1244;

    fn kind(text: &str) -> FeatureType {
        text.parse().unwrap()
    }

    #[test]
    fn the_hidden_convolution_counts_as_on_paper() {
        let hidden = FeatureType::uniform(16, 2);
        let layer = LayerCost::convolution(&GaugeConv::new(hidden.clone(), hidden));
        // Order 0: 16 results from 80 sums and 16 own numbers; orders 1 and 2: 32 from 160 and 32.
        assert_eq!(layer.products, 16 * 96 + 2 * 32 * 192);
        // 80 x 80 for neighbours, (1 + 2 + 2) x 16 x 16 for the vertex itself, 16 biases.
        assert_eq!(layer.weights, 6400 + 1280 + 16);
        let forward = layer.forward(GRAPH);
        assert_eq!(forward.flops, 2 * 10 * 13_824);
        assert_eq!(forward.bytes, 4 * (10 * 160 + 7696) + EDGES);
        let backward = layer.backward(GRAPH);
        assert_eq!(backward.flops, 2 * forward.flops);
        // Reads x, dy and weights, writes dx and their gradients.
        assert_eq!(backward.bytes, 4 * (10 * 240 + 2 * 7696) + EDGES);
    }

    #[test]
    fn different_types_and_rings_count_order_by_order() {
        let op = GaugeConv { rings: 2, ..GaugeConv::new(kind("3x0"), kind("2x0 + 1x1")) };
        let layer = LayerCost::convolution(&op);
        // Order 0: 2 results from 2 rings of 3 sums and 3 own; order 1: 2 from 2 rings of 6, and no own.
        assert_eq!(layer.products, 2 * (6 + 3) + 2 * 12);
        let without = LayerCost::convolution(&GaugeConv { self_term: false, ..op });
        assert_eq!(without.products, layer.products - 6);
    }

    #[test]
    fn attention_counts_as_on_paper() {
        let (input, head) = (kind("2x0 + 1x1"), kind("1x0 + 1x1"));
        let layer = LayerCost::attention(&input, &head, 2);
        // Queries of a head: 1 x 2 and 2 x 2. Keys: 1 result from 4 sums, and 2 from 8; values the same.
        assert_eq!(layer.products, 2 * (6 + 2 * 20));
        // Queries 2 + 2, keys and values 3 x 4 each, one bias.
        assert_eq!(layer.weights, 2 * (4 + 2 * 12 + 1));
        let forward = layer.forward(GRAPH);
        assert_eq!(forward.flops, 2 * 10 * 92);
        assert_eq!(forward.bytes, 4 * (10 * (4 + 6) + 58) + EDGES);
        let backward = layer.backward(GRAPH);
        assert_eq!(backward.flops, 2 * forward.flops);
        assert_eq!(backward.bytes, 4 * (10 * (2 * 4 + 6) + 2 * 58) + EDGES);
    }

    #[test]
    fn messages_count_as_on_paper() {
        let layer = LayerCost::messages(&kind("2x0 + 2x1"), 2, 2);
        // First layer: 6 results from 2 + 2 x 4 numbers of each end. Updates: 2 from 4 and 4 from 8 numbers, then 2
        // from 2 and 4 from 4.
        assert_eq!(layer.products, 2 * 6 * 10 + 40 + 20);
        assert_eq!(layer.edge_products, 6 * 6);
        // Edges: 6 x 12 + 6 and 6 x 6 + 6; updates: 8 + 2 x 8 and 4 + 2 x 4 with two biases each.
        assert_eq!(layer.weights, 78 + 42 + 26 + 14);
        let forward = layer.forward(GRAPH);
        assert_eq!(forward.flops, 2 * (10 * 180 + 60 * 36));
        assert_eq!(forward.bytes, 4 * (10 * 12 + 160) + EDGES);
        let backward = layer.backward(GRAPH);
        assert_eq!(backward.flops, 2 * forward.flops);
        assert_eq!(backward.bytes, 4 * (10 * 18 + 2 * 160) + EDGES);
    }

    #[test]
    fn every_weight_is_counted() {
        for work in Works::new().unwrap().networks.iter().filter(|work| work.row.is_some()) {
            let counted: u64 = layer_costs(&work.network).unwrap().iter().map(|layer| layer.weights).sum();
            let (_, parameters) = work.network.init(true).unwrap();
            let norms = parameters.iter().filter(|p| p.is_trained() && p.name().contains("norm"));
            let norms: usize = norms.map(|parameter| parameter.value().len()).sum();
            assert_eq!(counted, (parameters.trained_count() - norms) as u64, "{}", work.name);
        }
        // The numbers of docs/messages.md.
        let messages = LayerCost::messages(&FeatureType::uniform(16, 2), 2, 2);
        assert_eq!(messages.products, 23_040 + 6_912);
        assert_eq!(messages.edge_products, 6_400);
    }

    #[test]
    fn data_needs_no_gradient() {
        let layer = LayerCost::linear(1, 2);
        let first = LayerCost { on_data: true, ..layer };
        // Logits are not counted as written. Forward reads x and weights; backward reads x and writes the
        // gradients of 4 weights; Adam moves 7 numbers for each.
        assert_eq!(
            training_step(&[first], GRAPH),
            Cost { bytes: 4 * (10 + 4) + 4 * (10 + 4) + 4 * 7 * 4, flops: 2 * 2 * 10 * 2 }
        );
        // The first layer writes 2 numbers and reads their gradients; the second writes the gradient of its
        // input.
        let one = 4 * (10 * 3 + 4) + 4 * (10 * 3 + 4) + 4 * 7 * 4;
        let two = 4 * (10 * 2 + 6) + 4 * (10 * 4 + 2 * 6) + 4 * 7 * 6;
        assert_eq!(
            training_step(&[first, LayerCost::linear(2, 2)], GRAPH),
            Cost { bytes: one + two, flops: 2 * 10 * (2 * 2 + 3 * 4) }
        );
    }

    #[test]
    fn work_of_a_residual_block() {
        let layer = Layer::Residual { middle: Kind(kind("2x0 + 2x1")), output: Kind(kind("5x0")), samples: 3 };
        let layers = Layers { input: Kind(kind("3x0")), mean: true, degree: 6.0, layers: vec![layer] };
        let costs = layer_costs(&layers).unwrap();
        let on_data: Vec<bool> = costs.iter().map(|layer| layer.on_data).collect();
        assert_eq!(on_data, [true, true, false, false, false]);
        let conv = |from: &str, to: &str| LayerCost::convolution(&GaugeConv::new(kind(from), kind(to))).forward(GRAPH);
        let nonlinearities = Cost { bytes: 4 * 10 * (6 + 6) + 4 * 10 * (5 + 5), flops: 0 };
        let skip = Cost { bytes: 4 * (10 * 3 + 3 * 5), flops: 2 * 10 * 3 * 5 };
        let block: Cost = costs.iter().map(|layer| layer.forward(GRAPH)).sum();
        let convolutions = conv("3x0", "2x0 + 2x1") + conv("2x0 + 2x1", "5x0");
        assert_eq!(block, convolutions + nonlinearities + skip);
    }

    #[test]
    fn passes_are_sums_over_layers() {
        let hidden = FeatureType::uniform(16, 2);
        let conv = LayerCost::convolution(&GaugeConv::new(hidden.clone(), hidden));
        let one = conv.forward(GRAPH) + LayerCost::pointwise(80).forward(GRAPH);
        for work in Works::new().unwrap().networks {
            let expected = match &*work.name {
                "convolution_forward" => conv.forward(GRAPH),
                "convolution_backward" => conv.forward(GRAPH) + conv.backward(GRAPH),
                "inference" => std::iter::repeat_n(one, 6).sum(),
                "diffusion" => Cost::default(),
                _ => continue,
            };
            assert_eq!(of(&work, GRAPH), expected, "{}", work.name);
        }
    }

    #[test]
    fn geometry_reads_the_mesh_and_writes_the_graph() {
        let mesh = shapes::icosahedron();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        // 12 positions and 20 faces; 13 offsets, 60 edges of two indices and three numbers, 12 frames.
        let expected = 12 * 24 + 20 * 12 + 13 * 4 + 60 * (8 + 24) + 12 * 72;
        assert_eq!(geometry(&mesh, &graph).bytes, expected);
    }
}
