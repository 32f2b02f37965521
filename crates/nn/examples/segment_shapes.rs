//! Trains a segmentation of synthetic shapes and tests it on shapes it has not seen:
//!
//! ```text
//! cargo run --release -p gemcnn-nn --example segment_shapes
//! ```
//!
//! Shapes are tori and capsules of random proportions, turned at random in space, with rough
//! surfaces. Each vertex is to be told by the surface around it: round end or straight side of a
//! capsule, outer or inner half of a torus. What the network sees is how the surface bends at each
//! vertex: the mean curvature, a scalar, and the direction in which it bends most, of order 2. Neither
//! depends on where the shape is or how it is turned.

use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Aggregation, FeatureType, GraphBatch, Method, Module, Network, Optimiser, Parameters, Rows, Schedule, Stream, Tape,
    Targets, Workspace,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::f64::consts::TAU;
use std::time::Instant;

const CLASSES: [&str; 4] = ["round end", "straight side", "outer half", "inner half"];
const TRAINING_SHAPES: usize = 32;
const TEST_SHAPES: usize = 16;
const BATCH: usize = 4;
const EPOCHS: u64 = 30;
const INPUT: &str = "1x0 + 1x2";

/// A shape with what the network sees and what it should say.
struct Sample {
    graph: GaugeGraph,
    features: Vec<f32>,
    labels: Vec<u32>,
}

/// Several samples as one graph.
struct Batch {
    graph: GraphBatch<f32>,
    features: Vec<f32>,
    labels: Vec<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let training = samples(TRAINING_SHAPES, &mut random)?;
    let test = batches(&samples(TEST_SHAPES, &mut random)?)?;
    let hidden = FeatureType::uniform(8, 2);
    let regular = || Regular::relu(5).with_batch_norm();
    let (network, mut parameters) = Network::<f32>::builder(INPUT.parse()?)
        .aggregation(Aggregation::Mean)
        .residual(&hidden, regular())
        .residual(&hidden, regular())
        .residual(&FeatureType::scalars(16), regular())
        .head(32, CLASSES.len())
        .init(1)?;
    println!("{network}\n");

    let mut workspace = Workspace::default();
    let mut epoch_batches = batches(&training)?;
    if let Some(first) = epoch_batches.first() {
        let (graph, features) = ((&first.graph).into(), &first.features);
        network.calibrate(&mut workspace, &mut parameters, graph, features)?;
    }
    let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
    let schedule = Schedule::OneCycle { steps: EPOCHS * epoch_batches.len() as u64, rise: 0.2, first: 0.1, last: 0.0 };
    for epoch in 1..=EPOCHS {
        shuffle(&mut epoch_batches, &mut random);
        let (mut loss_sum, mut correct, mut counted) = (0.0, 0, 0);
        for batch in &epoch_batches {
            let step = optimiser.steps();
            parameters.clear_gradients();
            let stream = Stream { seed: 1, step };
            let mut tape = Tape::training(&mut workspace, &mut parameters, stream);
            let x = tape.input(INPUT.parse()?, &batch.features)?;
            let targets = batch.targets();
            let loss = network.classify(&mut tape, (&batch.graph).into(), x, targets, Rows::default())?;
            tape.backward(&loss)?;
            parameters.clip_gradients(1.0)?;
            optimiser.step(&mut parameters, 0.01 * schedule.factor(step))?;
            loss_sum += loss.value()?;
            let score = loss.score()?.unwrap_or_default();
            correct += score.correct;
            counted += score.counted;
        }
        if epoch % 5 == 0 || epoch == 1 {
            println!(
                "epoch {epoch:>2}: loss {:.4}, right {:.1} % in training, {:.1} % of unseen shapes, {:.1} s",
                loss_sum / epoch_batches.len() as f64,
                100.0 * correct as f64 / counted.max(1) as f64,
                100.0 * accuracy(&network, &parameters, &mut workspace, &test)?,
                start.elapsed().as_secs_f64()
            );
        }
    }
    let right = accuracy(&network, &parameters, &mut workspace, &test)?;
    println!("\n{:.2} % of the vertices of {TEST_SHAPES} unseen shapes are right", 100.0 * right);
    if right < 0.95 {
        return Err("less than 95 % are right".into());
    }
    Ok(())
}

impl Batch {
    fn targets(&self) -> Targets<'_, f32> {
        Targets::new(CLASSES.len(), &self.labels)
    }
}

