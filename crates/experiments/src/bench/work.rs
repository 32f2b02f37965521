//! Minimal memory traffic and arithmetic of a network.
//!
//! Operations are those of the matrix products, two per multiply-add. Aggregation over neighbours,
//! nonlinearities and normalisations are not counted. Bytes are the unavoidable reads and writes of main memory
//! in f32: the input, the output and the weights of each layer, and the edges for convolutions.
//! Intermediate results that could stay in a cache (gathered neighbours, logits) are not counted.

use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_kernels::self_map::SelfMap;
use gemcnn_mesh::{Frame, GaugeGraph, Mesh};
use gemcnn_nn::layers::{Kernel, Nonlinearity, ResidualBlockConfig};
use gemcnn_nn::{ConvConfig, FeatureType, LayerConfig, NetworkConfig, irrep_dimension};
use gemcnn_tasks::TaskError;
use std::ops::Add;

/// Minimal memory traffic and arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations of matrix products, two per multiply-add.
    pub flops: u64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            flops: self.flops + other.flops,
        }
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Self::add)
    }
}

/// Size of an `f32` in bytes.
const NUMBER: u64 = size_of::<f32>() as u64;
/// Size of a directed edge in bytes: the neighbour, and cosine and sine of two angles.
const EDGE: u64 = 4 + 4 * NUMBER;
/// Numbers that Adam reads and writes per weight. It reads the weight, the gradient and two moments, and writes
/// all but the gradient.
const ADAM: u64 = 7;

/// Size of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GraphSize {
    pub vertices: u64,
    pub edges: u64,
}

/// Work of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LayerWork {
    /// Numbers per vertex of input and output.
    inputs: u64,
    outputs: u64,
    weights: u64,
    /// Multiply-adds per vertex.
    products: u64,
    reads_edges: bool,
    /// True if the input is data and needs no gradient.
    on_data: bool,
}

impl LayerWork {
    /// A gauge convolution. Each order of the output is a product of weights with the aggregated neighbours,
    /// weighted by the cosine and (above order 0) the sine of that order, and with the features of the vertex
    /// itself of that order.
    pub fn convolution(op: &GaugeConv) -> Self {
        let products = op.output.orders().map(|(order, _)| {
            let neighbours = op.rings * irrep_dimension(order) * op.input.dimension();
            let own = match op.self_term {
                true => op.input.range(order).len(),
                false => 0,
            };
            op.output.range(order).len() * (neighbours + own)
        });
        let products: usize = products.sum();
        Self {
            inputs: op.input.dimension() as u64,
            outputs: op.output.dimension() as u64,
            weights: (op.neighbour_count() + op.self_count() + op.bias_count()) as u64,
            products: products as u64,
            reads_edges: true,
            on_data: false,
        }
    }

    /// The skip connection of a residual block. Its result is added in place, so no output is counted.
    fn skip_connection(input: &FeatureType, output: &FeatureType) -> Self {
        let mut layer = Self {
            inputs: input.dimension() as u64,
            ..Self::default()
        };
        if input != output {
            let map = SelfMap {
                input: input.clone(),
                output: output.clone(),
                bias: false,
            };
            let products = output
                .orders()
                .map(|(order, _)| output.range(order).len() * input.range(order).len());
            layer.weights = map.parameter_count() as u64;
            layer.products = products.sum::<usize>() as u64;
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

    /// A function of each vertex alone, with or without normalisation.
    fn pointwise(input: &FeatureType, output: &FeatureType) -> Self {
        Self {
            inputs: input.dimension() as u64,
            outputs: output.dimension() as u64,
            ..Self::default()
        }
    }

    fn edges(&self, graph: GraphSize) -> u64 {
        match self.reads_edges {
            true => EDGE * graph.edges + 4 * (graph.vertices + 1),
            false => 0,
        }
    }

    /// Reads the input, the weights and the edges. Writes the output.
    pub fn forward(&self, graph: GraphSize) -> Work {
        Work {
            bytes: NUMBER * (graph.vertices * (self.inputs + self.outputs) + self.weights)
                + self.edges(graph),
            flops: 2 * graph.vertices * self.products,
        }
    }

    /// Reads the input, the gradient of the output, the weights and the edges. Writes the gradients of the weights
    /// and, unless the input is data, of the input. Each of these gradients takes one product.
    pub fn backward(&self, graph: GraphSize) -> Work {
        let gradients = if self.on_data { 1 } else { 2 };
        let rows = graph.vertices * (gradients * self.inputs + self.outputs);
        Work {
            bytes: NUMBER * (rows + gradients * self.weights) + self.edges(graph),
            flops: gradients * 2 * graph.vertices * self.products,
        }
    }
}

/// The work of a network, layer by layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkWork {
    layers: Vec<LayerWork>,
}

impl NetworkWork {
    /// The work of a network.
    ///
    /// # Errors
    /// The network has layers that are not supported here: pooling, separate linear maps and normalisations,
    /// kernels that are not gauge equivariant.
    pub fn new(config: &NetworkConfig) -> Result<Self, TaskError> {
        let mut kind = config.input().clone();
        let mut layers = Vec::new();
        for layer in config.layers() {
            let on_data = layers.is_empty();
            kind = add_layer(&mut layers, layer, kind, on_data)?;
        }
        Ok(Self { layers })
    }

