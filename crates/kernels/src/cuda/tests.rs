//! Every operator on a GPU, forward and backward, against the versions in f64 on the CPU.
//!
//! Without a GPU these tests are skipped and say why; with `GEMCNN_REQUIRE_CUDA=1` they fail instead.
//!
//! Every check runs with products in f32, tf32 and bf16, with one tile and with many small tiles, and twice:
//! both runs must give the same bits. Results are filled with NaN before, so that a number that is not
//! written is found.

mod attention;
mod chain;
mod compile;
mod dense;
mod device;
mod diffusion_net;
#[cfg(feature = "cuda")]
mod foreign;
mod graphs;
mod implicit;
mod losses;
mod messages;
mod missing;
mod pointwise;
mod primitives;

use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceGraph, DeviceGraphView, DeviceSlice, DeviceSliceMut, ProductMode,
};
use crate::random::Stream;
use crate::testing::parts;
use crate::{
    Activation, Aggregation, Executor, FeatureType, GraphArrays, GraphParts, GraphView, HostScratch, KernelError,
    OnDevice, Resolve, Scratch, View, ViewMut, activation, aggregate, batch_norm, classifier, cross_entropy, dropout,
    elementwise, gauge_conv, linear, norm_gate, pool, regression, regular, self_map,
};
use gemcnn_fixtures::{shaken, weighted};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh, NeighbourWeights};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest relative error with products in f32, in tf32, and in bf16.
const F32: f64 = 1e-5;
const TF32: f64 = 3e-3;
const BF16: f64 = 2e-2;

/// A value that needs a GPU or NVRTC. Where one is missing the test is skipped; with
/// `GEMCNN_REQUIRE_CUDA=1` it fails.
fn available<T>(result: Result<T, CudaError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if std::env::var("GEMCNN_REQUIRE_CUDA").is_ok_and(|value| value == "1") => {
            panic!("GEMCNN_REQUIRE_CUDA=1: {error}")
        }
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn device() -> Option<CudaDevice> {
    available(CudaDevice::new(0))
}

/// Numbers in [-1, 1) that f32 holds exactly.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| (2.0 * rng.random::<f64>() - 1.0) as f32).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

/// What went wrong in one test, told at its end.
struct Checks {
    device: CudaDevice,
    failures: Vec<String>,
    worst: [f64; 3],
    count: usize,
}

impl Checks {
    fn new(device: CudaDevice) -> Self {
        Self { device, failures: Vec::new(), worst: [0.0; 3], count: 0 }
    }

    /// Runs `work` in all modes and compares its results with what is expected.
    fn check<const N: usize>(
        &mut self,
        what: &str,
        expected: [(&str, &[f64]); N],
        work: impl Fn(&CudaDevice) -> [DeviceBuffer<f32>; N],
    ) {
        let device = self.device.clone();
        let default_tile = device.tile_bytes();
        let modes = [(ProductMode::F32, F32), (ProductMode::Tf32, TF32), (ProductMode::Bf16, BF16)];
        for (place, (mode, tolerance)) in modes.into_iter().enumerate() {
            device.set_product_mode(mode);
            for tile in [default_tile, 1 << 16] {
                device.set_tile_bytes(tile);
                let read = || work(&device).map(|buffer| buffer.to_vec(&device).unwrap());
                let (first, second) = (read(), read());
                for ((name, expected), (found, again)) in expected.iter().zip(first.iter().zip(&second)) {
                    let label = format!("{what}, {name}, {mode:?}, tiles of {tile} bytes");
                    let error = relative_error(found, expected);
                    self.worst[place] = self.worst[place].max(error);
                    self.count += 1;
                    // NaN is not below any tolerance.
                    if error.is_nan() || error > tolerance {
                        self.failures.push(format!("{label}: relative error {error:e}"));
                    }
                    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|value| value.to_bits()).collect() };
                    if bits(found) != bits(again) {
                        self.failures.push(format!("{label}: two runs differ"));
                    }
                }
            }
        }
        device.set_tile_bytes(default_tile);
    }

    /// The same, where the expected results are those of the same work on the host in f64.
    fn compare<const N: usize>(&mut self, what: &str, names: [&str; N], work: impl Fn(&mut Place<'_>) -> [Numbers; N]) {
        let expected = work(&mut Place::default()).map(|numbers| numbers.0.host().unwrap());
        let expected = std::array::from_fn(|place| (names[place], &expected[place][..]));
        self.check(what, expected, |device| {
            work(&mut Place { device: Some(device), ..Place::default() }).map(|numbers| numbers.0.cuda().unwrap())
        });
    }

    fn finish(self, operator: &str) {
        println!(
            "{operator}: {} comparisons, largest relative error {:.2e} (f32), {:.2e} (tf32), {:.2e} (bf16)",
            self.count, self.worst[0], self.worst[1], self.worst[2]
        );
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
    }
}

