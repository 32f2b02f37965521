//! Times operators on a GPU that `gemcnn bench` has only inside whole steps (aggregation, nonlinearity,
//! classifier), beside what the card reaches in a copy and in a large product.
//!
//! Times are medians of 15 groups of 10 calls each, between two events on the stream, after a warm-up; a
//! group goes through four sets of buffers in turn, so that they do not all stay in the cache. With
//! `--profile` every operator runs a few times with its default settings, for a profiler to look at; the
//! times are not measured then.

use gemcnn_kernels::batch_norm::{BatchNorm, NormGroups};
use gemcnn_kernels::cross_entropy::{Targets, cuda::DeviceTargets};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceGraph, ProductMode, Timer};
use gemcnn_kernels::{
    Activation, Aggregation, FeatureType, GraphArrays, GraphParts, aggregate, batch_norm, classifier, machine, regular,
};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use std::error::Error;

/// Buffers that calls take in turn.
const SETS: usize = 4;
const CALLS: usize = 10;
const GROUPS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let device = CudaDevice::new(0)?;
    let profile = std::env::args().any(|argument| argument == "--profile");
    let (major, minor) = device.driver_version();
    println!(
        "{}, compute capability {:?}, {:.1} GB, driver for CUDA {major}.{minor}",
        device.name(),
        device.capability(),
        device.total_memory() as f64 / 1e9
    );
    let mut bench = Bench { timer: Timer::new(&device)?, device, copy: 0.0, product: [0.0; 2], profile };
    if !profile {
        bench.ceilings()?;
    }
    bench.device.set_product_mode(ProductMode::Tf32);
    for meshes in [8, 1] {
        let graph = tori(&bench.device, meshes)?;
        bench.aggregate(&graph)?;
        bench.regular(graph.vertex_count())?;
        let modes = match profile {
            true => &[(ProductMode::Tf32, 256)][..],
            false => &[(ProductMode::Tf32, 256), (ProductMode::F32, 48), (ProductMode::Bf16, 256)],
        };
        bench.classifier(graph.vertex_count(), (256, 6890), modes)?;
        if profile {
            break;
        }
        for sizes in [(128, 6890), (64, 6890), (256, 100), (128, 8)] {
            let modes = [(ProductMode::Tf32, 256), (ProductMode::Bf16, 256)];
            bench.classifier(graph.vertex_count(), sizes, &modes)?;
        }
    }
    let memory = bench.device.memory();
    println!("memory: peak {:.0} MB, held {:.0} MB", memory.peak as f64 / 1e6, memory.held as f64 / 1e6);
    Ok(())
}

/// Disjoint tori of 6,890 vertices each.
fn tori(device: &CudaDevice, count: usize) -> Result<DeviceGraph, Box<dyn Error>> {
    let mesh = shapes::torus(106, 65, 1.0, 0.4, Cells::Triangles)?;
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
    let parts = GraphParts {
        offsets: graph.offsets(),
        neighbours: graph.neighbours(),
        reverse: graph.reverse(),
        theta: graph.theta(),
        transport: graph.transport(),
        radius: graph.radius(),
        coefficients: graph.coefficients(),
    };
    let arrays = GraphArrays::union(&vec![parts; count])?;
    Ok(DeviceGraph::new(device, arrays.view())?)
}

/// Numbers in [-1, 1) without a pattern that could be faster than others.
fn noise(device: &CudaDevice, count: usize, seed: u32) -> Result<DeviceBuffer<f32>, CudaError> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let values: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    device.upload(&values)
}

fn sets(device: &CudaDevice, count: usize) -> Result<Vec<DeviceBuffer<f32>>, CudaError> {
    (0..SETS as u32).map(|seed| noise(device, count, seed)).collect()
}

struct Bench {
    device: CudaDevice,
    timer: Timer,
    /// Bytes per second of a large copy, read and written.
    copy: f64,
    /// Operations per second of a large product, in f32 and tf32.
    product: [f64; 2],
    profile: bool,
}

