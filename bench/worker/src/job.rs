//! The work itself.

use crate::Failure;
use crate::backward::NetworkBackward;
use crate::case::{Case, Work, gauge_graph, read_spectra, store_graph};
use crate::network::Description;
use gemcnn_experiments::bench::{Convolution, convolution};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_mesh::Mesh;
use gemcnn_nn::{
    Aggregation, Archive, Device, Geometry, GraphBatch, Method, Module, Network, Objective, Optimiser, Parameters,
    Penalty, ProductMode, StepSettings, Stepper, Stream, Tape, Target, TrainingBatch, Var, Workspace,
};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Learning rate.
const RATE: f64 = 1e-3;

/// A piece of work that can be repeated.
pub trait Job {
    /// Does the work once. On a GPU it may only queue it.
    fn call(&mut self) -> Result<(), Failure>;

    /// Results of one call with the weights of the case and without dropout.
    fn result(&mut self) -> Result<Archive, Failure>;
}

/// Reads a case.
pub fn load(path: &Path, device: &Device, mode: ProductMode) -> Result<Box<dyn Job>, Failure> {
    let archive = Archive::read(path)?;
    let case: Case = archive.json("case")?;
    Ok(match case.work {
        Work::Geometry => Box::new(GaugeGeometry { mesh: case.mesh()? }),
        Work::ConvolutionForward
        | Work::Inference
        | Work::CorrespondenceInference
        | Work::AttentionForward
        | Work::MessagesForward => Box::new(Forward::new(&archive, case, device)?),
        Work::AttentionBackward | Work::MessagesBackward => Box::new(NetworkBackward::new(&archive, case, device)?),
        Work::ConvolutionBackward => Box::new(ForwardBackward::new(&archive, case, device)?),
        Work::Blocks | Work::Correspondence | Work::Mnist | Work::Diffusion | Work::Segmentation => {
            Box::new(Training::new(&archive, case, device, mode, path)?)
        }
    })
}

struct GaugeGeometry {
    mesh: Mesh,
}

impl Job for GaugeGeometry {
    fn call(&mut self) -> Result<(), Failure> {
        black_box(gauge_graph(&self.mesh)?);
        Ok(())
    }

    fn result(&mut self) -> Result<Archive, Failure> {
        let graph = gauge_graph(&self.mesh)?;
        let mut archive = Archive::new();
        store_graph(&mut archive, &graph, 1)?;
        archive.set_tensor("r", &[graph.edge_count()], graph.radius())?;
        Ok(archive)
    }
}

/// A forward pass. The input is on the device before the first call.
struct Forward {
    network: Network<f32>,
    parameters: Parameters<f32>,
    workspace: Workspace<f32>,
    graph: GraphBatch<f32>,
    x: Var<f32>,
}

impl Forward {
    fn new(archive: &Archive, case: Case, device: &Device) -> Result<Self, Failure> {
        let (description, parameters) = Description::read(archive)?;
        let network = description.network(true)?;
        let mut workspace = Workspace::new(device.clone());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(network.input().clone(), &archive.tensor("x")?)?;
        drop(tape);
        Ok(Self { network, parameters, workspace, graph: case.graphs()?, x })
    }

    fn output(&mut self) -> Result<Var<f32>, Failure> {
        let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
        let (graph, x) = ((&self.graph).into(), self.x.clone());
        Ok(self.network.forward(&mut tape, graph, x)?)
    }
}

impl Job for Forward {
    fn call(&mut self) -> Result<(), Failure> {
        black_box(self.output()?);
        Ok(())
    }

    fn result(&mut self) -> Result<Archive, Failure> {
        let y = self.output()?;
        let mut archive = Archive::new();
        archive.set_tensor("y", &[y.rows(), y.kind().dimension()], &y.values()?)?;
        Ok(archive)
    }
}

/// A convolution and its backward pass, on plain buffers.
struct ForwardBackward {
    convolution: Box<dyn Convolution>,
    /// Names and shapes of the weights.
    parameters: Parameters<f32>,
    vertices: usize,
    called: bool,
}

