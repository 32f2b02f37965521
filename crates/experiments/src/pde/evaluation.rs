//! Errors of one step and of predictions that are fed back.

use super::data::HISTORY;
use super::samples::{Coordinates, PreparedData, PreparedTrajectory};
use crate::names::names;
use gemcnn_mesh::DVec3;
use gemcnn_nn::{Device, Geometry, NnError, Tape, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::TrainedModel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest error that is reported: predictions that diverge have no other.
const LARGEST: f64 = 1000.0;

/// A part of the data that training never saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestPart {
    /// Later states of the training trajectories.
    Time,
    /// Other initial states on the training meshes.
    Init,
    /// Other meshes.
    Mesh,
}

names!(TestPart, "part", { Time: "time", Init: "init", Mesh: "mesh" });

impl TestPart {
    /// The trajectories and their first state.
    fn of(self, data: &PreparedData) -> (&[PreparedTrajectory], usize) {
        match self {
            Self::Time => (&data.parts[0], data.training_states),
            Self::Init => (&data.parts[1], 0),
            Self::Mesh => (&data.parts[2], 0),
        }
    }
}

/// Normalised errors on a part: the root mean square of the difference to the solution over that of the solution about
/// its mean (scalars) or zero (vectors), integrated over all surfaces. 1 is as bad as the mean; at most 1000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartErrors {
    /// Error of one step from true states, over all steps.
    pub one_step: f64,
    /// Error after each step of predictions that are fed back, starting at the first states.
    pub rolled_out: Vec<f64>,
}

/// Step of predictions that are fed back that tables show, unless trajectories are shorter.
const SHOWN: usize = 20;

impl PartErrors {
    /// The error after 20 steps that are fed back, or after the last one.
    pub fn after_20(&self) -> f64 {
        let step = self.rolled_out.len().min(SHOWN);
        self.rolled_out[..step].last().copied().unwrap_or(0.0)
    }
}

/// Predicts the change of all states from features.
type Predict<'p> = dyn FnMut(&Geometry<f32>, Vec<f32>) -> Result<Vec<f32>, TaskError> + 'p;

/// All trajectories of a part as one mesh with many components.
struct Joined {
    graphs: Geometry<f32>,
    areas: Vec<f32>,
    mass: Vec<f64>,
    normals: Vec<DVec3>,
    /// Number of vertices of each trajectory.
    sizes: Vec<usize>,
    /// True states starting at the first one of the part.
    truth: Vec<Vec<f32>>,
    coordinates: Coordinates,
}

impl Joined {
    fn new(data: &PreparedData, part: TestPart) -> Result<Self, TaskError> {
        let (trajectories, first) = part.of(data);
        let graphs: Result<Vec<_>, TaskError> =
            (trajectories.iter()).map(|trajectory| data.bare(trajectory).geometry()).collect();
        let graphs = graphs?;
        let surfaces = || trajectories.iter().map(|t| &data.surfaces[t.surface]);
        let truth = (first..data.states).map(|time| {
            let states = trajectories.iter().map(|t| t.states[time].as_slice());
            states.collect::<Vec<_>>().concat()
        });
        Ok(Self {
            graphs: Geometry::join(&graphs.iter().collect::<Vec<_>>())?,
            areas: surfaces().flat_map(|s| s.areas.clone()).collect(),
            mass: surfaces().flat_map(|s| s.sample.areas.iter().map(|&area| f64::from(area))).collect(),
            normals: surfaces().flat_map(|s| s.sample.graph().frames().iter().map(|frame| frame.normal)).collect(),
            sizes: surfaces().map(|s| s.areas.len()).collect(),
            truth: truth.collect(),
            coordinates: data.coordinates,
        })
    }

    /// The state after some others.
    fn next(&self, states: &[&[f32]], predict: &mut Predict<'_>) -> Result<Vec<f32>, TaskError> {
        let features = self.coordinates.rows(&self.areas, states);
        let change = predict(&self.graphs, features)?;
        let now = states[states.len() - 1];
        let mut next: Vec<f32> = now.iter().zip(&change).map(|(a, b)| a + b).collect();
        if self.coordinates == Coordinates::Space {
            // The surface is known, so a normal part is not an error of the network.
            for (vector, &normal) in next.as_chunks_mut::<3>().0.iter_mut().zip(&self.normals) {
                let tangent = DVec3::from_array(vector.map(f64::from)).reject_from_normalized(normal);
                *vector = tangent.to_array().map(|value| value as f32);
            }
        }
        Ok(next)
    }