fn accuracy(
    network: &Network<f32>,
    parameters: &Parameters<f32>,
    workspace: &mut Workspace<f32>,
    batches: &[Batch],
) -> Result<f64, Box<dyn Error>> {
    let (mut correct, mut counted) = (0, 0);
    for batch in batches {
        let mut tape = Tape::inference(workspace, parameters);
        let x = tape.input(INPUT.parse()?, &batch.features)?;
        let targets = batch.targets();
        let loss = network.classify(&mut tape, (&batch.graph).into(), x, targets, Rows::default())?;
        let score = loss.score()?.unwrap_or_default();
        correct += score.correct;
        counted += score.counted;
    }
    Ok(correct as f64 / counted.max(1) as f64)
}

fn batches(samples: &[Sample]) -> Result<Vec<Batch>, Box<dyn Error>> {
    let join = |samples: &[Sample]| -> Result<Batch, Box<dyn Error>> {
        Ok(Batch {
            graph: GraphBatch::new(samples.iter().map(|sample| &sample.graph))?,
            features: samples.iter().flat_map(|s| s.features.clone()).collect(),
            labels: samples.iter().flat_map(|s| s.labels.clone()).collect(),
        })
    };
    samples.chunks(BATCH).map(join).collect()
}

fn shuffle<V>(values: &mut [V], random: &mut ChaCha8Rng) {
    for end in (1..values.len()).rev() {
        values.swap(end, random.random_range(0..=end));
    }
}

/// Capsules and tori in turn.
fn samples(count: usize, random: &mut ChaCha8Rng) -> Result<Vec<Sample>, Box<dyn Error>> {
    (0..count)
        .map(|index| {
            let (mesh, labels) = match index % 2 {
                0 => capsule(random)?,
                _ => torus(random)?,
            };
            let mesh = turned(&rough(&mesh, random)?, random)?;
            let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
            Ok(Sample { features: curvature(&mesh, &graph), graph, labels })
        })
        .collect()
}

fn capsule(random: &mut ChaCha8Rng) -> Result<(Mesh, Vec<u32>), Box<dyn Error>> {
    let length = random.random_range(1.5..3.0);
    // Bands as wide as segments, about a third of the radius.
    let tube_bands = (3.0 * length) as usize;
    let mesh = shapes::capsule(20, 5, tube_bands, 1.0, length, Cells::Triangles)?;
    // The ring where they meet still bends on one side only: it belongs to the ends.
    let side = |p: &DVec3| u32::from(p.z.abs() < 0.5 * length - 1e-9);
    let labels = mesh.vertices().iter().map(side).collect();
    Ok((mesh, labels))
}

fn torus(random: &mut ChaCha8Rng) -> Result<(Mesh, Vec<u32>), Box<dyn Error>> {
    let major = random.random_range(2.0..3.0);
    let around = (18.0 * major) as usize;
    let mesh = shapes::torus(around, 18, major, 1.0, Cells::Triangles)?;
    let half = |p: &DVec3| if p.x.hypot(p.y) > major { 2 } else { 3 };
    let labels = mesh.vertices().iter().map(half).collect();
    Ok((mesh, labels))
}

/// Moves every vertex by up to six hundredths of the radius: a fifth of an edge.
fn rough(mesh: &Mesh, random: &mut ChaCha8Rng) -> Result<Mesh, Box<dyn Error>> {
    let mut draw = || 0.06 * (2.0 * random.random::<f64>() - 1.0);
    Ok(mesh.map_vertices(|p| p + DVec3::new(draw(), draw(), draw()))?)
}

/// Turns the shape about a random axis.
fn turned(mesh: &Mesh, random: &mut ChaCha8Rng) -> Result<Mesh, Box<dyn Error>> {
    let mut draw = || 2.0 * random.random::<f64>() - 1.0;
    let axis = DVec3::new(draw(), draw(), draw()).normalize_or(DVec3::X);
    let (s, c) = (TAU * draw()).sin_cos();
    Ok(mesh.map_vertices(|p| c * p + s * axis.cross(p) + (1.0 - c) * axis.dot(p) * axis)?)
}

/// How the surface bends at each vertex: with the normal curvature
/// `k = -2 n.(q - p) / |q - p|^2` towards each neighbour, its mean, and the mean of
/// `k (cos 2 theta, sin 2 theta)`.
fn curvature(mesh: &Mesh, graph: &GaugeGraph) -> Vec<f32> {
    let mut features = Vec::with_capacity(3 * graph.vertex_count());
    for p in 0..graph.vertex_count() {
        let (mut mean, mut along, mut across) = (0.0, 0.0, 0.0);
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let d = mesh.vertices()[q] - mesh.vertices()[p];
            let bend = -2.0 * graph.frames()[p].normal.dot(d) / d.length_squared();
            let (s, c) = (2.0 * graph.theta()[edge]).sin_cos();
            mean += bend;
            along += bend * c;
            across += bend * s;
        }
        let count = graph.row(p).len().max(1) as f64;
        features.extend([mean, along, across].map(|sum| (sum / count) as f32));
    }
    features
}
