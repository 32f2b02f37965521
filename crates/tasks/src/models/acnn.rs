//! ACNN (Boscaini, Masci, Rodola and Bronstein 2016).

use super::stack::{check_radius, patch_conv};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Shot, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task, TaskError};
use gemcnn_mesh::patches::AnisotropicHeat;
use gemcnn_nn::{Activation, Builder, Module, NetworkConfig, Real, SparseMap};
use serde::Serialize;

/// Largest number of vertices of the disc of a kernel.
const DISC_LIMIT: usize = 64;

settings! {
    /// Settings of the model `acnn`: averages with anisotropic heat kernels along principal directions of curvature.
    AcnnModel = "acnn" {
        /// Number of directions over half a turn (default 8).
        angles: usize = 8,
        /// Diffusion times as numbers of steps, ascending (default `[1, 2, 4]`). Four steps spread to half the radius.
        steps: Vec<usize> = vec![1, 2, 4],
        /// Ratio of the conductivities along and across a direction (default 100).
        anisotropy: f64 = 100.0,
        /// Radius of the discs, in square roots of the area (default 0.04).
        radius: f64 = 0.04,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl AcnnModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("angles", self.angles, 1..=128)?;
        within("steps", self.steps.len(), 1..=64)?;
        for &steps in &self.steps {
            within("steps", steps, 1..=1000)?;
        }
        check_radius(self.radius)?;
        if !self.steps.is_sorted() {
            return Err(TaskError::setting("model: steps", "they must ascend"));
        }
        if !(1.0..=1e6).contains(&self.anisotropy) {
            let problem = format!("{} is out of range: must be from 1 to 1000000", self.anisotropy);
            return Err(TaskError::setting("model: anisotropy", problem));
        }
        let conv = |outputs| patch_conv(Self::KIND, self.angles * self.steps.len(), outputs);
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for AcnnModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let kernels = Kernels {
            angles: self.angles,
            steps: self.steps.clone(),
            anisotropy: self.anisotropy,
            radius: self.radius,
        };
        vec![SparseMaps::new(Self::KIND, kernels).into()]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Shot::default().into())
    }
}

/// One map: a row for each direction and time of each vertex.
#[derive(Debug, Serialize)]
struct Kernels {
    angles: usize,
    steps: Vec<usize>,
    anisotropy: f64,
    radius: f64,
}

impl Patches for Kernels {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let heat = AnisotropicHeat {
            radius: self.radius,
            angles: self.angles,
            anisotropy: self.anisotropy,
            steps: self.steps.clone(),
            limit: DISC_LIMIT,
        };
        Ok(vec![SparseMap::weighted(heat.rows(surface.mesh, surface.graph)?)])
    }
}
