//! Attention and nonlinear messages: gradients, equivariance, and the compositions of primitives that they stand for.

use crate::common::{apply, bumpy_grid, bumpy_sphere, graph, init, kind, random};
use crate::cuda_training::{devices, gpu, relative_error};
use crate::equivariance::check as check_equivariance;
use crate::gradients::check;
use gemcnn_kernels::linear::Linear;
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, Mesh};
use gemcnn_nn::layers::{
    Attention, AttentionConvConfig, EquivariantLinear, EquivariantLinearConfig, Gates, GemConv, GemConvConfig,
    MessageBlock, MessageBlockConfig, Regular,
};
use gemcnn_nn::operators::LinearWeights;
use gemcnn_nn::{
    Aggregation, Builder, Device, EdgeFrame, FeatureType, GraphBatch, Grouping, Levels, Module, Network, NnError,
    Parameters, ProductMode, Real, Reduce, Stream, Tape, Var, Workspace,
};
use std::sync::Arc;

const STREAM: Stream = Stream { seed: 3, step: 0 };

/// A closed and an open mesh, and a hub of high degree with vertices that no face uses.
fn batch<T: Real>() -> GraphBatch<T> {
    let rim = |i: usize| {
        let angle = 0.3 * i as f64;
        DVec3::new(angle.cos(), angle.sin(), 0.1 * (5.0 * angle).sin())
    };
    let vertices = std::iter::once(DVec3::Z).chain((0..24).map(rim)).collect();
    let faces = (1..20u32).map(|i| [0, i, i + 1]).collect::<Vec<_>>();
    let hub = Mesh::new(vertices, faces.iter().collect()).unwrap();
    let graphs = [bumpy_sphere(), bumpy_grid(), hub].map(|mesh| graph(&mesh));
    GraphBatch::new(&graphs).unwrap()
}

/// Values, the gradient by the input, and those by all parameters.
fn run<T: Real>(
    device: &Device,
    input: &FeatureType,
    batch: &GraphBatch<T>,
    parameters: &Parameters<T>,
    forward: impl for<'a> Fn(&mut Tape<'a, T>, Levels<'a, T>, Var<T>) -> Result<Var<T>, NnError>,
) -> [Vec<T>; 3] {
    let mut parameters = parameters.clone();
    let mut workspace = Workspace::new(device.clone());
    // Wide enough for all outputs.
    let target = random::<T>(batch.vertex_count() * 128, 2);
    let mut tape = Tape::training(&mut workspace, &mut parameters, STREAM);
    let x = random::<T>(batch.vertex_count() * input.dimension(), 1);
    let x = tape.tracked_input(input.clone(), &x).unwrap();
    let y = forward(&mut tape, batch.into(), x.clone()).unwrap();
    let values = y.values().unwrap().to_vec();
    let loss = tape.mean_square(y, &target[..values.len()]).unwrap();
    let gradient = tape.backward_to(&loss, &[&x]).unwrap()[0].to_vec();
    drop(x);
    parameters.move_to_host().unwrap();
    let gradients = parameters.iter().flat_map(|entry| entry.gradient().to_vec());
    [values, gradient, gradients.collect()]
}

fn assert_same(found: &[Vec<f64>; 3], expected: &[Vec<f64>; 3], what: &str) {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}");
        let size = expected.iter().fold(1e-3, |most: f64, e| most.max(e.abs()));
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() <= 1e-12 * size, "{what}, {index}: {f} {e}");
        }
    }
}

#[test]
fn attention_has_the_right_gradients_and_is_equivariant() {
    for (input, output, heads) in [("2x0 + 1x1 + 1x2", "1x0 + 2x1 + 1x3", 1), ("3x0 + 2x1", "2x0 + 4x1 + 2x2", 2)] {
        let config = AttentionConvConfig { heads, ..AttentionConvConfig::new(kind(input), kind(output)) };
        let (layer, mut parameters) = init(|builder| config.init("attention", builder));
        check_equivariance(input, output, &parameters, &|tape, levels, x| layer.forward(tape, levels, x));
        check("attention", input, &mut parameters, &|tape, levels, x| layer.forward(tape, levels, x));
    }
    let config = AttentionConvConfig { heads: 2, ..AttentionConvConfig::new(kind("2x0"), kind("2x0 + 3x1")) };
    let refused = config.init("attention", &mut Builder::new(&mut Parameters::<f64>::new(), 1));
    assert!(matches!(refused.map(drop).map_err(|error| error.to_string().contains("heads")), Err(true)));
}

