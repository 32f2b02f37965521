//! Benchmark: from geometry to whole training steps.
//!
//! Every row is one piece of work with its time, the least number of bytes and operations that it needs
//! ([`Cost`]), and the fraction of the machine's limit that it reaches: the rates of a large copy and of a
//! large matrix product ([`Limits`]), measured in the same run.

mod case;
mod clock;
mod convolution;
mod cost;
mod job;
mod layers;
mod machine;
mod memory;
mod operators;
mod worker;

pub use cost::Cost;
pub use machine::{Gpu, Limits, Machine};
pub use worker::serve;

use case::{BODY, Passes, Work, Works, closed_mesh, gauge_graph};
use clock::{Clock, Timing};
use cost::GraphSize;
use gemcnn_mesh::Mesh;
use gemcnn_nn::{Device, FeatureType, Geometry, GraphBatch, Levels, NnError, ProductMode};
use gemcnn_tasks::data::Preparation;
use gemcnn_tasks::models::{Model, ModelSpec, UNetModel};
use gemcnn_tasks::{Element, ModelConfig, Task, TaskError};
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use job::{Job, Setup, Step, prepare};
use memory::PeakMemory;
use serde::Serialize;
use std::hint::black_box;
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

    /// Approximate numbers of vertices from 1e3 to 1e6, and 1e7 on a GPU.
    fn growing_sizes(self, device: &Device) -> &'static [usize] {
        const SIZES: [usize; 5] = [1_000, 10_080, 100_000, 1_000_000, 10_000_000];
        match (self, device) {
            (Self::Quick | Self::Standard, _) => &[],
            (Self::Large, Device::Cpu) => &SIZES[..4],
            (Self::Large, Device::Cuda(_)) => &SIZES,
        }
    }
}

/// One measured piece of work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the work.
    pub work: String,
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
    fn new(work: &str, limits: &Limits, vertices: usize, cost: Cost, timing: Timing) -> Self {
        let per_second = |amount: u64| amount as f64 / timing.median;
        Self {
            work: work.into(),
            device: limits.device.clone(),
            vertices,
            repeats: timing.repeats,
            median_ms: 1e3 * timing.median,
            minimum_ms: 1e3 * timing.minimum,
            ns_per_vertex: 1e9 * timing.median / vertices as f64,
            bytes: cost.bytes,
            flops: cost.flops,
            bytes_per_s: per_second(cost.bytes),
            flops_per_s: per_second(cost.flops),
            limit_fraction: limits.seconds(cost) / timing.median,
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
        let mut works: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !works.contains(&&*row.work) {
                works.push(&row.work);
            }
        }
        let panel = works.into_iter().fold(panel, |panel, work| {
            let rows = self.rows.iter().filter(|row| row.work == work);
            let mut points: Vec<(f64, f64)> = rows.map(|row| (row.vertices as f64, row.ns_per_vertex)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            panel.series(Series::new(work.replace('_', " "), points))
        });
        Chart::new("Time per vertex over the size of the mesh").panel(panel)
    }

    /// Name of the device that ran the networks.
    fn name(&self) -> &str {
        let gpu = self.machine.gpu.as_ref().map(|gpu| gpu.name.as_str());
        gpu.or(self.machine.cpu.as_deref()).unwrap_or("CPU")
    }
}

/// Number of feature sets that calls of a convolution cycle through, so that small inputs do not stay in a cache.
const SETS: usize = 4;
/// Inputs of at least this many vertices do not fit in a cache: one set is enough.
const LARGE: usize = 100_000;

