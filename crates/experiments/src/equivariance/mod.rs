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
//! use gemcnn_experiments::equivariance::{Settings, Transform, run};
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

use crate::random::Draws;
use error::{Outputs, relative_error};
use gemcnn_nn::{NnError, Real, Workspace};
use gemcnn_tasks::TaskError;
use model::{Plan, RandomNetwork};
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

    /// All networks in one precision.
    fn plans(&self) -> Vec<Plan> {
        let plan = |model, depth, samples| Plan {
            model,
            depth,
            samples,
        };
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

    /// Whether a change is measured on a network.
    fn is_measured(&self, plan: Plan, mesh: Surface, transform: Transform) -> bool {
        if plan.model.is_for_samples_only() {
            return (mesh, transform) == (Surface::Icosahedron, Transform::Gauge);
        }
        let over_depth = self.depths.contains(&plan.depth)
            && (plan.model != Model::Gem || plan.samples == Some(self.most_samples));
        // Rounding is all that motions change, whatever the samples, and there are many motions.
        let mut few = self.samples.iter().step_by(AMBIENT_STRIDE);
        transform != Transform::Ambient || over_depth || few.any(|&n| plan.samples == Some(n))
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
    let mut rows = measure::<f64>(settings, Precision::F64)?;
    rows.extend(measure::<f32>(settings, Precision::F32)?);
    Ok(Report {
        settings: settings.clone(),
        rows,
        bound: bound::measure(settings)?,
    })
}

fn measure<T: Real>(settings: &Settings, precision: Precision) -> Result<Vec<Row>, TaskError> {
    let changes = Changes::<T>::all(settings)?;
    let rows = settings.plans().into_par_iter().map(|plan| {
        let wanted = |changes: &&Changes<T>| {
            changes.frames == plan.model.frames()
                && settings.is_measured(plan, changes.surface, changes.transform)
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

/// What network number `index` of a plan makes of its input under each of the changes.
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
        changes.outputs(index, &input, |graph, x| {
            network.apply(&mut workspace, graph, x)
        })
    });
    Ok(outputs.collect::<Result<_, NnError>>()?)
}

/// Streams of random numbers of a seed: what one draws does not depend on how many another does.
const INPUT_STREAM: u64 = 1;
const GAUGE_STREAM: u64 = 2;
const MOTION_STREAM: u64 = 3;
const DEFORMATION_STREAM: u64 = 4;
const BOUND_STREAM: u64 = 5;
const WEIGHT_STREAM: u64 = 6;
