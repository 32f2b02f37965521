//! ZerNet (Sun, Rooke, Charton, He, Lu and Baek 2020).

use super::stack::{RotatedMaximum, begin, check_radius, discs, gathered};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, Patches, SparseMaps};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Settings, Task, TaskError};
use gemcnn_mesh::patches::ZernikeFit;
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::{EquivariantNorm, EquivariantNormConfig, LinearConfig};
use gemcnn_nn::{
    Activation, Builder, FeatureType, LayerConfig, Levels, Module, NetworkConfig, NnError, Real, SparseMap, Stage,
    Tape, Var,
};
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
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        within("degree", self.degree, 0..=12)?;
        within("rotations", self.rotations, 1..=128)?;
        check_radius(self.radius)?;
        let conv = |outputs| ZernikeConv {
            multiplicities: (0..=self.degree).map(|order| (self.degree - order) / 2 + 1).collect(),
            rotations: self.rotations,
            outputs,
        };
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for ZernikeModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
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
#[derive(Debug)]
pub(super) struct ZernikeConv {
    /// Number of polynomials of each order.
    pub multiplicities: Vec<usize>,
    pub rotations: usize,
    pub outputs: usize,
}

#[derive(Debug)]
struct ZernikeLayer<T> {
    input: FeatureType,
    coefficients: FeatureType,
    norm: EquivariantNorm,
    kernel: RotatedMaximum<T>,
}

impl<T: Real> LayerConfig<T> for ZernikeConv {
    fn word(&self) -> &'static str {
        "zernike"
    }

    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>, NnError> {
        let (inputs, _) = begin(name, stage, self.outputs)?;
        let channels: Vec<usize> = self.multiplicities.iter().map(|m| m * inputs).collect();
        let coefficients = FeatureType::new(&channels);
        builder.within(name, |builder| {
            let norm = EquivariantNormConfig::new(coefficients.clone());
            let map = LinearConfig { bias: false, ..LinearConfig::new(coefficients.dimension(), self.outputs) };
            let kind = coefficients.clone();
            // Weights that rotate back respond as coefficients that rotate.
            let (count, rotations) = (self.outputs, self.rotations);
            let all = (0..rotations * count).map(|row| {
                let angle = TAU * (row / count) as f64 / rotations as f64;
                ((row % count) as u32, -angle)
            });
            Ok(Box::new(ZernikeLayer {
                input: FeatureType::scalars(inputs),
                coefficients,
                norm: norm.init("norm", builder)?,
                kernel: RotatedMaximum::new(("map", map), kind, rotations, all, builder)?,
            }) as Box<dyn Module<T>>)
        })
    }
}

impl<T: Real> Module<T> for ZernikeLayer<T> {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        self.kernel.output()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let coefficients = gathered(tape, levels, 0, x)?.with_kind(self.coefficients.clone())?;
        let coefficients = self.norm.forward(tape, levels, coefficients)?;
        self.kernel.forward(tape, coefficients.into_scalars())
    }
}