/// Measures rows whose names begin with one of `names`, or the standard rows if there are none: geometry on the CPU, and
/// networks on `device`.
///
/// # Errors
/// No row of such a name, work on a GPU that failed, or too little memory there.
pub fn run(device: &Device, products: ProductMode, extent: Extent, names: &[String]) -> Result<Report, TaskError> {
    let mut limits = vec![Limits::measure(&Device::Cpu)?];
    if *device != Device::Cpu {
        limits.push(Limits::measure(device)?);
    }
    let mut bench = Bench { device, products, extent, names, limits, rows: Vec::new() };
    let works = Works::new()?;
    let mesh = closed_mesh(BODY)?;
    bench.geometry("geometry", &mesh)?;
    let graph = gauge_graph(&mesh)?;
    for &meshes in extent.batches() {
        let graphs = Arc::new(Geometry::from(GraphBatch::new(vec![&graph; meshes])?));
        for work in &works.networks {
            bench.network(work, &graphs)?;
        }
        bench.unet(&mesh, meshes)?;
    }
    for &vertices in extent.growing_sizes(device) {
        let mesh = closed_mesh(vertices)?;
        if *device == Device::Cpu {
            bench.geometry("geometry", &mesh)?;
        }
        let graphs = Arc::new(Geometry::from(GraphBatch::new([&gauge_graph(&mesh)?])?));
        drop(mesh);
        for work in works.networks.iter().filter(|work| work.large) {
            bench.network(work, &graphs)?;
        }
    }
    operators::rows(&mut bench, &works)?;
    if bench.rows.is_empty() {
        let problem = format!("no row has a name that begins with {}", names.join(" or "));
        return Err(TaskError::setting("benchmark", problem));
    }
    let (version, machine) = (env!("CARGO_PKG_VERSION"), Machine::new(device));
    Ok(Report { version, machine, limits: bench.limits, rows: bench.rows })
}

/// The rows so far, and how to measure more.
struct Bench<'b> {
    device: &'b Device,
    products: ProductMode,
    extent: Extent,
    /// Beginnings of the names of wanted rows; empty for the standard ones.
    names: &'b [String],
    /// Of the CPU, and of the GPU if one is measured.
    limits: Vec<Limits>,
    rows: Vec<Row>,
}

