//! SpiralNet++ (Gong, Chen, Bronstein and Zafeiriou 2019).

use super::stack::patch_conv;
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_mesh::patches::spirals;
use gemcnn_nn::{Activation, Builder, Module, NetworkConfig, Real, SparseMap};
use serde::Serialize;

settings! {
    /// Settings of the model `spiral`: the features along a spiral around each vertex, concatenated, and one linear
    /// map. Spirals depend on the numbers of the vertices, so the meshes must be registered.
    SpiralModel = "spiral" {
        /// Vertices of a spiral (default 10).
        length: usize = 10,
        /// Step between the vertices of the spiral that are taken (default 1: all).
        dilation: usize = 1,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl SpiralModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("length", self.length, 1..=256)?;
        within("dilation", self.dilation, 1..=256)?;
        let conv = |outputs| patch_conv(Self::KIND, self.length, outputs);
        (self.layers).network(Self::KIND, spec, (false, Activation::Elu), conv)
    }
}

impl Model for SpiralModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let spirals = Spirals { length: self.length, dilation: self.dilation };
        vec![SparseMaps::new(Self::KIND, spirals).into()]
    }

    fn needs_registration(&self) -> bool {
        true
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Recipe::of_convolutions(task).features)
    }
}

/// One map: `length` rows for each vertex, one for each vertex of its spiral. Rows beyond the end of a spiral are zero.
#[derive(Debug, Serialize)]
struct Spirals {
    length: usize,
    dilation: usize,
}

impl Patches for Spirals {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let spirals = spirals(surface.mesh, self.length, self.dilation);
        let rows = spirals.iter().flat_map(|spiral| (0..self.length).map(|at| spiral.get(at).map(|&v| (v, 1.0))));
        Ok(vec![SparseMap::weighted(rows)])
    }
}
