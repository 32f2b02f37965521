//! The work itself, ready to be repeated.

use super::case::{self, Work, gauge_graph, input, output_gradient, store_graph};
use super::convolution::Convolution;
use super::layers::{Layer, Layers};
use gemcnn_mesh::Mesh;
use gemcnn_nn::{
    Archive, Context, Device, Geometry, Levels, LossOperator, LossValue, Method, Module, NnError, Objective, Operator,
    Optimiser, Parameters, Penalty, ProductMode, StepSettings, Stepper, Storage, Stream, Tape, Target, TrainingBatch,
    Var, Workspace,
};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

/// Learning rate of training steps.
const RATE: f64 = 1e-3;

/// A piece of work that can be repeated.
pub(super) trait Job: Send {
    /// Does the work once. On a GPU it may only queue it.
    fn call(&mut self) -> Result<(), NnError>;

    /// Results of one call with the initial weights and without dropout, by name.
    fn results(&mut self) -> Result<Archive, NnError>;
}

/// How work runs.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub device: Device,
    /// Precision of matrix products.
    pub products: ProductMode,
    /// Number of feature sets that successive calls of a convolution cycle through.
    pub sets: usize,
    /// True if training steps on a GPU are captured as a CUDA graph and replayed.
    pub captures: bool,
}

impl Setup {
    pub fn workspace(&self) -> Workspace<f32> {
        let mut workspace = Workspace::new(self.device.clone());
        workspace.set_product_mode(self.products);
        workspace
    }
}

/// Prepares the work of a network on graphs.
pub(super) fn prepare(work: &Work, graphs: &Arc<Geometry<f32>>, setup: &Setup) -> Result<Box<dyn Job>, NnError> {
    let (network, parameters) = work.network.init(true)?;
    let (graphs, is_backward) = (Arc::clone(graphs), work.passes == case::Passes::Backward);
    Ok(match (&work.network.layers[..], work.passes) {
        (_, case::Passes::Step) => {
            let graph = Levels::from(&*graphs).graph()?;
            let labels = work.labels(graph.vertex_count(), graph.mesh_count(), network.output().dimension());
            let step = Step::new(Box::new(network), parameters, graphs, labels, setup)?;
            Box::new(Step { layers: Some(work.network.clone()), ..step })
        }
        ([Layer::Conv { .. }], _) => Box::new(Convolution::new(&network, parameters, graphs, setup, is_backward)?),
        _ => Box::new(Passes::new(Box::new(network), parameters, graphs, setup, is_backward)?),
    })
}

/// From vertices and faces to the gauge graph.
pub(super) struct GaugeGeometry {
    pub mesh: Mesh,
}

impl Job for GaugeGeometry {
    fn call(&mut self) -> Result<(), NnError> {
        black_box(gauge_graph(&self.mesh)?);
        Ok(())
    }

    fn results(&mut self) -> Result<Archive, NnError> {
        let graph = gauge_graph(&self.mesh)?;
        let mut archive = Archive::new();
        store_graph(&mut archive, &graph, 1)?;
        archive.set_tensor("r", &[graph.edge_count()], graph.radius())?;
        Ok(archive)
    }
}

/// A forward pass of a network, or a forward and a backward pass with a given gradient of the output. The input is on
/// the device before the first call.
pub(super) struct Passes {
    network: Box<dyn Module<f32>>,
    parameters: Parameters<f32>,
    workspace: Workspace<f32>,
    graphs: Arc<Geometry<f32>>,
    x: Var<f32>,
    /// Gradient of the output, for a backward pass.
    dy: Option<Arc<Storage<f32>>>,
    /// Gradient of the input.
    dx: Arc<Mutex<Option<Storage<f32>>>>,
}

impl Passes {
    pub fn new(
        network: Box<dyn Module<f32>>,
        parameters: Parameters<f32>,
        graphs: Arc<Geometry<f32>>,
        setup: &Setup,
        is_backward: bool,
    ) -> Result<Self, NnError> {
        let vertices = Levels::from(&*graphs).graph()?.vertex_count();
        let mut workspace = setup.workspace();
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(network.input().clone(), &input(&*network, vertices))?;
        let dy = match is_backward {
            true => Some(tape.input(network.output().clone(), &output_gradient(&*network, vertices))?.into_storage()),
            false => None,
        };
        drop(tape);
        Ok(Self { network, parameters, workspace, graphs, x, dy, dx: Arc::default() })
    }