fn block(input: &str, layers: [usize; 2], samples: usize) -> (MessageBlock<f64>, Parameters<f64>) {
    let config = MessageBlockConfig {
        edge_layers: layers[0],
        node_layers: layers[1],
        samples,
        nonlinearity: Arc::new(Gates::relu()),
        ..MessageBlockConfig::new(FeatureType::uniform(2, 2), kind("2x0 + 1x1"))
    };
    init(|builder| config.init("block", &kind(input), &[], builder))
}

#[test]
fn gradients_and_equivariance_of_messages() {
    // Five samples are one pass over the edges, others are computed in pieces.
    for (input, layers, samples) in
        [("2x0 + 1x1", [1, 1], 5), ("3x0", [2, 2], 5), ("1x0 + 2x1 + 1x3", [3, 1], 5), ("2x0 + 1x1", [2, 1], 7)]
    {
        let (block, mut parameters) = block(input, layers, samples);
        check_equivariance(input, "2x0 + 1x1", &parameters, &|tape, levels, x| block.forward(tape, levels, x));
        check("messages", input, &mut parameters, &|tape, levels, x| block.forward(tape, levels, x));
    }
    let config = MessageBlockConfig::<f64> { edge_layers: 0, ..MessageBlockConfig::new(kind("1x0"), kind("1x0")) };
    let mut parameters = Parameters::new();
    let mut builder = Builder::new(&mut parameters, 1);
    assert!(config.init("block", &kind("1x0"), &[], &mut builder).is_err());
}

struct Head {
    query: EquivariantLinear,
    key: GemConv,
    value: GemConv,
}

impl Head {
    fn new(input: &FeatureType, output: &FeatureType, parameters: &mut Parameters<f64>) -> Self {
        let mut builder = Builder::new(parameters, 1);
        let mut conv = |name: &str| {
            let config =
                GemConvConfig { self_term: false, bias: false, ..GemConvConfig::new(input.clone(), output.clone()) };
            config.init(name, &mut builder).unwrap()
        };
        let (key, value) = (conv("key"), conv("value"));
        let query = EquivariantLinearConfig::new(input.clone(), output.clone());
        let query = query.init("query", &mut builder).unwrap();
        Self { query, key, value }
    }

    fn fused<'a>(&self, tape: &mut Tape<'a, f64>, levels: Levels<'a, f64>, x: Var<f64>) -> Result<Var<f64>, NnError> {
        let graph = levels.graph()?;
        let query = self.query.forward(tape, levels, x.clone())?;
        let config = self.key.config();
        let weight = self.key.weights().neighbour;
        let logits = tape.edge_product(config, graph, weight, query, x.clone())?;
        let weights = tape.edge_softmax(graph, logits)?;
        tape.weighted_conv(config, graph, self.value.weights(), x, weights)
    }

    /// Keys and values of every edge.
    fn composed<'a>(
        &self,
        tape: &mut Tape<'a, f64>,
        levels: Levels<'a, f64>,
        x: Var<f64>,
    ) -> Result<Var<f64>, NnError> {
        let (graph, frame) = (levels.graph()?, EdgeFrame::Edge);
        let output = self.key.config().output.clone();
        let map = Linear { inputs: x.kind().dimension(), outputs: output.dimension(), bias: false };
        let query = self.query.forward(tape, levels, x.clone())?;
        let query = tape.spread_edges(frame, graph, query)?;
        let neighbour = tape.gather_edges(frame, graph, x)?;
        let mapped = |conv: &GemConv, tape: &mut Tape<'a, f64>| {
            let weight = conv.weights().neighbour;
            tape.linear(map, LinearWeights { weight, bias: None }, neighbour.clone())
        };
        let key = mapped(&self.key, tape)?;
        let value = mapped(&self.value, tape)?;
        let logits = tape.irrep_dot(Grouping::Heads(1), query, key)?;
        let weights = tape.edge_softmax(graph, logits)?;
        let reduce = Arc::new(Reduce::sum(output, frame));
        tape.reduce_edges_weighted(&reduce, graph, value, weights)
    }
}

