//! The rows of the table: networks, with or without augmentation.

use gemcnn_tasks::data::Augmentation;
use gemcnn_tasks::features::{Combined, Curvature, HeatKernel, Position, Xyz};
use gemcnn_tasks::models::{DiffusionModel, GemModel, SurfaceModel, UNetModel};
use gemcnn_tasks::train::TrainingConfig;
use gemcnn_tasks::{FeatureConfig, ModelConfig, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Remeshed versions of each training body, with augmentation.
const VERSIONS: usize = 5;

/// Share of the vertices in each step, with virtual remeshing.
const SHARE: f64 = 0.7;

/// A network, trained with or without remeshed bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The network.
    pub network: NetworkChoice,
    /// True if every training body is also remeshed.
    pub remeshed: bool,
    /// True if every step sees random points of the surface instead of its vertices.
    pub resampled: bool,
}

/// A network of the table, with its input features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkChoice {
    /// The paper's network on positions.
    Gem,
    /// The U-net on positions.
    Unet,
    /// DiffusionNet on heat kernel signatures.
    Diffusion,
    /// DiffusionNet on the scalars of the features of `surface`.
    DiffusionAll,
    /// Diffusion of scalars, vectors and tensors, on heat kernel signatures, positions and curvature.
    Surface,
}

impl NetworkChoice {
    const ALL: [Self; 5] = [
        Self::Gem,
        Self::Unet,
        Self::Diffusion,
        Self::DiffusionAll,
        Self::Surface,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Gem => "gem",
            Self::Unet => "unet",
            Self::Diffusion => "diffusion",
            Self::DiffusionAll => "diffusion-all",
            Self::Surface => "surface",
        }
    }
}

impl Row {
    /// The rows of the table.
    pub fn all() -> Vec<Self> {
        use NetworkChoice::{Diffusion, Gem, Surface, Unet};
        let networks = [Gem, Unet, Diffusion, Surface].into_iter();
        networks
            .flat_map(|network| {
                [false, true].map(|remeshed| Self {
                    network,
                    remeshed,
                    resampled: false,
                })
            })
            .collect()
    }

    /// The input features.
    pub fn features(self) -> FeatureConfig {
        match self.network {
            NetworkChoice::Gem | NetworkChoice::Unet => Xyz::default().into(),
            NetworkChoice::Diffusion => HeatKernel::default().into(),
            NetworkChoice::DiffusionAll | NetworkChoice::Surface => Combined {
                of: vec![
                    HeatKernel::default().into(),
                    Position::default().into(),
                    Curvature::default().into(),
                ],
            }
            .into(),
        }
    }

    /// The network.
    pub fn model(self) -> ModelConfig {
        match self.network {
            NetworkChoice::Gem => GemModel::default().into(),
            NetworkChoice::Unet => UNetModel::default().into(),
            NetworkChoice::Diffusion | NetworkChoice::DiffusionAll => DiffusionModel {
                dropout: 0.0,
                ..DiffusionModel::default()
            }
            .into(),
            NetworkChoice::Surface => SurfaceModel::default().into(),
        }
    }

    /// The augmentation of the training bodies.
    pub fn augmentation(self) -> Augmentation {
        Augmentation {
            versions: if self.remeshed { VERSIONS } else { 0 },
            resample: if self.resampled { SHARE } else { 0.0 },
            ..Default::default()
        }
    }

    /// Batch size and learning rate. Networks on surfaces train best on single meshes.
    pub fn training(self) -> TrainingConfig {
        let default = TrainingConfig::default();
        match self.network {
            NetworkChoice::Gem | NetworkChoice::Unet => default,
            NetworkChoice::Diffusion | NetworkChoice::DiffusionAll | NetworkChoice::Surface => {
                TrainingConfig {
                    batch: 1,
                    rate: 1e-3,
                    ..default
                }
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.network.word())?;
        f.write_str(if self.remeshed { "+" } else { "" })?;
        f.write_str(if self.resampled { "~" } else { "" })
    }
}

impl FromStr for Row {
    type Err = TaskError;

    /// The name of a network, followed by `+` if bodies are remeshed and by `~` if they are resampled.
    fn from_str(text: &str) -> Result<Self, TaskError> {
        let rest = text.strip_suffix('~').unwrap_or(text);
        let word = rest.strip_suffix('+').unwrap_or(rest);
        let networks = NetworkChoice::ALL.into_iter();
        let found = networks.clone().find(|network| network.word() == word);
        let network = found.ok_or_else(|| {
            let all: Vec<&str> = networks.map(NetworkChoice::word).collect();
            let problem = format!(
                "`{text}` is not one of {}, with or without a final `+`, `~` or `+~`",
                all.join(", ")
            );
            TaskError::setting("row", problem)
        })?;
        let resampled = rest != text;
        let has_eigenvectors = !matches!(network, NetworkChoice::Gem | NetworkChoice::Unet);
        if resampled && !has_eigenvectors {
            let problem = format!("`{text}`: only networks on surfaces can be resampled");
            return Err(TaskError::setting("row", problem));
        }
        Ok(Self {
            network,
            remeshed: word != rest,
            resampled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_and_distinct() {
        let rows = Row::all();
        assert_eq!(rows.len(), 8);
        for row in rows {
            assert_eq!(row.to_string().parse::<Row>().unwrap(), row);
        }
        for name in ["surface~", "diffusion-all+~"] {
            assert_eq!(name.parse::<Row>().unwrap().to_string(), name);
        }
        assert!("gem~".parse::<Row>().is_err());
        assert!("surface~+".parse::<Row>().is_err());
        assert!("gem++".parse::<Row>().is_err());
        assert!("+".parse::<Row>().is_err());
    }
}
