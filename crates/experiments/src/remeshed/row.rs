//! The rows of the table: networks, with or without augmentation.

use gemcnn_tasks::data::Augmentation;
use gemcnn_tasks::models::{
    AcnnModel, DiffusionModel, EdgeModel, FeastModel, GemModel, GeodesicModel, Model, MonetModel, SpiralModel,
    SurfaceModel, UNetModel, ZernikeModel,
};
use gemcnn_tasks::train::RunConfig;
use gemcnn_tasks::{ModelConfig, Task, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Remeshed versions of each training body, with augmentation.
const VERSIONS: usize = 5;

/// Share of the vertices in each step, with virtual remeshing.
const SHARE: f64 = 0.7;

/// A network, trained with or without augmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The network.
    pub network: NetworkChoice,
    /// The augmentation.
    pub augmented: Augmented,
}

/// How the training bodies are augmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Augmented {
    /// Not at all.
    No,
    /// Every training body also has remeshed versions.
    Remeshed,
    /// Every step sees random points of the surface instead of its vertices. For networks on surfaces only.
    Resampled,
    /// All that the network can use.
    Fully,
}

impl Augmented {
    const ALL: [Self; 4] = [Self::No, Self::Remeshed, Self::Resampled, Self::Fully];

    fn suffix(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Remeshed => "+remeshed",
            Self::Resampled => "+resampled",
            Self::Fully => "+",
        }
    }
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
    /// SpiralNet++ on positions.
    Spiral,
    /// FeaStNet on positions.
    Feast,
    /// EdgeConv on positions.
    Edge,
    /// MoNet on SHOT descriptors.
    Monet,
    /// Geodesic CNN on SHOT descriptors.
    Geodesic,
    /// ACNN on SHOT descriptors.
    Acnn,
    /// ZerNet on positions.
    Zernike,
}

impl NetworkChoice {
    const ALL: [Self; 12] = [
        Self::Gem,
        Self::Unet,
        Self::Diffusion,
        Self::DiffusionAll,
        Self::Surface,
        Self::Spiral,
        Self::Feast,
        Self::Edge,
        Self::Monet,
        Self::Geodesic,
        Self::Acnn,
        Self::Zernike,
    ];

    /// True for networks that read eigenvectors instead of neighbours.
    fn is_on_surfaces(self) -> bool {
        matches!(self, Self::Diffusion | Self::DiffusionAll | Self::Surface)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Gem => "gem",
            Self::Unet => "unet",
            Self::Diffusion => "diffusion",
            Self::DiffusionAll => "diffusion-all",
            Self::Surface => "surface",
            Self::Spiral => "spiral",
            Self::Feast => "feast",
            Self::Edge => "edge",
            Self::Monet => "monet",
            Self::Geodesic => "geodesic",
            Self::Acnn => "acnn",
            Self::Zernike => "zernike",
        }
    }
}

impl Row {
    /// The rows of the table.
    pub fn all() -> Vec<Self> {
        use NetworkChoice::{Diffusion, Gem, Surface, Unet};
        let networks = [Gem, Unet, Diffusion, Surface].into_iter();
        let both =
            networks.flat_map(|network| [Augmented::No, Augmented::Fully].map(|augmented| Self { network, augmented }));
        let published = NetworkChoice::ALL[5..].iter().map(|&network| Self { network, augmented: Augmented::No });
        both.chain(published).collect()
    }

    /// The network.
    fn model(self) -> ModelConfig {
        match self.network {
            NetworkChoice::Gem => GemModel::default().into(),
            NetworkChoice::Unet => UNetModel::default().into(),
            NetworkChoice::Diffusion | NetworkChoice::DiffusionAll => {
                DiffusionModel { dropout: 0.0, ..DiffusionModel::default() }.into()
            }
            NetworkChoice::Surface => SurfaceModel::default().into(),
            NetworkChoice::Spiral => SpiralModel::default().into(),
            NetworkChoice::Feast => FeastModel::default().into(),
            NetworkChoice::Edge => EdgeModel::default().into(),
            NetworkChoice::Monet => MonetModel::default().into(),
            NetworkChoice::Geodesic => GeodesicModel::default().into(),
            NetworkChoice::Acnn => AcnnModel::default().into(),
            NetworkChoice::Zernike => ZernikeModel::default().into(),
        }
    }

    /// The augmentation of the training bodies.
    fn augmentation(self) -> Augmentation {
        let remeshed = matches!(self.augmented, Augmented::Remeshed | Augmented::Fully);
        let resampled = matches!(self.augmented, Augmented::Resampled | Augmented::Fully);
        Augmentation {
            versions: if remeshed { VERSIONS } else { 0 },
            resample: match resampled && self.network.is_on_surfaces() {
                true => SHARE,
                false => 0.0,
            },
            ..Default::default()
        }
    }

    /// The configuration: the recipe of the network with the augmentation of the row.
    pub fn config(self) -> RunConfig {
        let task = Task::Correspondence;
        let recipe = RunConfig::for_model(task, self.model());
        RunConfig {
            features: match self.network {
                NetworkChoice::DiffusionAll => SurfaceModel::default().recipe(task).features,
                _ => recipe.features,
            },
            augmentation: self.augmentation(),
            ..recipe
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.network.word())?;
        f.write_str(self.augmented.suffix())
    }
}

impl FromStr for Row {
    type Err = TaskError;

    /// The name of a network, followed by its augmentation.
    fn from_str(text: &str) -> Result<Self, TaskError> {
        let rows = NetworkChoice::ALL
            .into_iter()
            .flat_map(|network| Augmented::ALL.map(|augmented| Self { network, augmented }));
        let is_meant = |row: &Self| {
            let sensible = row.augmented != Augmented::Resampled || row.network.is_on_surfaces();
            sensible && row.to_string() == text
        };
        rows.into_iter().find(is_meant).ok_or_else(|| {
            let networks = NetworkChoice::ALL.map(NetworkChoice::word).join(", ");
            let problem = format!(
                "`{text}` is not one of {networks}, alone or with `+`, `+remeshed` or, for networks on surfaces, `+resampled`"
            );
            TaskError::setting("row", problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_and_distinct() {
        let rows = Row::all();
        assert_eq!(rows.len(), 15);
        for row in rows {
            assert_eq!(row.to_string().parse::<Row>().unwrap(), row);
        }
        for name in ["surface+resampled", "diffusion-all+remeshed", "gem+remeshed"] {
            assert_eq!(name.parse::<Row>().unwrap().to_string(), name);
        }
        assert!("gem+resampled".parse::<Row>().is_err());
        assert!("gem++".parse::<Row>().is_err());
        assert!("+".parse::<Row>().is_err());
    }
}
