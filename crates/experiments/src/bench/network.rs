//! Whole networks: training steps, and inference.

use super::memory::PeakMemory;
use super::work::{self, Work};
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Aggregation, Device, FeatureType, Geometry, Levels, Method, Module, Network, NnError, Objective, Optimiser,
    StepSettings, Stepper, Stream, Tape, Target, TrainingBatch, Workspace,
};
use gemcnn_tasks::models::{GemModel, ModelSpec, UNetModel};
use gemcnn_tasks::{Element, ModelConfig, Task, TaskError};
use std::sync::Arc;

/// Vertices of the template, each of which is a class.
const CLASSES: usize = 6890;
/// Convolutions of the network for inference.
const INFERENCE_LAYERS: usize = 6;

/// A training step to measure: the model, what its step has to do, and the rows of a plain and of a
/// replayed step.
struct Step {
    model: ModelConfig,
    work: Work,
    cases: [Case; 2],
}

/// Steps of the correspondence network. On a GPU plain, and as a replayed CUDA graph.
pub(super) fn correspondence_steps(bench: &Bench, graphs: Arc<Geometry<f32>>) -> Result<Vec<Row>, TaskError> {
    let model = GemModel::default();
    let size = graph_size(Levels::from(&*graphs).graph()?);
    let layers = work::correspondence_layers(&model, &FeatureType::scalars(3), CLASSES);
    let step = Step {
        work: work::classification_step(&layers, size),
        model: model.into(),
        cases: [Case::TrainingStep, Case::ReplayedTrainingStep],
    };
    steps(bench, &step, graphs)
}

/// Steps of the default U-net for the same task. Its work is not counted.
pub(super) fn unet_steps(bench: &Bench, hierarchies: Arc<Geometry<f32>>) -> Result<Vec<Row>, TaskError> {
    let step = Step {
        model: UNetModel::default().into(),
        work: Work::default(),
        cases: [Case::UnetTrainingStep, Case::ReplayedUnetTrainingStep],
    };
    steps(bench, &step, hierarchies)
}

/// Three scalars for each vertex to the classes of the template.
fn correspondence() -> ModelSpec {
    ModelSpec {
        input: FeatureType::scalars(3),
        task: Task::Correspondence,
        per: Element::Vertex,
        outputs: FeatureType::scalars(CLASSES),
    }
}

fn steps(bench: &Bench, step: &Step, graphs: Arc<Geometry<f32>>) -> Result<Vec<Row>, TaskError> {
    let spec = correspondence();
    let vertices = Levels::from(&*graphs).graph()?.vertex_count();
    let objective = Objective::classes(CLASSES);
    let labels = (0..CLASSES as u32).cycle().take(vertices).collect();
    let features = numbers(vertices * spec.input.dimension());
    let (kind, target) = (spec.input.clone(), Target::Classes(labels));
    let batch = TrainingBatch::new(graphs, kind, features, objective, target)?;
    let steppers = match bench.device {
        Device::Cpu => vec![Stepper::plain()],
        Device::Cuda(_) => vec![Stepper::plain(), Stepper::default()],
    };
    let mut rows = Vec::new();
    for mut stepper in steppers {
        let memory = PeakMemory::watch(&bench.device);
        let (network, mut parameters) = step.model.init(&spec, 1)?;
        let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
        let mut workspace = Workspace::new(bench.device.clone());
        let [plain, replayed] = step.cases;
        let row = bench.row(plain, vertices, step.work, |number| {
            let settings = StepSettings { rate: 1e-3, randomness: Stream { seed: 1, step: number as u64 }, clip: None };
            let (parameters, optimiser) = (&mut parameters, &mut optimiser);
            stepper.step(&*network, parameters, optimiser, &mut workspace, &batch, settings)?;
            Ok(())
        })?;
        rows.push(Row {
            work: match stepper.is_recorded() {
                true => replayed,
                false => plain,
            },
            peak_bytes: memory.bytes(),
            ..row
        });
    }
    Ok(rows)
}

/// A forward pass of six convolutions `16x(0,1,2)`, each with a nonlinearity. The input is on the device
/// before the first pass.
pub(super) fn inference(bench: &Bench, graphs: &Geometry<f32>) -> Result<Row, NnError> {
    let batch = Levels::from(graphs).graph()?;
    let hidden = FeatureType::uniform(16, 2);
    let start = Network::builder(hidden.clone()).aggregation(Aggregation::Mean);
    let config = (0..INFERENCE_LAYERS).fold(start, |config, _| config.conv(&hidden).nonlinearity(Regular::relu(5)));
    let work = work::inference(INFERENCE_LAYERS, &hidden, graph_size(batch));
    let (network, parameters) = config.init(1)?;
    let vertices = batch.vertex_count();
    let mut workspace = Workspace::new(bench.device.clone());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = tape.input(hidden.clone(), &numbers(vertices * hidden.dimension()))?;
    drop(tape);
    bench.row(Case::Inference, vertices, work, |_| {
        let mut tape = Tape::inference(&mut workspace, &parameters);
        network.forward(&mut tape, graphs.into(), x.clone())?;
        Ok(())
    })
}

/// A forward pass of the correspondence network, to logits on the device.
pub(super) fn correspondence_inference(bench: &Bench, graphs: &Geometry<f32>) -> Result<Row, TaskError> {
    let (model, spec) = (GemModel::default(), correspondence());
    let batch = Levels::from(graphs).graph()?;
    let (vertices, size) = (batch.vertex_count(), graph_size(batch));
    let layers = work::correspondence_layers(&model, &spec.input, CLASSES);
    let work = layers.iter().map(|layer| layer.forward(size)).sum();
    let (network, parameters) = ModelConfig::from(model).init(&spec, 1)?;
    let mut workspace = Workspace::new(bench.device.clone());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = numbers(vertices * spec.input.dimension());
    let x = tape.input(spec.input, &x)?;
    drop(tape);
    let row = bench.row(Case::CorrespondenceInference, vertices, work, |_| {
        let mut tape = Tape::inference(&mut workspace, &parameters);
        network.forward(&mut tape, graphs.into(), x.clone())?;
        Ok(())
    })?;
    Ok(row)
}