    /// Runs the passes. Gradients of parameters add up.
    fn output(&mut self) -> Result<Var<f32>, NnError> {
        let (levels, x) = (Levels::from(&*self.graphs), self.x.clone());
        let Some(dy) = &self.dy else {
            let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
            return self.network.forward(&mut tape, levels, x);
        };
        let randomness = Stream { seed: 1, step: 0 };
        let mut tape = Tape::training(&mut self.workspace, &mut self.parameters, randomness);
        let x = tape.apply(KeepGradient(Arc::clone(&self.dx)), [x])?;
        let y = self.network.forward(&mut tape, levels, x)?;
        let loss = tape.apply_loss(GivenGradient(Arc::clone(dy)), [y.clone()])?;
        tape.backward(&loss)?;
        Ok(y)
    }
}

impl Job for Passes {
    fn call(&mut self) -> Result<(), NnError> {
        black_box(self.output()?);
        Ok(())
    }

    fn results(&mut self) -> Result<Archive, NnError> {
        self.parameters.clear_gradients();
        let y = self.output()?;
        let mut archive = Archive::new();
        archive.set_tensor("y", &[y.rows(), y.kind().dimension()], &y.values()?)?;
        if let Some(dx) = self.dx.lock().unwrap_or_else(PoisonError::into_inner).take() {
            archive.set_tensor("dx", &[self.x.rows(), self.x.kind().dimension()], &dx.read()?)?;
            store_gradients(&mut archive, &mut self.parameters)?;
        }
        Ok(archive)
    }
}

fn store_gradients(archive: &mut Archive, parameters: &mut Parameters<f32>) -> Result<(), NnError> {
    parameters.move_to_host()?;
    for parameter in parameters.iter().filter(|parameter| parameter.is_trained()) {
        archive.set_tensor(format!("gradient.{}", parameter.name()), parameter.shape(), parameter.gradient())?;
    }
    Ok(())
}

/// Data on the device whose gradient is kept.
struct KeepGradient(Arc<Mutex<Option<Storage<f32>>>>);

impl Operator<f32> for KeepGradient {
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
struct GivenGradient(Arc<Storage<f32>>);

impl LossOperator<f32> for GivenGradient {
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

/// A training step: forward and backward pass, and Adam.
pub(super) struct Step {
    /// The network, to make it again without dropout for results.
    layers: Option<Layers>,
    network: Box<dyn Module<f32>>,
    parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    workspace: Workspace<f32>,
    batch: TrainingBatch<f32>,
    stepper: Stepper<f32>,
    step: u64,
}

impl Step {
    /// Steps towards labels, or without them towards zeros.
    pub fn new(
        network: Box<dyn Module<f32>>,
        parameters: Parameters<f32>,
        graphs: Arc<Geometry<f32>>,
        labels: Option<Vec<u32>>,
        setup: &Setup,
    ) -> Result<Self, NnError> {
        let (vertices, output) = (Levels::from(&*graphs).graph()?.vertex_count(), network.output().clone());
        let (objective, target) = match labels {
            Some(labels) => (Objective::classes(output.dimension()), Target::Classes(labels)),
            None => {
                let zeros = vec![0.0; vertices * output.dimension()];
                (Objective::Values { kind: output, penalty: Penalty::MeanSquare }, Target::Values(zeros))
            }
        };
        let (kind, x) = (network.input().clone(), input(&*network, vertices));
        Ok(Self {
            layers: None,
            optimiser: Optimiser::new(Method::adam(), &parameters)?,
            batch: TrainingBatch::new(graphs, kind, x, objective, target)?,
            network,
            parameters,
            workspace: setup.workspace(),
            stepper: if setup.captures { Stepper::default() } else { Stepper::plain() },
            step: 0,
        })
    }
}

impl Job for Step {
    fn call(&mut self) -> Result<(), NnError> {
        let settings = StepSettings { rate: RATE, randomness: Stream { seed: 1, step: self.step }, clip: None };
        self.step += 1;
        let (parameters, optimiser) = (&mut self.parameters, &mut self.optimiser);
        self.stepper.step(&*self.network, parameters, optimiser, &mut self.workspace, &self.batch, settings)?;
        Ok(())
    }

    fn results(&mut self) -> Result<Archive, NnError> {
        let layers = self.layers.as_ref().ok_or_else(|| NnError::setting("results", "the network has none"))?;
        let (network, mut parameters) = layers.init(false)?;
        let mut tape = Tape::training(&mut self.workspace, &mut parameters, Stream { seed: 1, step: 0 });
        let loss = network.loss(&mut tape, &self.batch)?;
        tape.backward(&loss)?;
        let mut archive = Archive::new();
        archive.set_tensor("loss", &[1], &[loss.value()?])?;
        store_gradients(&mut archive, &mut parameters)?;
        Ok(archive)
    }
}
