//! Equivariance errors of networks: the measurements of the paper's appendix.
//!
//! Networks with random weights take random scalars on the icosahedron or on a deformed icosahedron. A
//! [`Transform`] changes the frames, the pose or the input in a way that should leave the output unchanged.
//! The error is the remaining change, relative to the variance of outputs over vertices, channels, inputs and
//! weights:
//!
//! ```text
//! gauge, ambient:  sqrt( E_model E_p,c Var_g(y_g) / Var_model,p,c(y_g0) )
//! isometry:        sqrt( E_model E_g E_p,c (y(g x)_gp - y(x)_p)^2 / Var_model,p,c(y(x)) )
//! ```
//!
//! ```
//! use gemcnn_experiments::equivariance::{Settings, Transform, run};
//! let settings = Settings { depths: vec![2], samples: vec![5], models: 2, ..Settings::quick() };
//! let report = run(&settings)?;
//! let ambient = report.rows.iter().filter(|row| row.transform == Transform::Ambient);
//! assert!(ambient.filter(|row| row.model.is_equivariant()).all(|row| row.error < 1e-5));
//! # Ok::<(), gemcnn_tasks::TaskError>(())
//! ```

mod bound;
mod error;
mod model;
mod report;
mod surface;
mod symmetries;
mod transform;

pub use bound::{BoundRow, theorem_bound};
pub use model::Model;
pub use surface::Surface;
pub use symmetries::rotational_symmetries;
pub use transform::Transform;

use crate::random::Draws;
use error::{Outputs, relative_error};
use gemcnn_nn::{NnError, Real, Workspace};
use gemcnn_tasks::TaskError;
use model::{Plan, RandomNetwork};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use transform::Changes;