impl ForwardBackward {
    fn new(archive: &Archive, case: Case, device: &Device) -> Result<Self, Failure> {
        let (description, parameters) = Description::read(archive)?;
        let network = description.network(true)?;
        let op = GaugeConv {
            aggregation: Aggregation::Mean,
            ..GaugeConv::new(network.input().clone(), network.output().clone())
        };
        let graph = case.graphs()?;
        let vertices = graph.vertex_count();
        let graphs = Arc::new(Geometry::from(graph));
        let weights: Vec<Vec<f32>> = parameters.iter().map(|p| p.value().to_vec()).collect();
        let weights = <[Vec<f32>; 3]>::try_from(weights)
            .map_err(|weights| Failure::Case(format!("{} weights", weights.len())))?;
        let set = (archive.tensor("x")?, archive.tensor("dy")?);
        Ok(Self {
            convolution: convolution(&op, device, &graphs, weights, vec![set])?,
            parameters,
            vertices,
            called: false,
        })
    }
}

impl Job for ForwardBackward {
    fn call(&mut self) -> Result<(), Failure> {
        self.called = true;
        self.convolution.forward(0)?;
        Ok(self.convolution.backward(0)?)
    }

    fn result(&mut self) -> Result<Archive, Failure> {
        if self.called {
            return Err(Failure::Case("gradients add up: ask for the result before any run".into()));
        }
        self.call()?;
        let results = self.convolution.results(0)?;
        let mut archive = Archive::new();
        for (name, values) in [("y", &results.y), ("dx", &results.dx)] {
            archive.set_tensor(name, &[self.vertices, values.len() / self.vertices], values)?;
        }
        for (parameter, values) in self.parameters.iter().zip(&results.weights) {
            let name = format!("gradient.{}", parameter.name());
            archive.set_tensor(name, parameter.shape(), values)?;
        }
        Ok(archive)
    }
}

/// A training step: forward and backward pass, and Adam.
struct Training {
    description: Description,
    network: Network<f32>,
    parameters: Parameters<f32>,
    optimiser: Optimiser<f32>,
    workspace: Workspace<f32>,
    batch: TrainingBatch<f32>,
    stepper: Stepper<f32>,
    step: u64,
    path: PathBuf,
}

impl Training {
    fn new(archive: &Archive, case: Case, device: &Device, mode: ProductMode, path: &Path) -> Result<Self, Failure> {
        let (description, parameters) = Description::read(archive)?;
        let network = description.network(true)?;
        let graph = case.graphs()?;
        let (objective, target) = match case.labels(&graph) {
            Some((count, _)) => {
                let labels = archive.tensor::<f64>("labels")?.into_iter();
                (Objective::classes(count), Target::Classes(labels.map(|label| label as u32).collect()))
            }
            None => {
                let kind = network.output().clone();
                let zeros = vec![0.0; graph.vertex_count() * kind.dimension()];
                let penalty = Penalty::MeanSquare;
                (Objective::Values { kind, penalty }, Target::Values(zeros))
            }
        };
        let (kind, x) = (network.input().clone(), archive.tensor("x")?);
        let mut graphs = Geometry::from(graph);
        if case.work.is_spectral() {
            graphs = graphs.with(read_spectra(archive, case.meshes)?)?;
        }
        let batch = TrainingBatch::new(graphs, kind, x, objective, target)?;
        let mut workspace = Workspace::new(device.clone());
        workspace.set_product_mode(mode);
        Ok(Self {
            optimiser: Optimiser::new(Method::adam(), &parameters)?,
            description,
            network,
            parameters,
            workspace,
            batch,
            stepper: Stepper::default(),
            step: 0,
            path: path.into(),
        })
    }
}

impl Job for Training {
    fn call(&mut self) -> Result<(), Failure> {
        let settings = StepSettings { rate: RATE, randomness: Stream { seed: 1, step: self.step }, clip: None };
        self.step += 1;
        self.stepper.step(
            &self.network,
            &mut self.parameters,
            &mut self.optimiser,
            &mut self.workspace,
            &self.batch,
            settings,
        )?;
        Ok(())
    }

    fn result(&mut self) -> Result<Archive, Failure> {
        let network = self.description.network(false)?;
        let (_, mut parameters) = Description::read(&Archive::read(&self.path)?)?;
        let randomness = Stream { seed: 1, step: 0 };
        let mut tape = Tape::training(&mut self.workspace, &mut parameters, randomness);
        let loss = network.loss(&mut tape, &self.batch)?;
        tape.backward(&loss)?;
        parameters.move_to_host()?;
        let mut archive = Archive::new();
        archive.set_tensor("loss", &[1], &[loss.value()?])?;
        for parameter in parameters.iter().filter(|parameter| parameter.is_trained()) {
            let name = format!("gradient.{}", parameter.name());
            archive.set_tensor(name, parameter.shape(), parameter.gradient())?;
        }
        Ok(archive)
    }
}
