//! FeaStNet (Verma, Boyer and Verbeek 2018).

use super::stack::{VertexConv, forward};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_nn::layers::{EquivariantNormConfig, LinearConfig};
use gemcnn_nn::{Activation, Aggregation, Builder, FeatureType, Module, NetworkConfig, PatchBatch, Real, SparseMap};
use serde::Serialize;

settings! {
    /// Settings of the model `feast`: each neighbour is assigned to several weight matrices by the difference of its
    /// features to those of the vertex.
    FeastModel = "feast" {
        /// Number of weight matrices (default 32).
        matrices: usize = 32,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl FeastModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("matrices", self.matrices, 1..=1024)?;
        let conv = |outputs| feast_conv(self.matrices, outputs);
        (self.layers).network(Self::KIND, spec, (false, Activation::Relu), conv)
    }
}

impl Model for FeastModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        vec![SparseMaps::new(Self::KIND, Neighbours {}).into()]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe { rate: 0.01, ..Recipe::of_patches(task, Recipe::of_convolutions(task).features) }
    }
}

/// Maps with a row for each pair of a vertex and a neighbour, or the vertex itself: the neighbour, the difference of
/// the neighbour to the vertex, and the vertex.
#[derive(Debug, Serialize)]
struct Neighbours {}

impl Patches for Neighbours {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let graph = surface.graph;
        let pairs: Vec<[u32; 2]> = (0..graph.vertex_count())
            .flat_map(|vertex| {
                let own = vertex as u32;
                let neighbours = &graph.neighbours()[graph.row(vertex)];
                [own].into_iter().chain(neighbours.iter().copied()).map(move |q| [own, q])
            })
            .collect();
        let copies = |at: usize| SparseMap::copies(pairs.iter().map(|pair| pair[at]).collect());
        let differences = pairs.iter().map(|&[own, other]| [(other, 1.0), (own, -1.0)]);
        Ok(vec![copies(1), SparseMap::weighted(differences), copies(0)])
    }
}

/// `y_i = b + sum_m W_m (1 / |N_i|) sum_j q_m(x_j - x_i) x_j` with `q = softmax(norm(U (x_j - x_i)))`; `N_i` are the
/// neighbours and the vertex itself. The batch normalisation is a scale of each row of `U` and the offset `c`. Without
/// it, differences along edges are so small that all matrices weigh the same, and `U` hardly learns.
pub(super) fn feast_conv<T: Real>(matrices: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new("feast", outputs, move |name, inputs, input_moment, builder| {
        let (assign, norm, linear) = builder.within(name, |builder| {
            let assign = LinearConfig { bias: false, ..LinearConfig::new(inputs, matrices) };
            let norm = EquivariantNormConfig::new(FeatureType::scalars(matrices));
            let linear = LinearConfig {
                // Each matrix sees its share of the features, which is about `1 / matrices`.
                input_moment: input_moment / (matrices as f64).powi(2),
                ..LinearConfig::new(inputs * matrices, outputs)
            };
            Ok((assign.init("assign", builder)?, norm.init("norm", builder)?, linear.init("map", builder)?))
        })?;
        forward(move |tape, levels, x| {
            let patches: &PatchBatch<T> = levels.get()?;
            let differences = tape.apply_incidence(Aggregation::Sum, patches.map(1)?, x.clone())?;
            let scores = assign.forward(tape, levels, differences)?;
            let scores = norm.forward(tape, levels, scores)?;
            let shares = tape.softmax(scores)?;
            let values = tape.apply_incidence(Aggregation::Sum, patches.map(0)?, x)?;
            let means = tape.mix_incidence(Aggregation::Mean, patches.map(2)?, values, shares)?;
            linear.forward(tape, levels, means)
        })
    })
}
