//! Samples: a few states of a trajectory as features, the change to the next one as target.

use super::data::{AREA, Data, HISTORY, Trajectory, columns, state_name};
use gemcnn_mesh::DVec3;
use gemcnn_nn::{FeatureType, Target};
use gemcnn_tasks::data::{Preparation, vectors};
use gemcnn_tasks::features::{Combined, Field, FieldName, Fields, Vector};
use gemcnn_tasks::train::RunConfig;
use gemcnn_tasks::{FeatureConfig, Sample, SampleSource, TaskError};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

/// How a network sees the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coordinates {
    /// Scalar states.
    Scalars,
    /// Tangent vectors as coefficients in the frames.
    Frames,
    /// Tangent vectors as three scalars, their coordinates in space.
    Space,
}

impl Coordinates {
    /// Numbers of each vertex.
    pub fn width(self) -> usize {
        match self {
            Self::Scalars => 1,
            Self::Frames => 2,
            Self::Space => 3,
        }
    }

    /// Type of the predicted change.
    pub fn output(self) -> FeatureType {
        match self {
            Self::Scalars => FeatureType::scalars(1),
            Self::Frames => FeatureType::new(&[0, 1]),
            Self::Space => FeatureType::scalars(3),
        }
    }

    /// Type of the features: the logarithm of the area, and all states.
    pub fn input(self) -> FeatureType {
        self.features().kind()
    }

    /// The features as settings: those of a sample that starts with the first state.
    pub fn features(self) -> FeatureConfig {
        let field = |name: String| FeatureConfig::from(Field { name });
        let mut of = vec![field(AREA.into())];
        match self {
            Self::Scalars | Self::Space => {
                let states = (0..HISTORY).map(|state| columns(state, self == Self::Space));
                let states: Vec<Vec<String>> = states.collect();
                for axis in 0..self.width() {
                    of.extend(states.iter().map(|names| field(names[axis].clone())));
                }
            }
            Self::Frames => of.extend((0..HISTORY).map(|state| {
                let (name, normal_part) = (state_name(state), false);
                FeatureConfig::from(Vector { name, normal_part })
            })),
        }
        Combined { of, drop: 0.0 }.into()
    }

    /// How a network with these features sees the states.
    pub fn of(features: &FeatureConfig) -> Result<Self, TaskError> {
        let found = [Self::Scalars, Self::Frames, Self::Space].into_iter().find(|kind| kind.features() == *features);
        found.ok_or_else(|| TaskError::setting("features", "must be the area and five states"))
    }

    /// Features of all vertices from the logarithms of their areas and the last states, oldest first.
    pub fn rows(self, areas: &[f32], states: &[&[f32]]) -> Vec<f32> {
        let width = self.width();
        let mut rows = Vec::with_capacity(areas.len() * (1 + width * states.len()));
        for (vertex, &area) in areas.iter().enumerate() {
            rows.push(area);
            for component in 0..width {
                let at = vertex * width + component;
                rows.extend(states.iter().map(|state| state[at]));
            }
        }
        rows
    }
}

/// A mesh as a network needs it.
pub(super) struct Surface {
    pub sample: Sample,
    pub areas: Vec<f32>,
}

/// A trajectory as a network sees it.
pub(super) struct PreparedTrajectory {
    pub name: String,
    pub surface: usize,
    /// The coordinates of all vertices at each time.
    pub states: Vec<Vec<f32>>,
    checksum: [u8; 32],
}

/// The data of an equation as a network sees them.
pub(super) struct PreparedData {
    pub coordinates: Coordinates,
    pub surfaces: Vec<Surface>,
    pub parts: [Vec<PreparedTrajectory>; 3],
    pub states: usize,
    pub training_states: usize,
}

