//! The benchmark of `gemcnn bench`: geometry, one convolution, inference and training steps.
//!
//! A [`Row`] holds the time of one case and the minimal memory traffic and arithmetic of that case ([`Work`]).
//! It compares them with the rates of a large copy and a large matrix product in the same run ([`Limits`]).

mod clock;
mod convolution;
mod machine;
mod memory;
mod network;
mod work;

pub use convolution::{Convolution, ConvolutionResults, convolution};
pub use machine::{Gpu, Limits, Machine};
pub use memory::PeakMemory;
pub use work::Work;

use clock::{Clock, Timing};
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{Device, GraphBatch, NnError};
use gemcnn_tasks::TaskError;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Extent of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// One mesh and few repeats. Takes a few seconds.
    Quick,
    /// Batches of one and of eight meshes. Takes less than a minute on two cores.
    #[default]
    Standard,
    /// Also meshes of 1e3 to 1e6 vertices, and of 1e7 vertices on a GPU. The largest needs at least 20 GB of main
    /// memory.
    Large,
}

impl Extent {
    /// Time per row in seconds.
    fn budget(self) -> f64 {
        match self {
            Self::Quick => 0.2,
            Self::Standard | Self::Large => 1.0,
        }
    }

    /// Batch sizes.
    fn batches(self) -> &'static [usize] {
        match self {
            Self::Quick => &[1],
            Self::Standard | Self::Large => &[1, 8],
        }
    }

    /// Segments around and along tori of about 1e3 to 1e6 vertices, and of 1e7 vertices on a GPU.
    fn growing_tori(self, device: &Device) -> &'static [(usize, usize)] {
        const TORI: [(usize, usize); 5] =
            [(50, 20), (160, 63), (500, 200), (1582, 632), (5000, 2000)];
        match (self, device) {
            (Self::Quick | Self::Standard, _) => &[],
            (Self::Large, Device::Cpu) => &TORI[..4],
            (Self::Large, Device::Cuda(_)) => &TORI,
        }
    }
}

/// A case of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// The gauge graph of a mesh, on the CPU.
    Geometry,
    /// Forward pass of a convolution from `16x(0,1,2)` to the same type, with self term and bias.
    ConvolutionForward,
    /// Forward and backward pass of the same convolution.
    ConvolutionForwardBackward,
    /// A training step of the correspondence network: forward pass, backward pass and Adam.
    TrainingStep,
    /// The same step as a CUDA graph, recorded once and replayed.
    ReplayedTrainingStep,
    /// Forward pass of six convolutions `16x(0,1,2)`, each with a nonlinearity.
    Inference,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Geometry => "geometry",
            Self::ConvolutionForward => "convolution, forward",
            Self::ConvolutionForwardBackward => "convolution, forward + backward",
            Self::TrainingStep => "training step",
            Self::ReplayedTrainingStep => "training step, replayed",
            Self::Inference => "inference, 6 layers",
        })
    }
}

/// The measurements of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The case.
    pub work: Case,
    /// Device: `cpu` or `cuda:N`.
    pub device: String,
    /// Number of vertices of all meshes together.
    pub vertices: usize,
    /// Number of timings. On a GPU each timing is the mean of a group of calls.
    pub repeats: usize,
    /// Median time in milliseconds.
    pub median_ms: f64,
    /// Minimum time in milliseconds.
    pub minimum_ms: f64,
    /// Median time per vertex in nanoseconds.
    pub ns_per_vertex: f64,
    /// Minimal memory traffic in bytes.
    pub bytes: u64,
    /// Floating point operations of the matrix products.
    pub flops: u64,
    /// `bytes` divided by the median time in seconds.
    pub bytes_per_s: f64,
    /// `flops` divided by the median time in seconds.
    pub flops_per_s: f64,
    /// Smallest possible time at the rates of the machine, as a fraction of the median time.
    pub limit_fraction: f64,
    /// Peak memory of training steps: of the process on the CPU, if the operating system reports it, and of the
    /// memory pool of the device on a GPU.
    pub peak_bytes: Option<usize>,
}

