//! Benchmark: from geometry to whole training steps.
//!
//! Every row is one piece of work with its time, the least number of bytes and operations that it needs
//! ([`Work`]), and the fraction of the machine's limit that it reaches: the rates of a large copy and of a
//! large matrix product ([`Limits`]), measured in the same run.

mod clock;
mod convolution;
mod machine;
mod memory;
mod network;
mod passes;
mod work;

pub use convolution::{Convolution, ConvolutionResults, convolution};
pub use machine::{Gpu, Limits, Machine};
pub use memory::PeakMemory;
pub use passes::{PassResults, Passes};
pub use work::Work;

use clock::{Clock, Timing};
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Hierarchy, Mesh};
use gemcnn_nn::{Device, Geometry, GraphBatch, NnError};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::Preparation;
use gemcnn_tasks::models::{Model, UNetModel};
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// One mesh and few repeats: some seconds.
    Quick,
    /// Batches of one and of eight meshes: about a minute on two cores.
    #[default]
    Standard,
    /// Also meshes of 1e3 to 1e6 vertices, and of 1e7 on a GPU, which needs at least 20 GB of main memory.
    Large,
}

impl Extent {
    /// Seconds for a row.
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

    /// Segments of tori of about 1e3 to 1e6 vertices, and 1e7 on a GPU.
    fn growing_tori(self, device: &Device) -> &'static [(usize, usize)] {
        const TORI: [(usize, usize); 5] = [(50, 20), (160, 63), (500, 200), (1582, 632), (5000, 2000)];
        match (self, device) {
            (Self::Quick | Self::Standard, _) => &[],
            (Self::Large, Device::Cpu) => &TORI[..4],
            (Self::Large, Device::Cuda(_)) => &TORI,
        }
    }
}

/// The kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// From vertices and faces to the gauge graph, on the CPU.
    Geometry,
    /// A convolution `16x(0,1,2)` to the same, with self term and bias.
    ConvolutionForward,
    /// The same with its backward pass.
    ConvolutionForwardBackward,
    /// Attention with two heads, `16x(0,1,2)` to the same.
    AttentionForward,
    /// The same with its backward pass.
    AttentionForwardBackward,
    /// A block of messages with two layers each for edges and vertices, `16x(0,1,2)` to the same.
    MessagesForward,
    /// The same with its backward pass.
    MessagesForwardBackward,
    /// The forward pass of the correspondence network.
    CorrespondenceInference,
    /// A training step of the correspondence network: forward, backward and Adam.
    TrainingStep,
    /// The same on a GPU, captured once as a CUDA graph and replayed.
    ReplayedTrainingStep,
    /// A training step of the default U-net for correspondence.
    UnetTrainingStep,
    /// The same on a GPU, captured once as a CUDA graph and replayed.
    ReplayedUnetTrainingStep,
    /// The forward pass of six convolutions `16x(0,1,2)`, each with a nonlinearity.
    Inference,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Geometry => "geometry",
            Self::ConvolutionForward => "convolution, forward",
            Self::ConvolutionForwardBackward => "convolution, forward + backward",
            Self::AttentionForward => "attention, forward",
            Self::AttentionForwardBackward => "attention, forward + backward",
            Self::MessagesForward => "messages, forward",
            Self::MessagesForwardBackward => "messages, forward + backward",
            Self::CorrespondenceInference => "correspondence, inference",
            Self::TrainingStep => "training step",
            Self::ReplayedTrainingStep => "training step, replayed",
            Self::UnetTrainingStep => "U-net training step",
            Self::ReplayedUnetTrainingStep => "U-net training step, replayed",
            Self::Inference => "inference, 6 layers",
        })
    }
}

/// One measured piece of work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Kind of work.
    pub work: Case,
    /// Device: `cpu` or `cuda:N`.
    pub device: String,
    /// Vertices of all meshes of the batch.
    pub vertices: usize,
    /// Number of timings. On a GPU each is the mean of a group of calls.
    pub repeats: usize,
    /// Median of the times.
    pub median_ms: f64,
    /// Minimum of the times.
    pub minimum_ms: f64,
    /// Median time per vertex.
    pub ns_per_vertex: f64,
    /// Least number of bytes to move; 0 if not counted.
    pub bytes: u64,
    /// Least number of operations; 0 if not counted.
    pub flops: u64,
    /// Bytes per second at the median time.
    pub bytes_per_s: f64,
    /// Operations per second at the median time.
    pub flops_per_s: f64,
    /// Least time that the limits of the machine allow, as a fraction of the median.
    pub limit_fraction: f64,
    /// Peak memory of training steps: of the process on the CPU, if the system reports it, and of the memory
    /// pool on a GPU.
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
    /// Version of this library.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Limits of each device: the CPU, and the GPU if one is measured.
    pub limits: Vec<Limits>,
    /// One row for each piece of work.
    pub rows: Vec<Row>,
}

