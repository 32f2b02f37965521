//! Cases: a piece of work with its data and weights, in a file that both sides read.

use crate::Failure;
use crate::network::{Description, Layer};
use gemcnn_experiments::mnist;
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{Archive, Extra, FeatureType, GraphBatch, Module, SpectraBatch};
use serde::{Deserialize, Serialize};

/// Classes of the correspondence network: the vertices of a body.
const BODY: usize = 6890;
/// Classes of segmentation.
const PARTS: usize = 8;
/// Classes of digits.
const DIGITS: usize = 10;
/// Eigenvectors of the diffusion network.
const EIGENVECTORS: usize = 128;

/// The kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// From vertices and faces to the gauge graph, in f64.
    Geometry,
    /// A convolution `16x(0,1,2)` to the same, with self term and bias.
    ConvolutionForward,
    /// The same with its backward pass: gradients of input and weights.
    ConvolutionBackward,
    /// Attention with two heads, `16x(0,1,2)` to the same.
    AttentionForward,
    /// The same with its backward pass: gradients of input and weights.
    AttentionBackward,
    /// A block of messages with two layers each for edges and vertices, `16x(0,1,2)` to the same.
    MessagesForward,
    /// The same with its backward pass: gradients of input and weights.
    MessagesBackward,
    /// Six convolutions, each with a regular nonlinearity.
    Inference,
    /// A training step of three residual blocks.
    Blocks,
    /// The forward pass of the correspondence network, to logits.
    CorrespondenceInference,
    /// A training step of the correspondence network.
    Correspondence,
    /// A training step of the digits network.
    Mnist,
    /// A training step of DiffusionNet for correspondence.
    Diffusion,
    /// A training step of DiffusionNet for segmentation.
    Segmentation,
}

impl Work {
    /// True if the network needs the eigenvectors of the meshes.
    pub fn is_spectral(self) -> bool {
        matches!(self, Self::Diffusion | Self::Segmentation)
    }
}

/// A piece of work and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The kind of work.
    pub work: Work,
    /// Approximate number of vertices of a mesh. Grids of digits have 784.
    pub vertices: usize,
    /// Meshes in a batch.
    pub meshes: usize,
}

impl Case {
    /// The case file: meshes, features, labels and weights.
    pub fn archive(self) -> Result<Archive, Failure> {
        let mut archive = Archive::new();
        let graph = self.graph()?;
        let batch = self.batch(&graph)?;
        let real = Case { vertices: graph.vertex_count(), ..self };
        archive.set_json("case", &real)?;
        let Some(description) = self.network() else {
            let mesh = self.mesh()?;
            let vertices: Vec<f64> = mesh.vertices().iter().flat_map(|v| v.to_array()).collect();
            archive.set_tensor("vertices", &[mesh.vertex_count(), 3], &vertices)?;
            let faces: Vec<f64> = whole(mesh.faces().corners());
            archive.set_tensor("faces", &[faces.len() / 3, 3], &faces)?;
            return Ok(archive);
        };
        store_graph(&mut archive, &graph, self.meshes)?;
        if self.work.is_spectral() {
            store_spectra(&mut archive, &self.mesh()?, &graph)?;
        }
        description.store(&mut archive)?;
        let network = description.network(true)?;
        let rows = |kind: &FeatureType| [batch.vertex_count(), kind.dimension()];
        let input = rows(network.input());
        archive.set_tensor("x", &input, &numbers(input[0] * input[1], 1))?;
        if let Some((classes, count)) = self.labels(&batch) {
            let labels: Vec<f64> = (0..count).map(|row| (row % classes) as f64).collect();
            archive.set_tensor("labels", &[count], &labels)?;
        }
        if let Work::ConvolutionBackward | Work::AttentionBackward | Work::MessagesBackward = self.work {
            let output = rows(network.output());
            archive.set_tensor("dy", &output, &numbers(output[0] * output[1], 2))?;
        }
        Ok(archive)
    }

