//! Geodesic CNN (Masci, Boscaini, Bronstein and Vandergheynst 2015).

use super::stack::{RotatedMaximum, VertexConv, check_radius, discs, forward, gathered};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Shot, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_mesh::patches::polar_bins;
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::LinearConfig;
use gemcnn_nn::{Activation, Builder, FeatureType, Module, NetworkConfig, Real, SparseMap};
use serde::Serialize;

settings! {
    /// Settings of the model `geodesic`: polar bins on geodesic discs, a kernel applied in all rotations, and the
    /// largest response.
    GeodesicModel = "geodesic" {
        /// Number of radii (default 5).
        rings: usize = 5,
        /// Number of angles (default 16).
        angles: usize = 16,
        /// Radius of the discs, in square roots of the area (default 0.04).
        radius: f64 = 0.04,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl GeodesicModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("rings", self.rings, 1..=64)?;
        within("angles", self.angles, 1..=128)?;
        check_radius(self.radius)?;
        let conv = |outputs| geodesic_conv(self.rings, self.angles, outputs);
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for GeodesicModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let bins = PolarBins { rings: self.rings, angles: self.angles, radius: self.radius };
        vec![SparseMaps::new(Self::KIND, bins).into()]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Shot::default().into())
    }
}

/// One map: a row for each angle and ring of each vertex, angles first.
#[derive(Debug, Serialize)]
struct PolarBins {
    rings: usize,
    angles: usize,
    radius: f64,
}

impl Patches for PolarBins {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let (discs, radius) = discs(surface, self.radius)?;
        let areas = vertex_areas(surface.mesh);
        let rows = polar_bins(&discs, radius, [self.angles, self.rings], &areas);
        Ok(vec![SparseMap::weighted(rows)])
    }
}

/// `y_i = max_k sum W_(angle - k, ring) (D_(angle, ring) x)_i` over all rotations `k`.
pub(super) fn geodesic_conv<T: Real>(rings: usize, angles: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new("geodesic", outputs, move |name, inputs, input_moment, builder| {
        let ring = rings * inputs;
        let config = LinearConfig { bias: false, input_moment, ..LinearConfig::new(angles * ring, outputs) };
        // The weights of an output and an angle are a row. A rotation moves them on by some angles.
        let all = (0..angles * outputs * angles).map(|row| {
            let (rotation, output) = (row / angles / outputs, row / angles % outputs);
            let angle = (row % angles + angles - rotation) % angles;
            ((output * angles + angle) as u32, 0.0)
        });
        let kernel = RotatedMaximum::new((name, config), FeatureType::scalars(ring), angles, all, builder)?;
        forward(move |tape, levels, x| {
            let patches = gathered(tape, levels, 0, x)?;
            kernel.forward(tape, patches)
        })
    })
}