impl Row {
    fn new(case: Case, limits: &Limits, vertices: usize, work: Work, timing: Timing) -> Self {
        let per_second = |amount: u64| amount as f64 / timing.median;
        Self {
            work: case,
            device: limits.device.clone(),
            vertices,
            repeats: timing.repeats,
            median_ms: 1e3 * timing.median,
            minimum_ms: 1e3 * timing.minimum,
            ns_per_vertex: 1e9 * timing.median / vertices as f64,
            bytes: work.bytes,
            flops: work.flops,
            bytes_per_s: per_second(work.bytes),
            flops_per_s: per_second(work.flops),
            limit_fraction: limits.seconds(work) / timing.median,
            peak_bytes: None,
        }
    }
}

/// Results of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of `gemcnn`.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Rates of the CPU, and of the GPU if the benchmark used one.
    pub limits: Vec<Limits>,
    /// Measurements, one row per case and mesh size.
    pub rows: Vec<Row>,
}

impl Report {
    /// Chart of the time per vertex over the number of vertices. A horizontal line means linear cost.
    pub fn figure(&self) -> Chart {
        let panel = Panel::new(
            format!("{}, {} threads", self.name(), self.machine.threads),
            Axis::log("vertices"),
            Axis::log("nanoseconds per vertex"),
        );
        let mut works: Vec<Case> = Vec::new();
        for row in &self.rows {
            if !works.contains(&row.work) {
                works.push(row.work);
            }
        }
        let panel = works.into_iter().fold(panel, |panel, work| {
            let rows = self.rows.iter().filter(|row| row.work == work);
            let mut points: Vec<(f64, f64)> = rows
                .map(|row| (row.vertices as f64, row.ns_per_vertex))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            panel.series(Series::new(work.to_string(), points))
        });
        Chart::new("Time per vertex over the size of the mesh").panel(panel)
    }

    /// Name of the device that ran the networks.
    fn name(&self) -> &str {
        let gpu = self.machine.gpu.as_ref().map(|gpu| gpu.name.as_str());
        gpu.or(self.machine.cpu.as_deref()).unwrap_or("CPU")
    }
}

/// Runs the benchmark: geometry on the CPU, everything else on `device` with its precision of products.
///
/// # Errors
/// A GPU operation fails or runs out of memory.
pub fn run(device: &Device, extent: Extent) -> Result<Report, TaskError> {
    let cpu = Bench::new(&Device::Cpu, extent)?;
    let (mesh, graph) = body()?;
    let mut rows = vec![geometry(&cpu, &mesh, &graph)?];
    let bench = match device {
        Device::Cpu => cpu.clone(),
        Device::Cuda(_) => Bench::new(device, extent)?,
    };
    for &meshes in extent.batches() {
        let batch = Arc::new(GraphBatch::<f32>::new(vec![&graph; meshes])?);
        rows.extend(convolution::rows(&bench, &batch)?);
        rows.push(network::inference(&bench, &batch)?);
        rows.extend(network::training_steps(&bench, batch)?);
    }
    for &(around, along) in extent.growing_tori(device) {
        let mesh = closed_mesh(around, along)?;
        let graph = gauge_graph(&mesh)?;
        if bench.device == Device::Cpu {
            rows.push(geometry(&cpu, &mesh, &graph)?);
        }
        let batch = Arc::new(GraphBatch::<f32>::new([&graph])?);
        drop((mesh, graph));
        rows.extend(convolution::rows(&bench, &batch)?);
        rows.push(network::inference(&bench, &batch)?);
    }
    let mut limits = vec![cpu.limits];
    if bench.device != Device::Cpu {
        limits.push(bench.limits);
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::new(device),
        limits,
        rows,
    })
}

/// Device and time budget of the measurements.
#[derive(Debug, Clone)]
struct Bench {
    device: Device,
    limits: Limits,
    /// Time per row in seconds.
    budget: f64,
}

impl Bench {
    fn new(device: &Device, extent: Extent) -> Result<Self, TaskError> {
        Ok(Self {
            device: device.clone(),
            limits: Limits::measure(device)?,
            budget: extent.budget(),
        })
    }