#[test]
fn attention_is_the_composition() {
    let batch = batch::<f64>();
    for (input, output) in [("2x0 + 1x1 + 1x2", "1x0 + 2x1 + 1x3"), ("5x0", "3x0 + 3x1"), ("1x1", "1x2")] {
        let (input, output) = (kind(input), kind(output));
        let mut parameters = Parameters::new();
        let head = Head::new(&input, &output, &mut parameters);
        let cpu = Device::Cpu;
        let fused = run(&cpu, &input, &batch, &parameters, |tape, levels, x| head.fused(tape, levels, x));
        let composed = run(&cpu, &input, &batch, &parameters, |tape, levels, x| head.composed(tape, levels, x));
        assert_same(&fused, &composed, &format!("{input} to {output}"));
    }
}

#[test]
fn messages_are_the_composition() {
    // More edges than are computed at a time.
    let grid = shapes::grid(40, 41, Cells::Triangles).unwrap();
    let large = GraphBatch::new([&graph(&grid)]).unwrap();
    assert!(large.edge_count() > 8192);
    for (batch, layers, samples) in
        [(&large, 2, 5), (&large, 2, 6), (&batch(), 1, 5), (&batch(), 3, 5), (&batch(), 1, 4)]
    {
        let input = kind("2x0 + 1x1");
        let (block, parameters) = block("2x0 + 1x1", [layers, 1], samples);
        let function = block.messages();
        let cpu = Device::Cpu;
        let fused =
            run(&cpu, &input, batch, &parameters, |tape, levels, x| tape.send_messages(function, levels.graph()?, x));
        let composed = run(&cpu, &input, batch, &parameters, |tape, levels, x| {
            let (graph, frame) = (levels.graph()?, EdgeFrame::Edge);
            let own = tape.spread_edges(frame, graph, x.clone())?;
            let neighbour = tape.gather_edges(frame, graph, x)?;
            let mut value = tape.concatenate(own, neighbour)?;
            for layer in &function.layers {
                value = tape.linear(layer.map, layer.weights, value.into_scalars())?;
                value = value.with_kind(function.output())?;
                value = tape.regular(&layer.plan, None, value)?;
            }
            let mean = Arc::new(Reduce { aggregation: Aggregation::Mean, ..Reduce::sum(function.output(), frame) });
            tape.reduce_edges(&mean, graph, value.into_scalars())
        });
        assert_same(&fused, &composed, &format!("{layers} layers, {samples} samples"));
    }
}

/// A network of both kinds of layers, in f32 on all devices against f64 on the CPU.
#[test]
fn devices_agree_with_f64_on_the_cpu() {
    fn network<T: Real>() -> (Network<T>, Parameters<T>) {
        let hidden = FeatureType::uniform(6, 2);
        Network::builder(FeatureType::scalars(3))
            .kernel(Attention { heads: 3 })
            .residual(&hidden, Regular::relu(5))
            .message_block(MessageBlockConfig::new(hidden.clone(), hidden))
            .message_block(MessageBlockConfig {
                node_layers: 2,
                edge_layers: 1,
                ..MessageBlockConfig::new(FeatureType::uniform(5, 1), kind("4x0 + 2x1"))
            })
            .init(1)
            .unwrap()
    }
    let input = FeatureType::scalars(3);
    let (wide, parameters) = network::<f64>();
    let expected = run(&Device::Cpu, &input, &batch(), &parameters, |tape, levels, x| wide.forward(tape, levels, x));
    let (narrow, parameters) = network::<f32>();
    for device in devices("attention and messages") {
        let found = run(&device, &input, &batch(), &parameters, |tape, levels, x| narrow.forward(tape, levels, x));
        for (found, expected) in found.iter().zip(&expected) {
            let error = relative_error(found, expected);
            assert!(error < 2e-4, "{device:?}: {error:e}");
        }
    }
}

