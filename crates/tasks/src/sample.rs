//! Samples: prepared meshes with features and targets.

use crate::TaskError;
use gemcnn_mesh::{GaugeGraph, Hierarchy};
use gemcnn_nn::{FeatureType, GraphBatch, HeatBatch, HierarchyBatch, SpectraBatch, Target};
use std::sync::Arc;

/// A mesh with input features and a target.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Name, for messages.
    pub name: String,
    /// Gauge graph; the finest level of the hierarchy, if there is one.
    pub graph: Arc<GaugeGraph>,
    /// All levels, for models that pool.
    pub hierarchy: Option<Arc<Hierarchy>>,
    /// Eigenvectors of the Laplacians of the mesh, for models on surfaces.
    pub spectra: Option<Arc<SpectraBatch<f32>>>,
    /// Laplacian and gradient of the mesh, for models with implicit diffusion.
    pub heat: Option<Arc<HeatBatch<f32>>>,
    /// Type of the features of each vertex.
    pub kind: FeatureType,
    /// Features of the vertices, row after row.
    pub features: Vec<f32>,
    /// Target: one row for each vertex, or a single row for the whole mesh. Values of order above 0 are
    /// coefficients in the frames of the vertices.
    pub target: Target<f32>,
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
    fn load(&self, index: usize) -> Result<Sample, TaskError>;

    /// Checksum of the content of a sample, by default of its name. A run can be resumed only with the
    /// same samples.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        Ok(*blake3::hash(self.name(index).as_bytes()).as_bytes())
    }

    /// The graphs of any batch of `count` samples, for sources where they depend on the position in the batch
    /// only. By default each sample has its own graph.
    fn shared_graphs(&self, count: usize) -> Option<Arc<HierarchyBatch<f32>>> {
        let _ = count;
        None
    }
}

/// Joins the graphs of samples, and their hierarchies, eigenvectors and Laplacians if they have any.
///
/// # Errors
/// Samples of which only some have a hierarchy, eigenvectors or Laplacians, or hierarchies of different depth.
pub fn join_graphs(samples: &[Sample]) -> Result<HierarchyBatch<f32>, TaskError> {
    let hierarchies: Vec<&Hierarchy> = samples
        .iter()
        .filter_map(|sample| sample.hierarchy.as_deref())
        .collect();
    let graphs = match hierarchies.len() {
        0 => GraphBatch::new(samples.iter().map(|sample| &*sample.graph))?.into(),
        count if count == samples.len() => HierarchyBatch::new(hierarchies)?,
        _ => return Err(only_some("a hierarchy")),
    };
    let spectra: Vec<_> = (samples.iter())
        .filter_map(|sample| sample.spectra.as_ref())
        .collect();
    let graphs = match &spectra[..] {
        [] => graphs,
        [single] if samples.len() == 1 => graphs.with_spectra(Arc::clone(single))?,
        _ if spectra.len() == samples.len() => {
            let spectra: Vec<&SpectraBatch<f32>> = spectra.iter().map(|s| &***s).collect();
            graphs.with_spectra(SpectraBatch::join(&spectra)?)?
        }
        _ => return Err(only_some("eigenvectors")),
    };
    let heat: Vec<_> = (samples.iter())
        .filter_map(|sample| sample.heat.as_ref())
        .collect();
    match &heat[..] {
        [] => Ok(graphs),
        [single] if samples.len() == 1 => Ok(graphs.with_heat(Arc::clone(single))?),
        _ if heat.len() == samples.len() => {
            let heat: Vec<&HeatBatch<f32>> = heat.iter().map(|h| &***h).collect();
            Ok(graphs.with_heat(HeatBatch::join(&heat)?)?)
        }
        _ => Err(only_some("Laplacians")),
    }
}

fn only_some(what: &str) -> TaskError {
    TaskError::setting("batch", format!("only some samples have {what}"))
}
