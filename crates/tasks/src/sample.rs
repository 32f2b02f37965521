//! Samples: prepared meshes with features and targets.

use crate::Result;
use gemcnn_mesh::{GaugeGraph, Hierarchy};
use gemcnn_nn::{Elements, Extras, FeatureType, Geometry, Target};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// A mesh with input features and a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name, for messages.
    pub name: String,
    /// The gauge graph of the mesh, and coarser levels for models that pool.
    pub hierarchy: Arc<Hierarchy>,
    /// What the model reads besides graphs, and the faces or edges that the output is for.
    pub extras: Extras<f32>,
    /// Area of each vertex, for scores by area; empty if it is not known.
    pub areas: Vec<f32>,
    /// Type of the features of each vertex.
    pub kind: FeatureType,
    /// Features of the vertices, row after row.
    pub features: Vec<f32>,
    /// Target: one row for each vertex, face or edge, or a single row for the whole mesh. Values of order above 0 are
    /// coefficients in the frames of the vertices.
    pub target: Target,
}

#[cfg(test)]
impl Sample {
    /// A mesh with its geometry and areas, without features and target.
    pub(crate) fn bare(mesh: &gemcnn_mesh::Mesh) -> Self {
        let graph = GaugeGraph::new(mesh, &Default::default()).unwrap();
        let areas = gemcnn_mesh::vertex_areas(mesh);
        Self {
            name: "bare".into(),
            hierarchy: Arc::new(graph.into()),
            extras: Extras::default(),
            areas: areas.iter().map(|&area| area as f32).collect(),
            kind: FeatureType::scalars(0),
            features: Vec::new(),
            target: Target::Unknown,
        }
    }
}

impl Sample {
    /// The gauge graph of the mesh.
    pub fn graph(&self) -> &GaugeGraph {
        self.hierarchy.graph()
    }

    /// What the model reads, in the form of the operators.
    ///
    /// # Errors
    /// More vertices or edges than 32-bit indices can address.
    pub fn geometry(&self) -> Result<Geometry<f32>> {
        Ok(Geometry::new([&*self.hierarchy])?.with_extras(self.extras.clone())?)
    }

    /// Square root of the area of the mesh; `None` if it is not known.
    pub(crate) fn size(&self) -> Option<f64> {
        root_of_area(&self.areas)
    }

    /// Number of vertices, or of the faces or edges that the output is for.
    pub fn row_count(&self) -> usize {
        let elements: Option<&Elements<f32>> = self.extras.get();
        elements.map_or_else(|| self.graph().vertex_count(), Elements::count)
    }
}

/// Square root of the sum of areas; `None` if there are none.
pub(crate) fn root_of_area(areas: &[f32]) -> Option<f64> {
    let area: f64 = areas.iter().map(|&area| f64::from(area)).sum();
    (!areas.is_empty()).then(|| area.sqrt())
}

/// An epoch of a training run, for random changes of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// Seed of the run.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
}

impl Visit {
    /// Random numbers for a sample in this epoch.
    pub fn random(self, index: usize) -> ChaCha8Rng {
        let mut hasher = blake3::Hasher::new_derive_key("gemcnn visit of a sample");
        for number in [self.seed, self.epoch, index as u64] {
            hasher.update(&number.to_le_bytes());
        }
        ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
    }
}

/// A collection of samples that are loaded one by one, from any thread.
pub trait SampleSource: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Number of versions of each mesh (default 1). Version `v` of mesh `i` is sample `i * versions + v`. An epoch of
    /// training visits one version of each mesh.
    fn versions(&self) -> usize {
        1
    }

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of a sample, for messages.
    fn name(&self, index: usize) -> String;

    /// Loads a sample.
    ///
    /// # Errors
    /// Problems with its files, geometry or target.
    fn load(&self, index: usize) -> Result<Sample>;

    /// Loads a sample for a step of training, where it may be changed at random. The result depends on the sample and
    /// on the visit alone. By default the sample is as [`load`](Self::load) returns it.
    fn visit(&self, index: usize, visit: Visit) -> Result<Sample> {
        let _ = visit;
        self.load(index)
    }

    /// Columns of the features that a step of training sets to 0 after they are scaled (default: none). The result
    /// depends on the sample and on the visit alone.
    fn dropped(&self, index: usize, visit: Visit) -> Vec<usize> {
        let _ = (index, visit);
        Vec::new()
    }

    /// The target of a sample. By default it is loaded for this, as for [`extent`](Self::extent).
    ///
    /// # Errors
    /// Problems with its files or target.
    fn target(&self, index: usize) -> Result<Target> {
        Ok(self.load(index)?.target)
    }

    /// Number of vertices of a sample, and the square root of its area if it is known.
    ///
    /// # Errors
    /// Problems with its files.
    fn extent(&self, index: usize) -> Result<(usize, Option<f64>)> {
        let sample = self.load(index)?;
        Ok((sample.graph().vertex_count(), sample.size()))
    }

    /// Samples from which the scaling of features is computed before the first step: by default, the first version of
    /// each mesh. The result depends on the source and the seed alone.
    fn typical(&self, seed: u64) -> Vec<usize> {
        let _ = seed;
        (0..self.len()).step_by(self.versions().max(1)).collect()
    }

    /// Checksum of the content of a sample, by default of its name. A run can be resumed only with the
    /// same samples.
    fn checksum(&self, index: usize) -> Result<[u8; 32]> {
        Ok(*blake3::hash(self.name(index).as_bytes()).as_bytes())
    }

    /// The graphs of any batch of `count` samples, for sources where they depend on the position in the batch
    /// only. By default each sample has its own graph.
    fn shared_graphs(&self, count: usize) -> Option<Arc<Geometry<f32>>> {
        let _ = count;
        None
    }
}