/// A layer of attention, then a block of messages. Biases decide every ReLU, because rounding to tf32 flips those near
/// zero.
fn decided<T: Real>(
    [input, hidden, output]: [&FeatureType; 3],
    [edge_layers, node_layers]: [usize; 2],
    act: &Regular,
) -> (Network<T>, Parameters<T>) {
    let heads = if input.multiplicity(0) % 2 == 0 { 2 } else { 1 };
    let (network, mut parameters) = Network::builder(input.clone())
        .kernel(Attention { heads })
        .conv(input)
        .message_block(MessageBlockConfig {
            edge_layers,
            node_layers,
            nonlinearity: Arc::new(act.clone()),
            ..MessageBlockConfig::new(hidden.clone(), output.clone())
        })
        .init(1)
        .unwrap();
    let channels = hidden.multiplicity(0);
    for parameter in parameters.iter_mut() {
        let is_bias = parameter.name().ends_with("bias");
        if !parameter.name().contains("edge") && !parameter.name().contains("node") {
            continue;
        }
        for (place, value) in parameter.value_mut().iter_mut().enumerate() {
            *value = match (is_bias, place) {
                (true, place) if place < channels && place % 3 == 0 => T::of(-8.0),
                (true, place) if place < channels => T::of(8.0),
                _ => T::of(0.3) * *value,
            };
        }
    }
    (network, parameters)
}

/// In inference on the CPU an update of one type is one operator; in training it is composed of layers.
#[test]
fn messages_are_the_same_in_inference_and_in_training() {
    let (small, wide) = (FeatureType::uniform(2, 1), FeatureType::uniform(8, 2));
    for (types, layers) in
        [([&wide, &wide, &wide], [2, 2]), ([&small, &small, &small], [1, 3]), ([&small, &wide, &small], [1, 1])]
    {
        let (network, parameters) = decided::<f64>(types, layers, &Regular::relu(5));
        let (batch, cpu) = (batch(), Device::Cpu);
        let [expected, ..] =
            run(&cpu, types[0], &batch, &parameters, |tape, levels, x| network.forward(tape, levels, x));
        let x = random::<f64>(batch.vertex_count() * types[0].dimension(), 1);
        let values = apply(&network, &parameters, &batch, &x).unwrap();
        let mut pairs = values.iter().zip(&expected);
        assert!(pairs.all(|(y, e)| (y - e).abs() <= 1e-12 * (1.0 + e.abs())));
    }
}

#[test]
fn layers_on_tensor_cores_agree_with_f64_on_the_cpu() {
    let Some(device) = gpu("attention and messages on tensor cores") else { return };
    let Device::Cuda(cuda) = &device else { return };
    cuda.set_product_mode(ProductMode::Tf32);
    let (wide, small) = (FeatureType::uniform(16, 2), FeatureType::uniform(8, 1));
    let (odd, narrow) = (kind("3x0 + 7x1"), FeatureType::uniform(5, 1));
    let long = FeatureType::uniform(24, 2);
    let relu = Regular::relu;
    for (types, layers, act) in [
        // Messages and updates are one kernel each.
        ([&wide, &wide, &wide], [2, 2], relu(5)),
        ([&small, &small, &small], [3, 1], relu(3)),
        // Updates are composed: other numbers of samples, other types.
        ([&wide, &wide, &wide], [1, 2], relu(7)),
        ([&odd, &narrow, &kind("4x0 + 2x1")], [2, 2], relu(3)),
        // Rows are too long for registers.
        ([&wide, &long, &long], [1, 1], relu(5)),
    ] {
        let (network, parameters) = decided::<f64>(types, layers, &act);
        let cpu = Device::Cpu;
        let expected = run(&cpu, types[0], &batch(), &parameters, |tape, levels, x| network.forward(tape, levels, x));
        let (network, parameters) = decided::<f32>(types, layers, &act);
        let found = run(&device, types[0], &batch(), &parameters, |tape, levels, x| network.forward(tape, levels, x));
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = relative_error(found, expected);
            println!("{types:?}, {layers:?}, {index}: {error:e}");
            assert!(error < 5e-3, "{types:?}, {layers:?}, {index}: {error:e}");
        }
    }
}
