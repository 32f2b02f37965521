//! Geodesic CNN (Masci, Boscaini, Bronstein and Vandergheynst 2015).

use super::stack::{begin, check_radius, columns, discs, gathered, maximum};
use super::{Model, ModelSpec, Recipe, Stack, within};
use crate::data::{PatchSettings, Patches};
use crate::features::{FeatureError, Shot, Surface};
use crate::{Settings, Task, TaskError};
use gemcnn_mesh::patches::{Discs, PatchRow};
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::{Linear, LinearConfig};
use gemcnn_nn::{
    Activation, Builder, FeatureType, LayerConfig, Levels, Module, NetworkConfig, NnError, Real,
    SparseMap, Stage, Tape, Var,
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, TAU};

/// Number of vertices that a bin reads: those with the largest weights.
const ENTRIES: usize = 4;

/// Settings of the model `geodesic`: polar bins on geodesic discs, a kernel applied in all rotations, and the largest
/// response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeodesicModel {
    /// Number of radii (default 5).
    pub rings: usize,
    /// Number of angles (default 16).
    pub angles: usize,
    /// Radius of the discs, in square roots of the area (default 0.04).
    pub radius: f64,
    /// The layers.
    pub layers: Stack,
}

impl Default for GeodesicModel {
    fn default() -> Self {
        Self {
            rings: 5,
            angles: 16,
            radius: 0.04,
            layers: Stack::default(),
        }
    }
}

impl Settings for GeodesicModel {
    const KIND: &'static str = "geodesic";
}

impl GeodesicModel {
    /// The layers of the network.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>, TaskError> {
        within("rings", self.rings, 1..=64)?;
        within("angles", self.angles, 1..=128)?;
        check_radius(self.radius)?;
        let conv = |outputs| GeodesicConv {
            rings: self.rings,
            angles: self.angles,
            outputs,
        };
        (self.layers).network(Self::KIND, spec, (true, Activation::Relu), conv)
    }
}

impl Model for GeodesicModel {
    fn build(
        &self,
        spec: &ModelSpec,
        builder: &mut Builder<'_, f32>,
    ) -> Result<Box<dyn Module<f32>>, TaskError> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn patches(&self) -> Option<PatchSettings> {
        let bins = PolarBins {
            rings: self.rings,
            angles: self.angles,
            radius: self.radius,
        };
        Some(PatchSettings::new(Self::KIND, bins))
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
        let rows: Vec<PatchRow> = (0..discs.len())
            .into_par_iter()
            .flat_map_iter(|vertex| {
                let bins = (0..self.angles * self.rings).map(|bin| {
                    self.bin(
                        bin / self.rings,
                        bin % self.rings,
                        radius,
                        &discs,
                        vertex,
                        &areas,
                    )
                });
                bins.collect::<Vec<PatchRow>>()
            })
            .collect();
        Ok(vec![SparseMap::weighted(rows)])
    }
}

impl PolarBins {
    /// Weights of a bin: areas times Gaussian windows of the radius and the angle, one bin wide, that sum to 1. The
    /// centre lies at all angles.
    fn bin(
        &self,
        angle: usize,
        ring: usize,
        radius: f64,
        discs: &Discs,
        vertex: usize,
        areas: &[f64],
    ) -> PatchRow {
        let (width, turn) = (radius / self.rings as f64, TAU / self.angles as f64);
        let (middle, direction) = ((ring as f64 + 0.5) * width, angle as f64 * turn);
        let entries = discs.row(vertex);
        let mut row: PatchRow = (discs.vertices[entries.clone()].iter())
            .zip(&discs.coordinates[entries])
            .map(|(&other, &[x, y])| {
                let r = x.hypot(y);
                let off = match r > 0.0 {
                    true => (y.atan2(x) - direction + PI).rem_euclid(TAU) - PI,
                    false => 0.0,
                };
                let exponent = ((r - middle) / width).powi(2) + (off / turn).powi(2);
                let area = areas[other as usize].max(f64::MIN_POSITIVE);
                // A sum of logarithms, so that far bins of small discs do not vanish.
                (other, area.ln() - 0.5 * exponent)
            })
            .collect();
        row.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        row.truncate(ENTRIES);
        let largest = row.first().map_or(0.0, |entry| entry.1);
        row.iter_mut()
            .for_each(|entry| entry.1 = (entry.1 - largest).exp());
        let total: f64 = row.iter().map(|entry| entry.1).sum();
        row.iter_mut().for_each(|entry| entry.1 /= total);
        row
    }
}

/// `y_i = b + max_k sum W_(angle - k, ring) (D_(angle, ring) x)_i` over all rotations `k`.
#[derive(Debug)]
pub(super) struct GeodesicConv {
    pub rings: usize,
    pub angles: usize,
    pub outputs: usize,
}

#[derive(Debug)]
struct GeodesicLayer {
    angles: usize,
    input: FeatureType,
    linear: Linear,
}

impl<T: Real> LayerConfig<T> for GeodesicConv {
    fn word(&self) -> &'static str {
        "geodesic"
    }

    fn init(
        &self,
        name: &str,
        stage: &mut Stage,
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>, NnError> {
        let (inputs, input_moment) = begin(name, stage, self.outputs)?;
        let config = LinearConfig {
            input_moment,
            ..LinearConfig::new(inputs * self.rings * self.angles, self.outputs)
        };
        Ok(Box::new(GeodesicLayer {
            angles: self.angles,
            input: FeatureType::scalars(inputs),
            linear: config.init(name, builder)?,
        }))
    }
}

impl<T: Real> Module<T> for GeodesicLayer {
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
        let patches = gathered(tape, levels, 0, x)?;
        let width = patches.kind().dimension();
        // All angles twice, so that each rotation is a range of columns.
        let twice = tape.concatenate(patches.clone(), patches)?;
        let mut largest: Option<Var<T>> = None;
        for rotation in 0..self.angles {
            let first = rotation * (width / self.angles);
            let rotated = columns(tape, &twice, first, first + width)?;
            let response = self.linear.forward(tape, levels, rotated)?;
            largest = Some(match largest {
                None => response,
                Some(largest) => maximum(tape, largest, response)?,
            });
        }
        largest.ok_or_else(|| NnError::setting("layer", "there are no angles"))
    }
}
