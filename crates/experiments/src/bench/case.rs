//! Cases: pieces of work with their meshes, networks and inputs. `gemcnn bench` and both sides of `bench/compare` run the
//! same cases.

use super::layers::{Layer, Layers};
use crate::mnist;
use gemcnn_mesh::remesh::RemeshKind;
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{Archive, Extra, Geometry, GraphBatch, Module, NnError, SpectraBatch};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Vertices of a body, each of which is a class of the correspondence networks.
pub(super) const BODY: usize = 6890;
/// Eigenvectors of the diffusion network.
const EIGENVECTORS: usize = 128;

/// The contents of `works.toml`.
#[derive(Debug, Deserialize)]
pub(super) struct Works {
    /// All work with networks, in the order of the rows of a benchmark.
    #[serde(rename = "work")]
    pub networks: Vec<Work>,
    pub remeshers: BTreeMap<String, RemeshKind>,
}

impl Works {
    pub fn new() -> Result<Self, TaskError> {
        toml::from_str(include_str!("works.toml")).map_err(|error| TaskError::setting("works.toml", error.to_string()))
    }
}

/// What is done with a network; see `works.toml`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Work {
    pub name: String,
    pub passes: Passes,
    #[serde(default)]
    pub labels: bool,
    #[serde(default)]
    pub digits: bool,
    pub row: Option<String>,
    #[serde(default)]
    pub on_request: bool,
    #[serde(default)]
    pub large: bool,
    #[serde(flatten)]
    pub network: Layers,
}

/// How a network is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Passes {
    Forward,
    /// Forward and backward pass, with a given gradient of the output.
    Backward,
    /// A training step.
    Step,
}

impl Work {
    /// Labels, if the outputs are classes.
    pub fn labels(&self, vertices: usize, meshes: usize, classes: usize) -> Option<Vec<u32>> {
        let rows = if self.digits { meshes } else { vertices };
        self.labels.then(|| (0..classes as u32).cycle().take(rows).collect())
    }

    /// True if the network needs the eigenvectors of the meshes.
    fn is_spectral(&self) -> bool {
        self.network.layers.iter().any(|layer| matches!(layer, Layer::Diffusion { .. }))
    }
}

/// A piece of work and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    /// The name of the work: `geometry`, or that of work with a network.
    pub work: String,
    /// Approximate number of vertices of a mesh. Grids of digits have 784.
    pub vertices: usize,
    /// Meshes in a batch.
    pub meshes: usize,
}

impl Case {
    /// The mesh that the batch repeats; not for digits.
    pub fn mesh(&self) -> Result<Mesh, TaskError> {
        closed_mesh(self.vertices)
    }

    /// The work; `None` for geometry.
    pub fn work(&self) -> Result<Option<Work>, TaskError> {
        let work = Works::new()?.networks.into_iter().find(|work| work.name == self.work);
        match work.is_some() || self.work == "geometry" {
            true => Ok(work),
            false => Err(TaskError::setting("work", format!("`{}` is not known", self.work))),
        }
    }

    fn graph(&self, work: &Work) -> Result<GaugeGraph, TaskError> {
        match work.digits {
            true => mnist::GridOptions::default().graph(mnist::Surface::Flat, mnist::Part::Train, 0),
            false => Ok(gauge_graph(&self.mesh()?)?),
        }
    }

    /// The joined graphs of the batch, with the eigenbases in the case file if the network needs them.
    pub fn graphs(&self, work: &Work, archive: &Archive) -> Result<Arc<Geometry<f32>>, TaskError> {
        let graphs = Geometry::from(GraphBatch::new(vec![&self.graph(work)?; self.meshes])?);
        Ok(Arc::new(if work.is_spectral() { graphs.with(read_spectra(archive, self.meshes)?)? } else { graphs }))
    }

    /// The case file, for both sides: meshes, features, labels and weights.
    pub fn archive(self) -> Result<Archive, TaskError> {
        let mut archive = Archive::new();
        let Some(work) = self.work()? else {
            let mesh = self.mesh()?;
            let vertices: Vec<f64> = mesh.vertices().iter().flat_map(|v| v.to_array()).collect();
            archive.set_tensor("vertices", &[mesh.vertex_count(), 3], &vertices)?;
            let faces: Vec<f64> = mesh.faces().corners().iter().map(|&v| v.into()).collect();
            archive.set_tensor("faces", &[faces.len() / 3, 3], &faces)?;
            archive.set_json("case", &Self { vertices: mesh.vertex_count(), ..self })?;
            return Ok(archive);
        };
        let graph = self.graph(&work)?;
        store_graph(&mut archive, &graph, self.meshes)?;
        if work.is_spectral() {
            store_spectra(&mut archive, &self.mesh()?, &graph)?;
        }
        archive.set_json("network", &work.network)?;
        let (network, parameters) = work.network.init(true)?;
        parameters.store(&mut archive, "weights")?;
        let vertices = self.meshes * graph.vertex_count();
        archive.set_tensor("x", &[vertices, network.input().dimension()], &input(&network, vertices))?;
        if let Some(labels) = work.labels(vertices, self.meshes, network.output().dimension()) {
            let labels: Vec<f64> = labels.into_iter().map(f64::from).collect();
            archive.set_tensor("labels", &[labels.len()], &labels)?;
        }
        if work.passes == Passes::Backward {
            archive.set_tensor(
                "dy",
                &[vertices, network.output().dimension()],
                &output_gradient(&network, vertices),
            )?;
        }
        archive.set_json("case", &Self { vertices: graph.vertex_count(), ..self })?;
        Ok(archive)
    }
}