    /// A forward pass without gradients.
    pub fn inference(&self, graph: GraphSize) -> Work {
        self.layers.iter().map(|layer| layer.forward(graph)).sum()
    }

    /// A training step of vertex classification: forward pass, backward pass and Adam. The logits are not counted
    /// as written or read.
    pub fn classification_step(&self, graph: GraphSize) -> Work {
        let layers = self.layers.iter().enumerate().map(|(place, &layer)| {
            let outputs = match place + 1 == self.layers.len() {
                true => 0,
                false => layer.outputs,
            };
            LayerWork { outputs, ..layer }
        });
        let weights: u64 = self.layers.iter().map(|layer| layer.weights).sum();
        let passes: Work = layers
            .map(|layer| layer.forward(graph) + layer.backward(graph))
            .sum();
        let optimiser = Work {
            bytes: NUMBER * ADAM * weights,
            flops: 0,
        };
        passes + optimiser
    }
}

/// Adds the parts of a layer and returns its output type.
fn add_layer(
    layers: &mut Vec<LayerWork>,
    layer: &LayerConfig,
    input: FeatureType,
    on_data: bool,
) -> Result<FeatureType, TaskError> {
    let convolution = |conv: &ConvConfig, input: &FeatureType, output: &FeatureType, on_data| {
        if conv.kernel != Kernel::Gauge {
            return Err(not_counted("kernels that are not gauge equivariant"));
        }
        let op = GaugeConv {
            rings: conv.rings,
            ..GaugeConv::new(input.clone(), output.clone())
        };
        Ok(LayerWork {
            on_data,
            ..LayerWork::convolution(&op)
        })
    };
    let nonlinearity = |act: &Nonlinearity, output: &FeatureType| {
        (*act != Nonlinearity::None).then(|| LayerWork::pointwise(&act.input(output), output))
    };
    Ok(match layer {
        LayerConfig::Conv { output, conv } => {
            layers.push(convolution(conv, &input, output, on_data)?);
            output.clone()
        }
        LayerConfig::Residual {
            output,
            middle,
            nonlinearity: act,
            conv,
        } => {
            let standard = ResidualBlockConfig::new(input.clone(), output.clone());
            let middle = middle.clone().unwrap_or(standard.middle);
            let [inner, sum] = [&middle, output].map(|after| act.input(after));
            layers.push(convolution(conv, &input, &inner, on_data)?);
            layers.extend(nonlinearity(act, &middle));
            layers.push(convolution(conv, &middle, &sum, false)?);
            layers.push(LayerWork {
                on_data,
                ..LayerWork::skip_connection(&input, &sum)
            });
            layers.extend(nonlinearity(act, output));
            output.clone()
        }
        LayerConfig::Nonlinearity(act) => {
            let output = act.output(&input)?;
            layers.extend(nonlinearity(act, &output));
            output
        }
        LayerConfig::Activation(_) | LayerConfig::Dropout { .. } => {
            layers.push(LayerWork::pointwise(&input, &input));
            input
        }
        LayerConfig::Linear { outputs } => {
            layers.push(LayerWork {
                on_data,
                ..LayerWork::linear(input.dimension(), *outputs)
            });
            FeatureType::scalars(*outputs)
        }
        LayerConfig::BreakSymmetry => FeatureType::scalars(input.dimension()),
        LayerConfig::EquivariantLinear { .. } | LayerConfig::Norm => {
            return Err(not_counted("separate linear maps and normalisations"));
        }
        LayerConfig::Down | LayerConfig::Up | LayerConfig::GlobalPool(_) => {
            return Err(not_counted("pooling"));
        }
    })
}

fn not_counted(what: &str) -> TaskError {
    TaskError::setting("benchmark network", format!("{what} are not supported"))
}

/// Gauge geometry in f64: reads positions and faces, writes the graph.
pub(super) fn geometry(mesh: &Mesh, graph: &GaugeGraph) -> Work {
    let index = size_of::<u32>();
    let read = size_of_val(mesh.vertices()) + size_of_val(mesh.faces().corners());
    let written = index * (graph.offsets().len() + 2 * graph.edge_count())
        + size_of::<f64>() * 3 * graph.edge_count()
        + size_of::<Frame>() * graph.vertex_count();
    Work {
        bytes: (read + written) as u64,
        flops: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::{GeometryOptions, shapes};
    use gemcnn_nn::Network;
    use gemcnn_nn::layers::Regular;

    /// A graph small enough for counting by hand.
    const GRAPH: GraphSize = GraphSize {
        vertices: 10,
        edges: 60,
    };
    /// 60 edges of 20 bytes, and 11 offsets.
    const EDGES: u64 = 1244;

    fn kind(text: &str) -> FeatureType {
        text.parse().unwrap()
    }

    fn counted(config: NetworkConfig) -> NetworkWork {
        NetworkWork::new(&config).unwrap()
    }

    #[test]
    fn the_hidden_convolution_counts_as_on_paper() {
        let hidden = FeatureType::uniform(16, 2);
        let layer = LayerWork::convolution(&GaugeConv::new(hidden.clone(), hidden));
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
    fn types_of_unequal_ends_and_rings_count_order_by_order() {
        let op = GaugeConv {
            rings: 2,
            ..GaugeConv::new(kind("3x0"), kind("2x0 + 1x1"))
        };
        let layer = LayerWork::convolution(&op);
        // Order 0: 2 results from 2 rings of 3 sums and 3 own; order 1: 2 from 2 rings of 6, and no own.
        assert_eq!(layer.products, 2 * (6 + 3) + 2 * 12);
        let without = LayerWork::convolution(&GaugeConv {
            self_term: false,
            ..op
        });
        assert_eq!(without.products, layer.products - 6);
    }

    #[test]
    fn the_gradient_of_data_is_not_counted() {
        let one = counted(Network::builder(kind("1x0")).linear(2));
        let two = counted(Network::builder(kind("1x0")).linear(2).linear(2));
        // Logits are not counted as written. Forward reads x and weights; backward reads x and writes
        // gradients of 4 weights; Adam moves 7 numbers for each.
        assert_eq!(
            one.classification_step(GRAPH),
            Work {
                bytes: 4 * (10 + 4) + 4 * (10 + 4) + 4 * 7 * 4,
                flops: 2 * 2 * 10 * 2,
            }
        );
        // The first map writes 2 numbers and reads their gradients; the second makes that of its input.
        let first = 4 * (10 * 3 + 4) + 4 * (10 * 3 + 4) + 4 * 7 * 4;
        let second = 4 * (10 * 2 + 6) + 4 * (10 * 4 + 2 * 6) + 4 * 7 * 6;
        assert_eq!(
            two.classification_step(GRAPH),
            Work {
                bytes: first + second,
                flops: 2 * 10 * (2 * 2 + 3 * 4),
            }
        );
    }

    #[test]
    fn a_block_is_two_convolutions_two_functions_and_the_skip_connection() {
        let (input, output) = (kind("3x0"), kind("2x0 + 2x1"));
        let block = Network::builder(input.clone()).residual(&output, Regular::relu(3));
        let counted = counted(block);
        let conv = |from: &FeatureType| {
            LayerWork::convolution(&GaugeConv::new(from.clone(), output.clone())).forward(GRAPH)
        };
        let functions = 2 * 4 * 10 * (6 + 6);
        // 3 numbers to the 2 of order 0; nothing of order 1 comes from scalars.
        let around = Work {
            bytes: 4 * (10 * 3 + 6),
            flops: 2 * 10 * 6,
        };
        let rest = Work {
            bytes: functions,
            flops: 0,
        };
        assert_eq!(
            counted.inference(GRAPH),
            conv(&input) + conv(&output) + around + rest
        );
        let on_data: Vec<bool> = counted.layers.iter().map(|layer| layer.on_data).collect();
        assert_eq!(on_data, [true, false, false, true, false]);
    }

    #[test]
    fn every_weight_of_a_network_is_counted() {
        let hidden = kind("4x0 + 4x1");
        let config = Network::builder(kind("3x0"))
            .residual(&hidden, Regular::relu(5))
            .residual(&FeatureType::scalars(8), Regular::relu(5))
            .head(16, 10);
        let weights: u64 = (counted(config.clone()).layers.iter())
            .map(|layer| layer.weights)
            .sum();
        assert_eq!(weights, config.parameter_count().unwrap() as u64);
    }

    #[test]
    fn layers_that_are_not_counted_are_refused() {
        let pooled = Network::builder(kind("3x0")).down();
        let plain = Network::builder(kind("3x0"))
            .kernel(Kernel::Graph)
            .conv(&kind("2x0"));
        for config in [pooled, plain] {
            let error = NetworkWork::new(&config).unwrap_err();
            assert!(matches!(error, TaskError::Setting { .. }), "{error}");
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
