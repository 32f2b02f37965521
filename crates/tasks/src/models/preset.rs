//! Sizes of the default models.

use super::{DiffusionModel, GemModel, ModelConfig, SurfaceModel};
use crate::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Size of the default model of a task, and length of its training: `preset` of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Half the channels, half of the changed versions of each mesh, and half the epochs.
    Small,
    /// The defaults.
    #[default]
    Default,
    /// Twice the channels, twice the changed versions of each mesh, twice the epochs, and clipped gradients except for
    /// correspondence.
    Large,
}

impl Preset {
    /// `value` in this size.
    pub(crate) fn scaled(self, value: u64) -> u64 {
        match self {
            Self::Small => value / 2,
            Self::Default => value,
            Self::Large => value.saturating_mul(2),
        }
    }

    /// Scales all numbers of a setting, which stay positive.
    fn scale(self, setting: &mut Value) {
        if let Value::Array(values) = setting {
            values.iter_mut().for_each(|value| self.scale(value));
        } else if let Some(width) = setting.as_u64() {
            *setting = self.scaled(width).max(width.min(1)).into();
        }
    }
}

impl ModelConfig {
    /// The default model of a task: the paper's network for correspondence, where the meshes are registered,
    /// [`DiffusionModel`] for classes, and [`SurfaceModel`], which also predicts vectors, for values.
    pub fn for_task(task: Task, preset: Preset) -> Self {
        let model: Self = match task {
            Task::Correspondence => GemModel::default().into(),
            Task::Segmentation | Task::Classification => DiffusionModel::default().into(),
            Task::Regression => SurfaceModel::default().into(),
        };
        model.scaled(preset).unwrap_or(model)
    }

    /// The same model with its channels in a size; `None` for a model without the setting `channels`.
    pub(crate) fn scaled(&self, preset: Preset) -> Option<Self> {
        let mut settings = serde_json::to_value(self).ok()?;
        preset.scale(settings.get_mut("channels")?);
        serde_json::from_value(settings).ok()
    }
}