    /// The mesh that the batch repeats; not for digits.
    pub fn mesh(&self) -> Result<Mesh, Failure> {
        // These are the factors of 6,890; other sizes have a ratio of about 5 : 2.
        let (around, along) = match self.vertices {
            BODY => (130, 53),
            vertices => {
                let along = (vertices as f64 / 2.5).sqrt().round().max(3.0) as usize;
                ((vertices as f64 / along as f64).round().max(3.0) as usize, along)
            }
        };
        torus(around, along, 1.0, 0.4, Cells::Triangles).map_err(|error| Failure::Case(error.to_string()))
    }

    fn graph(&self) -> Result<GaugeGraph, Failure> {
        if self.work == Work::Mnist {
            let (surface, part) = (mnist::Surface::Flat, mnist::Part::Train);
            return Ok(mnist::GridOptions::default().graph(surface, part, 0)?);
        }
        gauge_graph(&self.mesh()?)
    }

    /// The joined graph of the batch.
    pub fn graphs(&self) -> Result<GraphBatch<f32>, Failure> {
        self.batch(&self.graph()?)
    }

    fn batch(&self, graph: &GaugeGraph) -> Result<GraphBatch<f32>, Failure> {
        Ok(GraphBatch::new(vec![graph; self.meshes])?)
    }

    /// The network; `None` for geometry.
    fn network(&self) -> Option<Description> {
        let hidden = || FeatureType::uniform(16, 2).to_string();
        let scalars = |count| FeatureType::scalars(count).to_string();
        let conv = |output| Layer::Conv { output };
        let residual = |output| Layer::Residual { middle: hidden(), output, samples: 5 };
        let (input, layers) = match self.work {
            Work::Geometry => return None,
            Work::ConvolutionForward | Work::ConvolutionBackward => (hidden(), vec![conv(hidden())]),
            Work::AttentionForward | Work::AttentionBackward => {
                let (output, heads) = (hidden(), 2);
                (hidden(), vec![Layer::Attention { output, heads }])
            }
            Work::MessagesForward | Work::MessagesBackward => {
                (hidden(), vec![Layer::Messages { output: hidden(), edge_layers: 2, node_layers: 2, samples: 5 }])
            }
            Work::Inference => {
                let regular = Layer::Regular { samples: 5, batch_norm: false };
                (hidden(), vec![[conv(hidden()), regular]; 6].concat())
            }
            Work::Blocks => (hidden(), vec![residual(hidden()); 3]),
            Work::Correspondence | Work::CorrespondenceInference => (
                scalars(3),
                vec![
                    residual(hidden()),
                    residual(hidden()),
                    residual(scalars(64)),
                    Layer::Linear { outputs: 256 },
                    Layer::Relu,
                    Layer::Dropout { probability: 0.5 },
                    Layer::Linear { outputs: BODY },
                ],
            ),
            Work::Mnist => {
                let types = [4, 8, 12, 16, 24, 32].map(|m| FeatureType::uniform(m, 3).to_string());
                let mut layers: Vec<Layer> = (types.into_iter().chain([scalars(64)]))
                    .flat_map(|output| {
                        let regular = Layer::Regular { samples: 7, batch_norm: true };
                        [conv(output), regular, Layer::Dropout { probability: 0.1 }]
                    })
                    .collect();
                layers.extend([Layer::MaxPool, Layer::Linear { outputs: DIGITS }]);
                (scalars(1), layers)
            }
            Work::Diffusion | Work::Segmentation => {
                let block = Layer::Diffusion { features: scalars(128), dropout: 0.5 };
                let map = Layer::Map { output: scalars(128) };
                let outputs = match self.work {
                    Work::Segmentation => PARTS,
                    _ => BODY,
                };
                let head = Layer::Linear { outputs };
                (scalars(16), [vec![map], vec![block; 4], vec![head]].concat())
            }
        };
        let is_mnist = self.work == Work::Mnist;
        Some(Description {
            input,
            mean: !is_mnist,
            degree: match is_mnist {
                true => mnist::GridOptions::default().degree(),
                false => 6.0,
            },
            layers,
        })
    }

