//! Cost of the regular nonlinearity: the paper's table of time and memory against the number of samples.
//!
//! The network is the default [`GemModel`] for shape correspondence, trained with Adam and a batch of one mesh.
//! An epoch is 80 training steps and 20 forward passes, as with the paper's data. Its time is computed from the
//! fastest step and the fastest forward pass of a few.

use crate::output::{self, Table};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{GaugeGraph, GeometryOptions};
use gemcnn_nn::{
    Device, FeatureType, GraphBatch, Levels, Module, NnError, Optimiser, Parameters, Rows, Stream, Tape, Targets,
    Workspace,
};
use gemcnn_tasks::models::{GemModel, ModelSpec, NonlinearityChoice};
use gemcnn_tasks::{Element, ModelConfig, Task, TaskError};
use gemcnn_view::plot::{Axis, Chart, Line, Panel, Series};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;

/// Training steps in an epoch.
const TRAINING_MESHES: f64 = 80.0;
/// Forward passes in an epoch.
const TEST_MESHES: f64 = 20.0;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Segments of the torus, around its axis and around its tube (default 130 and 53: 6,890 vertices, as
    /// many as a body has).
    pub segments: (usize, usize),
    /// Numbers of samples. `None` leaves out the nonlinearity and the batch normalisation inside it.
    pub samples: Vec<Option<usize>>,
    /// Repeats of each measurement (default 3).
    pub repeats: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { segments: (130, 53), samples: PAPER.map(|row| row.samples).to_vec(), repeats: 3 }
    }
}

impl Settings {
    /// A trial of a few seconds: a small mesh and few sizes.
    pub fn quick() -> Self {
        Self { segments: (20, 10), repeats: 1, ..Self::default() }
    }
}

/// A row of the paper's table, measured on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperRow {
    /// Number of samples; `None` without the nonlinearity.
    pub samples: Option<usize>,
    /// Time per epoch.
    pub seconds: f64,
    /// Peak memory.
    pub gigabytes: f64,
}

/// The paper's table.
pub const PAPER: [PaperRow; 6] = [
    PaperRow::new(None, 21.2, 1.22),
    PaperRow::new(Some(1), 21.9, 1.22),
    PaperRow::new(Some(5), 21.6, 1.23),
    PaperRow::new(Some(10), 21.5, 1.24),
    PaperRow::new(Some(20), 22.0, 1.27),
    PaperRow::new(Some(50), 21.7, 1.35),
];

impl PaperRow {
    const fn new(samples: Option<usize>, seconds: f64, gigabytes: f64) -> Self {
        Self { samples, seconds, gigabytes }
    }
}

/// The network at one number of samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Number of samples; `None` without the nonlinearity.
    pub samples: Option<usize>,
    /// Fastest training step.
    pub step_seconds: f64,
    /// Fastest forward pass with predictions.
    pub inference_seconds: f64,
    /// 80 steps and 20 passes.
    pub epoch_seconds: f64,
    /// Peak memory. On the CPU: features, their gradients and scratch memory of operators. On a GPU: all
    /// memory, including weights and optimiser.
    pub memory_bytes: usize,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Settings of the experiment.
    pub settings: Settings,
    /// Number of vertices of the mesh, and of classes.
    pub vertices: usize,
    /// Device of the networks.
    pub device: String,
    /// Threads of the CPU.
    pub threads: usize,
    /// Results of the network.
    pub epochs: Vec<EpochRow>,
}

