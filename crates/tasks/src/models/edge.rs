//! EdgeConv, the layer of DGCNN (Wang, Sun, Liu, Sarma, Bronstein and Solomon 2019), on fixed nearest neighbours.

use super::stack::{VertexConv, forward, gathered};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_mesh::PointIndex;
use gemcnn_nn::layers::{EquivariantNormConfig, LinearConfig};
use gemcnn_nn::{Activation, Builder, FeatureType, Module, NetworkConfig, Real, SparseMap};
use rayon::prelude::*;
use serde::Serialize;

settings! {
    /// Settings of the model `edge`: the largest of one linear map over the nearest vertices in space.
    EdgeModel = "edge" {
        /// Number of nearest vertices, the vertex itself among them (default 16).
        neighbours: usize = 16,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl EdgeModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("neighbours", self.neighbours, 1..=256)?;
        let conv = |outputs| edge_conv(self.neighbours, outputs);
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for EdgeModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let nearest = Nearest { count: self.neighbours };
        vec![SparseMaps::new(Self::KIND, nearest).into()]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Recipe::of_convolutions(task).features)
    }
}

/// One map: `count` rows for each vertex, its nearest vertices. Where there are fewer, the last one is repeated.
#[derive(Debug, Serialize)]
struct Nearest {
    count: usize,
}

impl Patches for Nearest {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let points = surface.mesh.vertices();
        let index = PointIndex::new(points);
        let nearest = points.par_iter().flat_map_iter(|&point| {
            let mut found = Vec::new();
            index.within(point, f64::INFINITY, self.count, &mut found);
            let last = found.len().saturating_sub(1);
            (0..self.count).map(move |at| found[at.min(last)].point)
        });
        Ok(vec![SparseMap::copies(nearest.collect())])
    }
}

/// `y_i = A x_i + norm(max_j B x_j - B x_i)`, which is `max_j (A x_i + B (x_j - x_i) + b)` with the scale of the batch
/// normalisation in `B` and its offset as `b`. Each map is applied once to every vertex instead of once to every pair.
/// ReLU follows; it commutes with the maximum.
pub(super) fn edge_conv<T: Real>(neighbours: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new("edge", outputs, move |name, inputs, input_moment, builder| {
        let (own, other, norm) = builder.within(name, |builder| {
            let map = LinearConfig { bias: false, input_moment, ..LinearConfig::new(inputs, outputs) };
            let norm = EquivariantNormConfig::new(FeatureType::scalars(outputs));
            Ok((map.init("own", builder)?, map.init("other", builder)?, norm.init("norm", builder)?))
        })?;
        forward(move |tape, levels, x| {
            let own = own.forward(tape, levels, x.clone())?;
            let other = other.forward(tape, levels, x)?;
            let others = gathered(tape, levels, 0, other.clone())?;
            let largest = tape.block_maximum(neighbours, others)?;
            let minus = tape.scale(-1.0, other)?;
            let difference = tape.add(largest, minus)?;
            let difference = norm.forward(tape, levels, difference)?;
            tape.add(own, difference)
        })
    })
}
