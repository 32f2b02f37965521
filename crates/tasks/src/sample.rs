//! Meshes ready to be learned on, alone and in batches.

use crate::TaskError;
use gemcnn_mesh::{GaugeGraph, Hierarchy};
use gemcnn_nn::{FeatureType, GraphBatch, HierarchyBatch, IGNORE, Levels};
use std::sync::Arc;

/// What a network should say of a mesh.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// Not known.
    Unknown,
    /// A class for each vertex; [`IGNORE`] where it is not known.
    VertexLabels(Vec<u32>),
    /// A class for the whole mesh.
    MeshLabel(u32),
    /// Numbers for each vertex, as features of a type: tangent vectors are of order 1, in the frame of
    /// the vertex. A vertex that is not known has NaN in all its numbers.
    VertexValues {
        /// Type of each row.
        kind: FeatureType,
        /// Row after row.
        values: Vec<f32>,
    },
}

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
    /// What the network should say.
    pub target: Target,
}

/// Samples that are loaded one by one, each as often as it is asked for, from any thread.
pub trait SampleSource: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
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

    /// A checksum of what a sample is made from: a run goes on only with the samples that it began with. By
    /// default that of its name.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        Ok(*blake3::hash(self.name(index).as_bytes()).as_bytes())
    }
}

/// Samples of one kind as one graph, in their order.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Their graphs.
    pub graph: GraphBatch<f32>,
    /// Their hierarchies, if they have any; the first level is then the graph once more.
    pub hierarchy: Option<HierarchyBatch<f32>>,
    /// Features of all vertices, row after row.
    pub features: Vec<f32>,
    /// Labels of all vertices, or of all meshes.
    pub labels: Vec<u32>,
    /// Values of all vertices, row after row.
    pub values: Vec<f32>,
}

impl Batch {
    /// Joins samples.
    ///
    /// # Errors
    /// Features or targets of different types, or another number of rows than vertices: the sample is
    /// named.
    pub fn new(samples: &[&Sample]) -> Result<Self, TaskError> {
        let graph = GraphBatch::new(samples.iter().map(|sample| &*sample.graph))?;
        let with_hierarchy = samples
            .iter()
            .filter_map(|sample| sample.hierarchy.as_deref());
        let hierarchies: Vec<&Hierarchy> = with_hierarchy.collect();
        let hierarchy = match hierarchies.len() {
            0 => None,
            count if count == samples.len() => Some(HierarchyBatch::new(hierarchies)?),
            _ => {
                return Err(TaskError::setting(
                    "batch",
                    "only some samples have a hierarchy",
                ));
            }
        };
        let mut batch = Self {
            graph,
            hierarchy,
            features: Vec::new(),
            labels: Vec::new(),
            values: Vec::new(),
        };
        for sample in samples {
            batch.append(samples[0], sample)?;
        }
        Ok(batch)
    }

    fn append(&mut self, first: &Sample, sample: &Sample) -> Result<(), TaskError> {
        let refuse = |problem: String| Err(TaskError::setting(&sample.name, problem));
        let vertices = sample.graph.vertex_count();
        if sample.kind != first.kind {
            return refuse(format!(
                "its features are {}, but those of {} are {}",
                sample.kind, first.name, first.kind
            ));
        }
        let rows = |what: &str, found: usize, width: usize| match found == vertices * width {
            true => Ok(()),
            false => Err(TaskError::setting(
                &sample.name,
                format!(
                    "{found} numbers of {what}, but {vertices} vertices need {}",
                    vertices * width
                ),
            )),
        };
        rows("features", sample.features.len(), sample.kind.dimension())?;
        self.features.extend_from_slice(&sample.features);
        match (&sample.target, &first.target) {
            (Target::Unknown, Target::Unknown) => {}
            (Target::VertexLabels(labels), Target::VertexLabels(_)) => {
                rows("labels", labels.len(), 1)?;
                self.labels.extend_from_slice(labels);
            }
            (Target::MeshLabel(label), Target::MeshLabel(_)) => self.labels.push(*label),
            (Target::VertexValues { kind, values }, Target::VertexValues { kind: other, .. })
                if kind == other =>
            {
                rows("values", values.len(), kind.dimension())?;
                self.values.extend_from_slice(values);
            }
            _ => {
                return refuse(format!(
                    "its target is of another form than that of {}",
                    first.name
                ));
            }
        }
        Ok(())
    }

    /// How many vertices or meshes have a label.
    pub fn labelled(&self) -> usize {
        self.labels.iter().filter(|&&label| label != IGNORE).count()
    }
}

/// What a network runs on: the hierarchies if there are any, else the graphs.
impl<'a> From<&'a Batch> for Levels<'a, f32> {
    fn from(batch: &'a Batch) -> Self {
        match &batch.hierarchy {
            Some(hierarchy) => hierarchy.into(),
            None => (&batch.graph).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::{GeometryOptions, shapes};

    fn sample(subdivisions: u32, target: Target) -> Sample {
        let mesh = shapes::icosphere(subdivisions).unwrap();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        Sample {
            name: format!("sphere {subdivisions}"),
            features: vec![subdivisions as f32; graph.vertex_count()],
            graph: graph.into(),
            hierarchy: None,
            kind: FeatureType::scalars(1),
            target,
        }
    }

    #[test]
    fn samples_of_unequal_size_are_joined_in_order() {
        let small = sample(0, Target::VertexLabels(vec![1; 12]));
        let large = sample(1, Target::VertexLabels(vec![IGNORE; 42]));
        let batch = Batch::new(&[&large, &small]).unwrap();
        assert_eq!(batch.graph.vertices_of(1), 42..54);
        assert_eq!((batch.features[41], batch.features[42]), (1.0, 0.0));
        assert_eq!((batch.labels.len(), batch.labelled()), (54, 12));
    }

    #[test]
    fn samples_that_do_not_fit_are_named() {
        let labelled = sample(0, Target::VertexLabels(vec![1; 12]));
        let short = sample(1, Target::VertexLabels(vec![1; 12]));
        let other = sample(1, Target::MeshLabel(1));
        for bad in [short, other] {
            let message = Batch::new(&[&labelled, &bad]).unwrap_err().to_string();
            assert!(message.starts_with("sphere 1: "), "{message}");
        }
    }
}
