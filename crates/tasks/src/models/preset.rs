//! Sizes of the default models.

use super::{GemModel, ModelConfig, SurfaceModel};
use crate::Task;
use serde::{Deserialize, Serialize};

/// Size of the default model of a task, and length of its training: `preset` of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Half the channels, one changed version of each mesh where there are two, and half the epochs.
    Small,
    /// The defaults.
    #[default]
    Default,
    /// Twice the channels, four changed versions of each mesh where there are two, and twice the epochs.
    Large,
}

impl Preset {
    /// `value` in this size.
    pub(crate) fn scaled(self, value: usize) -> usize {
        match self {
            Self::Small => value / 2,
            Self::Default => value,
            Self::Large => value * 2,
        }
    }
}

impl ModelConfig {
    /// The default model of a task: the paper's network for correspondence, where the meshes are registered, and
    /// [`SurfaceModel`] for all others.
    pub fn for_task(task: Task, preset: Preset) -> Self {
        match task {
            Task::Correspondence => {
                let model = GemModel::default();
                let channels = preset.scaled(model.channels);
                GemModel { channels, ..model }.into()
            }
            Task::Segmentation | Task::Classification | Task::Regression => {
                let model = SurfaceModel::default();
                let channels = model.channels.map(|width| preset.scaled(width));
                SurfaceModel { channels, ..model }.into()
            }
        }
    }
}
