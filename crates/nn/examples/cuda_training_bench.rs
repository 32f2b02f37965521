//! Whole steps of the correspondence network, and inference on very large meshes, on a GPU.
//!
//! `cargo run --release -p gemcnn-nn --example cuda_training_bench [largest vertex count]`
//!
//! The network names each vertex of a body: `3x0` to 6,890 classes by way of three residual blocks of
//! 16 channels and a head of 256. Steps are timed in groups with one wait at the end of each.

use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Activation, Aggregation, BatchTarget, CudaDevice, Device, FeatureType, GraphBatch, Method,
    Network, NetworkConfig, Optimiser, ProductMode, StepSettings, Stepper, Stream, Tape,
    TrainingBatch, Workspace,
};
use std::error::Error;
use std::time::Instant;

const CLASSES: usize = 6890;
const GROUPS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let largest = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 10_000_000,
    };
    let device = CudaDevice::new(0)?;
    device.set_product_mode(ProductMode::Tf32);
    println!("{}, tf32", device.name());
    for mebibytes in [256] {
        device.set_tile_bytes(mebibytes << 20);
        println!("tiles of {mebibytes} MiB");
        for meshes in [1, 8] {
            for (name, stepper) in [
                ("plain", Stepper::plain()),
                ("replayed", Stepper::default()),
            ] {
                print!("  {name:8}");
                step(&device, meshes, stepper)?;
            }
        }
    }
    device.set_tile_bytes(256 << 20);
    for vertices in [100_000, 1_000_000, 10_000_000] {
        if vertices <= largest {
            inference(&device, vertices)?;
        }
    }
    Ok(())
}

fn graph(around: usize, along: usize) -> Result<GaugeGraph, Box<dyn Error>> {
    let mesh = torus(around, along, 1.0, 0.4, Cells::Triangles)?;
    Ok(GaugeGraph::new(&mesh, &GeometryOptions::default())?)
}

fn features(count: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919) % 1009) as f32 / 504.5 - 1.0;
    (0..count).map(number).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn correspondence() -> NetworkConfig {
    let regular = || Regular::relu(5).with_batch_norm();
    let hidden = FeatureType::uniform(16, 2);
    Network::builder(FeatureType::scalars(3))
        .aggregation(Aggregation::Mean)
        .residual(&hidden, regular())
        .residual(&hidden, regular())
        .residual(&FeatureType::scalars(64), regular())
        .linear(256)
        .activation(Activation::Relu)
        .dropout(0.5)
        .linear(CLASSES)
}

fn step(
    device: &CudaDevice,
    meshes: usize,
    mut stepper: Stepper<f32>,
) -> Result<(), Box<dyn Error>> {
    let graph = graph(130, 53)?;
    let graph = GraphBatch::<f32>::new(vec![&graph; meshes])?;
    let (network, mut parameters) = correspondence().init::<f32>(1)?;
    let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
    let mut workspace = Workspace::new(Device::Cuda(device.clone()));
    let vertices = graph.vertex_count();
    let target = BatchTarget::Classes {
        classes: CLASSES,
        labels: (0..vertices).map(|v| (v % CLASSES) as u32).collect(),
        weights: None,
    };
    let x = features(3 * vertices);
    let batch = TrainingBatch::new(graph, network.input().clone(), x, target)?;
    let mut train = |step: u64| -> Result<gemcnn_nn::Loss, Box<dyn Error>> {
        let settings = StepSettings {
            rate: 1e-3,
            randomness: Stream { seed: 1, step },
            clip: None,
        };
        let (parameters, optimiser) = (&mut parameters, &mut optimiser);
        let workspace = &mut workspace;
        Ok(stepper.step(&network, parameters, optimiser, workspace, &batch, settings)?)
    };
    let first = train(0)?.value()?;
    train(1)?;
    device.synchronise()?;
    device.reset_peak_memory();
    let allocations = device.memory().allocations;
    let steps = 10;
    let (mut waited, mut queued) = (Vec::new(), Vec::new());
    let mut last = first;
    for group in 0..GROUPS {
        let start = Instant::now();
        let mut loss = None;
        for step in 0..steps {
            loss = Some(train((2 + group * steps + step) as u64)?);
        }
        queued.push(start.elapsed().as_secs_f64());
        device.synchronise()?;
        waited.push(start.elapsed().as_secs_f64());
        if let Some(loss) = loss {
            last = loss.value()?;
        }
    }
    let milliseconds = |times| 1e3 * median(times) / steps as f64;
    let memory = device.memory();
    println!(
        " batch {meshes}: {:.3} ms a step ({:.3} ms of it to queue the work), peak {:.2} GB, held {:.2} GB, {} new allocations, loss {first:.3} -> {last:.3}",
        milliseconds(waited),
        milliseconds(queued),
        memory.peak as f64 / 1e9,
        memory.held as f64 / 1e9,
        memory.allocations - allocations,
    );
    Ok(())
}

/// Six convolutions of 16 channels, orders 0 to 2, each with a nonlinearity.
fn inference(device: &CudaDevice, vertices: usize) -> Result<(), Box<dyn Error>> {
    let along = ((vertices as f64 * 0.4).sqrt()) as usize;
    let start = Instant::now();
    let graph = graph(vertices / along, along)?;
    let batch = GraphBatch::<f32>::new([&graph])?;
    drop(graph);
    let prepared = start.elapsed().as_secs_f64();
    let hidden = FeatureType::uniform(16, 2);
    let mut config = Network::builder(hidden.clone()).aggregation(Aggregation::Mean);
    for _ in 0..6 {
        config = config.conv(&hidden).regular(Regular::relu(5));
    }
    let (network, parameters) = config.init::<f32>(1)?;
    let mut workspace = Workspace::new(Device::Cuda(device.clone()));
    let x = features(batch.vertex_count() * hidden.dimension());
    let mut times = Vec::new();
    device.reset_peak_memory();
    let mut sum = 0.0;
    for pass in 0..4 {
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let input = tape.input(hidden.clone(), &x)?;
        device.synchronise()?;
        let start = Instant::now();
        let y = network.forward(&mut tape, &batch, input)?;
        device.synchronise()?;
        // The first pass sends the graph.
        if pass > 0 {
            times.push(start.elapsed().as_secs_f64());
        }
        if pass == 3 {
            sum = y.values()?.iter().map(|&v| f64::from(v)).sum::<f64>();
        }
    }
    let seconds = median(times);
    println!(
        "inference, {} vertices: {:.2} ms, {:.2} ns a vertex, peak {:.2} GB (graph made in {prepared:.1} s; sum {sum:.6e})",
        batch.vertex_count(),
        1e3 * seconds,
        1e9 * seconds / batch.vertex_count() as f64,
        device.memory().peak as f64 / 1e9,
    );
    Ok(())
}