/// Measures everything, networks on `device`.
pub fn run(settings: &Settings, device: &Device) -> Result<Report, TaskError> {
    let mesh = shapes::torus(settings.segments.0, settings.segments.1, 1.0, 0.4, Cells::Triangles)
        .map_err(|error| TaskError::setting("segments", error.to_string()))?;
    let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())
        .map_err(|source| TaskError::Geometry { name: "torus".into(), source })?;
    let positions = mesh.vertices().iter().flat_map(|p| p.to_array());
    let data = Data {
        batch: GraphBatch::new([&graph])?,
        positions: positions.map(|v| v as f32).collect(),
        labels: (0..mesh.vertex_count() as u32).collect(),
    };
    let mut epochs: Vec<EpochRow> = Vec::new();
    // Repeats are interleaved, so that other work on the machine affects all rows alike.
    for _ in 0..settings.repeats.max(1) {
        for &samples in &settings.samples {
            let measured = Trainee::new(samples, &data, device)?.measure()?;
            match epochs.iter_mut().find(|row| row.samples == samples) {
                Some(row) => row.improve(&measured),
                None => epochs.push(measured),
            }
        }
    }
    Ok(Report {
        settings: settings.clone(),
        vertices: mesh.vertex_count(),
        device: match device {
            Device::Cpu => "CPU".into(),
            Device::Cuda(cuda) => cuda.name().into(),
        },
        threads: rayon::current_num_threads(),
        epochs,
    })
}

impl EpochRow {
    fn new(samples: Option<usize>, step: f64, inference: f64, memory_bytes: usize) -> Self {
        Self {
            samples,
            step_seconds: step,
            inference_seconds: inference,
            epoch_seconds: TRAINING_MESHES * step + TEST_MESHES * inference,
            memory_bytes,
        }
    }

    /// Keeps the faster times and the larger memory.
    fn improve(&mut self, other: &Self) {
        *self = Self::new(
            self.samples,
            self.step_seconds.min(other.step_seconds),
            self.inference_seconds.min(other.inference_seconds),
            self.memory_bytes.max(other.memory_bytes),
        );
    }
}

/// A network and everything that a training step needs.
struct Trainee<'d> {
    samples: Option<usize>,
    network: Box<dyn Module<f32>>,
    parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    workspace: Workspace<f32>,
    data: &'d Data,
}

/// A mesh with its positions, and a class for each vertex.
struct Data {
    batch: GraphBatch<f32>,
    positions: Vec<f32>,
    labels: Vec<u32>,
}

impl Data {
    fn targets(&self) -> Targets<'_, f32> {
        Targets::new(self.labels.len(), &self.labels)
    }
}

impl<'d> Trainee<'d> {
    /// The network with a class for each vertex.
    fn new(samples: Option<usize>, data: &'d Data, device: &Device) -> Result<Self, TaskError> {
        let model = GemModel {
            nonlinearity: match samples {
                None => NonlinearityChoice::None,
                Some(_) => NonlinearityChoice::Regular,
            },
            samples,
            ..GemModel::default()
        };
        let spec = ModelSpec {
            input: FeatureType::scalars(3),
            task: Task::Correspondence,
            per: Element::Vertex,
            outputs: FeatureType::scalars(data.labels.len()),
        };
        let (network, parameters) = ModelConfig::from(model).init(&spec, 1)?;
        Ok(Self {
            samples,
            network,
            optimiser: Optimiser::new(gemcnn_nn::Method::adam(), &parameters)?,
            parameters,
            workspace: Workspace::new(device.clone()),
            data,
        })
    }

    /// Times a step and a forward pass, each after a warm-up.
    fn measure(&mut self) -> Result<EpochRow, NnError> {
        if let Device::Cuda(cuda) = self.workspace.device() {
            cuda.reset_peak_memory();
        }
        let (mut step, mut inference) = (0.0, 0.0);
        for number in 0..2 {
            step = self.seconds(|trainee| trainee.train(number))?;
            inference = self.seconds(Self::predict)?;
        }
        let memory = match self.workspace.device() {
            Device::Cuda(cuda) => cuda.memory().peak,
            Device::Cpu => self.workspace.pool().usage().peak_bytes + self.workspace.scratch_bytes(),
        };
        Ok(EpochRow::new(self.samples, step, inference, memory))
    }

