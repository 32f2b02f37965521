//! The steps of the recipe, each switched on after the other.

use crate::runs::named;
use gemcnn_tasks::data::Augmentation;
use gemcnn_tasks::features::Xyz;
use gemcnn_tasks::models::{DiffusionModel, GemModel, SurfaceModel};
use gemcnn_tasks::train::RunConfig;
use gemcnn_tasks::{Task, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A step of the recipe, with all steps before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The paper's network on positions.
    Positions,
    /// The paper's network on invariant features of normalised meshes.
    Invariant,
    /// DiffusionNet with its published settings, for comparison.
    Diffusion,
    /// The model on surfaces with its features.
    Surface,
    /// Each step sees random points of the surface.
    Resampled,
    /// Every training mesh also has remeshed and deformed versions.
    Versions,
}

impl Step {
    /// All steps, in the order of the table.
    pub const ALL: [Self; 6] =
        [Self::Positions, Self::Invariant, Self::Diffusion, Self::Surface, Self::Resampled, Self::Versions];

    /// The configuration, with the data of the default.
    pub(super) fn config(self) -> RunConfig {
        let task = Task::Segmentation;
        let mut config = match self {
            Self::Positions | Self::Invariant => RunConfig::for_model(task, GemModel::default().into()),
            Self::Diffusion => RunConfig::for_model(task, DiffusionModel::default().into()),
            Self::Surface | Self::Resampled | Self::Versions => {
                RunConfig::for_model(task, SurfaceModel::default().into())
            }
        };
        if self == Self::Positions {
            config.features = Xyz::default().into();
            config.geometry = Default::default();
        }
        let plain = Augmentation::default();
        config.augmentation = match self {
            Self::Resampled => Augmentation { resample: 0.7, ..plain },
            Self::Versions => Augmentation { resample: 0.7, versions: 4, stretch: 0.1, bend: 0.03, ..plain },
            _ => plain,
        };
        config
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Positions => "positions",
            Self::Invariant => "invariant",
            Self::Diffusion => "diffusion",
            Self::Surface => "surface",
            Self::Resampled => "resampled",
            Self::Versions => "versions",
        })
    }
}

impl FromStr for Step {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        named("step", &Self::ALL, text)
    }
}
