//! The rows of the table: networks and what they see.

use gemcnn_tasks::models::{AngularModel, GemModel, GraphModel};
use gemcnn_tasks::{FeatureConfig, FeatureKind, ModelConfig, TaskError};
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
    /// The same, its last features read as scalars.
    GemBroken,
    /// The paper's network on matrix features. Not in the paper.
    GemMatrix,
    /// The paper's network on relative tangential features. Not in the paper.
    GemReltan,
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
    /// All of them, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::GraphXyz,
        Self::GraphShot,
        Self::AngularXyz,
        Self::AngularShot,
        Self::Gem,
        Self::GemBroken,
        Self::GemMatrix,
        Self::GemReltan,
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
        }
    }

    /// What the paper calls the network.
    pub fn network_name(self) -> &'static str {
        match self {
            Self::GraphXyz | Self::GraphShot => "Graph CNN",
            Self::AngularXyz | Self::AngularShot => "Non-equivariant CNN (SHOT frames)",
            Self::Gem | Self::GemMatrix | Self::GemReltan => "GEM-CNN",
            Self::GemBroken => "GEM-CNN (broken symmetry)",
        }
    }

    /// What the features are called.
    pub fn features_name(self) -> &'static str {
        match self.feature_kind() {
            FeatureKind::Xyz => "XYZ",
            FeatureKind::Shot => "SHOT",
            FeatureKind::Matrix => "matrix",
            FeatureKind::Reltan => "RelTan",
        }
    }

    /// Network and features.
    pub fn title(self) -> String {
        format!("{}, {}", self.network_name(), self.features_name())
    }

    fn feature_kind(self) -> FeatureKind {
        match self {
            Self::GraphXyz | Self::AngularXyz | Self::Gem | Self::GemBroken => FeatureKind::Xyz,
            Self::GraphShot | Self::AngularShot => FeatureKind::Shot,
            Self::GemMatrix => FeatureKind::Matrix,
            Self::GemReltan => FeatureKind::Reltan,
        }
    }

    /// What the network sees.
    pub fn features(self) -> FeatureConfig {
        FeatureConfig::new(self.feature_kind())
    }

    /// The network.
    pub fn model(self) -> ModelConfig {
        match self {
            Self::GraphXyz | Self::GraphShot => ModelConfig::Graph(GraphModel::default()),
            Self::AngularXyz | Self::AngularShot => ModelConfig::Angular(AngularModel::default()),
            Self::Gem | Self::GemMatrix | Self::GemReltan => ModelConfig::Gem(GemModel::default()),
            Self::GemBroken => ModelConfig::Gem(GemModel {
                broken_symmetry: true,
                ..Default::default()
            }),
        }
    }

    /// What the paper reports, on FAUST (its table of shape correspondence).
    pub fn paper(self) -> Option<PaperResult> {
        let (accuracy, standard_error) = match self {
            Self::GraphXyz => (1.40, 0.5),
            Self::GraphShot => (23.80, 8.0),
            Self::AngularXyz => (73.00, 4.0),
            Self::AngularShot => (75.11, 2.4),
            Self::Gem => (99.73, 0.04),
            Self::GemBroken => (99.89, 0.02),
            Self::GemMatrix | Self::GemReltan => return None,
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
