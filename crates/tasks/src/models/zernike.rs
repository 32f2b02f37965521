//! ZerNet (Sun, Rooke, Charton, He, Lu and Baek 2020).

use super::stack::{begin, block_maximum, check_radius, discs, gathered};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{PatchSettings, Patches};
use crate::features::{FeatureError, Surface};
use crate::{Settings, Task, TaskError};
use gemcnn_mesh::patches::ZernikeFit;
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::{EquivariantNorm, EquivariantNormConfig, Linear, LinearConfig};
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, LayerConfig, Levels, Module, NetworkConfig,
    NnError, Real, SparseMap, Stage, Tape, Var,
};
use serde::{Deserialize, Serialize};
use std::f32::consts::TAU;

/// Settings of the model `zernike`: Zernike coefficients of the features on geodesic discs, kernels that are coefficients
/// too, applied in several rotations, and the largest response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZernikeModel {
    /// Highest degree of the polynomials (default 4, which makes 15 of them).
    pub degree: usize,
    /// Number of rotations (default 8).
    pub rotations: usize,
    /// Radius of the discs, in square roots of the area (default 0.04).
    pub radius: f64,
    /// The layers.
    pub layers: Stack,
}

impl Default for ZernikeModel {
    fn default() -> Self {
        Self {
            degree: 4,
            rotations: 8,
            radius: 0.04,
            layers: Stack::default(),
        }
    }
}

impl Settings for ZernikeModel {
    const KIND: &'static str = "zernike";
}

impl ZernikeModel {
    /// The layers of the network.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        within("degree", self.degree, 0..=12)?;
        within("rotations", self.rotations, 1..=128)?;
        check_radius(self.radius)?;
        let conv = |outputs| ZernikeConv {
            multiplicities: (0..=self.degree)
                .map(|order| (self.degree - order) / 2 + 1)
                .collect(),
            rotations: self.rotations,
            outputs,
        };
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for ZernikeModel {
    fn build(
        &self,
        spec: &ModelSpec,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Box<dyn Module<f32>>, TaskError> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn patches(&self) -> Option<PatchSettings> {
        let coefficients = Coefficients {
            degree: self.degree,
            rotations: self.rotations,
            radius: self.radius,
        };
        Some(PatchSettings::new(Self::KIND, coefficients))
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Recipe::of_convolutions(task).features)
    }
}

/// Two maps: a row for each polynomial of each vertex, and `rotations` rows for each vertex that copy it, rotated.
#[derive(Debug, Serialize)]
struct Coefficients {
    degree: usize,
    rotations: usize,
    radius: f64,
}

impl Patches for Coefficients {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let (discs, radius) = discs(surface, self.radius)?;
        let areas = vertex_areas(surface.mesh);
        let fit = ZernikeFit::new(&discs, radius, self.degree, &areas);
        let vertices = 0..discs.len() as u32;
        let own = vertices.flat_map(|vertex| (0..self.rotations).map(move |_| vertex));
        let rotated = SparseMap::copies(own.collect());
        let angle = |row: usize| TAU * (row % self.rotations) as f32 / self.rotations as f32;
        Ok(vec![
            SparseMap::weighted(fit.rows),
            SparseMap {
                angles: (0..rotated.columns.len()).map(angle).collect(),
                ..rotated
            },
        ])
    }
}

/// `y_i = b + max_k W R_k norm(Z x)_i`: `Z x` are Zernike coefficients, features of the angular orders, and `R_k` rotates
/// them by `2 pi k / rotations`. The batch normalisation is a scale of each column of `W`. Without it, the mean value over
/// the disc hides the other coefficients, which are small where features are smooth.
#[derive(Debug)]
pub(super) struct ZernikeConv {
    /// Number of polynomials of each order.
    pub multiplicities: Vec<usize>,
    pub rotations: usize,
    pub outputs: usize,
}

#[derive(Debug)]
struct ZernikeLayer {
    rotations: usize,
    input: FeatureType,
    coefficients: FeatureType,
    norm: EquivariantNorm,
    linear: Linear,
}

impl<T: Real> LayerConfig<T> for ZernikeConv {
    fn word(&self) -> &'static str {
        "zernike"
    }

    fn init(
        &self,
        name: &str,
        stage: &mut Stage,
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>, NnError> {
        let (inputs, _) = begin(name, stage, self.outputs)?;
        let channels: Vec<usize> = self.multiplicities.iter().map(|m| m * inputs).collect();
        let coefficients = FeatureType::new(&channels);
        builder.within(name, |builder| {
            let norm = EquivariantNormConfig::new(coefficients.clone());
            let linear = LinearConfig::new(coefficients.dimension(), self.outputs);
            Ok(Box::new(ZernikeLayer {
                rotations: self.rotations,
                input: FeatureType::scalars(inputs),
                coefficients,
                norm: norm.init("norm", builder)?,
                linear: linear.init("map", builder)?,
            }) as Box<dyn Module<T>>)
        })
    }
}

impl<T: Real> Module<T> for ZernikeLayer {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        Module::<T>::output(&self.linear)
    }

    fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let vertices = x.rows();
        let coefficients = gathered(tape, levels, 0, x)?.with_kind(self.coefficients.clone())?;
        let coefficients = self.norm.forward(tape, levels, coefficients)?;
        let turns = levels.patches()?.map(1)?;
        let rotated = tape.apply_incidence(Aggregation::Sum, turns, coefficients)?;
        let responses = self.linear.forward(tape, levels, rotated.into_scalars())?;
        block_maximum(tape, self.rotations, responses.with_rows(vertices)?)
    }
}