/// What a call must move and compute at the least.
#[derive(Clone, Copy, Default)]
struct Work {
    bytes: f64,
    operations: f64,
}

impl Bench {
    /// Median milliseconds of one call; `call` is told which set of buffers to take.
    fn time(&mut self, mut call: impl FnMut(usize) -> Result<(), CudaError>) -> Result<f64, CudaError> {
        for set in 0..SETS {
            call(set)?;
        }
        self.device.synchronise()?;
        if self.profile {
            return Ok(f64::NAN);
        }
        let mut times = Vec::with_capacity(GROUPS);
        for _ in 0..GROUPS {
            let group = || (0..CALLS).try_for_each(|index| call(index % SETS));
            times.push(self.timer.milliseconds(group)? / CALLS as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[GROUPS / 2])
    }

    fn line(&self, what: &str, milliseconds: f64, work: Work) {
        let seconds = milliseconds / 1e3;
        let (bytes, operations) = (work.bytes / seconds, work.operations / seconds);
        let peak = match self.device.product_mode() {
            ProductMode::F32 => self.product[0],
            ProductMode::Tf32 | ProductMode::Bf16 => self.product[1],
        };
        println!(
            "{what:<64} {milliseconds:9.4} ms {:8.0} GB/s ({:5.1} %) {:8.2} TFLOP/s ({:5.1} %)",
            bytes / 1e9,
            100.0 * bytes / self.copy,
            operations / 1e12,
            100.0 * operations / peak
        );
    }

    /// What the card reaches.
    fn ceilings(&mut self) -> Result<(), CudaError> {
        self.copy = machine::cuda::copy_rate(&self.device)?;
        println!("copy: {:.0} GB/s", self.copy / 1e9);
        for (place, mode) in [ProductMode::F32, ProductMode::Tf32].into_iter().enumerate() {
            self.device.set_product_mode(mode);
            self.product[place] = machine::cuda::product_rate(&self.device)?;
            println!("product, {mode:?}: {:.1} TFLOP/s", self.product[place] / 1e12);
        }
        Ok(())
    }

    fn aggregate(&mut self, graph: &DeviceGraph) -> Result<(), CudaError> {
        let op = aggregate::Aggregate {
            input: FeatureType::uniform(16, 2),
            highest_order: 2,
            rings: 1,
            max_radius: 1.0,
            aggregation: Aggregation::Sum,
        };
        let device = self.device.clone();
        let vertices = graph.vertex_count();
        let x = sets(&device, vertices * 80 + 4)?;
        let mut a: DeviceBuffer<f32> = device.buffer(vertices * op.dimension())?;
        let work = Work {
            bytes: 4.0 * (vertices * (80 + op.dimension())) as f64 + 20.0 * graph.edge_count() as f64,
            operations: (graph.edge_count() * 2 * 80 * 5) as f64,
        };
        // Features that start at other places are loaded by fewer channels at a time.
        for (first, channels) in [(0, 4), (2, 2), (1, 1)] {
            let time = self.time(|set| {
                let x = x[set].view().slice(first..first + vertices * 80);
                aggregate::cuda::forward(&device, &op, graph.view(), x, a.view_mut())
            })?;
            let label = format!("aggregate 16x(0,1,2), {vertices} vertices, by {channels} channels");
            self.line(&label, time, work);
        }
        Ok(())
    }

    fn regular(&mut self, vertices: usize) -> Result<(), Box<dyn Error>> {
        let hidden = FeatureType::uniform(16, 2);
        let plan = regular::cuda::DevicePlan::new(&regular::Regular::new(hidden.clone(), 5, Activation::Relu))?;
        let norm = BatchNorm::new(hidden, NormGroups::PerChannel);
        let device = self.device.clone();
        let (x, dy) = (sets(&device, vertices * 80)?, sets(&device, vertices * 80)?);
        let (mut y, mut dx) = (sets(&device, vertices * 80)?, sets(&device, vertices * 80)?);
        let (gamma, beta) = (noise(&device, 16, 1)?, noise(&device, 16, 2)?);
        let (mut dgamma, mut dbeta) = (device.zeros(16)?, device.zeros(16)?);
        let map = 4.0 * (vertices * 80) as f64;
        let time = self.time(|set| batch_norm::cuda::statistics(&device, &norm, vertices, x[set].view()).map(drop))?;
        let work = |maps: f64| Work { bytes: maps * map, operations: 0.0 };
        self.line(&format!("batch norm statistics, {vertices} vertices"), time, work(1.0));
        let statistics = batch_norm::cuda::statistics(&device, &norm, vertices, x[0].view())?;
        let normalisation = batch_norm::Normalisation {
            config: &norm,
            statistics: &statistics,
            gamma: gamma.view(),
            beta: beta.view(),
        };
        let time = self.time(|set| {
            let (x, y) = (x[set].view(), y[set].view_mut());
            regular::cuda::forward_normalised(&device, &plan, normalisation, vertices, x, y)
        })?;
        let label = format!("normalised regular nonlinearity, {vertices} vertices");
        self.line(&format!("{label}, forward"), time, work(2.0));
        let time = self.time(|set| {
            let gradients = batch_norm::NormGradients { gamma: dgamma.view_mut(), beta: dbeta.view_mut() };
            regular::cuda::backward_normalised(
                &device,
                &plan,
                normalisation,
                vertices,
                x[set].view(),
                dy[set].view(),
                dx[set].view_mut(),
                gradients,
            )
        })?;
        self.line(&format!("{label}, backward"), time, work(3.0));
        Ok(())
    }

    fn classifier(
        &mut self,
        vertices: usize,
        (channels, classes): (usize, usize),
        modes: &[(ProductMode, usize)],
    ) -> Result<(), Box<dyn Error>> {
        let device = self.device.clone();
        let labels: Vec<u32> = (0..vertices).map(|v| (v % classes) as u32).collect();
        let targets = DeviceTargets::new(&device, &Targets::new(classes, &labels))?;
        let h = noise(&device, vertices * channels, 1)?;
        let weight = noise(&device, classes * channels, 2)?;
        let bias = noise(&device, classes, 3)?;
        let map =
            classifier::cuda::Classifier { channels, weight: weight.view(), bias: bias.view(), targets: &targets };
        let mut dh: DeviceBuffer<f32> = device.buffer(vertices * channels)?;
        let mut dweight: DeviceBuffer<f32> = device.buffer(classes * channels + 1)?;
        let mut dbias: DeviceBuffer<f32> = device.buffer(classes)?;
        let products = 6.0 * (vertices * classes * channels) as f64;
        let default_tile = device.tile_bytes();
        for &(mode, tile) in modes {
            device.set_product_mode(mode);
            device.set_tile_bytes(tile << 20);
            // On Hopper, gradients of weights that are not aligned take the way with stored logits.
            for shift in 0..if mode == ProductMode::F32 { 1 } else { 2 } {
                let time = self.time(|_| {
                    let gradients = classifier::Gradients {
                        features: dh.view_mut(),
                        weight: dweight.view_mut().slice(shift..classes * channels + shift),
                        bias: dbias.view_mut(),
                    };
                    let rows = classifier::cuda::Rows::default();
                    classifier::cuda::loss_and_gradients(&device, &map, h.view(), 1.0, gradients, rows).map(drop)
                })?;
                let label = format!(
                    "classifier {channels} to {classes}, {vertices} vertices, {mode:?}, {tile} MiB tiles{}",
                    if shift > 0 { ", logits stored" } else { "" }
                );
                let work = Work { bytes: 8.0 * (vertices * channels) as f64, operations: products };
                self.line(&label, time, work);
            }
        }
        device.set_tile_bytes(default_tile);
        device.set_product_mode(ProductMode::Tf32);
        Ok(())
    }
}
