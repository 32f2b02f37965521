//! How equivariant the networks are: the measurements of the paper's appendix.
//!
//! Networks with random weights get random scalars on the icosahedron, or on a deformed one, and one of
//! three things is changed that should not change the output ([`Transform`]). What changes all the same is
//! set in relation to how much outputs differ between vertices, channels, inputs and weights:
//!
//! ```text
//! gauge, ambient:  sqrt( E_model E_p,c Var_g(y_g) / Var_model,p,c(y_g0) )
//! isometry:        sqrt( E_model E_g E_p,c (y(g x)_gp - y(x)_p)^2 / Var_model,p,c(y(x)) )
//! ```
//!
//! ```
//! use gemcnn_tasks::experiments::equivariance::{Settings, Transform, run};
//! let settings = Settings { depths: vec![2], samples: vec![5], models: 2, ..Settings::quick() };
//! let report = run(&settings)?;
//! let ambient = report.rows.iter().filter(|row| row.transform == Transform::Ambient);
//! assert!(ambient.filter(|row| row.model.is_equivariant()).all(|row| row.error < 1e-5));
//! # Ok::<(), gemcnn_tasks::TaskError>(())
//! ```

mod bound;
mod error;
mod figures;
mod model;
mod surface;
mod symmetries;
mod transform;

pub use bound::{BoundRow, theorem_bound};
pub use model::Model;
pub use surface::Surface;
pub use symmetries::rotational_symmetries;
pub use transform::Transform;

use super::random::Draws;
use crate::TaskError;
use error::{Outputs, relative_error};
use gemcnn_nn::{Real, Workspace};
use model::RandomModel;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use transform::Changes;

/// Motions are measured at every so many of the numbers of samples.
const AMBIENT_STRIDE: usize = 5;

/// Number format of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Random networks, each with an input of its own; 10.
    pub models: usize,
    /// Random choices of frames for each network; 16.
    pub gauges: usize,
    /// Random rotations and translations; 300.
    pub motions: usize,
    /// Numbers of layers, at [`most_samples`](Self::most_samples) samples; 1 to 10.
    pub depths: Vec<usize>,
    /// Numbers of samples, at [`depth`](Self::depth) layers; 1 to 101. Motions are measured at every fifth
    /// of them.
    pub samples: Vec<usize>,
    /// Layers where samples vary; 7.
    pub depth: usize,
    /// Samples where layers vary; 101.
    pub most_samples: usize,
    /// Random inputs of the nonlinearity alone, for the theorem's bound; 2,000.
    pub bound_draws: usize,
    /// Everything is drawn from this; 1.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            models: 10,
            gauges: 16,
            motions: 300,
            depths: (1..=10).collect(),
            samples: (1..=101).collect(),
            depth: 7,
            most_samples: 101,
            bound_draws: 2000,
            seed: 1,
        }
    }
}

