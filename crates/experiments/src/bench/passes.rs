//! Forward and backward passes of a network on a tape, with the gradient of the output given.

use super::work::LayerWork;
use super::{Bench, Case, Row, graph_size, numbers};
use gemcnn_nn::layers::{Attention, MessageBlockConfig};
use gemcnn_nn::{
    Context, Device, FeatureType, Geometry, Levels, LossOperator, LossValue, Module, Network, NnError, Operator,
    Parameters, Storage, Stream, Tape, Var, Workspace,
};
use std::sync::{Arc, Mutex, PoisonError};

/// Heads of the attention that is measured.
const HEADS: usize = 2;

/// Attention and a block of messages, `16x(0,1,2)` to the same: forward, and forward with backward pass.
pub(super) fn rows(bench: &Bench, graphs: &Arc<Geometry<f32>>) -> Result<Vec<Row>, NnError> {
    let hidden = FeatureType::uniform(16, 2);
    let start = || Network::builder(hidden.clone());
    let attention = start().kernel(Attention { heads: HEADS }).conv(&hidden);
    let block = MessageBlockConfig::new(hidden.clone(), hidden.clone());
    let batch = Levels::from(&**graphs).graph()?;
    let (vertices, size) = (batch.vertex_count(), graph_size(batch));
    let mut rows = Vec::new();
    for (config, layer, [forward, backward]) in [
        (
            attention,
            LayerWork::attention(&hidden, &FeatureType::uniform(16 / HEADS, 2), HEADS),
            [Case::AttentionForward, Case::AttentionForwardBackward],
        ),
        (
            start().message_block(block.clone()),
            LayerWork::messages(&hidden, block.edge_layers, block.node_layers),
            [Case::MessagesForward, Case::MessagesForwardBackward],
        ),
    ] {
        let (network, parameters) = config.init(1)?;
        let values = || numbers(vertices * hidden.dimension());
        let data = [&values()[..], &values()];
        let mut passes = Passes::new(network, parameters, &bench.device, graphs, data)?;
        let work = layer.forward(size);
        rows.push(bench.row(forward, vertices, work, |_| passes.forward().map(drop))?);
        let work = work + layer.backward(size);
        rows.push(bench.row(backward, vertices, work, |_| passes.backward().map(drop))?);
    }
    Ok(rows)
}

/// A network with its input and the gradient of its output on a device.
pub struct Passes {
    network: Network<f32>,
    parameters: Parameters<f32>,
    workspace: Workspace<f32>,
    graphs: Arc<Geometry<f32>>,
    x: Var<f32>,
    dy: Arc<Storage<f32>>,
    dx: Arc<Mutex<Option<Storage<f32>>>>,
}

/// Results of a forward and a backward pass.
#[derive(Debug, Clone)]
pub struct PassResults {
    /// Output.
    pub y: Vec<f32>,
    /// Gradient of the input.
    pub dx: Vec<f32>,
    /// Parameters with their gradients.
    pub parameters: Parameters<f32>,
}

impl Passes {
    /// Copies the input `x` and the gradient `dy` of the output to a device.
    ///
    /// # Errors
    /// Data of the wrong size, or too little memory on a GPU.
    pub fn new(
        network: Network<f32>,
        parameters: Parameters<f32>,
        device: &Device,
        graphs: &Arc<Geometry<f32>>,
        [x, dy]: [&[f32]; 2],
    ) -> Result<Self, NnError> {
        let mut workspace = Workspace::new(device.clone());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(network.input().clone(), x)?;
        let dy = tape.input(network.output().clone(), dy)?;
        drop(tape);
        Ok(Self {
            network,
            parameters,
            workspace,
            graphs: Arc::clone(graphs),
            x,
            dy: dy.into_storage(),
            dx: Arc::default(),
        })
    }

    /// Runs the forward pass, which records nothing.
    pub fn forward(&mut self) -> Result<Var<f32>, NnError> {
        let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
        let (levels, x) = (Levels::from(&*self.graphs), self.x.clone());
        self.network.forward(&mut tape, levels, x)
    }

    /// Runs the forward and the backward pass. Gradients of parameters add up.
    pub fn backward(&mut self) -> Result<Var<f32>, NnError> {
        let randomness = Stream { seed: 1, step: 0 };
        let mut tape = Tape::training(&mut self.workspace, &mut self.parameters, randomness);
        let x = tape.apply(Leaf(Arc::clone(&self.dx)), [self.x.clone()])?;
        let levels = Levels::from(&*self.graphs);
        let y = self.network.forward(&mut tape, levels, x)?;
        let loss = tape.apply_loss(Given(Arc::clone(&self.dy)), [y.clone()])?;
        tape.backward(&loss)?;
        Ok(y)
    }

    /// Runs both passes once and reads their results.
    pub fn results(&mut self) -> Result<PassResults, NnError> {
        self.parameters.clear_gradients();
        let y = self.backward()?.values()?.into_owned();
        let dx = self.dx.lock().unwrap_or_else(PoisonError::into_inner).take();
        let dx = match dx {
            Some(dx) => dx.read()?.into_owned(),
            None => Vec::new(),
        };
        self.parameters.move_to_host()?;
        Ok(PassResults { y, dx, parameters: self.parameters.clone() })
    }
}

/// Data on the device whose gradient is kept.
struct Leaf(Arc<Mutex<Option<Storage<f32>>>>);

impl Operator<f32> for Leaf {
    type Saved = ();

    /// Recorded although its input has no gradient.
    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, _: &mut Context<'_, f32>, [x]: [Var<f32>; 1]) -> Result<(Var<f32>, ()), NnError> {
        Ok((x, ()))
    }

    fn backward(
        &self,
        _: &mut Context<'_, f32>,
        (): (),
        dx: Storage<f32>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<f32>>; 1], NnError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(dx);
        Ok([None])
    }
}

/// A loss of which only the gradient is of interest.
struct Given(Arc<Storage<f32>>);

impl LossOperator<f32> for Given {
    type Saved = ();

    fn forward(&self, _: &mut Context<'_, f32>, _: [Var<f32>; 1]) -> Result<(LossValue, ()), NnError> {
        Ok((LossValue::Number(0.0), ()))
    }

    fn backward(
        &self,
        context: &mut Context<'_, f32>,
        (): (),
        _: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<f32>>; 1], NnError> {
        Ok([Some(context.duplicate(&self.0)?)])
    }
}