    /// Integral of the squared difference to a true state, and of the square of that about its mean.
    fn squares(&self, found: &[f32], wanted: &[f32]) -> [f64; 2] {
        let width = self.coordinates.width();
        let mut sums = [0.0; 2];
        let mut start = 0;
        for &size in &self.sizes {
            let mass = &self.mass[start..start + size];
            let rows = start * width..(start + size) * width;
            let (found, wanted) = (&found[rows.clone()], &wanted[rows]);
            let mean = match self.coordinates {
                Coordinates::Scalars => {
                    let sum: f64 = wanted.iter().zip(mass).map(|(&u, m)| m * f64::from(u)).sum();
                    sum / mass.iter().sum::<f64>()
                }
                Coordinates::Frames | Coordinates::Space => 0.0,
            };
            for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
                let mass = mass[at / width];
                sums[0] += mass * f64::from(found - wanted).powi(2);
                sums[1] += mass * (f64::from(wanted) - mean).powi(2);
            }
            start += size;
        }
        sums
    }

    /// The errors, and all states of the predictions that are fed back.
    fn errors(&self, predict: &mut Predict<'_>) -> Result<(PartErrors, Vec<Vec<f32>>), TaskError> {
        let mut rolled = self.truth[..HISTORY].to_vec();
        let (mut rolled_out, mut sums) = (Vec::new(), [0.0; 2]);
        for time in HISTORY..self.truth.len() {
            let mut next = |states: &[Vec<f32>]| {
                let history = states[time - HISTORY..time].iter();
                self.next(&history.map(Vec::as_slice).collect::<Vec<_>>(), predict)
            };
            let (one, fed_back) = (next(&self.truth)?, next(&rolled)?);
            let [error, size] = self.squares(&one, &self.truth[time]);
            sums = [sums[0] + error, sums[1] + size];
            rolled_out.push(normalised(self.squares(&fed_back, &self.truth[time])));
            rolled.push(fed_back);
        }
        let errors = PartErrors { one_step: normalised(sums), rolled_out };
        Ok((errors, rolled))
    }
}

fn normalised([error, size]: [f64; 2]) -> f64 {
    let ratio = (error / size.max(f64::MIN_POSITIVE)).sqrt();
    if ratio.is_nan() { LARGEST } else { ratio.min(LARGEST) }
}

/// Predictions that are fed back on the first unseen mesh, beside the solution.
pub(super) struct RollOut {
    /// The mesh in [`PreparedData::surfaces`].
    pub surface: usize,
    pub truth: Vec<Vec<f32>>,
    pub found: Vec<Vec<f32>>,
}

/// Errors on all parts.
pub(super) type Errors = BTreeMap<TestPart, PartErrors>;

/// Evaluates a model on all parts; without one, every state is predicted to stay as it is.
pub(super) fn evaluate(
    data: &PreparedData,
    model: Option<&TrainedModel>,
    device: &Device,
) -> Result<(Errors, RollOut), TaskError> {
    let mut workspace = Workspace::new(device.clone());
    let width = data.coordinates.width();
    let mut predict = |graphs: &Geometry<f32>, mut features: Vec<f32>| {
        let Some(model) = model else {
            let vertices = features.len() / data.coordinates.input().dimension();
            return Ok(vec![0.0; vertices * width]);
        };
        model.scaling.apply(&mut features);
        let mut change = device.run(|| {
            let mut tape = Tape::inference(&mut workspace, &model.parameters);
            let x = tape.input(model.network.input().clone(), &features)?;
            let change = model.network.forward(&mut tape, graphs.into(), x)?;
            Ok::<_, NnError>(change.values()?.into_owned())
        })?;
        if let Some(scaling) = &model.target_scaling {
            scaling.undo(&mut change);
        }
        Ok(change)
    };
    let mut errors = Errors::new();
    let mut drawn = None;
    for part in TestPart::ALL {
        let joined = Joined::new(data, part)?;
        let (found, rolled) = joined.errors(&mut predict)?;
        errors.insert(part, found);
        let (trajectories, _) = part.of(data);
        let values = joined.sizes[0] * width;
        let first =
            |states: &[Vec<f32>]| -> Vec<Vec<f32>> { states.iter().map(|state| state[..values].to_vec()).collect() };
        drawn = Some(RollOut { surface: trajectories[0].surface, truth: first(&joined.truth), found: first(&rolled) });
    }
    let drawn = drawn.ok_or_else(|| TaskError::setting("evaluation", "there are no parts"))?;
    Ok((errors, drawn))
}
