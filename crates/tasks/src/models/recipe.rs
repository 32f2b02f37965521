//! Settings besides the model that suit it.

use crate::data::{Augmentation, GeometrySettings};
use crate::features::{Combined, Curvature, HeatKernel, Matrix, Position, Xyz};
use crate::{FeatureConfig, Task};

/// Settings that suit a model for a task. They are the defaults of a configuration with this model.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Input features.
    pub features: FeatureConfig,
    /// Normals, neighbourhoods and normalisation.
    pub geometry: GeometrySettings,
    /// Augmentation of the training meshes.
    pub augmentation: Augmentation,
    /// Meshes per step.
    pub batch: usize,
    /// Base learning rate.
    pub rate: f64,
    /// Share of the training split that selects the model, for data without a validation split; 0 trains on all of it
    /// and keeps the last model.
    pub validation: f64,
}

/// Share of the training split that selects the model.
const VALIDATION: f64 = 0.1;

impl Recipe {
    /// For networks of convolutions. Correspondence is learned from positions on registered meshes, as in the paper;
    /// other tasks from features that do not change under motions and scaling.
    pub fn of_convolutions(task: Task) -> Self {
        let registered = task == Task::Correspondence;
        Self {
            features: if registered { Xyz::default().into() } else { Matrix::default().into() },
            geometry: GeometrySettings { normalise: !registered, ..Default::default() },
            augmentation: Augmentation::default(),
            batch: 4,
            rate: 0.01,
            validation: if registered { 0.0 } else { VALIDATION },
        }
    }

    /// For networks that read patches: single meshes, whose patches then stay on the device. The rate was chosen on bodies
    /// that no table of the documentation uses.
    pub fn of_patches(task: Task, features: FeatureConfig) -> Self {
        Self { features, batch: 1, rate: 3e-3, ..Self::of_convolutions(task) }
    }

    /// For networks on surfaces, which train best on single meshes. Remeshed versions of each mesh and random points of the
    /// surface keep them from learning the meshing. Where targets are classes, versions are also deformed, and kinds of
    /// features are left out at random, so that none decides alone; a correspondence or a measured value may belong to
    /// the shape as it is.
    pub fn of_surfaces(task: Task) -> Self {
        let has_classes = matches!(task, Task::Segmentation | Task::Classification);
        let features = Combined {
            of: vec![HeatKernel::default().into(), Position::default().into(), Curvature::default().into()],
            drop: if has_classes { 0.2 } else { 0.0 },
        };
        Self {
            features: features.into(),
            geometry: GeometrySettings { normalise: true, ..Default::default() },
            augmentation: Augmentation {
                versions: if has_classes { 3 } else { 2 },
                resample: 0.7,
                stretch: if has_classes { 0.2 } else { 0.0 },
                bend: if has_classes { 0.06 } else { 0.0 },
                ..Default::default()
            },
            batch: 1,
            rate: 1e-3,
            validation: if task == Task::Correspondence { 0.0 } else { VALIDATION },
        }
    }
}