/// A torus of about as many vertices, with a ratio of its sides of about 5 : 2.
pub(super) fn closed_mesh(vertices: usize) -> Result<Mesh, TaskError> {
    let (around, along) = match vertices {
        BODY => (130, 53),
        vertices => {
            let along = (vertices as f64 / 2.5).sqrt().round().max(3.0);
            ((vertices as f64 / along).round().max(3.0) as usize, along as usize)
        }
    };
    torus(around, along, 1.0, 0.4, Cells::Triangles)
        .map_err(|error| TaskError::setting("benchmark mesh", error.to_string()))
}

/// The gauge graph with default settings.
pub(super) fn gauge_graph(mesh: &Mesh) -> Result<GaugeGraph, NnError> {
    Ok(GaugeGraph::new(mesh, &GeometryOptions::default())?)
}

/// Features of all vertices.
pub(super) fn input(network: &dyn Module<f32>, vertices: usize) -> Vec<f32> {
    numbers(vertices * network.input().dimension(), 1)
}

/// The gradient of the output of all vertices, for a backward pass without a loss.
pub(super) fn output_gradient(network: &dyn Module<f32>, vertices: usize) -> Vec<f32> {
    numbers(vertices * network.output().dimension(), 2)
}

/// Pseudo-random numbers in [-1, 1).
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        // Knuth's linear congruential generator; the upper bits are random enough.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Stores the edges of a batch of one graph in CSR form.
pub(super) fn store_graph(archive: &mut Archive, graph: &GaugeGraph, meshes: usize) -> Result<(), NnError> {
    let (vertices, edges) = (graph.vertex_count(), graph.edge_count());
    let shifted = |values: &[u32], step: usize| {
        let copies = (0..meshes).map(|mesh| (mesh * step) as f64);
        let copies = copies.flat_map(|shift| values.iter().map(move |&v| shift + f64::from(v)));
        copies.collect::<Vec<f64>>()
    };
    let mut offsets = shifted(&graph.offsets()[..vertices], edges);
    offsets.push((meshes * edges) as f64);
    let mesh_offsets: Vec<f64> = (0..=meshes).map(|mesh| (mesh * vertices) as f64).collect();
    for (name, values) in [
        ("offsets", offsets),
        ("neighbours", shifted(graph.neighbours(), vertices)),
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
fn store_spectra(archive: &mut Archive, mesh: &Mesh, graph: &GaugeGraph) -> Result<(), TaskError> {
    let options = OperatorOptions { eigenpairs: [EIGENVECTORS, 0, 0], jets: false, ..Default::default() };
    let operators = SurfaceOperators::new(mesh, graph, &options)
        .map_err(|source| TaskError::Surface { name: "torus".into(), source })?;
    let spectra = SpectraBatch::<f32>::new(&operators, &[EIGENVECTORS])?;
    let (vertices, arrays) = (spectra.vertex_count(), spectra.arrays());
    let (basis, gradient) = arrays.bases.split_at(vertices * EIGENVECTORS);
    archive.set_tensor("mass", &[vertices], arrays.mass)?;
    archive.set_tensor("eigenvalues", &[EIGENVECTORS], arrays.eigenvalues)?;
    archive.set_tensor("basis", &[vertices, EIGENVECTORS], basis)?;
    Ok(archive.set_tensor("gradient", &[vertices, 2, EIGENVECTORS], gradient)?)
}

/// The stored eigenbasis, once for each mesh of a batch.
fn read_spectra(archive: &Archive, meshes: usize) -> Result<SpectraBatch<f32>, NnError> {
    let [mass, eigenvalues] = [archive.tensor("mass")?, archive.tensor("eigenvalues")?];
    let bases = [archive.tensor("basis")?, archive.tensor("gradient")?].concat();
    let spectra = SpectraBatch::from_parts(vec![eigenvalues.len()], mass, bases, eigenvalues)?;
    SpectraBatch::join(&vec![&spectra; meshes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_range() {
        let values = numbers(2000, 1);
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        assert!(values.iter().any(|&value| value > 0.99) && values.iter().any(|&value| value < -0.99));
        assert_ne!(values, numbers(2000, 2));
    }
}
