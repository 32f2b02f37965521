//! FeaStNet (Verma, Boyer and Verbeek 2018).

use super::stack::begin;
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Settings, Task, TaskError};
use gemcnn_nn::layers::{EquivariantNorm, EquivariantNormConfig, Linear, LinearConfig};
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, LayerConfig, Levels, Module, NetworkConfig, NnError, PatchBatch,
    Real, SparseMap, Stage, Tape, Var,
};
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
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        within("matrices", self.matrices, 1..=1024)?;
        let conv = |outputs| FeastConv { matrices: self.matrices, outputs };
        (self.layers).network(Self::KIND, spec, (false, Activation::Relu), conv)
    }
}

impl Model for FeastModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
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
#[derive(Debug)]
pub(super) struct FeastConv {
    pub matrices: usize,
    pub outputs: usize,
}

#[derive(Debug)]
struct FeastLayer {
    input: FeatureType,
    assign: Linear,
    norm: EquivariantNorm,
    linear: Linear,
}

impl<T: Real> LayerConfig<T> for FeastConv {
    fn word(&self) -> &'static str {
        "feast"
    }

    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>, NnError> {
        let (inputs, input_moment) = begin(name, stage, self.outputs)?;
        builder.within(name, |builder| {
            let assign = LinearConfig { bias: false, ..LinearConfig::new(inputs, self.matrices) };
            let norm = EquivariantNormConfig::new(FeatureType::scalars(self.matrices));
            let linear = LinearConfig {
                // Each matrix sees its share of the features, which is about `1 / matrices`.
                input_moment: input_moment / (self.matrices as f64).powi(2),
                ..LinearConfig::new(inputs * self.matrices, self.outputs)
            };
            Ok(Box::new(FeastLayer {
                input: FeatureType::scalars(inputs),
                assign: assign.init("assign", builder)?,
                norm: norm.init("norm", builder)?,
                linear: linear.init("map", builder)?,
            }) as Box<dyn Module<T>>)
        })
    }
}

impl<T: Real> Module<T> for FeastLayer {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        Module::<T>::output(&self.linear)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let patches: &PatchBatch<T> = levels.get()?;
        let differences = tape.apply_incidence(Aggregation::Sum, patches.map(1)?, x.clone())?;
        let scores = self.assign.forward(tape, levels, differences)?;
        let scores = self.norm.forward(tape, levels, scores)?;
        let shares = tape.softmax(scores)?;
        let values = tape.apply_incidence(Aggregation::Sum, patches.map(0)?, x)?;
        let means = tape.mix_incidence(Aggregation::Mean, patches.map(2)?, values, shares)?;
        self.linear.forward(tape, levels, means)
    }
}
