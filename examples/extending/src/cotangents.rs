//! A kind of geometry: the cotangent weights of a mesh, and a model that reads them.

use gemcnn_mesh::{GaugeGraph, Mesh};
use gemcnn_nn::layers::{GlobalPool, Linear, LinearConfig};
use gemcnn_nn::{
    Activation, Aggregation, Builder, Device, Extra, FeatureType, IncidenceBatch, IncidenceParts, LayerConfig, Levels,
    Module, Network, NnError, Stage, Tape, Var,
};
use gemcnn_tasks::data::{EntryReader, EntryWriter, ExtraConfig, ExtraSource};
use gemcnn_tasks::features::{FeatureError, Surface};
use gemcnn_tasks::models::{Head, Model, ModelSpec};
use gemcnn_tasks::{Settings, TaskError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The mean of the neighbours of each vertex with cotangent weights, as a sparse matrix of all meshes of a batch. The
/// weights of a row sum to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Cotangents {
    meshes: Vec<Arc<Rows>>,
    /// What operators read.
    pub matrix: IncidenceBatch<f32>,
}

/// The matrix of one mesh, in compressed rows.
#[derive(Debug, PartialEq)]
struct Rows {
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    weights: Vec<f64>,
}

impl Cotangents {
    fn new(meshes: Vec<Arc<Rows>>) -> Result<Self, NnError> {
        let parts = meshes.iter().map(|rows| IncidenceParts {
            columns: rows.offsets.len().saturating_sub(1),
            offsets: &rows.offsets,
            indices: &rows.neighbours,
            angles: None,
            weights: Some(&rows.weights),
        });
        Ok(Self { matrix: IncidenceBatch::new(&parts.collect::<Vec<_>>())?, meshes })
    }
}

impl Extra<f32> for Cotangents {
    fn name() -> &'static str {
        "cotangent weights"
    }

    fn join(parts: &[&Self]) -> Result<Self, NnError> {
        Self::new(parts.iter().flat_map(|part| part.meshes.iter().cloned()).collect())
    }

    fn fits(&self, mesh_offsets: &[u32]) -> bool {
        mesh_offsets.last().is_some_and(|&vertices| vertices as usize == self.matrix.row_count())
    }

    fn size_in_bytes(&self, _device: &Device) -> usize {
        self.matrix.size_in_bytes()
    }

    fn send(&self, device: &Device) -> Result<(), NnError> {
        self.matrix.copy_to(device)
    }
}

/// Settings of [`Cotangents`].
#[derive(Debug, Serialize)]
pub struct CotangentWeights {
    /// Smallest weight of an edge. Obtuse triangles have negative cotangents.
    pub least: f64,
}

impl ExtraSource for CotangentWeights {
    const NAME: &'static str = "cotangents";
    type Extra = Cotangents;

    fn compute(&self, surface: Surface<'_>) -> Result<Cotangents, FeatureError> {
        let points = surface.mesh.vertices();
        let mut sums: Vec<BTreeMap<u32, f64>> = vec![BTreeMap::new(); points.len()];
        for face in surface.mesh.faces().iter().filter(|face| face.len() == 3) {
            for place in 0..3 {
                let [apex, p, q] = [0, 1, 2].map(|step| face[(place + step) % 3]);
                let [a, b] = [p, q].map(|end| points[end as usize] - points[apex as usize]);
                let cotangent = 0.5 * a.dot(b) / a.cross(b).length().max(f64::MIN_POSITIVE);
                for (from, to) in [(p, q), (q, p)] {
                    *sums[from as usize].entry(to).or_insert(0.0) += cotangent;
                }
            }
        }
        let mut rows = Rows { offsets: vec![0], neighbours: Vec::new(), weights: Vec::new() };
        for row in &sums {
            let total: f64 = row.values().map(|weight| weight.max(self.least)).sum();
            rows.neighbours.extend(row.keys());
            rows.weights.extend(row.values().map(|weight| weight.max(self.least) / total));
            rows.offsets.push(rows.neighbours.len() as u32);
        }
        Ok(Cotangents::new(vec![Arc::new(rows)])?)
    }

    fn store(&self, cotangents: &Cotangents, entry: &mut EntryWriter) {
        for rows in &cotangents.meshes {
            entry.numbers(&rows.offsets);
            entry.numbers(&rows.neighbours);
            entry.numbers(&rows.weights);
        }
    }

    fn load(&self, mesh: &Mesh, _: &GaugeGraph, entry: &mut EntryReader<'_>) -> Option<Cotangents> {
        let rows = Rows { offsets: entry.numbers()?, neighbours: entry.numbers()?, weights: entry.numbers()? };
        let cotangents = Cotangents::new(vec![Arc::new(rows)]).ok()?;
        (cotangents.matrix.row_count() == mesh.vertex_count()).then_some(cotangents)
    }
}

/// Settings of the model `cotangent`: layers `y = W x + V C x`, where `C` are the cotangent weights.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CotangentModel {
    /// Channels of each layer (default `[16, 16]`).
    pub channels: Vec<usize>,
}

impl Default for CotangentModel {
    fn default() -> Self {
        Self { channels: vec![16, 16] }
    }
}

impl Settings for CotangentModel {
    const KIND: &'static str = "cotangent";
}

impl Model for CotangentModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        let mut network = Network::builder(spec.input.clone()).break_symmetry();
        for &outputs in &self.channels {
            network = network.layer(Smoothing { outputs }).activation(Activation::Relu);
        }
        let head = Head { width: 0, dropout: 0.0, pool: GlobalPool::Mean };
        Ok(Box::new(head.add(network, spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        vec![CotangentWeights { least: 0.01 }.into()]
    }
}

/// A layer of the model.
#[derive(Debug)]
struct Smoothing {
    outputs: usize,
}

#[derive(Debug)]
struct SmoothingLayer {
    input: FeatureType,
    linear: Linear,
}

impl LayerConfig<f32> for Smoothing {
    fn word(&self) -> &'static str {
        "smoothing"
    }

    fn init(
        &self,
        name: &str,
        stage: &mut Stage,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Box<dyn Module<f32>>, NnError> {
        if stage.pooled {
            return Err(NnError::setting("layer", "smoothing needs vertices").in_layer(name));
        }
        let (input, _) = stage.move_to(FeatureType::scalars(self.outputs), Vec::new());
        let linear = LinearConfig::new(2 * input.dimension(), self.outputs).init(name, builder)?;
        Ok(Box::new(SmoothingLayer { input, linear }))
    }
}

impl Module<f32> for SmoothingLayer {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        Module::<f32>::output(&self.linear)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, f32>, levels: Levels<'a, f32>, x: Var<f32>) -> Result<Var<f32>, NnError> {
        let cotangents: &Cotangents = levels.get()?;
        let means = tape.apply_incidence(Aggregation::Sum, &cotangents.matrix, x.clone())?;
        let both = tape.concatenate(x, means)?;
        self.linear.forward(tape, levels, both)
    }
}
