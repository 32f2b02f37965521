//! Whole networks: training steps of the correspondence network, and inference.

use super::memory::PeakMemory;
use super::work::NetworkWork;
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_nn::layers::Regular;
use gemcnn_nn::{
    Aggregation, BatchTarget, Device, FeatureType, GraphBatch, Method, Network, Optimiser,
    StepSettings, Stepper, Stream, Tape, TrainingBatch, Workspace,
};
use gemcnn_tasks::{ModelConfig, Task, TaskError};
use std::sync::Arc;

/// Classes of the correspondence task: the vertices of the template.
const CLASSES: usize = 6890;

/// Training steps of the correspondence network. On a GPU there are two rows: plain steps and replayed CUDA
/// graphs.
pub(super) fn training_steps(
    bench: &Bench,
    graph: Arc<GraphBatch<f32>>,
) -> Result<Vec<Row>, TaskError> {
    let vertices = graph.vertex_count();
    let input = FeatureType::scalars(3);
    let target = BatchTarget::Classes {
        classes: CLASSES,
        labels: (0..CLASSES as u32).cycle().take(vertices).collect(),
        weights: None,
    };
    let size = graph_size(&graph);
    let features = numbers(vertices * input.dimension());
    let steppers = match bench.device {
        Device::Cpu => vec![Stepper::plain()],
        Device::Cuda(_) => vec![Stepper::plain(), Stepper::default()],
    };
    let classes = FeatureType::scalars(CLASSES);
    let config = ModelConfig::default().network(&input, Task::Correspondence, &classes)?;
    let work = NetworkWork::new(&config)?.classification_step(size);
    let batch = TrainingBatch::new(graph, input, features, target)?;
    let mut rows = Vec::new();
    for mut stepper in steppers {
        let memory = PeakMemory::watch(&bench.device);
        let (network, mut parameters) = config.clone().init::<f32>(1)?;
        let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
        let mut workspace = Workspace::new(bench.device.clone());
        let row = bench.row(Case::TrainingStep, vertices, work, |step| {
            let settings = StepSettings {
                rate: 1e-3,
                randomness: Stream {
                    seed: 1,
                    step: step as u64,
                },
                clip: None,
            };
            let (parameters, optimiser) = (&mut parameters, &mut optimiser);
            stepper.step(
                &network,
                parameters,
                optimiser,
                &mut workspace,
                &batch,
                settings,
            )?;
            Ok(())
        })?;
        rows.push(Row {
            work: match stepper.is_recorded() {
                true => Case::ReplayedTrainingStep,
                false => Case::TrainingStep,
            },
            peak_bytes: memory.bytes(),
            ..row
        });
    }
    Ok(rows)
}

/// Forward pass of six convolutions `16x(0,1,2)`, each with a nonlinearity. The input is already on the device.
pub(super) fn inference(bench: &Bench, batch: &GraphBatch<f32>) -> Result<Row, TaskError> {
    let hidden = FeatureType::uniform(16, 2);
    let mut config = Network::builder(hidden.clone()).aggregation(Aggregation::Mean);
    for _ in 0..6 {
        config = config.conv(&hidden).regular(Regular::relu(5));
    }
    let work = NetworkWork::new(&config)?.inference(graph_size(batch));
    let (network, parameters) = config.init::<f32>(1)?;
    let mut workspace = Workspace::new(bench.device.clone());
    let mut tape = Tape::inference(&mut workspace, &parameters);
    let x = tape.input(
        hidden.clone(),
        &numbers(batch.vertex_count() * hidden.dimension()),
    )?;
    Ok(bench.row(Case::Inference, batch.vertex_count(), work, |_| {
        network.forward(&mut tape, batch, x.clone())?;
        Ok(())
    })?)
}
