//! ZerNet (Sun, Rooke, Charton, He, Lu and Baek 2020).

use super::stack::{RotatedMaximum, VertexConv, check_radius, discs, forward, gathered};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_mesh::patches::ZernikeFit;
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::{EquivariantNormConfig, LinearConfig};
use gemcnn_nn::{Activation, Builder, FeatureType, Module, NetworkConfig, Real, SparseMap};
use serde::Serialize;
use std::f64::consts::TAU;

settings! {
    /// Settings of the model `zernike`: Zernike coefficients of the features on geodesic discs, kernels that are
    /// coefficients too, applied in several rotations, and the largest response.
    ZernikeModel = "zernike" {
        /// Highest degree of the polynomials (default 4, which makes 15 of them).
        degree: usize = 4,
        /// Number of rotations (default 8).
        rotations: usize = 8,
        /// Radius of the discs, in square roots of the area (default 0.06).
        radius: f64 = 0.06,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl ZernikeModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("degree", self.degree, 0..=12)?;
        within("rotations", self.rotations, 1..=128)?;
        check_radius(self.radius)?;
        let conv = |outputs| zernike_conv(self.degree, self.rotations, outputs);
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for ZernikeModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let coefficients = Coefficients { degree: self.degree, radius: self.radius };
        vec![SparseMaps::new(Self::KIND, coefficients).into()]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Recipe::of_convolutions(task).features)
    }
}

/// One map: a row for each polynomial of each vertex.
#[derive(Debug, Serialize)]
struct Coefficients {
    degree: usize,
    radius: f64,
}

impl Patches for Coefficients {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let (discs, radius) = discs(surface, self.radius)?;
        let areas = vertex_areas(surface.mesh);
        let fit = ZernikeFit::new(&discs, radius, self.degree, &areas);
        Ok(vec![SparseMap::weighted(fit.rows)])
    }
}

/// `y_i = max_k W R_k norm(Z x)_i`: `Z x` are Zernike coefficients, features of the angular orders, and `R_k` rotates
/// them by `2 pi k / rotations`. The batch normalisation is a scale of each column of `W`. Without it, the mean value
/// over the disc hides the other coefficients, which are small where features are smooth.
pub(super) fn zernike_conv<T: Real>(degree: usize, rotations: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new("zernike", outputs, move |name, inputs, _, builder| {
        // Number of polynomials of each order, for each input.
        let channels: Vec<usize> = (0..=degree).map(|order| ((degree - order) / 2 + 1) * inputs).collect();
        let coefficients = FeatureType::new(&channels);
        let (norm, kernel) = builder.within(name, |builder| {
            let norm = EquivariantNormConfig::new(coefficients.clone());
            let map = LinearConfig { bias: false, ..LinearConfig::new(coefficients.dimension(), outputs) };
            // Weights that rotate back respond as coefficients that rotate.
            let all = (0..rotations * outputs).map(|row| {
                let angle = TAU * (row / outputs) as f64 / rotations as f64;
                ((row % outputs) as u32, -angle)
            });
            let norm = norm.init("norm", builder)?;
            let kernel = RotatedMaximum::new(("map", map), coefficients.clone(), rotations, all, builder)?;
            Ok((norm, kernel))
        })?;
        forward(move |tape, levels, x| {
            let values = gathered(tape, levels, 0, x)?.with_kind(coefficients.clone())?;
            let values = norm.forward(tape, levels, values)?;
            kernel.forward(tape, values.into_scalars())
        })
    })
}