    /// Seconds that some work takes, including the work that it queues on a GPU.
    fn seconds(&mut self, work: impl FnOnce(&mut Self) -> Result<(), NnError> + Send) -> Result<f64, NnError> {
        let device = self.workspace.device().clone();
        let start = Instant::now();
        device.run(|| work(self))?;
        if let Device::Cuda(cuda) = self.workspace.device() {
            cuda.synchronise().map_err(NnError::Cuda)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn train(&mut self, step: u64) -> Result<(), NnError> {
        self.parameters.clear_gradients();
        let stream = Stream { seed: 1, step };
        let mut tape = Tape::training(&mut self.workspace, &mut self.parameters, stream);
        let x = tape.input(self.network.input().clone(), &self.data.positions)?;
        let (graph, targets) = (Levels::from(&self.data.batch), self.data.targets());
        let loss = (self.network).classify(&mut tape, graph, x, targets, Rows::default())?;
        tape.backward(&loss)?;
        self.optimiser.step(&mut self.parameters, 1e-3)
    }

    fn predict(&mut self) -> Result<(), NnError> {
        let mut predictions = vec![0; self.data.labels.len()];
        let rows = Rows { predictions: Some(&mut predictions), ..Rows::default() };
        let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
        let x = tape.input(self.network.input().clone(), &self.data.positions)?;
        let (graph, targets) = (Levels::from(&self.data.batch), self.data.targets());
        self.network.classify(&mut tape, graph, x, targets, rows)?;
        black_box(predictions);
        Ok(())
    }
}

impl output::Report for Report {
    fn to_markdown(&self) -> String {
        let mut table =
            Table::new(["samples", "step (ms)", "forward (ms)", "epoch (s)", "memory (MB)", "paper: epoch", "memory"]);
        for row in &self.epochs {
            let paper = PAPER.iter().find(|paper| paper.samples == row.samples);
            table.row([
                row.samples.map_or("none".into(), |samples| samples.to_string()),
                format!("{:.1}", 1e3 * row.step_seconds),
                format!("{:.1}", 1e3 * row.inference_seconds),
                format!("{:.2}", row.epoch_seconds),
                format!("{:.1}", row.memory_bytes as f64 / 1e6),
                paper.map_or("-".into(), |paper| format!("{:.1} s", paper.seconds)),
                paper.map_or("-".into(), |paper| format!("{:.2} GB", paper.gigabytes)),
            ]);
        }
        let Self { vertices, device, threads, .. } = self;
        format!("Correspondence network, {vertices} vertices, batch 1, {device}, {threads} thread(s)\n\n{table}")
    }

    fn figures(&self) -> Vec<(String, Chart)> {
        vec![("nonlinearity-cost".into(), self.cost_figure())]
    }
}

impl Report {
    /// Time and memory relative to the network without the nonlinearity, so that machines can be compared.
    fn cost_figure(&self) -> Chart {
        let relative = |title: &str, here: fn(&EpochRow) -> f64, paper: fn(&PaperRow) -> f64| {
            let own = relative_to_none(self.epochs.iter().map(|row| (row.samples, here(row))));
            let theirs = relative_to_none(PAPER.iter().map(|row| (row.samples, paper(row))));
            Panel::new(
                title,
                Axis::linear("samples N"),
                // The axis starts at zero, so that small differences look small.
                Axis::linear("relative to none").limits(0.0, 1.5),
            )
            .series(Series::new("here", own))
            .series(Series::new("paper", theirs).line(Line::Dashed))
        };
        Chart::new("Cost of the regular nonlinearity in the correspondence network")
            .panel(relative("Time per epoch", |row| row.epoch_seconds, |row| row.seconds))
            .panel(relative("Most memory", |row| row.memory_bytes as f64, |row| row.gigabytes))
    }
}

/// Values against samples, as multiples of the value without the nonlinearity.
fn relative_to_none(rows: impl Iterator<Item = (Option<usize>, f64)> + Clone) -> Vec<(f64, f64)> {
    let none = rows.clone().find(|(samples, _)| samples.is_none());
    let none = none.map_or(f64::NAN, |(_, value)| value);
    rows.filter_map(|(samples, value)| Some((samples? as f64, value / none))).collect()
}
