//! The rows of the table: networks and their input features.

use gemcnn_tasks::features::{Matrix, Reltan, Shot, Xyz};
use gemcnn_tasks::models::{AngularModel, AttentionModel, GemModel, GraphModel, HermesModel};
use gemcnn_tasks::{FeatureConfig, ModelConfig, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A network with its input features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Isotropic convolutions on positions.
    GraphXyz,
    /// Isotropic convolutions on SHOT descriptors.
    GraphShot,
    /// Convolutions in SHOT frames on positions.
    AngularXyz,
    /// Convolutions in SHOT frames on SHOT descriptors.
    AngularShot,
    /// The paper's network on positions.
    Gem,
    /// The paper's network on positions, with its last features read as scalars.
    GemBroken,
    /// The paper's network on matrix features. Not in the paper.
    GemMatrix,
    /// The paper's network on relative tangential features. Not in the paper.
    GemReltan,
    /// Attention over neighbours on positions. Not in the paper.
    Attention,
    /// Nonlinear messages on positions. Not in the paper.
    Hermes,
}

/// An accuracy that the paper reports, in percent, with its standard error over three runs on FAUST.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PaperResult {
    /// Mean accuracy.
    pub accuracy: f64,
    /// Standard error of the mean.
    pub standard_error: f64,
}

impl Row {
    /// All rows, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::GraphXyz,
        Self::GraphShot,
        Self::AngularXyz,
        Self::AngularShot,
        Self::Gem,
        Self::GemBroken,
        Self::GemMatrix,
        Self::GemReltan,
        Self::Attention,
        Self::Hermes,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::GraphXyz => "graph-xyz",
            Self::GraphShot => "graph-shot",
            Self::AngularXyz => "angular-xyz",
            Self::AngularShot => "angular-shot",
            Self::Gem => "gem",
            Self::GemBroken => "gem-broken",
            Self::GemMatrix => "gem-matrix",
            Self::GemReltan => "gem-reltan",
            Self::Attention => "attention",
            Self::Hermes => "hermes",
        }
    }

    /// Name of the network, as in the paper if it is there.
    pub fn network_name(self) -> &'static str {
        match self {
            Self::GraphXyz | Self::GraphShot => "Graph CNN",
            Self::AngularXyz | Self::AngularShot => "Non-equivariant CNN (SHOT frames)",
            Self::Gem | Self::GemMatrix | Self::GemReltan => "GEM-CNN",
            Self::GemBroken => "GEM-CNN (broken symmetry)",
            Self::Attention => "Attention (EMAN)",
            Self::Hermes => "Messages (Hermes)",
        }
    }

    /// Name of the input features.
    pub fn features_name(self) -> &'static str {
        match self {
            Self::GraphXyz
            | Self::AngularXyz
            | Self::Gem
            | Self::GemBroken
            | Self::Attention
            | Self::Hermes => "XYZ",
            Self::GraphShot | Self::AngularShot => "SHOT",
            Self::GemMatrix => "matrix",
            Self::GemReltan => "RelTan",
        }
    }

    /// The input features.
    pub fn features(self) -> FeatureConfig {
        match self {
            Self::GraphXyz
            | Self::AngularXyz
            | Self::Gem
            | Self::GemBroken
            | Self::Attention
            | Self::Hermes => Xyz::default().into(),
            Self::GraphShot | Self::AngularShot => Shot::default().into(),
            Self::GemMatrix => Matrix::default().into(),
            Self::GemReltan => Reltan::default().into(),
        }
    }

    /// The network.
    pub fn model(self) -> ModelConfig {
        match self {
            Self::GraphXyz | Self::GraphShot => GraphModel::default().into(),
            Self::AngularXyz | Self::AngularShot => AngularModel::default().into(),
            Self::Gem | Self::GemMatrix | Self::GemReltan => GemModel::default().into(),
            Self::GemBroken => GemModel {
                broken_symmetry: true,
                ..GemModel::default()
            }
            .into(),
            Self::Attention => AttentionModel::default().into(),
            Self::Hermes => HermesModel::default().into(),
        }
    }

    /// The accuracy that the paper reports on FAUST, in its table of shape correspondence.
    pub fn paper(self) -> Option<PaperResult> {
        let (accuracy, standard_error) = match self {
            Self::GraphXyz => (1.40, 0.5),
            Self::GraphShot => (23.80, 8.0),
            Self::AngularXyz => (73.00, 4.0),
            Self::AngularShot => (75.11, 2.4),
            Self::Gem => (99.73, 0.04),
            Self::GemBroken => (99.89, 0.02),
            Self::GemMatrix | Self::GemReltan | Self::Attention | Self::Hermes => return None,
        };
        Some(PaperResult {
            accuracy,
            standard_error,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Row {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        let named = |row: &Self| row.word() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            TaskError::setting("row", format!("`{text}` is not one of {all}"))
        })
    }
}