/// Motions are measured at every fifth number of samples.
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

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Random networks, each with its own input (default 10).
    pub models: usize,
    /// Random gauge transformations for each network (default 16).
    pub gauges: usize,
    /// Random rotations and translations (default 300).
    pub motions: usize,
    /// Numbers of layers, with [`most_samples`](Self::most_samples) samples (default 1 to 10).
    pub depths: Vec<usize>,
    /// Numbers of samples, with [`depth`](Self::depth) layers (default 1 to 101). Motions are measured at
    /// every fifth of them.
    pub samples: Vec<usize>,
    /// Number of layers where samples vary (default 7).
    pub depth: usize,
    /// Number of samples where layers vary (default 101).
    pub most_samples: usize,
    /// Random inputs of the nonlinearity alone, for the theorem's bound (default 2,000).
    pub bound_draws: usize,
    /// Seed of all random numbers (default 1).
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
    /// A trial of a few seconds: fewer networks, transforms, depths and samples.
    pub fn quick() -> Self {
        Self {
            models: 4,
            gauges: 8,
            motions: 5,
            depths: vec![1, 2, 7],
            samples: vec![1, 3, 5, 7, 10, 21, 51],
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

    /// The networks to measure.
    fn plans(&self) -> Vec<Plan> {
        let plan = |model, depth, samples| Plan { model, depth, samples };
        let mut plans = Vec::new();
        for model in Model::ALL {
            let own_samples = match model {
                Model::Gem => Some(self.most_samples),
                other => other.own_samples(),
            };
            if !model.is_for_samples_only() {
                let depths = self.depths.iter();
                plans.extend(depths.map(|&depth| plan(model, depth, own_samples)));
            }
            if model.has_choice_of_samples() {
                let samples = self.samples.iter();
                plans.extend(samples.map(|&n| plan(model, self.depth, Some(n))));
            }
        }
        plans.sort_unstable();
        plans.dedup();
        plans
    }

    /// True if a transform is measured on a network.
    fn is_measured(&self, plan: Plan, mesh: Surface, transform: Transform) -> bool {
        if plan.model.is_for_samples_only() {
            return (mesh, transform) == (Surface::Icosahedron, Transform::Gauge);
        }
        let over_depth =
            self.depths.contains(&plan.depth) && (plan.model != Model::Gem || plan.samples == Some(self.most_samples));
        // Motions change results only by rounding, whatever the samples, and there are many motions.
        let mut every_fifth = self.samples.iter().step_by(AMBIENT_STRIDE);
        transform != Transform::Ambient || over_depth || every_fifth.any(|&n| plan.samples == Some(n))
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The mesh.
    pub mesh: Surface,
    /// The network.
    pub model: Model,
    /// The transform.
    pub transform: Transform,
    /// Number of convolutions.
    pub depth: usize,
    /// Samples of the regular nonlinearity; `None` for other nonlinearities.
    pub samples: Option<usize>,
    /// Precision of the network.
    pub precision: Precision,
    /// The relative error.
    pub error: f64,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Settings of the experiment.
    pub settings: Settings,
    /// Errors of the networks.
    pub rows: Vec<Row>,
    /// Errors of the nonlinearity alone and the theorem's bound.
    pub bound: Vec<BoundRow>,
}

/// Measures everything, on all threads.
pub fn run(settings: &Settings) -> Result<Report, TaskError> {
    settings.check()?;
    let mut rows = measure::<f64>(settings, Precision::F64)?;
    rows.extend(measure::<f32>(settings, Precision::F32)?);
    Ok(Report { settings: settings.clone(), rows, bound: bound::measure(settings)? })
}

fn measure<T: Real>(settings: &Settings, precision: Precision) -> Result<Vec<Row>, TaskError> {
    let changes = Changes::<T>::all(settings)?;
    let rows = settings.plans().into_par_iter().map(|plan| {
        let wanted = |changes: &&Changes<T>| {
            changes.frames == plan.model.frames() && settings.is_measured(plan, changes.surface, changes.transform)
        };
        let changes: Vec<&Changes<T>> = changes.iter().filter(wanted).collect();
        let networks = (0..settings.models).into_par_iter();
        let outputs = networks.map(|index| network_outputs(settings, plan, index, &changes));
        let outputs: Vec<Vec<Outputs>> = outputs.collect::<Result<_, TaskError>>()?;
        let row = |(place, changes): (usize, &&Changes<T>)| Row {
            mesh: changes.surface,
            model: plan.model,
            transform: changes.transform,
            depth: plan.depth,
            samples: plan.samples,
            precision,
            error: relative_error(outputs.iter().filter_map(|network| network.get(place))),
        };
        Ok(changes.iter().enumerate().map(row).collect())
    });
    let rows: Vec<Vec<Row>> = rows.collect::<Result<_, TaskError>>()?;
    Ok(rows.into_iter().flatten().collect())
}

/// Outputs of network number `index` of a plan under each transform.
fn network_outputs<T: Real>(
    settings: &Settings,
    plan: Plan,
    index: usize,
    changes: &[&Changes<T>],
) -> Result<Vec<Outputs>, TaskError> {
    let seed = settings.seed.wrapping_add(index as u64);
    let mut network = RandomNetwork::<T>::new(plan, seed)?;
    let mut workspace = Workspace::default();
    let outputs = changes.iter().map(|changes| {
        let mut draws = Draws::new(seed, INPUT_STREAM);
        let numbers = changes.vertices * model::CHANNELS;
        let input: Vec<T> = (0..numbers).map(|_| T::of(draws.normal())).collect();
        changes.outputs(index, &input, |graph, x| network.apply(&mut workspace, graph, x))
    });
    Ok(outputs.collect::<Result<_, NnError>>()?)
}

/// Streams of the random number generator, one for each purpose.
const INPUT_STREAM: u64 = 1;
const GAUGE_STREAM: u64 = 2;
const MOTION_STREAM: u64 = 3;
const DEFORMATION_STREAM: u64 = 4;
const BOUND_STREAM: u64 = 5;
const WEIGHT_STREAM: u64 = 6;