    /// Number of classes, and number of rows with a label.
    pub fn labels(&self, batch: &GraphBatch<f32>) -> Option<(usize, usize)> {
        match self.work {
            Work::Correspondence | Work::Diffusion => Some((BODY, batch.vertex_count())),
            Work::Segmentation => Some((PARTS, batch.vertex_count())),
            Work::Mnist => Some((DIGITS, batch.mesh_count())),
            _ => None,
        }
    }
}

/// The gauge graph with default settings.
pub fn gauge_graph(mesh: &Mesh) -> Result<GaugeGraph, Failure> {
    GaugeGraph::new(mesh, &GeometryOptions::default()).map_err(|error| Failure::Case(error.to_string()))
}

/// Stores the edges of a batch of one graph in CSR form.
pub fn store_graph(archive: &mut Archive, graph: &GaugeGraph, meshes: usize) -> Result<(), Failure> {
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let shifted = |values: &[u32], step: usize| {
        let copies = (0..meshes).map(|mesh| (mesh * step) as f64);
        let copies = copies.flat_map(|shift| values.iter().map(move |&v| shift + f64::from(v)));
        copies.collect::<Vec<f64>>()
    };
    let mut offsets = shifted(&graph.offsets()[..vertices], edges);
    offsets.push((meshes * edges) as f64);
    let mesh_offsets: Vec<f64> = (0..=meshes).map(|mesh| (mesh * vertices) as f64).collect();
    let neighbours = shifted(graph.neighbours(), vertices);
    for (name, values) in [
        ("offsets", offsets),
        ("neighbours", neighbours),
        ("mesh_offsets", mesh_offsets),
        ("theta", graph.theta().repeat(meshes)),
        ("g", graph.transport().repeat(meshes)),
    ] {
        archive.set_tensor(name, &[values.len()], &values)?;
    }
    Ok(())
}

/// Stores the masses and the scalar eigenbasis of the mesh that a batch repeats: `mass` `[V]`, `eigenvalues` `[K]`,
/// `basis` `[V, K]`, and the gradients of the eigenvectors, `gradient` `[V, 2, K]`.
fn store_spectra(archive: &mut Archive, mesh: &Mesh, graph: &GaugeGraph) -> Result<(), Failure> {
    let options = OperatorOptions { eigenpairs: [EIGENVECTORS, 0, 0], jets: false };
    let operators = SurfaceOperators::new(mesh, graph, &options).map_err(|error| Failure::Case(error.to_string()))?;
    let spectra = SpectraBatch::<f32>::new(&operators, &[EIGENVECTORS])?;
    let (vertices, arrays) = (spectra.vertex_count(), spectra.arrays());
    let (basis, gradient) = arrays.bases.split_at(vertices * EIGENVECTORS);
    archive.set_tensor("mass", &[vertices], arrays.mass)?;
    archive.set_tensor("eigenvalues", &[EIGENVECTORS], arrays.eigenvalues)?;
    archive.set_tensor("basis", &[vertices, EIGENVECTORS], basis)?;
    Ok(archive.set_tensor("gradient", &[vertices, 2, EIGENVECTORS], gradient)?)
}

/// The stored eigenbasis, once for each mesh of a batch.
pub fn read_spectra(archive: &Archive, meshes: usize) -> Result<SpectraBatch<f32>, Failure> {
    let [mass, eigenvalues] = [archive.tensor("mass")?, archive.tensor("eigenvalues")?];
    let bases = [archive.tensor("basis")?, archive.tensor("gradient")?].concat();
    let spectra = SpectraBatch::from_parts(vec![eigenvalues.len()], mass, bases, eigenvalues)?;
    Ok(SpectraBatch::join(&vec![&spectra; meshes])?)
}

fn whole(values: &[u32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Pseudo-random numbers in [-1, 1].
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        // Knuth's linear congruential generator; the upper bits are random enough.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