    /// Times `call`, whose argument counts the calls from 0.
    fn row(
        &self,
        case: Case,
        vertices: usize,
        work: Work,
        call: impl FnMut(usize) -> Result<(), NnError>,
    ) -> Result<Row, NnError> {
        let timing = Clock::new(&self.device)?.measure(self.budget, call)?;
        Ok(Row::new(case, &self.limits, vertices, work, timing))
    }
}

/// A torus with the 6,890 vertices of a FAUST registration.
fn body() -> Result<(Mesh, GaugeGraph), TaskError> {
    let mesh = closed_mesh(130, 53)?;
    let graph = gauge_graph(&mesh)?;
    Ok((mesh, graph))
}

fn closed_mesh(around: usize, along: usize) -> Result<Mesh, TaskError> {
    torus(around, along, 1.0, 0.4, Cells::Triangles)
        .map_err(|error| TaskError::setting("benchmark mesh", error.to_string()))
}

fn gauge_graph(mesh: &Mesh) -> Result<GaugeGraph, NnError> {
    Ok(GaugeGraph::new(mesh, &GeometryOptions::default())?)
}

fn geometry(cpu: &Bench, mesh: &Mesh, graph: &GaugeGraph) -> Result<Row, NnError> {
    let work = work::geometry(mesh, graph);
    cpu.row(Case::Geometry, graph.vertex_count(), work, |_| {
        std::hint::black_box(gauge_graph(mesh)?);
        Ok(())
    })
}

fn graph_size(batch: &GraphBatch<f32>) -> work::GraphSize {
    work::GraphSize {
        vertices: batch.vertex_count() as u64,
        edges: batch.arrays().edge_count() as u64,
    }
}

/// Deterministic test data in [-1, 1].
fn numbers(count: usize) -> Vec<f32> {
    let number = |place: usize| ((place * 7919) % 1009) as f32 / 504.0 - 1.0;
    (0..count).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_near_the_limit_is() {
        let limits = Limits {
            device: "cpu".into(),
            matmul: "f32",
            copy_bytes_per_s: 1e9,
            product_flops_per_s: 1e11,
        };
        let work = Work {
            bytes: 1_000_000,
            flops: 200_000_000,
        };
        let timing = Timing {
            median: 4e-3,
            minimum: 3e-3,
            repeats: 5,
        };
        let row = Row::new(Case::ConvolutionForward, &limits, 1000, work, timing);
        // The product takes at least 2 ms, the copy at least 1 ms.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert!(near(row.limit_fraction, 0.5), "{row:?}");
        assert!(near(row.bytes_per_s, 2.5e8) && near(row.flops_per_s, 5e10));
        assert!(near(row.median_ms, 4.0) && near(row.minimum_ms, 3.0));
        assert!(near(row.ns_per_vertex, 4000.0));
    }

    #[test]
    fn the_figure_has_a_line_for_each_piece_of_work() {
        let row = |work, vertices: usize| Row {
            vertices,
            ..Row::new(
                work,
                &Limits {
                    device: "cpu".into(),
                    matmul: "f32",
                    copy_bytes_per_s: 1e9,
                    product_flops_per_s: 1e9,
                },
                vertices,
                Work::default(),
                Timing {
                    median: 1e-3,
                    minimum: 1e-3,
                    repeats: 1,
                },
            )
        };
        let report = Report {
            version: "0",
            machine: Machine::new(&Device::Cpu),
            limits: Vec::new(),
            rows: vec![
                row(Case::Inference, 1000),
                row(Case::Geometry, 10),
                row(Case::Inference, 10),
            ],
        };
        let drawn = report.figure().to_svg();
        for text in ["inference, 6 layers", "geometry", "nanoseconds per vertex"] {
            assert!(drawn.contains(text), "{text}");
        }
    }

    #[test]
    fn numbers_fill_their_range() {
        let values = numbers(2018);
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
        assert!(values.contains(&-1.0) && values.contains(&1.0));
    }
}
