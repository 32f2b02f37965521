//! MoNet (Monti, Boscaini, Masci, Rodola, Svoboda and Bronstein 2017).

use super::stack::{VertexConv, check_radius, discs, forward};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{ExtraConfig, GaugeChoice, Patches, SparseMaps};
use crate::features::{FeatureError, Shot, Surface};
use crate::registry::settings;
use crate::{Result, Settings, Task};
use gemcnn_nn::layers::LinearConfig;
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, Grouping, Module, NetworkConfig, PatchBatch, Real, SparseMap,
};
use serde::Serialize;
use std::f64::consts::PI;

/// Mean square of the entries of the matrices of the Gaussians at initialisation, which makes widths of about the range
/// of the coordinates, and the mean square of the weights that follows.
const INITIAL_SQUARE: f64 = 2.0;
const WEIGHT_SQUARE: f64 = 0.12;

settings! {
    /// Settings of the model `monet`: learned Gaussians of the polar coordinates of a geodesic disc, in SHOT frames.
    MonetModel = "monet" {
        /// Number of Gaussians (default 8).
        kernels: usize = 8,
        /// Radius of the discs, in square roots of the area (default 0.03).
        radius: f64 = 0.03,
        /// The layers.
        layers: Stack = Stack::default(),
    }
}

impl MonetModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        within("kernels", self.kernels, 1..=1024)?;
        check_radius(self.radius)?;
        let conv = |outputs| monet_conv(self.kernels, outputs);
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for MonetModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        let radius = self.radius;
        vec![SparseMaps::new(Self::KIND, PolarDiscs { radius }).into()]
    }

    fn gauge(&self) -> GaugeChoice {
        GaugeChoice::Shot
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_patches(task, Shot::default().into())
    }
}

/// Maps with a row for each pair of a vertex and a vertex of its disc: the second, three numbers `r / radius`, `theta /
/// pi` and 1 from the first, and the first.
#[derive(Debug, Serialize)]
struct PolarDiscs {
    radius: f64,
}

impl Patches for PolarDiscs {
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError> {
        let (discs, radius) = discs(surface, self.radius)?;
        let own: Vec<u32> = (0..discs.len()).flat_map(|vertex| discs.row(vertex).map(move |_| vertex as u32)).collect();
        let coordinates = own.iter().zip(&discs.coordinates).flat_map(|(&own, &[x, y])| {
            let polar = [x.hypot(y) / radius, y.atan2(x) / PI, 1.0];
            polar.map(|value| [(own, value)])
        });
        let coordinates = SparseMap::weighted(coordinates);
        Ok(vec![SparseMap::copies(discs.vertices), coordinates, SparseMap::copies(own)])
    }
}

/// `y_i = b + sum_k W_k (1 / |N_i|) sum_j exp(-|A_k u_ij + a_k|^2 / 2) x_j`: Gaussians with the covariance
/// `(A_k^T A_k)^-1` of the coordinates `u_ij`.
pub(super) fn monet_conv<T: Real>(kernels: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new("monet", outputs, move |name, inputs, input_moment, builder| {
        let gaussians = LinearConfig {
            bias: false,
            input_moment: 1.0 / (3.0 * INITIAL_SQUARE),
            ..LinearConfig::new(3, 2 * kernels)
        };
        let linear =
            LinearConfig { input_moment: input_moment * WEIGHT_SQUARE, ..LinearConfig::new(inputs * kernels, outputs) };
        let [gaussians, linear] = builder
            .within(name, |builder| Ok([gaussians.init("gaussians", builder)?, linear.init("map", builder)?]))?;
        forward(move |tape, levels, x| {
            let patches: &PatchBatch<T> = levels.get()?;
            let ones = tape.input(FeatureType::scalars(1), &vec![T::one(); x.rows()])?;
            let numbers = tape.apply_incidence(Aggregation::Sum, patches.map(1)?, ones)?;
            let pairs = numbers.rows() / 3;
            let coordinates = numbers.with_rows(pairs)?;
            let points = gaussians.forward(tape, levels, coordinates)?;
            let points = points.with_kind(FeatureType::new(&[0, kernels]))?;
            let squares = tape.irrep_dot(Grouping::Irreps, points.clone(), points)?;
            // `exp(z)` is `1 + ELU(z)` for `z` that is not positive.
            let exponents = tape.scale(-0.5, squares)?;
            let weights = tape.activation(&Activation::Elu, exponents)?;
            let weights = tape.activation(&Activation::Polynomial(vec![1.0, 1.0]), weights)?;
            let values = tape.apply_incidence(Aggregation::Sum, patches.map(0)?, x)?;
            let means = tape.mix_incidence(Aggregation::Mean, patches.map(2)?, values, weights)?;
            linear.forward(tape, levels, means)
        })
    })
}
