//! The work itself.

use crate::Failure;
use crate::case::{Case, Work, gauge_graph, store_graph};
use gemcnn_experiments::bench::{Convolution, convolution};
use gemcnn_kernels::gauge_conv::GaugeConv;
use gemcnn_mesh::Mesh;
use gemcnn_nn::{
    Aggregation, Archive, BatchTarget, Device, GraphBatch, LayerConfig, Method, Network, Optimiser,
    Parameters, Penalty, StepSettings, Stepper, Stream, Tape, TrainingBatch, Var, Workspace,
};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rate of the optimiser.
const RATE: f64 = 1e-3;

/// Something that can be done again and again.
pub trait Job {
    /// Does it; on a GPU it may only be queued.
    fn call(&mut self) -> Result<(), Failure>;

    /// What one call gives with the weights of the case and without dropout.
    fn result(&mut self) -> Result<Archive, Failure>;
}

/// Reads a case.
pub fn load(path: &Path, device: &Device) -> Result<Box<dyn Job>, Failure> {
    let archive = Archive::read(path)?;
    let case: Case = archive.json("case")?;
    Ok(match case.work {
        Work::Geometry => Box::new(Geometry { mesh: case.mesh()? }),
        Work::ConvolutionForward | Work::Inference => {
            Box::new(Forward::new(&archive, case, device)?)
        }
        Work::ConvolutionBackward => Box::new(ForwardBackward::new(&archive, case, device)?),
        Work::Blocks | Work::Correspondence | Work::Mnist => {
            Box::new(Training::new(&archive, case, device, path)?)
        }
    })
}

struct Geometry {
    mesh: Mesh,
}

impl Job for Geometry {
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

/// A network without gradients. Its input is on the device from the start.
struct Forward {
    network: Network<f32>,
    parameters: Parameters<f32>,
    workspace: Workspace<f32>,
    graph: GraphBatch<f32>,
    x: Var<f32>,
}

impl Forward {
    fn new(archive: &Archive, case: Case, device: &Device) -> Result<Self, Failure> {
        let (network, parameters) = Network::from_archive(archive)?;
        let mut workspace = Workspace::new(device.clone());
        let mut tape = Tape::inference(&mut workspace, &parameters);
        let x = tape.input(network.input().clone(), &archive.tensor("x")?)?;
        Ok(Self {
            network,
            parameters,
            workspace,
            graph: case.graphs()?,
            x,
        })
    }

    fn output(&mut self) -> Result<Var<f32>, Failure> {
        let mut tape = Tape::inference(&mut self.workspace, &self.parameters);
        Ok(self
            .network
            .forward(&mut tape, &self.graph, self.x.clone())?)
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

/// A convolution and its gradients, on plain buffers.
struct ForwardBackward {
    convolution: Box<dyn Convolution>,
    /// Its parameters, for their names and shapes.
    parameters: Parameters<f32>,
    vertices: usize,
    called: bool,
}

impl ForwardBackward {
    fn new(archive: &Archive, case: Case, device: &Device) -> Result<Self, Failure> {
        let (network, parameters) = Network::<f32>::from_archive(archive)?;
        let op = GaugeConv {
            aggregation: Aggregation::Mean,
            ..GaugeConv::new(network.input().clone(), network.output().clone())
        };
        let graph = Arc::new(case.graphs()?);
        let weights: Vec<Vec<f32>> = parameters.iter().map(|p| p.value().to_vec()).collect();
        let weights = <[Vec<f32>; 3]>::try_from(weights)
            .map_err(|weights| Failure::Case(format!("{} weights", weights.len())))?;
        let set = (archive.tensor("x")?, archive.tensor("dy")?);
        Ok(Self {
            convolution: convolution(&op, device, &graph, weights, vec![set])?,
            parameters,
            vertices: graph.vertex_count(),
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
            return Err(Failure::Case(
                "gradients add up: ask for the result before any run".into(),
            ));
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

/// Forward and backward pass, and Adam.
struct Training {
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
    fn new(archive: &Archive, case: Case, device: &Device, path: &Path) -> Result<Self, Failure> {
        let (network, parameters) = Network::from_archive(archive)?;
        let graph = case.graphs()?;
        let target = match case.labels(&graph) {
            Some((classes, _)) => BatchTarget::Classes {
                classes,
                labels: (archive.tensor::<f64>("labels")?.into_iter())
                    .map(|label| label as u32)
                    .collect(),
                weights: None,
            },
            None => BatchTarget::Values {
                kind: network.output().clone(),
                penalty: Penalty::MeanSquare,
                values: vec![0.0; graph.vertex_count() * network.output().dimension()],
                known: None,
            },
        };
        let x = archive.tensor("x")?;
        let batch = TrainingBatch::new(graph, network.input().clone(), x, target)?;
        Ok(Self {
            optimiser: Optimiser::new(Method::adam(), &parameters)?,
            network,
            parameters,
            workspace: Workspace::new(device.clone()),
            batch,
            stepper: Stepper::default(),
            step: 0,
            path: path.into(),
        })
    }

    /// The network without dropout; its parameters have the same names.
    fn without_dropout(&self) -> Result<Network<f32>, Failure> {
        let config = self.network.config();
        let start = Network::builder(config.input().clone());
        let layers = config.layers().iter().cloned();
        let config = layers.fold(start, |network, layer| {
            network.layer(match layer {
                LayerConfig::Dropout { .. } => LayerConfig::Dropout { probability: 0.0 },
                other => other,
            })
        });
        Ok(config.init(0)?.0)
    }
}

impl Job for Training {
    fn call(&mut self) -> Result<(), Failure> {
        let settings = StepSettings {
            rate: RATE,
            randomness: Stream {
                seed: 1,
                step: self.step,
            },
            clip: None,
        };
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
        let network = self.without_dropout()?;
        let (_, mut parameters) = Network::<f32>::from_archive(&Archive::read(&self.path)?)?;
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
