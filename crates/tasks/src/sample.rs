//! Meshes ready to be learned from.

use crate::TaskError;
use gemcnn_mesh::{GaugeGraph, Hierarchy};
use gemcnn_nn::{FeatureType, GraphBatch, HierarchyBatch, Target};
use std::sync::Arc;

/// A mesh, what the network sees of it, and what it should say.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Where it comes from, for messages.
    pub name: String,
    /// Its geometry; the finest level of the hierarchy where there is one.
    pub graph: Arc<GaugeGraph>,
    /// Its coarser levels, for models that pool.
    pub hierarchy: Option<Arc<Hierarchy>>,
    /// Type of the features of each vertex.
    pub kind: FeatureType,
    /// Features of the vertices, row after row.
    pub features: Vec<f32>,
    /// What is known of it: a row for each vertex, or a single one for the whole mesh. Values of order
    /// above 0 are coefficients in the frames of the vertices.
    pub target: Target<f32>,
}

/// Samples that are loaded one by one, each as often as it is asked for, from any thread.
pub trait SampleSource: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of a sample, for messages.
    fn name(&self, index: usize) -> String;

    /// Loads a sample.
    ///
    /// # Errors
    /// Whatever is wrong with its files, its geometry or its target.
    fn load(&self, index: usize) -> Result<Sample, TaskError>;

    /// A checksum of what a sample is made from: a run is resumed only with the samples that it began
    /// with. By default that of its name.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        Ok(*blake3::hash(self.name(index).as_bytes()).as_bytes())
    }

    /// The graphs of any batch of `count` samples, for sources where the position in the batch decides the
    /// graph. By default each sample has its own.
    fn shared_graphs(&self, count: usize) -> Option<Arc<HierarchyBatch<f32>>> {
        let _ = count;
        None
    }
}

/// Joins the graphs of samples, or their hierarchies if they have any.
///
/// # Errors
/// Samples of which only some have a hierarchy, or hierarchies of different depth.
pub fn join_graphs(samples: &[Sample]) -> Result<HierarchyBatch<f32>, TaskError> {
    let hierarchies: Vec<&Hierarchy> = samples
        .iter()
        .filter_map(|sample| sample.hierarchy.as_deref())
        .collect();
    match hierarchies.len() {
        0 => Ok(GraphBatch::new(samples.iter().map(|sample| &*sample.graph))?.into()),
        count if count == samples.len() => Ok(HierarchyBatch::new(hierarchies)?),
        _ => Err(TaskError::setting(
            "batch",
            "only some samples have a hierarchy",
        )),
    }
}