impl Bench<'_> {
    /// True if a row is wanted.
    fn wants(&self, name: &str, is_standard: bool) -> bool {
        match self.names {
            [] => is_standard,
            names => names.iter().any(|wanted| name.starts_with(wanted)),
        }
    }

    /// True if a row of a group, whose names have a common beginning, may be wanted.
    fn wants_some(&self, group: &str) -> bool {
        self.names.iter().any(|wanted| group.starts_with(wanted) || wanted.starts_with(group))
    }

    fn setup(&self) -> Setup {
        Setup { device: self.device.clone(), products: self.products, sets: 1, captures: false }
    }

    /// Times `call`. On the CPU, it is called on a thread of the rayon pool.
    fn row(
        &mut self,
        name: &str,
        device: &Device,
        vertices: usize,
        cost: Cost,
        call: impl FnMut() -> Result<(), NnError> + Send,
    ) -> Result<&mut Row, NnError> {
        let (cpu, last) = (&self.limits[0], self.limits.len() - 1);
        let limits = if *device == Device::Cpu { cpu } else { &self.limits[last] };
        let budget = self.extent.budget();
        let timing = device.run(|| Clock::new(device)?.measure(budget, call))?;
        let index = self.rows.len();
        self.rows.push(Row::new(name, limits, vertices, cost, timing));
        Ok(&mut self.rows[index])
    }

    fn geometry(&mut self, name: &str, mesh: &Mesh) -> Result<(), TaskError> {
        if self.wants(name, true) {
            let cost = cost::geometry(mesh, &gauge_graph(mesh)?);
            self.row(name, &Device::Cpu, mesh.vertex_count(), cost, || {
                black_box(gauge_graph(mesh)?);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The row of a network, or two of training steps on a GPU.
    fn network(&mut self, work: &Work, graphs: &Arc<Geometry<f32>>) -> Result<(), TaskError> {
        let Some(name) = work.row.as_ref().filter(|name| self.wants(name, !work.on_request)) else { return Ok(()) };
        let graph = Levels::from(&**graphs).graph()?;
        let size = GraphSize { vertices: graph.vertex_count() as u64, edges: graph.edge_count() as u64 };
        let (vertices, cost) = (graph.vertex_count(), cost::of(work, size));
        if work.passes == Passes::Step {
            return self.steps(name, vertices, cost, |setup| Ok(prepare(work, graphs, setup)?));
        }
        let sets = if vertices < LARGE { SETS } else { 1 };
        let job = prepare(work, graphs, &Setup { sets, ..self.setup() })?;
        self.job(name, vertices, cost, job)?;
        Ok(())
    }

    fn job(&mut self, name: &str, vertices: usize, cost: Cost, mut job: Box<dyn Job>) -> Result<&mut Row, NnError> {
        self.row(name, self.device, vertices, cost, || job.call())
    }

    /// Training steps: on a GPU plain, and as a replayed CUDA graph.
    fn steps(
        &mut self,
        name: &str,
        vertices: usize,
        cost: Cost,
        prepare: impl Fn(&Setup) -> Result<Box<dyn Job>, TaskError>,
    ) -> Result<(), TaskError> {
        let replayed = format!("replayed_{name}");
        let rows = [(name, false), (&replayed, true)];
        for &(name, captures) in &rows[..if *self.device == Device::Cpu { 1 } else { 2 }] {
            let memory = PeakMemory::watch(self.device);
            let job = prepare(&Setup { captures, ..self.setup() })?;
            self.job(name, vertices, cost, job)?.peak_bytes = memory.bytes();
        }
        Ok(())
    }

    /// A training step of the default U-net for correspondence, whose work is not counted.
    fn unet(&mut self, mesh: &Mesh, meshes: usize) -> Result<(), TaskError> {
        let name = "unet_training_step";
        if !self.wants(name, true) {
            return Ok(());
        }
        let model = UNetModel::default();
        let preparation = Preparation { hierarchy: model.hierarchy(), ..Preparation::default() };
        let hierarchy = preparation.prepare("torus", mesh)?.hierarchy;
        let graphs = Arc::new(Geometry::new(vec![&*hierarchy; meshes])?);
        let (task, per) = (Task::Correspondence, Element::Vertex);
        let spec = ModelSpec { input: FeatureType::scalars(3), task, per, outputs: FeatureType::scalars(BODY) };
        let (model, vertices) = (ModelConfig::from(model), meshes * mesh.vertex_count());
        self.steps(name, vertices, Cost::default(), |setup| {
            let (network, parameters) = model.init(&spec, 1)?;
            let labels = (0..BODY as u32).cycle().take(vertices).collect();
            Ok(Box::new(Step::new(network, parameters, Arc::clone(&graphs), Some(labels), setup)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_fraction_of_the_limit() {
        let limits = Limits { device: "cpu".into(), matmul: "f32", copy_bytes_per_s: 1e9, product_flops_per_s: 1e11 };
        let cost = Cost { bytes: 1_000_000, flops: 200_000_000 };
        let timing = Timing { median: 4e-3, minimum: 3e-3, repeats: 5 };
        let row = Row::new("convolution_forward", &limits, 1000, cost, timing);
        // The product needs at least 2 ms, the copy 1 ms.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert!(near(row.limit_fraction, 0.5), "{row:?}");
        assert!(near(row.bytes_per_s, 2.5e8) && near(row.flops_per_s, 5e10));
        assert!(near(row.median_ms, 4.0) && near(row.minimum_ms, 3.0));
        assert!(near(row.ns_per_vertex, 4000.0));
    }

    #[test]
    fn the_figure_has_a_line_for_each_piece_of_work() {
        let row = |work: &str, vertices: usize| Row {
            vertices,
            ..Row::new(
                work,
                &Limits { device: "cpu".into(), matmul: "f32", copy_bytes_per_s: 1e9, product_flops_per_s: 1e9 },
                vertices,
                Cost::default(),
                Timing { median: 1e-3, minimum: 1e-3, repeats: 1 },
            )
        };
        let report = Report {
            version: "0",
            machine: Machine::new(&Device::Cpu),
            limits: Vec::new(),
            rows: vec![row("inference", 1000), row("geometry", 10), row("inference", 10)],
        };
        let drawn = report.figure().to_svg();
        for text in ["inference", "geometry", "nanoseconds per vertex"] {
            assert!(drawn.contains(text), "{text}");
        }
    }
}