/// Where a test runs passes: on the host in f64, or on a device.
#[derive(Default)]
struct Place<'d> {
    device: Option<&'d CudaDevice>,
    narrow: Scratch<f64>,
    wide: Scratch<f64>,
}

impl Place<'_> {
    fn numbers(&self, values: &[f32]) -> Numbers {
        Numbers(match self.device {
            None => OnDevice::Host(wide(values)),
            Some(device) => OnDevice::Cuda(device.upload(values).unwrap()),
        })
    }

    fn random(&self, count: usize, seed: u64) -> Numbers {
        self.numbers(&random(count, seed))
    }

    fn filled(&self, count: usize, value: f32) -> Numbers {
        self.numbers(&vec![value; count])
    }

    /// To be overwritten.
    fn nan(&self, count: usize) -> Numbers {
        self.filled(count, f32::NAN)
    }

    fn graph<'g>(
        &self,
        graph: &'g Graph,
        on_device: &'g DeviceGraph,
    ) -> OnDevice<GraphView<'g, f64>, DeviceGraphView<'g>> {
        match self.device {
            None => OnDevice::Host(graph.wide.view()),
            Some(_) => OnDevice::Cuda(on_device.view()),
        }
    }

    fn executor(&mut self) -> Executor<'_, f64> {
        match self.device {
            None => Executor::Host(HostScratch { narrow: &mut self.narrow, wide: &mut self.wide }),
            Some(device) => Executor::Cuda(device),
        }
    }
}

/// Numbers in the memory of a [`Place`].
struct Numbers(OnDevice<Vec<f64>, DeviceBuffer<f32>>);

impl Numbers {
    fn view(&self) -> View<'_, f64> {
        match &self.0 {
            OnDevice::Host(numbers) => OnDevice::Host(numbers),
            OnDevice::Cuda(numbers) => OnDevice::Cuda(numbers.view()),
        }
    }

    fn view_mut(&mut self) -> ViewMut<'_, f64> {
        match &mut self.0 {
            OnDevice::Host(numbers) => OnDevice::Host(numbers),
            OnDevice::Cuda(numbers) => OnDevice::Cuda(numbers.view_mut()),
        }
    }
}

/// `|found - expected| / |expected|`, where numbers below a tenth on average count as a tenth.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    if found.is_empty() {
        return 0.0;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(&f, e)| f64::from(f) - e));
    let size = squares(&mut expected.iter().copied());
    (difference / size.max(0.01 * found.len() as f64)).sqrt()
}

/// A buffer full of NaN.
fn poisoned(device: &CudaDevice, count: usize) -> DeviceBuffer<f32> {
    device.upload(&vec![f32::NAN; count]).unwrap()
}

/// With one that has many blocks.
fn gauge_graphs(weights: NeighbourWeights) -> Vec<(&'static str, GaugeGraph)> {
    let large = shaken(shapes::grid(47, 53, Cells::Triangles).unwrap(), 3);
    let large = GaugeGraph::new(&large, &weighted(weights)).unwrap();
    let mut graphs = gemcnn_fixtures::gauge_graphs(weights);
    graphs.push(("large", large));
    graphs
}

/// A graph in both precisions.
struct Graph {
    name: &'static str,
    narrow: GraphArrays<f32>,
    wide: GraphArrays<f64>,
}

/// Graphs one by one, and an unequal batch of all of them.
fn graphs() -> Vec<Graph> {
    weighted_graphs(NeighbourWeights::Count)
}

/// The same with weights of the neighbours.
fn weighted_graphs(weights: NeighbourWeights) -> Vec<Graph> {
    let graphs = gauge_graphs(weights);
    let union = |name, members: &[GraphParts<'_>]| Graph {
        name,
        narrow: GraphArrays::union(members).unwrap(),
        wide: GraphArrays::union(members).unwrap(),
    };
    let mut all: Vec<Graph> = graphs.iter().map(|(name, graph)| union(name, &[parts(graph)])).collect();
    let small: Vec<GraphParts<'_>> = graphs[..5].iter().map(|(_, graph)| parts(graph)).collect();
    all.push(union("unequal batch", &small));
    all
}

const AGGREGATIONS: [Aggregation; 3] = [Aggregation::Sum, Aggregation::Mean, Aggregation::MeanWithSelf];

/// Numbers of rows of operators that work row by row.
const ROWS: [usize; 5] = [0, 1, 63, 500, 2111];