impl Report {
    /// A plot of the time per vertex against the number of vertices. A horizontal line means linear time.
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
            let mut points: Vec<(f64, f64)> = rows.map(|row| (row.vertices as f64, row.ns_per_vertex)).collect();
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

/// Measures geometry on the CPU, and everything else on `device`, with matrix products in its present mode.
///
/// # Errors
/// Work on a GPU that failed, or too little memory there.
pub fn run(device: &Device, extent: Extent) -> Result<Report, TaskError> {
    let cpu = Bench::new(&Device::Cpu, extent)?;
    let (mesh, graph) = body()?;
    let mut rows = vec![geometry(&cpu, &mesh, &graph)?];
    let bench = match device {
        Device::Cpu => cpu.clone(),
        Device::Cuda(_) => Bench::new(device, extent)?,
    };
    let hierarchy = hierarchy(&mesh)?;
    for &meshes in extent.batches() {
        let graphs = Arc::new(Geometry::from(GraphBatch::new(vec![&graph; meshes])?));
        rows.extend(convolution::rows(&bench, &graphs)?);
        rows.extend(passes::rows(&bench, &graphs)?);
        rows.push(network::inference(&bench, &graphs)?);
        rows.extend(network::correspondence_steps(&bench, Arc::clone(&graphs))?);
        rows.push(network::correspondence_inference(&bench, &graphs)?);
        let hierarchies = Geometry::new(vec![&*hierarchy; meshes])?;
        rows.extend(network::unet_steps(&bench, hierarchies.into())?);
    }
    for &(around, along) in extent.growing_tori(device) {
        let mesh = closed_mesh(around, along)?;
        let graph = gauge_graph(&mesh)?;
        if bench.device == Device::Cpu {
            rows.push(geometry(&cpu, &mesh, &graph)?);
        }
        let graphs = Arc::new(Geometry::from(GraphBatch::new([&graph])?));
        drop((mesh, graph));
        rows.extend(convolution::rows(&bench, &graphs)?);
        rows.push(network::inference(&bench, &graphs)?);
    }
    let mut limits = vec![cpu.limits];
    if bench.device != Device::Cpu {
        limits.push(bench.limits);
    }
    Ok(Report { version: env!("CARGO_PKG_VERSION"), machine: Machine::new(device), limits, rows })
}

/// The device, its limits and the time for a row.
#[derive(Debug, Clone)]
struct Bench {
    device: Device,
    limits: Limits,
    /// Seconds for a row.
    budget: f64,
}

impl Bench {
    fn new(device: &Device, extent: Extent) -> Result<Self, TaskError> {
        Ok(Self { device: device.clone(), limits: Limits::measure(device)?, budget: extent.budget() })
    }

    /// Times `call`, which is given its number. On the CPU, it is called on a thread of the rayon pool.
    fn row(
        &self,
        case: Case,
        vertices: usize,
        work: Work,
        call: impl FnMut(usize) -> Result<(), NnError> + Send,
    ) -> Result<Row, NnError> {
        let measure = || Clock::new(&self.device)?.measure(self.budget, call);
        let timing = self.device.run(measure)?;
        Ok(Row::new(case, &self.limits, vertices, work, timing))
    }
}

/// A closed mesh of the size of a scanned body: 6,890 vertices.
fn body() -> Result<(Mesh, GaugeGraph), TaskError> {
    let mesh = closed_mesh(130, 53)?;
    let graph = gauge_graph(&mesh)?;
    Ok((mesh, graph))
}

fn closed_mesh(around: usize, along: usize) -> Result<Mesh, TaskError> {
    torus(around, along, 1.0, 0.4, Cells::Triangles)
        .map_err(|error| TaskError::setting("benchmark mesh", error.to_string()))
}

/// The coarser graphs that the U-net needs.
fn hierarchy(mesh: &Mesh) -> Result<Arc<Hierarchy>, TaskError> {
    let preparation = Preparation { hierarchy: UNetModel::default().hierarchy(), ..Preparation::default() };
    Ok(preparation.prepare("torus", mesh)?.hierarchy)
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
    work::GraphSize { vertices: batch.vertex_count() as u64, edges: batch.edge_count() as u64 }
}

/// Varied numbers in [-1, 1].
fn numbers(count: usize) -> Vec<f32> {
    let number = |place: usize| ((place * 7919) % 1009) as f32 / 504.0 - 1.0;
    (0..count).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_fraction_of_the_limit() {
        let limits = Limits { device: "cpu".into(), matmul: "f32", copy_bytes_per_s: 1e9, product_flops_per_s: 1e11 };
        let work = Work { bytes: 1_000_000, flops: 200_000_000 };
        let timing = Timing { median: 4e-3, minimum: 3e-3, repeats: 5 };
        let row = Row::new(Case::ConvolutionForward, &limits, 1000, work, timing);
        // The product needs at least 2 ms, the copy 1 ms.
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
                &Limits { device: "cpu".into(), matmul: "f32", copy_bytes_per_s: 1e9, product_flops_per_s: 1e9 },
                vertices,
                Work::default(),
                Timing { median: 1e-3, minimum: 1e-3, repeats: 1 },
            )
        };
        let report = Report {
            version: "0",
            machine: Machine::new(&Device::Cpu),
            limits: Vec::new(),
            rows: vec![row(Case::Inference, 1000), row(Case::Geometry, 10), row(Case::Inference, 10)],
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