impl Settings {
    /// The same laws in a few seconds: fewer networks, changes, depths and samples.
    pub fn quick() -> Self {
        Self {
            models: 4,
            gauges: 8,
            motions: 10,
            depths: vec![1, 2, 4, 7],
            samples: vec![1, 2, 3, 5, 7, 10, 11, 15, 21, 51, 101],
            bound_draws: 200,
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), TaskError> {
        let smallest = [
            ("models", self.models, 2),
            ("gauges", self.gauges, 2),
            ("motions", self.motions, 2),
            ("depth", self.depth, 1),
            ("most_samples", self.most_samples, 1),
            ("bound_draws", self.bound_draws, 1),
        ];
        for (what, given, least) in smallest {
            if given < least {
                let problem = format!("{given}, but must be at least {least}");
                return Err(TaskError::setting(what, problem));
            }
        }
        for (what, list) in [("depths", &self.depths), ("samples", &self.samples)] {
            if list.contains(&0) {
                return Err(TaskError::setting(what, "0, but must be at least 1"));
            }
        }
        Ok(())
    }

    /// Everything to be measured, errors still unknown.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for precision in [Precision::F64, Precision::F32] {
            for mesh in Surface::ALL {
                for transform in Transform::ALL {
                    for model in Model::ALL {
                        let plans = self.plans(model, mesh, transform);
                        rows.extend(plans.into_iter().map(|(depth, samples)| Row {
                            mesh,
                            model,
                            transform,
                            depth,
                            samples,
                            precision,
                            error: f64::NAN,
                        }));
                    }
                }
            }
        }
        rows
    }

    /// Depths and samples that a model is measured at.
    fn plans(
        &self,
        model: Model,
        mesh: Surface,
        transform: Transform,
    ) -> Vec<(usize, Option<usize>)> {
        let over_depth = |samples| self.depths.iter().map(move |&depth| (depth, samples));
        // Rounding is all that motions change, whatever the samples, and there are many motions.
        let stride = match transform {
            Transform::Ambient => AMBIENT_STRIDE,
            _ => 1,
        };
        let listed = self.samples.iter().step_by(stride);
        let over_samples = || listed.clone().map(|&n| (self.depth, Some(n)));
        match model {
            Model::Gem => {
                let both = over_depth(Some(self.most_samples)).chain(over_samples());
                let mut plans: Vec<_> = both.collect();
                plans.sort_unstable();
                plans.dedup();
                plans
            }
            // The only question to it is how its error falls with the samples.
            Model::GemWithoutBatchNorm => {
                match (mesh, transform) == (Surface::Icosahedron, Transform::Gauge) {
                    true => over_samples().collect(),
                    false => Vec::new(),
                }
            }
            exact_or_without => over_depth(exact_or_without.own_samples()).collect(),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// On what.
    pub mesh: Surface,
    /// Of what.
    pub model: Model,
    /// What was changed.
    pub transform: Transform,
    /// Number of convolutions.
    pub depth: usize,
    /// Samples of the regular nonlinearity; none where there is no such nonlinearity.
    pub samples: Option<usize>,
    /// In which the network computed.
    pub precision: Precision,
    /// The relative error.
    pub error: f64,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was measured.
    pub settings: Settings,
    /// Errors of networks.
    pub rows: Vec<Row>,
    /// Errors of the nonlinearity alone beside the theorem's bound.
    pub bound: Vec<BoundRow>,
}

/// Measures everything, on all threads.
///
/// # Errors
/// Settings that make no sense.
pub fn run(settings: &Settings) -> Result<Report, TaskError> {
    settings.check()?;
    let f64_changes = Changes::all(settings)?;
    let f32_changes = Changes::all(settings)?;
    let rows = settings.rows().into_par_iter().map(|row| {
        let error = match row.precision {
            Precision::F64 => measure::<f64>(settings, &row, &f64_changes),
            Precision::F32 => measure::<f32>(settings, &row, &f32_changes),
        }?;
        Ok(Row { error, ..row })
    });
    Ok(Report {
        settings: settings.clone(),
        rows: rows.collect::<Result<_, TaskError>>()?,
        bound: bound::measure(settings)?,
    })
}

fn measure<T: Real>(
    settings: &Settings,
    row: &Row,
    changes: &[Changes<T>],
) -> Result<f64, TaskError> {
    let Some(changes) = changes.iter().find(|changes| changes.fit(row)) else {
        return Ok(f64::NAN);
    };
    let outputs = (0..settings.models).into_par_iter().map(|index| {
        let seed = settings.seed.wrapping_add(index as u64);
        let mut model = RandomModel::<T>::new(row, seed)?;
        let mut draws = Draws::new(seed, INPUT_STREAM);
        let input = |_| T::of(draws.normal());
        let input: Vec<T> = (0..changes.vertices() * model::CHANNELS)
            .map(input)
            .collect();
        let mut workspace = Workspace::default();
        changes.outputs(index, &input, |graph, x| {
            model.apply(&mut workspace, graph, x)
        })
    });
    let outputs: Vec<Outputs> = outputs.collect::<Result<_, TaskError>>()?;
    Ok(relative_error(&outputs))
}

/// Streams of random numbers of a seed: what one draws does not depend on how many another does.
const INPUT_STREAM: u64 = 1;
const GAUGE_STREAM: u64 = 2;
const MOTION_STREAM: u64 = 3;
const DEFORMATION_STREAM: u64 = 4;
const BOUND_STREAM: u64 = 5;