impl PreparedData {
    /// Prepares each mesh once, and expresses all states in coordinates.
    pub fn new(data: &Data, coordinates: Coordinates, config: &RunConfig) -> Result<Self, TaskError> {
        // Geometry and eigenvectors do not depend on the states.
        let preparation =
            Preparation { features: FeatureConfig::from(Field { name: AREA.into() }), ..config.preparation() };
        let prepare = |(name, mesh, areas): &(String, _, Vec<f32>)| {
            let field = FieldName { name: AREA.into(), width: 1 };
            let values = areas.iter().map(|&area| f64::from(area)).collect();
            let fields = Fields::new(vec![(field, values)]);
            Ok::<_, TaskError>(Surface { sample: preparation.prepare_with(name, mesh, &fields)?, areas: areas.clone() })
        };
        let surfaces: Result<Vec<Surface>, TaskError> = data.meshes.par_iter().map(prepare).collect();
        let surfaces = surfaces?;
        let see = |trajectory: &Trajectory| {
            let frames = surfaces[trajectory.mesh].sample.graph().frames();
            let express = |state: &Vec<f32>| match coordinates {
                Coordinates::Scalars | Coordinates::Space => state.clone(),
                Coordinates::Frames => {
                    let rows = state.as_chunks::<3>().0.iter();
                    let in_space: Vec<DVec3> = rows.map(|v| DVec3::from_array(v.map(f64::from))).collect();
                    vectors::in_frames(frames, &in_space)
                }
            };
            let states: Vec<Vec<f32>> = trajectory.states.iter().map(express).collect();
            let mut hasher = Sha256::new_with_prefix(&trajectory.name);
            for value in states.iter().flatten() {
                hasher.update(value.to_le_bytes());
            }
            PreparedTrajectory {
                name: trajectory.name.clone(),
                surface: trajectory.mesh,
                states,
                checksum: hasher.finalize().into(),
            }
        };
        Ok(Self {
            coordinates,
            parts: [0, 1, 2].map(|part| data.parts[part].iter().map(see).collect()),
            states: data.states,
            training_states: data.training_states(),
            surfaces,
        })
    }

    /// A sample of a trajectory without features and target.
    pub fn bare(&self, trajectory: &PreparedTrajectory) -> Sample {
        Sample {
            name: trajectory.name.clone(),
            kind: self.coordinates.input(),
            features: Vec::new(),
            ..self.surfaces[trajectory.surface].sample.clone()
        }
    }

    /// The training samples.
    pub fn training(&self) -> TrainingSamples<'_> {
        TrainingSamples(self)
    }
}

/// All windows of the training trajectories.
pub(super) struct TrainingSamples<'a>(&'a PreparedData);

impl TrainingSamples<'_> {
    /// Trajectory and first state of a sample.
    fn place(&self, index: usize) -> (&PreparedTrajectory, usize) {
        let windows = self.0.training_states - HISTORY;
        (&self.0.parts[0][index / windows], index % windows)
    }
}

impl SampleSource for TrainingSamples<'_> {
    fn len(&self) -> usize {
        self.0.parts[0].len() * (self.0.training_states - HISTORY)
    }

    fn name(&self, index: usize) -> String {
        let (trajectory, first) = self.place(index);
        format!("{} from {}", trajectory.name, state_name(first))
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        let (trajectory, first) = self.place(index);
        let states = trajectory.states[first..first + HISTORY].iter();
        let states: Vec<&[f32]> = states.map(Vec::as_slice).collect();
        let areas = &self.0.surfaces[trajectory.surface].areas;
        let next = trajectory.states[first + HISTORY].iter();
        let change = next.zip(states[HISTORY - 1]).map(|(next, now)| next - now);
        Ok(Sample {
            features: self.0.coordinates.rows(areas, &states),
            target: Target::Values(change.collect()),
            ..self.0.bare(trajectory)
        })
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        let (trajectory, first) = self.place(index);
        let mut hasher = Sha256::new_with_prefix(trajectory.checksum);
        hasher.update(first.to_le_bytes());
        Ok(hasher.finalize().into())
    }
}

/// No samples.
pub(super) struct NoSamples;

impl SampleSource for NoSamples {
    fn len(&self) -> usize {
        0
    }

    fn name(&self, _: usize) -> String {
        String::new()
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        Err(TaskError::setting("sample", format!("there is no sample {index}")))
    }
}
